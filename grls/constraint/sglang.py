"""A logit processor for SGLang.

    python -m sglang.launch_server --model-path MODEL --enable-custom-logit-processor \\
        --disable-overlap-schedule

A request sends ``custom_logit_processor=SglangProcessor.to_str()`` and names its index in its sampling
parameters: ``custom_params={"grls_index": FOLDER}``. The environment variable ``GRLS_INDEX`` names that of
all other requests. With overlapping schedules SGLang shows a processor the tokens of a request a step late.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
from torch import Tensor

from grls.constraint import constrain, named_index
from grls.errors import ConfigError


class SglangProcessor(CustomLogitProcessor):
    """Lets each request of a batch write only passages of the index that it names.

    Raises:
        ConfigError: A request names no index, or SGLang does not say what it has written.
        IndexFormatError: The folder is no index.
    """

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> Tensor:
        """Constrain logits ``[requests, V]`` in place."""
        arguments = custom_param_list or []
        if len(arguments) != len(logits) or not all(one and "__req__" in one for one in arguments):
            raise ConfigError(
                f"SGLang gives {len(logits)} rows and says of {len(arguments)} requests what they are: where "
                "a prompt ends is not known. Use a version that gives `__req__`, and no speculative decoding."
            )
        named = [(row, named_index(one), one["__req__"]) for row, one in enumerate(arguments)]
        return constrain(logits, {row: (c, request.output_ids) for row, c, request in named if c is not None})
