"""From interlaced examples to tensors, for causal and encoder-decoder models.

Legend: b examples of a batch, s longest input, t longest row of labels, P positions within keys with a
choice, A allowed tokens of these positions together.

A causal model reads the target behind the prompt, and a label stands where it is predicted: one place before
its token. Prompt and padding have no label.

Under the ``allowed`` loss a position within a key, the one where it is closed among them, has for its choices
what the decoder would let it write there, and its label is taken out of the loss over the vocabulary. Keys
that have been quoted before in the same target count as allowed, though the decoder would bar them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.index.keys import KeyIndex
from grls.index.rows import Ints
from grls.train.core.collate import IGNORED, Batch, Choices, pad
from grls.train.core.examples import Example


class Constraint(NamedTuple):
    """What may be written within a key.

    Attributes:
        keys: What may be quoted.
        closing: The first token of the closing marker.
    """

    keys: KeyIndex
    closing: int


class InterlacedCollator:
    """Pads examples into a batch.

    Args:
        pad_token: Padding.
        start_token: What the decoder begins with; None for a causal model.
        constraint: For the ``allowed`` loss; None for the full one.
    """

    def __init__(self, pad_token: int, start_token: int | None, constraint: Constraint | None = None):
        self.pad_token = pad_token
        self.start_token = start_token
        self.constraint = constraint

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """Make one batch."""
        start = self.start_token
        before = [len(example.source) - 1 if start is None else 0 for example in examples]
        read = [[*e.source, *e.target[:-1]] if start is None else e.source for e in examples]
        inputs, mask = pad(read, self.pad_token)
        labels, _ = pad([[IGNORED] * n + e.target for n, e in zip(before, examples, strict=True)], IGNORED)
        behind = None
        if start is not None:
            behind, _ = pad([[start, *e.target[:-1]] for e in examples], self.pad_token)
        choices = None if self.constraint is None else self._choices(examples, before, labels)
        return Batch(inputs, mask, behind, labels, choices)

    def _choices(self, examples: Sequence[Example], before: Sequence[int], labels: Tensor) -> Choices:
        """The choices within keys; takes their labels away."""
        assert self.constraint is not None
        found = [
            (row * labels.shape[1] + before[row] + first, example.target[first:last])
            for row, example in enumerate(examples)
            for first, last in example.spans
        ]
        flat = labels.view(-1)
        for place, key in found:
            flat[place : place + len(key) + 1] = IGNORED
        return allowed_in_quotes(self.constraint, found)


def allowed_in_quotes(constraint: Constraint, quotes: Sequence[tuple[int, Sequence[int]]]) -> Choices:
    """What may follow at every position of some quotes.

    Args:
        constraint: The keys.
        quotes: Of each its place in the flattened labels, and its tokens.

    Returns:
        The positions with more than one token allowed; ``first`` is empty.

    Raises:
        ValueError: A quote is none: it leaves the index, or ends where no key does.
    """
    index, closing = constraint
    states = np.tile(index.start(), (len(quotes), 1))
    starts = np.array([place for place, _ in quotes], dtype=np.int64)
    # What is to be written, and -1 for closing: the closing token may occur within keys, too.
    written = [[*key, -1] for _, key in quotes]
    live = np.arange(len(quotes))
    parts: list[tuple[Ints, Ints, Ints, Ints]] = []
    step = 0
    while len(live):
        tokens, after, owner = _allowed(index, states[live])
        wanted = np.array([written[n][step] for n in live.tolist()])
        at = np.flatnonzero(tokens == wanted[owner])
        if not np.array_equal(owner[at], np.arange(len(live))):
            raise ValueError("a quote in a target is no key of the index")
        parts += _open(np.where(tokens < 0, closing, tokens), owner, at, starts[live] + step)
        states[live] = after[at]
        live, step = live[wanted >= 0], step + 1
    return _joined(parts)


def _allowed(index: KeyIndex, states: Ints) -> tuple[Ints, Ints, Ints]:
    """What may follow each state: tokens (-1 closes a key), the states they lead to, and whose they are."""
    following = index.follow(states)
    owner = np.repeat(np.arange(len(states)), np.diff(following.offsets))
    closes = np.flatnonzero(index.closes(states))
    ends = following.offsets[closes + 1]
    return (
        np.insert(following.tokens, ends, -1),
        np.insert(following.states, ends, -1, axis=0),
        np.insert(owner, ends, closes),
    )


def _open(tokens: Ints, owner: Ints, at: Ints, places: Ints) -> list[tuple[Ints, Ints, Ints, Ints]]:
    """Of the positions with a choice: tokens, how many each has, places, which of them is the target."""
    counts = np.bincount(owner, minlength=len(at))
    starts = np.cumsum(counts) - counts
    several = counts > 1
    return [(tokens[several[owner]], counts[several], places[several], (at - starts)[several])]


def _joined(parts: Sequence[tuple[Ints, Ints, Ints, Ints]]) -> Choices:
    empty = np.empty(0, dtype=np.int64)
    tokens, counts, places, targets = (
        np.concatenate([empty, *some]) for some in (zip(*parts, strict=True) if parts else ([],) * 4)
    )
    starts = np.cumsum(counts) - counts
    arrays = (empty, tokens, np.repeat(np.arange(len(counts)), counts), places, starts + targets)
    return Choices(*(torch.from_numpy(some) for some in arrays))
