"""From spans to passages, and back, for generators that write one of several identifiers of a passage.

A span stands here for an identifier of any kind (:mod:`grls.data.identifiers`).

Legend: N passages, V spans, R rows of the index, n queries, C candidates of a query.

A passage is written by any of its spans, so all its spans contribute to its score. Where the search stops, it
knows a probability p(v) of every span (:mod:`grls.decode.frontier`): exact for spans that it wrote to their
end, and an even share of the prefix for the others. Spans of one text share a row and its probability, in
equal parts among those that the query may retrieve. With n(x) the number of spans of a passage x and T the
temperature, the score of x comes from n(x) times the power mean of exponent 1/T of the probabilities of its
spans:

    score(x) = log sum over spans v of x of p(v)^(1/T)  -  (1 - 1/T) log n(x)  -  the same over candidates,

already divided by T; the last term makes it a log-probability among the candidates of the first tier. For
T = 1 it is the log of the sum of the probabilities of its spans, without the last term. Then the likeliest
span decides, often that of a common phrase. The larger T, the more it matters that several spans agree, also
spans that the beam has not written. The second term removes the advantage of long passages: a passage with
equally likely spans has n(x) p(v) for any T. (SEAL, arXiv 2204.10628, section 3.2, adds up powers of the
weights of n-grams in the beam, and ignores the others.)

The log-probability of a prior, times its weight, is added to log p(v) of all spans of x. DONE has one span,
so its probability among the candidates is that for T = 1, and the passages share the rest.

Candidates come in tiers. Passages of a further tier are ranked after all before them, and their scores are
lowered by as much as the best of them needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from grls.data.identifiers import Identifiers
from grls.decode.beam import ScoredPassage
from grls.decode.frontier import Frontier
from grls.decode.prior import LEAST, Fixed, Pieces, Prior, WeightedPrior
from grls.decode.select import ragged_logsumexp
from grls.index.rows import Ints, SortedRows
from grls.index.subset import Subset
from grls.models.base import Floats

_ROWS, _OF_PRIORS = 1000, 100
"""Numbers of likeliest rows, and of best passages of the priors, that make the first tier of candidates."""

_WIDER = 4
"""The factor on these numbers from one tier to the next."""


class Reach:
    """The passages and spans that a query may retrieve.

    ``rows`` are those of the index of ``spans``; ``hidden`` passages (N: DONE) may not be retrieved, and of
    ``subset`` (None: all) only its spans.
    """

    def __init__(self, spans: Identifiers, rows: SortedRows, hidden: Sequence[int], subset: Subset | None):
        self.spans = spans
        self.rows = rows
        self._hidden = np.asarray(hidden, dtype=np.int64)
        self._subset = subset

    def among(self, passages: Ints) -> Ints:
        """The passages among these that the query may retrieve (ascending, without repetition)."""
        left = np.setdiff1d(passages, self._hidden, assume_unique=True)
        if self._subset is None:
            return left
        first = np.append(self.spans.offsets, len(self.spans))[left]  # its filter takes all spans or none
        return left[self._subset.holds(first)]

    def every(self) -> Ints:
        """Ascending; N last if the query may retrieve DONE."""
        return self.among(np.arange(len(self.spans.offsets)))

    def holders(self, where: Ints) -> Ints:
        """``[n]`` number of spans of retrievable passages in each row of ``where`` (``[n]``)."""
        first = self.rows.members_before(where)
        counts: Ints = self.rows.members_before(where + 1) - first
        several = np.flatnonzero(counts > 1)
        if not len(several) or (self._subset is None and not len(self._hidden)):
            return counts
        shared, back = np.unique(where[several], return_inverse=True)
        owners = self.spans.owners[self.rows.members_of(shared)]
        left = np.isin(owners, self.among(np.unique(owners))).astype(np.int64)
        sizes = self.rows.members_before(shared + 1) - self.rows.members_before(shared)
        counts[several] = np.add.reduceat(left, np.cumsum(sizes) - sizes)[back]
        return counts

    def within(self, low: int, high: int, count: int) -> Ints:
        """The passages with a span in the first ``count`` retrievable rows of ``low:high``."""
        if self._subset is None:
            held = self.rows.members_in(low, min(high, low + count))
        else:
            held = self.rows.members_of(self._subset.rows.between(low, high)[:count])
        return np.unique(self.spans.owners[held])


def candidates(frontier: Frontier, reach: Reach, k: int, prior: Floats | None = None) -> tuple[Ints, Ints]:
    """The candidates for the ranking, ``[C]`` ascending (N is DONE), and ``[C]`` their tiers from 0.

    The first tier is DONE and the passages of a fixed number of likeliest rows. Only where these hold fewer
    than k passages (DONE included), a further tier follows, of more rows. So no score and no rank depends on
    k. The best passages of ``prior`` (``[N + 1]`` scores, nats) are candidates as well.
    """
    done, every = len(reach.spans.offsets) - 1, int(frontier.counts.sum())
    passages = tiers = np.empty(0, dtype=np.int64)
    tier, rows, of_priors = 0, _ROWS, _OF_PRIORS
    while True:
        parts = [np.array([done])]
        if prior is not None:
            count = min(of_priors, len(prior))
            parts.append(np.argpartition(-prior, count - 1)[:count])
        left = rows
        for leaf in frontier.densest(rows):
            parts.append(reach.within(int(frontier.low[leaf]), int(frontier.high[leaf]), left))
            left -= int(frontier.counts[leaf])
        new = np.setdiff1d(reach.among(np.unique(np.concatenate(parts))), passages)
        passages, tiers = np.append(passages, new), np.append(tiers, np.full(len(new), tier))
        begun = bool((passages < done).any())  # DONE alone is no tier
        if rows >= every or (begun and len(passages) >= k):
            order = np.argsort(passages)
            return passages[order], tiers[order]
        tier, rows, of_priors = tier + begun, rows * _WIDER, of_priors * _WIDER


class PassageScores(NamedTuple):
    """Scores of the candidates of a query, DONE last; each ``[C]``.

    Attributes:
        passages: Numbers, ascending.
        plain: Log-probabilities (nats): T = 1.
        mean: Log of the power mean for T, times n, over T.
        prior: Weighted log-probabilities of the priors (nats).
    """

    passages: Ints
    plain: Floats
    mean: Floats
    prior: Floats
    tiers: Ints


@dataclass(frozen=True)
class SpanRanking:
    """Ranks passages for one query, from the spans that its search knows.

    ``k`` counts DONE; ``query`` is the number of the query in the prior.
    """

    reach: Reach
    k: int
    temperature: float
    prior: Prior | None = None
    query: int = 0

    def scores(self, frontier: Frontier) -> PassageScores:
        added = None
        if self.prior is not None and self.prior.parts and not self.prior.normalized:
            allowed = self.reach.every()  # the others have no probability
            every = [part.weight * log_shares(part, self.query, allowed) for part in self.prior.parts]
            added = np.full(len(every[0]), -np.inf)
            added[allowed] = np.sum(every, axis=0)[allowed]
        chosen = candidates(frontier, self.reach, self.k, added)
        scores = passage_scores(frontier, *chosen, self.reach, self.temperature)
        return scores if added is None else scores._replace(prior=added[scores.passages])

    def __call__(self, frontier: Frontier) -> list[ScoredPassage]:
        done = len(self.reach.spans.offsets) - 1
        return ranked(self.scores(frontier), done, self.temperature, self.k)


def passage_scores(
    frontier: Frontier, passages: Ints, tiers: Ints, reach: Reach, temperature: float
) -> PassageScores:
    spans, rows = reach.spans, reach.rows
    where = np.asarray(rows.row_of)[spans.of(passages)].astype(np.int64)
    scores = frontier.log_probabilities(where) - np.log(reach.holders(where))
    counts = np.append(np.diff(spans.offsets), 1)[passages]
    bounds = np.concatenate(([0], np.cumsum(counts)))
    plain = mean = ragged_logsumexp(scores, bounds)
    if temperature != 1:
        mean = ragged_logsumexp(scores / temperature, bounds) - (1 - 1 / temperature) * np.log(counts)
    return PassageScores(passages, plain, mean, np.zeros(len(passages)), tiers)


def ranked(scores: PassageScores, done: int, temperature: float, k: int) -> list[ScoredPassage]:
    """The k best candidates, best first, and their scores (nats); ``done`` is the number of DONE."""
    if not len(scores.passages):
        return []
    totals, first = scores.mean + scores.prior / temperature, scores.tiers == 0
    if temperature != 1:
        totals = totals - np.logaddexp.reduce(totals[first])
        if scores.passages[-1] == done:  # its probability is that for T = 1, and the passages share the rest
            plain, first_passages = scores.plain + scores.prior, first[:-1]
            total = np.logaddexp.reduce(plain[first])
            if len(totals) > 1:
                left = np.logaddexp.reduce(plain[:-1][first_passages]) - total
                totals[:-1] = totals[:-1] - np.logaddexp.reduce(totals[:-1][first_passages]) + left
            totals[-1] = plain[-1] - total
    lowered = totals.copy()  # no score of a further tier is above one of an earlier tier
    for tier in np.unique(scores.tiers)[1:]:
        of_tier = scores.tiers == tier
        lowest, best = lowered[scores.tiers < tier].min(), totals[of_tier].max()
        beneath = totals[of_tier] - max(best - lowest, 0.0)
        lowered[of_tier] = np.minimum(beneath, lowest)  # where rounding lifts the best one
    order = np.lexsort((-lowered, scores.tiers))[:k]
    return [ScoredPassage(int(scores.passages[n]), float(lowered[n])) for n in order]


def log_shares(part: WeightedPrior, query: int, allowed: Ints) -> Floats:
    """``[N + 1]`` log-probabilities of a prior for passages and DONE; ``LEAST`` if not allowed."""
    weights = np.asarray(part.log_weights(np.array([query])), dtype=np.float64)[0]
    shares: Floats = np.full(len(weights), LEAST)
    fixed = part.fixed
    scored = allowed if fixed is None else allowed[allowed != fixed.passage]
    if len(scored):
        logits = np.maximum(weights[scored] - weights[scored].max(), LEAST)
        shares[scored] = logits - np.logaddexp.reduce(logits)
    if fixed is not None and len(scored) < len(allowed):
        shares[scored] += np.log(-np.expm1(fixed.log_probability))
        shares[fixed.passage] = fixed.log_probability if len(scored) else 0.0
    return shares


def hidden_spans(
    spans: Identifiers, rows: SortedRows, passages: Sequence[int], subset: Subset | None = None
) -> list[int]:
    """The spans that only these passages (N: DONE) hold, which hide no other passage.

    ``subset`` holds the spans of all allowed passages; None: all spans.
    """
    reach = Reach(spans, rows, (), subset)
    numbers = spans.of(reach.among(np.unique(np.asarray(passages, dtype=np.int64))))
    distinct, first, held = np.unique(
        np.asarray(rows.row_of)[numbers].astype(np.int64), return_index=True, return_counts=True
    )
    unshared = held == reach.holders(distinct)
    hidden: list[int] = numbers[first[unshared]].tolist()
    return hidden


def prior_over_spans(prior: Prior, spans: Identifiers) -> Prior:
    """Turn a prior over passages into one over spans: a passage's share is spread evenly over its spans.

    A span of several passages has the mass of all of them.
    """
    pieces = Pieces(spans.owners, np.log(np.append(np.diff(spans.offsets), 1)))
    parts = []
    for part in prior.parts:
        fixed = part.fixed
        if fixed is not None:
            fixed = Fixed(int(spans.of([fixed.passage])[0]), fixed.log_probability)
        parts.append(replace(part, fixed=fixed, pieces=pieces))
    return replace(prior, parts=tuple(parts))
