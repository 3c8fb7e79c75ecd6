"""From texts to tensors, for causal and encoder-decoder models: source, then a target that may quote keys.

Legend: D positions within keys with a choice, A allowed tokens of these positions together.

Under the ``allowed`` loss, the tokens allowed at a position within a key (and at its closing) are those
that the decoder allows there, and the position leaves the loss over the vocabulary. Keys that were quoted
before in the same target stay allowed, though the decoder would bar them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from grls.index.keys import KeyIndex
from grls.index.rows import Ints
from grls.train.core.examples import Example
from grls.train.core.module import Batch, DecisionTensors, Labels, pairs


class Constraint(NamedTuple):
    """The keys that may be quoted, and the first token of the closing marker."""

    keys: KeyIndex
    closing: int


@dataclass(frozen=True)
class TextCollator:
    """Pads examples into a batch; without ``constraint`` for the full loss.

    ``start_token``: first token of the decoder; None for a causal model.
    """

    pad_token: int
    start_token: int | None
    constraint: Constraint | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        sources, targets = [e.source for e in examples], [e.target for e in examples]
        read, states = pairs(sources, [t[:-1] for t in targets], self.pad_token, self.start_token)
        tokens = dict(
            zip((s for row in states for s in row), (t for row in targets for t in row), strict=True)
        )
        decisions = None
        if self.constraint is not None:
            quotes = [
                (row[first], example.target[first:last])
                for row, example in zip(states, examples, strict=True)
                for first, last in example.spans
            ]
            decisions = allowed_in_quotes(self.constraint, quotes)
            for first, key in quotes:  # with the closing
                for state in range(first, first + len(key) + 1):
                    del tokens[state]
        labels = Labels(torch.tensor([*tokens]), torch.tensor([*tokens.values()]), torch.ones(len(tokens)))
        count = len(tokens) + (0 if decisions is None else len(decisions.states))
        return Batch(read, labels, decisions, len(examples), count)


def allowed_in_quotes(constraint: Constraint, quotes: Sequence[tuple[int, Sequence[int]]]) -> DecisionTensors:
    """The allowed tokens at every position of quotes with more than one.

    ``quotes``: the state before each quote, and its tokens.
    """
    index, closing = constraint
    states = np.tile(index.start(), (len(quotes), 1))
    starts = np.array([start for start, _ in quotes], dtype=np.int64)
    # -1 marks the closing, since the closing token may occur within keys as well.
    written = [[*key, -1] for _, key in quotes]
    live = np.arange(len(quotes))
    empty = np.empty(0, dtype=np.int64)
    # Of the positions with a choice: tokens, their number, state of the model, index of the target.
    parts: list[tuple[Ints, Ints, Ints, Ints]] = [(empty, empty, empty, empty)]
    step = 0
    while len(live):
        following, closes = index.follow(states[live]), np.flatnonzero(index.closes(states[live]))
        owner = np.repeat(np.arange(len(live)), np.diff(following.offsets))
        ends = following.offsets[closes + 1]  # where a key may close
        tokens, owner = np.insert(following.tokens, ends, -1), np.insert(owner, ends, closes)
        after = np.insert(following.states, ends, -1, axis=0)
        wanted = np.array([written[n][step] for n in live.tolist()])
        entries = np.flatnonzero(tokens == wanted[owner])
        if not np.array_equal(owner[entries], np.arange(len(live))):
            raise ValueError("a quote in a target is no key of the index")
        counts = np.bincount(owner, minlength=len(entries))
        several = counts > 1
        target = entries - (np.cumsum(counts) - counts)
        written_as = np.where(tokens < 0, closing, tokens)
        positions = starts[live] + step
        parts.append((written_as[several[owner]], counts[several], positions[several], target[several]))
        states[live] = after[entries]
        live, step = live[wanted >= 0], step + 1
    allowed, sizes, positions, targets = (np.concatenate(column) for column in zip(*parts, strict=True))
    right = np.zeros(len(allowed))
    right[np.cumsum(sizes) - sizes + targets] = 1.0
    return DecisionTensors(
        torch.from_numpy(positions),
        torch.ones(len(sizes)),
        torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)),
        torch.from_numpy(allowed),
        torch.from_numpy(right).float(),
        torch.zeros(len(allowed)),
    )
