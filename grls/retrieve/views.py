"""From views to passages, and back: what surrounds the search of a generator that writes views.

Legend: N passages, V views, n queries that are asked together.

A passage is as likely as all of its views together. Few of them are in the beam, and the likeliest is often
that of a common phrase, so agreement of several views says more than the sum of their probabilities: with
p(v) the probability of view v and T the temperature, a passage x has

    score(x) = log of the sum over found views v of x of p(v)^(1/T)
               - log of the same sum over everything that was found,

a log-probability among what was found, and for T = 1 without the second term: the probability itself, as far
as the beam knows it. T is the inverse of an exponent as that of arXiv 2204.10628, section 3.2, there of the
weights of n-grams. Several passages may share a view; each then has it. The module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grls.decode import Found
from grls.decode.prior import Fixed, LogWeights, Prior
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.views import Views


def pooled(found: Sequence[Found], views: Views, temperature: float, k: int) -> list[Found]:
    """The k best passages of some views, best first.

    Args:
        found: Views and their scores (nats), at least one of each passage; DONE is a view of its own.
        views: Whose.
        temperature: T.
        k: Most passages.
    """
    if not found:
        return []
    owners = views.owners[[some.passage for some in found]]
    scores = np.array([some.score for some in found]) / temperature
    passages, place = np.unique(owners, return_inverse=True)
    sums = np.full(len(passages), -np.inf)
    np.logaddexp.at(sums, place, scores)
    if temperature != 1:
        sums -= np.logaddexp.reduce(scores)
    order = np.argsort(-sums, kind="stable")[:k]
    return [Found(int(passages[n]), float(sums[n])) for n in order]


def spread(prior: Prior, views: Views) -> Prior:
    """A prior over passages as one over views: each passage's share is spread evenly over its views."""
    parts = []
    for part in prior.parts:
        fixed = part.fixed
        if fixed is not None:
            fixed = Fixed(int(views.of([fixed.passage])[0]), fixed.log_probability)
        parts.append(replace(part, log_weights=_OfViews(part.log_weights, views), fixed=fixed))
    return replace(prior, parts=tuple(parts))


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
