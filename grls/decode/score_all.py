"""The probability of every passage given one input, by walking the whole index once.

Legend: R rows, S live states, A candidates.

What :mod:`grls.decode.exhaustive` does passage by passage, for corpora that are not small: prefixes are
walked side by side, a token at a time, each once for a block of rows, and a prefix with one row left is
settled, for under ``renormalized`` scores the rest of it has probability one. A corpus of a
million passages is still a million prefixes: this is for what is asked once (an empty prompt), not once a
query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grls.decode.scores import log_probabilities
from grls.index import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats, Generator

BLOCK = 512
"""Rows walked side by side: as many beams at most."""


def score_rows(
    generator: Generator, index: ConstraintIndex, model_input: Sequence[int], block: int = BLOCK
) -> Floats:
    """``[R]`` log-probability (nats, ``renormalized``) of every row of an index, given one input.

    Args:
        generator: The model.
        index: What may be written; passages with equal tokens are one row.
        model_input: Token ids.
        block: Rows walked side by side.
    """
    scores = np.zeros(len(index.rows))
    for low in range(0, len(scores), block):
        _walk(generator, index, model_input, low, min(low + block, len(scores)), scores)
    return scores


def _walk(
    generator: Generator,
    index: ConstraintIndex,
    model_input: Sequence[int],
    low: int,
    high: int,
    into: Floats,
) -> None:
    """Write the scores of the rows ``low:high`` into ``into``."""
    states: Ints = np.array([index.start()])
    before = np.zeros(1)
    first, last = index.span(states)
    if last[0] - first[0] == 1:
        return
    session = generator.open([model_input])
    session.first()
    while True:
        allowed = index.allowed(states)
        parents = np.repeat(np.arange(len(states)), np.diff(allowed.offsets))
        scores = before[parents] + log_probabilities(session, allowed.tokens, allowed.offsets, "renormalized")
        first, last = index.span(allowed.states)
        inside = (first < high) & (last > low)
        single = last - first == 1
        into[first[inside & single]] = scores[inside & single]
        live = np.flatnonzero(inside & ~single)
        if not len(live):
            return
        session.step(parents[live], allowed.tokens[live])
        states, before = allowed.states[live], scores[live]
