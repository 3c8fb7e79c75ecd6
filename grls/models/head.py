"""Logits of chosen tokens without the whole vocabulary.

Legend: R rows, d model width, V vocabulary, A (row, token) pairs, U distinct tokens among them.

A model's output head maps ``[R, d]`` to ``[R, V]``: at V = 32,000 the dearest step of a small model's
decoding, though a constraint allows a handful of tokens. What reaches the head is caught, and the
products are taken for the wanted pairs alone. Whether a model's logits really are ``W h + b`` is not
assumed but tried once on the model itself; where they are not, the whole logits are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Cut = Callable[[Tensor], Tensor]

_DENSE_GAIN = 4
"""Pairs a distinct token, above which one matrix product beats gathering a weight row for each pair."""


class Head:
    """The output head of a model: catches its input, and gives logits from it.

    Args:
        model: A transformers model with output embeddings.
    """

    def __init__(self, model: Any):
        self.module: nn.Linear = model.get_output_embeddings()
        self._model = model
        self.linear = isinstance(self.module, nn.Linear)

    @property
    def _final_bias(self) -> Tensor | None:
        """BART's bias, read when it is used: a buffer is replaced when the model moves."""
        bias: Tensor | None = getattr(self._model, "final_logits_bias", None)
        return bias

    @contextmanager
    def catch(self) -> Iterator[list[Tensor]]:
        """Within the block the head stores what reaches it and returns one zero column."""
        caught: list[Tensor] = []

        def store(hidden: Tensor) -> Tensor:
            caught.append(hidden)
            return hidden.new_zeros((*hidden.shape[:-1], 1))

        own = self.module.__dict__.get("forward")  # accelerate puts its hooks there
        self.module.forward = store  # type: ignore[method-assign, assignment]
        try:
            yield caught
        finally:
            del self.module.forward
            if own is not None:
                self.module.forward = own  # type: ignore[method-assign]

    def all(self, hidden: Tensor) -> Tensor:
        """All logits, ``[R, V]``, from hidden states ``[R, d]`` (or from whole logits)."""
        if not self.linear:
            return hidden.float()
        logits: Tensor = self.module(hidden).float()
        return logits if self._final_bias is None else logits + self._final_bias.float()

    def some(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Logits ``[R, U]`` in float32 of the same U tokens for every row of ``hidden [R, d]``."""
        if not self.linear:
            return hidden[:, tokens].float()
        logits = (hidden @ self.module.weight[tokens].T).float()
        return logits + self._bias(tokens)

    def cut(self, tokens: Tensor) -> Cut:
        """The part of the head that gives the logits of some tokens, ``[R, d]`` to ``[R, U]`` in float32."""
        if not self.linear:
            return lambda hidden: self.some(hidden, tokens)
        weight, bias = self.module.weight[tokens].T.contiguous(), self._bias(tokens)
        return lambda hidden: (hidden @ weight).float() + bias

    def _bias(self, tokens: Tensor) -> Tensor | float:
        """What is added to the logits of ``tokens``."""
        bias: Tensor | float = 0.0
        if self.module.bias is not None:
            bias = self.module.bias[tokens].float()
        return bias if self._final_bias is None else bias + self._final_bias[0, tokens].float()

    def pairs(self, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """Logits ``[A]`` in float32 for pairs of row and token.

        Args:
            hidden: ``[R, d]``, or whole logits ``[R, V]`` where the head is not linear.
            rows: ``[A]``.
            tokens: ``[A]``.
        """
        if not self.linear:
            return hidden[rows, tokens].float()
        seen = torch.zeros(self.module.out_features, dtype=torch.long, device=tokens.device)
        seen[tokens] = 1
        distinct = seen.nonzero().squeeze(1)
        if len(tokens) > _DENSE_GAIN * len(distinct):
            place = seen.cumsum(0) - 1
            logits = (hidden @ self.module.weight[distinct].T)[rows, place[tokens]].float()
        else:
            logits = torch.linalg.vecdot(hidden[rows], self.module.weight[tokens]).float()
        return logits + self._bias(tokens)


@torch.no_grad()
def logits_are_linear(model: Any, head: Head) -> bool:
    """Try on a small input whether a model's logits are its head applied to what reaches it."""
    training = model.training
    tokens = torch.tensor([[3, 4, 5]], device=model.device)
    arguments = {"input_ids": tokens, "use_cache": False}
    if model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = tokens
    model.eval()
    try:
        expected = model(**arguments).logits.float()
        with head.catch() as caught:
            model(**arguments)
        found = head.all(caught[0])
    finally:
        model.train(training)
    tolerance = max(1e-3, 2 * torch.finfo(caught[0].dtype).eps)  # both sides are rounded alike
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=tolerance, atol=tolerance)
