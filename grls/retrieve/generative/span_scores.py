"""From spans to passages, and back: what surrounds the search of a generator that writes spans.

Legend: N passages, V spans, R rows of the index, n queries that are asked together, C candidates of a query,
m of their spans.

A passage is written by any of its spans, so all of them say how likely it is. The search leaves off
somewhere, and knows the probability p(v) of every span from there (:mod:`grls.decode.frontier`): those that
it wrote to the end, and an even share of the prefix for the others; spans of one text share a row and its
probability, in equal parts among those that the query may find. With n(x) the number of spans of a passage x
and T the temperature, x has the power mean of exponent 1/T of the probabilities of its spans, n(x) times:

    score(x) = log sum over spans v of x of p(v)^(1/T)  -  (1 - 1/T) log n(x)  -  the same over candidates,

divided by T as it stands, and a log-probability among the candidates by the last term. For T = 1 it is the
log of the sum of the probabilities of its spans, and the last term is left out. That counts on the likeliest
span, often that of a common phrase; the larger T, the more it counts that several spans agree, whether the
beam has written them or not: many words that the query does not speak of are as telling as one that it
does. The second term takes the advantage from long passages: one whose spans are as likely as any others'
has n(x) p(v), whatever T. (SEAL, arXiv 2204.10628, section 3.2, adds up powers of the weights of n-grams that
the beam has found, and nothing of others.)

A prior speaks of passages. Its log-probability, times its weight, is added to p(v) of all spans of x alike.

DONE has one span, so its probability among the candidates is that for T = 1, and the passages share the rest.
The module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from grls.data.spans import Spans
from grls.decode import ScoredPassage
from grls.decode.frontier import Frontier
from grls.decode.prior import LEAST, Fixed, LogWeights, Prior, WeightedPrior
from grls.index.rows import Ints, SortedRows
from grls.index.subset import Subset
from grls.models.base import Floats

_ROWS, _ROWS_A_PASSAGE = 1000, 10
"""The passages of so many rows at least are ranked, those of the likeliest, and of so many for each that is
asked for."""

_OF_PRIORS = 100
"""And so many at least that priors hold for the best."""


class PassageScores(NamedTuple):
    """What is known of the candidates of a query, DONE among them as the last one.

    Attributes:
        passages: ``[C]`` their numbers, ascending.
        plain: ``[C]`` log-probability of each (nats): T = 1.
        mean: ``[C]`` log of the power mean for T, times n, over T.
        said: ``[C]`` what priors add, times their weights (nats).
    """

    passages: Ints
    plain: Floats
    mean: Floats
    said: Floats

    def beside(self, said: Floats) -> Self:
        """The same with what priors say."""
        return self._replace(said=self.said + said)


class Reach:
    """What a query may find.

    Args:
        spans: All spans.
        rows: The rows of their index.
        gone: Numbers of passages (N: DONE) that it may not find.
        subset: The spans that it may find; None: all.
    """

    def __init__(self, spans: Spans, rows: SortedRows, gone: Sequence[int], subset: Subset | None):
        self.spans = spans
        self.rows = rows
        self._gone = np.asarray(gone, dtype=np.int64)
        self._subset = subset

    def among(self, passages: Ints) -> Ints:
        """Those of some passages that it may find (ascending, none twice)."""
        left = np.setdiff1d(passages, self._gone, assume_unique=True)
        if self._subset is None:
            return left
        first = np.append(self.spans.offsets, len(self.spans))[left]  # its filter takes all spans or none
        return left[self._subset.holds(first)]

    def every(self) -> Ints:
        """All passages that it may find, ascending, and N where it may find DONE."""
        return self.among(np.arange(len(self.spans.offsets)))

    def holders(self, where: Ints) -> Ints:
        """``[n]`` how many spans in each of some rows (``[n]``) are of passages that it may find."""
        first = self.rows.members_before(where)
        counts: Ints = self.rows.members_before(where + 1) - first
        several = np.flatnonzero(counts > 1)
        if not len(several) or (self._subset is None and not len(self._gone)):
            return counts
        shared, back = np.unique(where[several], return_inverse=True)
        held = [self.rows.members_in(row, row + 1) for row in shared.tolist()]
        owners = self.spans.owners[np.concatenate(held)]
        left = np.isin(owners, self.among(np.unique(owners))).astype(np.int64)
        starts = np.cumsum([0, *(len(some) for some in held[:-1])])
        counts[several] = np.add.reduceat(left, starts)[back]
        return counts

    def within(self, low: int, high: int, most: int) -> Ints:
        """The passages with a span in the rows ``low:high``, or in the first ``most`` of what it may find."""
        if self._subset is None:
            held = self.rows.members_in(low, min(high, low + most))
        else:
            some = self._subset.rows.between(low, high)[:most].tolist()
            held = np.concatenate([np.empty(0, np.int64), *(self.rows.members_in(r, r + 1) for r in some)])
        return np.unique(self.spans.owners[held])


def candidates(frontier: Frontier, reach: Reach, k: int, said: Floats | None = None) -> Ints:
    """What is worth ranking: the passages of the rows that the search holds for the likeliest, and DONE.

    Args:
        frontier: Where the search left off.
        reach: What the query may find.
        k: Passages that are asked for, DONE among them; so many come, where the query may find so many.
        said: ``[N + 1]`` what priors say of all passages (nats): their best ones are candidates, too.

    Returns:
        ``[C]`` numbers, ascending.
    """
    done = len(reach.spans.offsets) - 1
    given = [np.array([done])]
    if said is not None:
        best = min(max(_OF_PRIORS, k), len(said))
        given.append(np.argpartition(-said, best - 1)[:best])
    rows, every = max(_ROWS, _ROWS_A_PASSAGE * k), int(frontier.counts.sum())
    while True:
        left, found = rows, list(given)
        for leaf in frontier.densest(rows):
            found.append(reach.within(int(frontier.low[leaf]), int(frontier.high[leaf]), left))
            left -= int(frontier.counts[leaf])
        some = reach.among(np.unique(np.concatenate(found)))
        if len(some) >= k or rows >= every:
            return some
        rows *= 4  # few passages have had all these rows


def passage_scores(frontier: Frontier, passages: Ints, reach: Reach, temperature: float) -> PassageScores:
    """What a search says of some passages.

    Args:
        frontier: Where it left off.
        passages: ``[C]`` numbers of passages that the query may find, ascending; N stands for DONE.
        reach: What it may find.
        temperature: T.
    """
    spans, rows = reach.spans, reach.rows
    where = np.asarray(rows.row_of)[spans.of(passages)].astype(np.int64)
    scores = frontier.log_probabilities(where) - np.log(reach.holders(where))
    counts = np.append(np.diff(spans.offsets), 1)[passages]
    plain = mean = _summed(scores, counts)
    if temperature != 1:
        mean = _summed(scores / temperature, counts) - (1 - 1 / temperature) * np.log(counts)
    return PassageScores(passages, plain, mean, np.zeros(len(passages)))


def ranked(scores: PassageScores, done: int, temperature: float, k: int) -> list[ScoredPassage]:
    """The k best candidates, best first, and their scores (nats).

    Args:
        scores: What is known of them.
        done: The number of DONE.
        temperature: T.
        k: Most of them.
    """
    if not len(scores.passages):
        return []
    found = scores.mean + scores.said / temperature
    if temperature != 1:
        found = found - np.logaddexp.reduce(found)
        if scores.passages[-1] == done:
            found = _with_done(found, scores.plain + scores.said)
    order = np.argsort(-found, kind="stable")[:k]
    return [ScoredPassage(int(scores.passages[n]), float(found[n])) for n in order]


def _summed(scores: Floats, counts: Ints) -> Floats:
    """``[C]`` logarithms of the sums of what stands side by side, so many each (at least one)."""
    if not len(counts):
        return np.empty(0)
    starts = np.cumsum(counts) - counts
    best = np.maximum.reduceat(scores, starts)
    masses = np.add.reduceat(np.exp(scores - np.repeat(best, counts)), starts)
    found: Floats = best + np.log(masses)
    return found


def _with_done(sums: Floats, plain: Floats) -> Floats:
    """Log-probabilities of passages and, last, of DONE, which has what it has for T = 1."""
    done = plain[-1] - np.logaddexp.reduce(plain)
    if len(sums) == 1:
        return np.array([done])
    others = sums[:-1] - np.logaddexp.reduce(sums[:-1])
    left = np.logaddexp.reduce(plain[:-1]) - np.logaddexp.reduce(plain)
    return np.append(others + left, done)


def said_of(prior: Prior, query: int, allowed: Ints) -> Floats:
    """``[N + 1]`` what priors say of passages and DONE, times their weights (nats); -inf where not allowed.

    Args:
        prior: Over passages; it has a part at least.
        query: The number of the query.
        allowed: Numbers that it may find, N among them where it may find DONE.
    """
    every = np.sum([part.weight * log_shares(part, query, allowed) for part in prior.parts], axis=0)
    found: Floats = np.full(len(every), -np.inf)
    found[allowed] = every[allowed]
    return found


def log_shares(part: WeightedPrior, query: int, allowed: Ints) -> Floats:
    """``[N + 1]`` log-probabilities that a prior gives passages and DONE; the least where not allowed.

    Args:
        part: The prior, over passages.
        query: The number of the query.
        allowed: As of :func:`said_of`.
    """
    given = np.asarray(part.log_weights(np.array([query])), dtype=np.float64)[0]
    found: Floats = np.full(len(given), LEAST)
    fixed = part.fixed
    heard = allowed if fixed is None else allowed[allowed != fixed.passage]
    if len(heard):
        some = np.maximum(given[heard] - given[heard].max(), LEAST)
        found[heard] = some - np.logaddexp.reduce(some)
    if fixed is not None and len(heard) < len(allowed):
        found[heard] += np.log(-np.expm1(fixed.log_probability))
        found[fixed.passage] = fixed.log_probability if len(heard) else 0.0
    return found


def hidden_spans(
    spans: Spans, rows: SortedRows, passages: Sequence[int], subset: Subset | None = None
) -> list[int]:
    """The spans that only these passages hold: others may still be found by the spans that they share.

    Args:
        spans: The spans.
        rows: The rows of their index.
        passages: Numbers of passages; N stands for DONE.
        subset: The spans of the passages that may be found at all; None: of every one.
    """
    reach = Reach(spans, rows, (), subset)
    numbers = spans.of(reach.among(np.unique(np.asarray(passages, dtype=np.int64))))
    found, first, held = np.unique(
        np.asarray(rows.row_of)[numbers].astype(np.int64), return_index=True, return_counts=True
    )
    own = held == reach.holders(found)
    hidden: list[int] = numbers[first[own]].tolist()
    return hidden


def prior_over_spans(prior: Prior, spans: Spans) -> Prior:
    """A prior over passages as one over spans: each passage's share is spread evenly over its spans.

    A span that several passages share has the mass of all of them.
    """
    parts = []
    for part in prior.parts:
        fixed = part.fixed
        if fixed is not None:
            fixed = Fixed(int(spans.of([fixed.passage])[0]), fixed.log_probability)
        parts.append(replace(part, log_weights=_OfSpans(part.log_weights, spans), fixed=fixed))
    return replace(prior, parts=tuple(parts))


@dataclass(frozen=True)
class _OfSpans:
    """Log-weights of passages as those of their spans."""

    every: LogWeights
    spans: Spans

    def __call__(self, queries: Ints) -> Floats:
        """``[n, V + 1]``."""
        given = np.asarray(self.every(queries), dtype=np.float64)
        shares = np.log(np.append(np.diff(self.spans.offsets), 1))
        found: Floats = (given - shares)[:, self.spans.owners]
        return found
