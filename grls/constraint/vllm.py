"""A logits processor for vLLM's V1 model runner.

    VLLM_USE_V2_MODEL_RUNNER=0 vllm serve MODEL --logits-processors grls.constraint.vllm:VllmProcessor

A request names its index: ``SamplingParams(extra_args={"grls_index": FOLDER})``, over HTTP ``vllm_xargs``.
The environment variable ``GRLS_INDEX`` names that of all other requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from grls.constraint import PassageConstraint, constrain, named_index
from grls.errors import GrlsError


class VllmProcessor(LogitsProcessor):
    """Lets each request of a batch write only passages of the index that it names."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool):
        self._requests: dict[int, tuple[PassageConstraint, Sequence[int]]] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse (ValueError, as vLLM asks for) a request without an index, or whose folder is none."""
        try:
            named_index(sampling_params.extra_args)
        except GrlsError as error:
            raise ValueError(str(error)) from error

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow requests that leave, enter and move, in the order that vLLM asks for."""
        if batch_update is None:
            return
        requests = self._requests
        for row in batch_update.removed:
            requests.pop(row, None)
        for row, params, _, written in batch_update.added:  # vLLM goes on writing into this list
            requests.pop(row, None)
            if (constraint := named_index(params.extra_args)) is not None:
                requests[row] = constraint, written
        for source, target, direction in batch_update.moved:
            moved, replaced = requests.pop(source, None), requests.pop(target, None)
            if moved is not None:
                requests[target] = moved
            if replaced is not None and direction == MoveDirectionality.SWAP:
                requests[source] = replaced

    def apply(self, logits: Tensor) -> Tensor:
        return constrain(logits, self._requests)
