"""What a generator reads, as tensors, and what it should write there.

Legend: b inputs, s longest input, t longest target, N states of the model that a batch has, L labels, D
decisions, A allowed tokens of all decisions together.

A state of the model is the input of its head at one token that it reads. There it predicts the next token:
one of the vocabulary (a label), or one of those that an index allows (a decision).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Labels(NamedTuple):
    """Tokens to predict among all of the vocabulary.

    Attributes:
        states: ``[L]`` index of the model's state that predicts each token.
        tokens: ``[L]``.
        weights: ``[L]`` weight in the loss.
    """

    states: Tensor
    tokens: Tensor
    weights: Tensor


class DecisionTensors(NamedTuple):
    """Distributions to predict over allowed tokens.

    Attributes:
        states: ``[D]`` index of the model's state at each decision.
        weights: ``[D]`` weight in the loss.
        owners: ``[A]`` the decision of each allowed token, ascending.
        tokens: ``[A]`` allowed tokens.
        probabilities: ``[A]`` target probabilities.
        gains: ``[A]`` gain of a prior, added to the score of each allowed token (nats).
    """

    states: Tensor
    weights: Tensor
    owners: Tensor
    tokens: Tensor
    probabilities: Tensor
    gains: Tensor


class Pairs(NamedTuple):
    """Inputs with the tokens that are written after each, padded.

    Attributes:
        input_ids: ``[b, s]``; of a causal model with what is written.
        attention_mask: ``[b, s]``.
        decoder_input_ids: ``[b, t]``; None for a causal model.
    """

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor | None


class Batch(NamedTuple):
    """A batch of training examples.

    Attributes:
        read: What the model reads: :class:`Pairs`, or a form of its own that its module reads.
        labels: For losses over the vocabulary; None: there are none.
        decisions: For losses over allowed tokens; None: there are none.
        size: Number of examples (of chains: of hops).
        divisor: What the sum of losses is divided by.
        rescored: Passages that a generator learns to rescore.
        ranked: Candidates that a generator learns to order.
    """

    read: Any
    labels: Labels | None
    decisions: DecisionTensors | None
    size: int
    divisor: float
    rescored: Any = None
    ranked: Any = None


def pad(rows: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    """Padded rows and the mask that is 1 where they are not padding, ``[b, width]`` each."""
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), value, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return ids, mask


def pairs(
    sources: Sequence[Sequence[int]],
    written: Sequence[Sequence[int]],
    pad_token: int,
    start_token: int | None,
) -> tuple[Pairs, list[range]]:
    """Each source with what is written after it, and the states before and after each written token.

    ``start_token``: first token of the decoder; None for a causal model, which reads on after the source.
    """
    if start_token is None:
        rows = [[*source, *tokens] for source, tokens in zip(sources, written, strict=True)]
        ids, mask = pad(rows, pad_token)
        first, width, decoder = [len(source) - 1 for source in sources], ids.shape[1], None
    else:
        ids, mask = pad(sources, pad_token)
        decoder, _ = pad([[start_token, *tokens] for tokens in written], pad_token)
        first, width = [0] * len(sources), decoder.shape[1]
    begins = [row * width + offset for row, offset in enumerate(first)]
    states = [range(begin, begin + len(tokens) + 1) for begin, tokens in zip(begins, written, strict=True)]
    return Pairs(ids, mask, decoder), states
