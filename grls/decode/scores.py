"""From logits to log-probabilities, over ragged allowed sets.

Legend: R rows (beams), A allowed tokens of all rows together.

There are two score modes. ``renormalized``: the softmax over the allowed tokens, so the probabilities of the
passages of a corpus sum to one, and a forced token has probability one. ``full``: the softmax over the
vocabulary, as in transformers and in the paper (arXiv 2204.13596).
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from grls.data.types import ScoreMode as ScoreMode
from grls.errors import NOT_NUMBERS, ConfigError, one_of
from grls.index.rows import Ints
from grls.models.base import Floats, StepRows


def check_mode(mode: str) -> None:
    """Refuse an unknown score mode.

    Raises:
        ConfigError: The mode is neither ``renormalized`` nor ``full``.
    """
    one_of(get_args(ScoreMode), "search.", mode=mode)


def log_probabilities(
    session: StepRows, tokens: Ints, offsets: Ints, mode: ScoreMode
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Log-probability (nats) of every allowed token, ``[A]``.

    Args:
        session: R rows, each about to write a token.
        tokens: ``[A]`` allowed tokens.
        offsets: ``[R + 1]``; row r owns the tokens ``offsets[r]:offsets[r + 1]``.
        mode: Score mode.

    Raises:
        ConfigError: A logit is not a number.
    """
    sizes = np.diff(offsets)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    logits = session.logits(rows, tokens).astype(np.float64)
    refuse_nan(logits)
    normalizer = session.log_normalizer() if mode == "full" else ragged_logsumexp(logits, offsets)
    refuse_nan(normalizer)
    return logits - normalizer[rows]


def refuse_nan(logits: Floats) -> None:
    """Refuse logits that are not numbers.

    Raises:
        ConfigError: A logit is NaN.
    """
    if np.isnan(logits).any():
        raise ConfigError(NOT_NUMBERS)


def ragged_logsumexp(values: Floats, offsets: Ints) -> Floats:
    """Log of the sum of exponentials of each segment, ``[R]``.

    It is minus infinity for an empty segment, and for a segment of minus infinities only.
    """
    result = np.full(len(offsets) - 1, -np.inf)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        starts = offsets[filled]
        top = np.maximum.reduceat(values, starts)
        sizes = np.diff(offsets)[filled]
        finite = top > -np.inf
        shift = np.repeat(np.where(finite, top, 0.0), sizes)
        sums = np.add.reduceat(np.exp(values - shift), starts)
        result[filled[finite]] = top[finite] + np.log(sums[finite])
    return result
