"""How the scores of hops make chains, and which chains go on.

Legend: C chains a query, W passages that continue a chain at each hop, d a passage, S a set of passages.

The chains of a generator have the sum of the log-probabilities of their hops (:class:`Sum`): log p(chain |
query) = sum over hops h of log p(passage h | query, passages before h), DONE included (arXiv 2204.13596, the
dynamic multi-step setting). Other retrievers have the chain beams of MDR (Xiong et al. 2021, arXiv
2009.12756): the sum of scores. Where scores are positive, as inner products mostly are, sums favour long
chains; so their dynamic chains are ranked by the mean score of a hop, DONE included (:class:`Mean`).

Where any order of the evidence is right, a model spreads the probability of a set over its orders, and chains
of many passages look less likely than they are. With ``sets``, chains of the same passages are merged:
log p(set | query) is the log of the sum over the orders that the beams reach, and sets compete, also for the
place to stop. It is approximate from the third passage on, since a set continues only in its likeliest order.

Chains answer "which passages together?". For a ranking (:class:`Marginal`) the best chain has too few
passages, and a passage in many chains is likelier than the last passage of the best one. With p(d | S) the
probability of the next hop, a softmax over the scores of its hits (divided by a temperature) and of what the
stop rule gives the end,

    P(d) = sum over hops h and sets S of h - 1 passages of P(S) p(d | S),

a sum of probabilities of events that exclude each other, since a chain holds a passage once. P(S) is the sum
over the orders of S that the C chains reach. The probability of dropped chains is shared out among the
others, so that later hops do not weigh less. A chain that is far less likely than the best one is dropped,
too (:data:`LEAST_SHARE`), since it costs a search like any other; its small share may decide ranks where
scores are close. The share of the end goes to no passage. This is the marginal of retrieval as a latent
variable (RAG-Token, arXiv 2005.11401, equation 2, has it for documents and words), over chains instead of
single passages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from grls.data.types import Chain, FullHit, Hit
from grls.retrieve.base import HopHits
from grls.retrieve.hops.finders import LiveChain
from grls.retrieve.hops.options import Choice
from grls.retrieve.hops.stop import Weighed

NextOf = tuple[LiveChain, Sequence[Hit], Weighed]
"""A chain, the hits that may come next, and what they are worth by the stop rule."""

_FEW = 6
"""Passages of which every set is kept: 20 of three at most."""
LEAST_SHARE = 0.05
"""A chain with less than this share of the probability of its query's likeliest one goes no further."""
_CERTAIN = 1e-9
"""Probabilities are certain where all of them together lack no more of their number than this."""


@dataclass
class Sum:
    """Chain beams of some queries by the sum of the scores of their hops.

    ``chains`` is C; ``branch`` is W, the end among them.

    Args:
        sets: Merge chains of the same passages in different orders, into the likeliest order.
        bounded: Scores are log-probabilities, so a chain that goes on gets no better. Else a query ends when
            C chains have ended.
        choose: What is left after the last hop: all chains, or a set of them (:func:`expected_f1`).
    """

    queries: int
    chains: int
    branch: int
    sets: bool = False
    bounded: bool = True
    choose: Choice = "likeliest"

    def __post_init__(self) -> None:
        self._ended: list[list[LiveChain]] = [[] for _ in range(self.queries)]

    def begin(self) -> list[LiveChain]:
        return [LiveChain(query) for query in range(self.queries)]

    def go_on(self, found: Iterable[NextOf]) -> list[LiveChain]:
        """Continue every chain; returns the C best of each query that can still win."""
        candidates: dict[int, list[LiveChain]] = {}
        for chain, hits, weighed in found:
            scores = [hit.score for hit in hits] if weighed.scores is None else weighed.scores
            gains: list[tuple[float, Hit | None]] = list(zip(scores, hits, strict=False))
            if weighed.end_score is not None:  # among equal scores, the end is last
                gains.append((weighed.end_score, None))
            if not gains:  # nothing new is found
                self._ended[chain.query].append(chain)
            for gain, hit in sorted(gains, key=lambda pair: -pair[0])[: self.branch]:
                hits_so_far = chain.hits if hit is None else (*chain.hits, hit)
                longer = LiveChain(chain.query, hits_so_far, chain.total + gain, hit is None, chain.first)
                candidates.setdefault(chain.query, []).append(longer)
        going = []
        for query, longer_chains in candidates.items():
            ranked = _merged(longer_chains) if self.sets else longer_chains
            ranked.sort(key=lambda chain: -chain.total)  # all have the same number of hops
            ended = self._ended[query]
            ended += [chain for chain in ranked[: self.chains] if chain.done]
            live = [chain for chain in ranked if not chain.done][: self.chains]
            if self.bounded:
                best = self._best(ended)
                bar = best[-1].total if len(best) == self.chains else -math.inf
                going += [chain for chain in live if chain.total > bar]
            else:
                going += live if sum(chain.done for chain in ended) < self.chains else []
        return going

    def so_far(self, live: Sequence[LiveChain], last: bool) -> Callable[[], list[list[Chain]]]:
        """Makes the chains of each query, best first, those that go on among them."""

        def chains_so_far() -> list[list[Chain]]:
            chains = [[*ended] for ended in self._ended]
            for chain in live:
                chains[chain.query].append(chain)
            best = [
                [Chain(chain.hits, self._score(chain), chain.done) for chain in self._best(own_chains)]
                for own_chains in chains
            ]
            if last and self.choose == "expected-f1":
                return [[expected_f1(own_chains)] for own_chains in best]
            return best

        return chains_so_far

    def _score(self, chain: LiveChain) -> float:
        return chain.total

    def _best(self, ended: Sequence[LiveChain]) -> list[LiveChain]:
        return sorted(ended, key=lambda chain: -self._score(chain))[: self.chains]


class Mean(Sum):
    """Chain beams by the mean score of a hop, DONE included."""

    def _score(self, chain: LiveChain) -> float:
        return chain.total / max(len(chain.hits) + chain.done, 1)


@dataclass
class Marginal:
    """Passages of some queries by the probability that a chain holds them; ``chains`` is C.

    What ends the chains of a query, besides the largest number of hops:

    - a hop finds no further passage;
    - the stop rule gives the end a share (:meth:`Weighed.shares`), by which all of them get less likely;
    - together they have less probability than ``least``;
    - others of the query are far likelier (:meth:`Sets.likeliest`).

    Args:
        temperature: Temperature of the softmax over the scores of a hop.
        least: A query whose chains have less probability than this takes no further hop.
        distinct: Counts the different ones among passages; a chain holds one of those that are equal.
        allowed_counts: How many passages each query may find; empty: many. Of up to 6 passages so many chains
            go on that no set of them is dropped.
    """

    queries: int
    chains: int
    temperature: float
    least: float = 0.0
    distinct: Callable[[Sequence[str]], int] = len
    allowed_counts: Sequence[int] = ()

    def __post_init__(self) -> None:
        self._limits = [(self.chains, LEAST_SHARE)] * self.queries
        for query, count in enumerate(self.allowed_counts):
            if count <= _FEW:
                self._limits[query] = max(self.chains, math.comb(count, count // 2)), 0.0
        self.mass: list[dict[str, float]] = [{} for _ in range(self.queries)]
        self._last: list[dict[str, LiveChain]] = [{} for _ in range(self.queries)]
        self._best: list[list[LiveChain]] = [[] for _ in range(self.queries)]
        self._beyond: list[list[Hit]] = [[] for _ in range(self.queries)]

    def begin(self) -> list[LiveChain]:
        return [LiveChain(query, total=1.0) for query in range(self.queries)]

    def go_on(self, found: Iterable[NextOf]) -> list[LiveChain]:
        """Share out the probability of every chain among its hits; returns the chains that go on."""
        longer: dict[int, Sets] = {}
        for chain, hits, weighed in found:
            sets = longer.setdefault(chain.query, Sets())
            if not hits:
                continue
            shares, among = weighed.shares(hits, self.temperature)
            sets.total += chain.total * float(shares.sum())
            mass, last = self.mass[chain.query], self._last[chain.query]
            for hit, share, log_share in zip(hits, shares.tolist(), among.tolist(), strict=False):
                scored = hit._replace(score=share) if hit.links else Hit(hit.id, share)
                so_far, among_so_far = (*chain.hits, scored), (*chain.among, log_share)
                one = LiveChain(chain.query, so_far, chain.total * share, False, chain.first, among_so_far)
                mass[hit.id] = mass.get(hit.id, 0.0) + one.total
                if hit.id not in last or one.total > last[hit.id].total:
                    last[hit.id] = one
                sets.add(one)
        going = {query: sets for query, sets in longer.items() if sets.total >= self.least}
        live = {query: sets.likeliest(*self._limits[query]) for query, sets in going.items()}
        self._best = [live.get(query) or best for query, best in enumerate(self._best)]
        return [chain for chains in live.values() for chain in chains]

    def so_far(self, live: Sequence[LiveChain], last: bool) -> Callable[[], list[list[Chain]]]:
        """Makes the likeliest chains of each query; of one that goes no further, those of the hop before."""
        best = self._best  # of this hop

        def chains_so_far() -> list[list[Chain]]:
            chains = [
                [Chain(one.hits, math.prod(hit.score for hit in one.hits), False) for one in own]
                for own in best
            ]
            return [own or [Chain((), 0.0, False)] for own in chains]  # where nothing was found

        return chains_so_far

    def go_beyond(self, single: Sequence[HopHits]) -> None:
        """After the first hop: the passages of a single step, for a ranking of more than the hops find.

        They have no share of the probability of a hop. Their scores are in the ratio of the softmax of the
        first hop.
        """
        for query, (step, shares) in enumerate(zip(single, self.mass, strict=True)):
            best = next((hit for hit in step.hits if hit.id in shares), None)
            if best is not None:
                falls = [(hit.id, min(hit.score - best.score, 0.0) / self.temperature) for hit in step.hits]
                self._beyond[query] = [
                    Hit(name, shares[best.id] * math.exp(fall)) for name, fall in falls if name not in shares
                ]

    def rankings(self, k: int) -> list[list[Hit]]:
        rankings = []
        for mass, beyond, last in zip(self.mass, self._beyond, self._last, strict=True):
            hits = after_hops(mass, beyond, k, self.distinct)
            linked = {name: chain.hits[-1].links for name, chain in last.items() if chain.hits[-1].links}
            rankings.append(
                [FullHit.of(hit, links=linked[hit.id]) if hit.id in linked else hit for hit in hits]
            )
        return rankings


class Sets:
    """The chains of one query after a hop, those of the same passages as one."""

    def __init__(self) -> None:
        self._likeliest: dict[frozenset[str], LiveChain] = {}
        self._weights: dict[frozenset[str], float] = {}
        self.total = 0.0

    def add(self, chain: LiveChain) -> None:
        """Chains of the same passages are merged into the likeliest order."""
        key = frozenset(hit.id for hit in chain.hits)
        self._weights[key] = self._weights.get(key, 0.0) + chain.total
        known = self._likeliest.get(key)
        if known is None or chain.total > known.total:
            self._likeliest[key] = chain

    def likeliest(self, count: int, least_share: float) -> list[LiveChain]:
        """The ``count`` likeliest chains, scaled to the weight ``total`` of all chains.

        A chain with less than ``least_share`` of the likeliest one's probability is left out.
        """
        merged = [one._replace(total=self._weights[key]) for key, one in self._likeliest.items()]
        best = sorted(merged, key=lambda chain: -to_nine_digits(chain.total))[:count]
        least = least_share * best[0].total if best else 0.0
        best = [chain for chain in best if chain.total >= least]
        kept = sum(chain.total for chain in best)
        if not kept > 0:
            return []
        return [chain._replace(total=chain.total * self.total / kept) for chain in best]


def _merged(chains: Sequence[LiveChain]) -> list[LiveChain]:
    sets: dict[tuple[bool, tuple[str, ...]], list[LiveChain]] = {}
    for chain in chains:
        key = chain.done, tuple(sorted(hit.id for hit in chain.hits))
        sets.setdefault(key, []).append(chain)
    return [
        max(orders, key=lambda chain: chain.total)._replace(
            total=float(np.logaddexp.reduce([chain.total for chain in orders]))
        )
        for orders in sets.values()
    ]


def to_nine_digits(probability: float) -> float:
    """Sums in another order, or of other batches, differ beyond nine digits: that makes no rank."""
    return float(f"{probability:.9g}")


def after_hops(
    mass: Mapping[str, float],
    beyond: Sequence[Hit],
    k: int,
    distinct: Callable[[Sequence[str]], int] = len,
) -> list[Hit]:
    """The k likeliest passages; where the hops find fewer, those of a single step (``beyond``) follow.

    The scores of these are scaled so that none is above that of a passage of the hops; no score depends on k.
    Where the probabilities (``mass``, in the order of finding, which equal ones keep) sum up to the number of
    ``distinct`` passages, each of them is 1: every chain holds every passage, or an equal one, and only the
    share of dropped chains makes one of them larger than another.
    """
    certain = math.fsum(mass.values()) >= distinct(list(mass)) - _CERTAIN
    scores = {name: 1.0 if certain else to_nine_digits(value) for name, value in mass.items()}
    ranked = [Hit(*pair) for pair in sorted(scores.items(), key=lambda pair: -pair[1])[:k]]
    more = [hit for hit in beyond if hit.id not in mass][: k - len(ranked)]
    if not more:
        return ranked
    lowest, first = ranked[-1].score, more[0].score
    factor = lowest / first if first > lowest else 1.0
    falling = list(accumulate((factor * hit.score for hit in more), min, initial=lowest))[1:]
    return ranked + [Hit(hit.id, score) for hit, score in zip(more, falling, strict=True)]


def expected_f1(chains: Sequence[Chain]) -> Chain:
    """The set of passages with the highest expected F1, as a chain.

    Legend: S_i the set of the i-th chain, p_i its probability, d a passage.

    The likeliest chain is the best answer to "which set exactly?". If the measure is F1 against the right
    set, the best answer is the set S with the highest expected F1 (minimum Bayes risk): sum over i of p_i
    F1(S, S_i). As F1(S, S_i) = 2 |S and S_i| / (|S| + |S_i|), the best set of k passages has the k passages
    with the largest sum over i of p_i [d in S_i] 2 / (k + |S_i|). So it is enough to compare one set of each
    size (Dembczynski, Waegeman, Cheng and Huellermeier, "An exact algorithm for F-measure maximization",
    NeurIPS 2011).

    The scores of chains are log-probabilities; they need not sum to one. The passages are ranked by
    probability, with log-probabilities as scores; the score of the set is the log of its expected F1. It is
    ``done`` if the chains that are done have half of the probability or more. Among equal sets the smallest
    wins, with passages of likelier chains first. An empty set has no F1, as in
    :func:`grls.evaluation.metrics.set_f1`; where all sets are empty, the likeliest chain is returned.
    """
    if not any(chain.hits and chain.score > -math.inf for chain in chains):
        return max(chains, key=lambda chain: chain.score)
    scores = np.array([chain.score for chain in chains])
    probabilities = np.exp(scores - np.logaddexp.reduce(scores))
    sets = [dict.fromkeys(hit.id for hit in chain.hits) for chain in chains]
    names = {name: place for place, name in enumerate(dict.fromkeys(name for ids in sets for name in ids))}
    holds = np.zeros((len(chains), len(names)))
    for row, members in enumerate(sets):
        holds[row, [names[name] for name in members]] = 1
    sizes = holds.sum(1)
    best, chosen = -1.0, np.array([], dtype=int)
    for k in range(1, len(names) + 1):  # a set may be larger than any chain
        gains = (probabilities * 2 / (k + sizes)) @ holds
        order = np.argsort(-gains, kind="stable")[:k]
        if gains[order].sum() > best + 1e-12:
            best, chosen = float(gains[order].sum()), order
    likely = probabilities @ holds
    ids = list(names)
    ranked = sorted(chosen.tolist(), key=lambda place: (-likely[place], place))
    hits = tuple(Hit(ids[place], _log(min(likely[place], 1.0))) for place in ranked)
    done = float(probabilities[[chain.done for chain in chains]].sum())
    return Chain(hits, _log(best), done >= 0.5 - 1e-9)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
