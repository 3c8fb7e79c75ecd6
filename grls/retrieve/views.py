"""From views to passages, and back: what surrounds the search of a generator that writes views.

Legend: N passages, V views, n queries that are asked together.

Several passages may share a view, and then are alike under it: with p(v) the probability of a view and m(v)
the number of passages that hold it, a passage has p(v) / m(v) of it, so that what stands in many passages
says little of any, and a passage is as likely as all of its views together. Few of them are in the beam,
though, and the likeliest is often that of a common phrase, so agreement of several views says more than the
sum of their probabilities. With T the temperature, a passage x has

    score(x) = log of the sum over found views v of x of (p(v) / m(v))^(1/T)
               - log of the same sum over all passages that were found,

a log-probability among what was found; for T = 1 without the second term, the probability itself as far as
the beam knows it. T is the inverse of an exponent as that of arXiv 2204.10628, section 3.2, there of the
weights of n-grams. DONE has one view, so its probability among what was found is that for T = 1, and the
passages share the rest. The module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grls.decode import Found
from grls.decode.prior import LEAST, Fixed, LogWeights, Prior
from grls.index.rows import Ints, SortedRows
from grls.models.base import Floats
from grls.views import Views

VIEWS_A_PASSAGE, WIDE_ENOUGH = 4, 100
"""The beam is at least so many times as wide as passages are asked for, since its places go to the views of
few; but no wider than this for that reason alone."""


def beams_for(k: int, beams: int) -> int:
    """How many views to search for where k passages are asked for."""
    return max(k, beams, min(VIEWS_A_PASSAGE * k, WIDE_ENOUGH))


def pooled(found: Sequence[Found], rows: Ints, views: Views, temperature: float, k: int) -> list[Found]:
    """The k best passages of some views, best first.

    Args:
        found: Views and their scores (nats), at least one of each passage; DONE is a view of its own.
        rows: ``[len(found)]`` the rows of the views in the index: views of one row are the same.
        views: Whose.
        temperature: T.
        k: Most passages.

    Returns:
        Passages and their scores (nats).
    """
    if not found:
        return []
    owners = views.owners[[some.passage for some in found]]
    scores = np.array([some.score for some in found]) + shares(rows, owners)
    passages, place = np.unique(owners, return_inverse=True)
    sums = _summed(scores / temperature, place, len(passages))
    if temperature != 1:
        sums -= np.logaddexp.reduce(sums)
        if passages[-1] == len(views.corpus):
            sums = _with_done(sums, _summed(scores, place, len(passages)))
    order = np.argsort(-sums, kind="stable")[:k]
    return [Found(int(passages[n]), float(sums[n])) for n in order]


def shares(rows: Ints, owners: Ints) -> Floats:
    """``[V]`` log of 1 / m of some views, all of each row; nothing of a view that its passage has twice.

    Args:
        rows: ``[V]`` their rows.
        owners: ``[V]`` their passages.
    """
    pairs, first = np.unique(np.stack((rows, owners)), axis=1, return_index=True)
    _, place, held = np.unique(pairs[0], return_inverse=True, return_counts=True)
    found: Floats = np.full(len(rows), -np.inf)
    found[first] = -np.log(held[place])
    return found


def _summed(scores: Floats, place: Ints, count: int) -> Floats:
    """``[count]`` logarithms of the sums of what stands at each place."""
    sums: Floats = np.full(count, -np.inf)
    np.logaddexp.at(sums, place, scores)
    return sums


def _with_done(sums: Floats, plain: Floats) -> Floats:
    """Log-probabilities of passages and, last, of DONE, which has what it has for T = 1."""
    done = plain[-1] - np.logaddexp.reduce(plain)
    if len(sums) == 1:
        return np.array([done])
    others = sums[:-1] - np.logaddexp.reduce(sums[:-1])
    left = np.logaddexp.reduce(plain[:-1]) - np.logaddexp.reduce(plain)
    return np.append(others + left, done)


def hidden_views(views: Views, rows: SortedRows, passages: Sequence[int]) -> list[int]:
    """The views that only these passages hold: others may still be found by the views that they share.

    Args:
        views: The views.
        rows: The rows of their index.
        passages: Numbers of passages; N stands for DONE.
    """
    numbers = views.of(passages)
    found, first, held = np.unique(
        np.asarray(rows.row_of)[numbers].astype(np.int64), return_index=True, return_counts=True
    )
    own = held == rows.members_before(found + 1) - rows.members_before(found)
    hidden: list[int] = numbers[first[own]].tolist()
    return hidden


def spread(prior: Prior, views: Views) -> Prior:
    """A prior over passages as one over views: each passage's share is spread evenly over its views.

    A view that several passages share has the mass of all of them; :func:`heard` tells them apart again.
    """
    parts = []
    for part in prior.parts:
        fixed = part.fixed
        if fixed is not None:
            fixed = Fixed(int(views.of([fixed.passage])[0]), fixed.log_probability)
        parts.append(replace(part, log_weights=_OfViews(part.log_weights, views), fixed=fixed))
    return replace(prior, parts=tuple(parts))


def heard(log_weights: Floats, numbers: Ints, views: Views, rows: SortedRows) -> Floats:
    """``[n]`` what a prior says of the passage of each view, less what the search has heard of it (nats).

    Of DONE, which is alone in its row, nothing.

    Args:
        log_weights: ``[N + 1]`` of passages and DONE. Those of views, ``[V + 1]``, are what the search heard.
        numbers: ``[n]`` views.
        views: All of them.
        rows: The rows of their index.
    """
    if len(log_weights) == len(views) + 1:
        return np.zeros(len(numbers))
    given = np.maximum(log_weights - log_weights[:-1].max(), LEAST)
    found, place = np.unique(np.asarray(rows.row_of)[numbers].astype(np.int64), return_inverse=True)
    members = [rows.members_in(row, row + 1) for row in found.tolist()]
    owners = views.owners[np.concatenate(members)]
    masses = given[owners] - np.log(np.append(np.diff(views.offsets), 1))[owners]
    counts = [len(some) for some in members]
    sums = np.logaddexp.reduceat(masses, np.cumsum([0, *counts[:-1]]))
    beyond: Floats = given[views.owners[numbers]] - sums[place]
    return beyond


@dataclass(frozen=True)
class _OfViews:
    """Log-weights of passages as those of their views; those of views stay what they are."""

    every: LogWeights
    views: Views

    def __call__(self, queries: Ints) -> Floats:
        """``[n, V + 1]``."""
        given = np.asarray(self.every(queries), dtype=np.float64)
        if given.shape[1] == len(self.views) + 1:
            return given
        shares = np.log(np.append(np.diff(self.views.offsets), 1))
        found: Floats = (given - shares)[:, self.views.owners]
        return found
