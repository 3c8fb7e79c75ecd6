"""From interlaced examples to tensors, for causal and encoder-decoder models.

Legend: b examples of a batch, s longest input, t longest row of labels, P positions within keys with a
choice, A allowed tokens of these positions together.

Under the ``allowed`` loss, the choices at a position within a key (and at its closing) are the tokens
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
from grls.train.core.collate import IGNORED, Batch, Choices, Collator
from grls.train.core.examples import Example


class Constraint(NamedTuple):
    """The keys that may be quoted, and the first token of the closing marker."""

    keys: KeyIndex
    closing: int


@dataclass(frozen=True)
class InterlacedCollator(Collator):
    """Pads examples into a batch; without ``constraint`` for the full loss."""

    constraint: Constraint | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        batch = super().__call__(examples)
        if self.constraint is None:
            return batch
        quotes = []  # the labels within keys are removed
        for row, example in enumerate(examples):
            before = row * batch.labels.shape[1] + (self.start_token is None) * (len(example.source) - 1)
            quotes += [(before + first, example.target[first:last]) for first, last in example.spans]
        for first, key in quotes:
            batch.labels.view(-1)[first : first + len(key) + 1] = IGNORED
        return batch._replace(choices=allowed_in_quotes(self.constraint, quotes))


def allowed_in_quotes(constraint: Constraint, quotes: Sequence[tuple[int, Sequence[int]]]) -> Choices:
    """The allowed tokens at every position of quotes with more than one; ``first`` is empty.

    ``quotes``: start in the flattened labels, and tokens, of each quote.
    """
    index, closing = constraint
    states = np.tile(index.start(), (len(quotes), 1))
    starts = np.array([start for start, _ in quotes], dtype=np.int64)
    # -1 marks the closing, since the closing token may occur within keys as well.
    written = [[*key, -1] for _, key in quotes]
    live = np.arange(len(quotes))
    empty = np.empty(0, dtype=np.int64)
    # Of the positions with a choice: tokens, their number, position in the labels, index of the target.
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
    owners = np.repeat(np.arange(len(sizes)), sizes)
    arrays = (empty, allowed, owners, positions, np.cumsum(sizes) - sizes + targets)
    return Choices(*(torch.from_numpy(array) for array in arrays))
