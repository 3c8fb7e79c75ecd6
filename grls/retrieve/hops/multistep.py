"""Retrieval hop by hop: each retrieved passage becomes evidence, until DONE or a number of hops.

Legend: Q queries, C chain beams a query, W passages that continue a chain at each hop.

The score of a chain is the sum of the log-probabilities of its hops: log p(chain | query) =
sum over hops h of log p(passage h | query, passages before h), DONE included (arXiv 2204.13596, the
dynamic multi-step setting). C chains are kept, so the best chain wins and not only the best first hop.

DONE is one token that competes with whole passages, and a model may write it too early. ``done_bias`` b
shifts its log-odds at every hop. Let p be the probability of DONE and Z = 1 - p + p exp(b). Then DONE gets
the probability p exp(b) / Z, and the probability of every other passage is divided by Z. So the
probabilities of all chains still sum to one, if passages with equal tokens are counted once (each has the
probability of their common text). (A bonus for finished chains would not work: each has one DONE, and their
order would not change.)

Where any order of the evidence is right, a model spreads the probability of a set over its orders, and chains
of many passages look less likely than they are. With ``sets``, chains of the same passages are merged:
log p(set | query) is the log of the sum over the orders that the beams reach, and sets compete, also for the
place to stop. It is approximate from the third passage on, since a set continues only in its likeliest order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter
from grls.data.types import Chain, Hit, Query
from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.retrieve.base import NextHop, SoFar, Under, WritesChains
from grls.retrieve.hops.diverse import limit_per_first
from grls.retrieve.hops.steps import AskedHop, Steps, as_decodings, planned, walked
from grls.retrieve.joins import Plan
from grls.retrieve.queries import check_counts, queries_of


class _Live(NamedTuple):
    """A chain so far.

    Attributes:
        query: Index of its query.
        passages: Numbers of its passages.
        scores: Log-probability of each passage.
        total: Score of the chain, by which chains are ranked.
    """

    query: int
    passages: tuple[int, ...]
    scores: tuple[float, ...]
    total: float


Memory = dict[tuple[Query, tuple[int, ...], tuple[int, ...]], list[ScoredPassage]]
"""A query, a chain, its hidden passages -> the passages that may continue the chain, best first."""


@dataclass
class MultistepRetriever:
    """Multi-step retrieval with chain beams.

    Args:
        retriever: Retrieves each hop: a generator, or a hybrid with normalized scores.
        hops: Number of hops; with ``dynamic``, the largest number.
        dynamic: End a chain when the model writes DONE.
        chains: Number of chain beams C of a query.
        branch: Number of passages W that continue a chain at each hop.
        done_bias: Bias added to the log-odds (nats) of DONE at every hop; a negative bias makes chains
            longer. Tune it on dev. A DONE that is not among the ``beams`` best of a hop is impossible there.
        min_hops: Number of hops before DONE is allowed.
        repeat: Allow a passage twice in a chain.
        sets: Merge chains of the same passages in different orders, into the likeliest order.
        per_first: Largest number of kept chains that begin with the same passage; None: no limit.
        memory: Cache of the passages that continue a chain, for the same queries with another ``done_bias``
            and otherwise equal options; None: no cache.

    Raises:
        ConfigError: A count is not positive, or the scores of a hybrid are not log-probabilities.
    """

    retriever: WritesChains
    hops: int = 20
    dynamic: bool = True
    chains: int = 4
    branch: int = 4
    done_bias: float = 0.0
    min_hops: int = 1
    repeat: bool = False
    sets: bool = False
    per_first: int | None = None
    memory: Memory | None = None

    def __post_init__(self) -> None:
        check_counts(hops=self.hops, chains=self.chains, branch=self.branch)
        if not self.retriever.writes_chains:
            raise ConfigError(
                "sums of scores with priors are not log-probabilities of chains: normalize them, or take "
                "grls.retrieve.hops.appending.AppendingMultistep."
            )

    @property
    def corpus(self) -> Corpus:
        """The corpus of the retriever."""
        return self.retriever.corpus

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """At most C chains a query, best first.

        Args:
            queries: The queries.
            allow: The filter of every hop; see :class:`~grls.retrieve.base.Retriever`. It does not affect
                DONE. Retrievers that share a memory need the same filter.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: A filter cannot be used, or no filter leaves a passage.
        """
        *_, last = self.walk(queries, allow)
        return last.chains()

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        """:meth:`retrieve_chains`, hop by hop; see :class:`~grls.retrieve.base.WalksHops`.

        A chain so far has the score of its hops so far, which further hops can only lower.
        """
        queries = queries_of(queries)
        find = self.retriever.next_hop(queries, allow)
        if self.memory is not None:
            find = _remembering(find, self.memory, queries)
        yield from walked(self._steps(len(queries)), lambda hop: find(*hop))

    def plan(
        self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object] = lambda _: None
    ) -> Plan[SoFar]:
        """:meth:`walk` of one query, for a search that others join; ``tell`` is called after every hop."""
        asked = partial(as_decodings, query=query, allow=allow)
        return planned(self._steps(1), asked, lambda _, rankings: rankings, tell)

    def _steps(self, queries: int) -> Steps[SoFar]:
        """The hops of these queries; each asks for rankings of the passages that may come next."""
        live = [_Live(q, (), (), 0.0) for q in range(queries)]
        ended: list[list[tuple[_Live, bool]]] = [[] for _ in range(queries)]
        for hop in range(self.hops):
            if live:
                under = [Under(one.query, one.passages, tuple(self._hidden(one, hop))) for one in live]
                live = self._hop(live, (yield AskedHop(under, hop, self._width)), ended)
            last = not live or hop + 1 == self.hops
            yield SoFar(hop + 1, last, partial(self._all, ended, live))
            if last:
                return

    def _all(self, ended: list[list[tuple[_Live, bool]]], live: Sequence[_Live]) -> list[list[Chain]]:
        """The chains of each query, those that go on among them."""
        chains = [[*own] for own in ended]
        for chain in live:
            chains[chain.query].append((chain, False))
        return [self._ranked(own) for own in chains]

    def _hop(
        self,
        live: list[_Live],
        rankings: Sequence[Sequence[ScoredPassage]],
        ended: list[list[tuple[_Live, bool]]],
    ) -> list[_Live]:
        """Continue every chain by one passage; chains that end are moved to ``ended``."""
        candidates: dict[int, list[_Live]] = {}
        for chain, hits in zip(live, rankings, strict=True):
            if not hits:  # every allowed passage is in the chain already
                ended[chain.query].append((chain, False))
            for gain, hit in self._weighed(hits):
                longer = _Live(
                    chain.query,
                    (*chain.passages, hit.passage),
                    (*chain.scores, hit.score),
                    chain.total + gain,
                )
                candidates.setdefault(chain.query, []).append(longer)
        return [chain for longer in candidates.values() for chain in self._keep(longer, ended)]

    @property
    def _width(self) -> int:
        """Number of hits to ask for: with a bias, the probability of DONE is needed as well."""
        weighed = self.done_bias or self.memory is not None
        return max(self.branch, self.retriever.widest) if weighed else self.branch

    def _weighed(self, hits: Sequence[ScoredPassage]) -> list[tuple[float, ScoredPassage]]:
        """The W best hits after the bias on DONE, each with its gain of the chain's score."""
        done = self.retriever.done
        score = min(next((hit.score for hit in hits if hit.passage == done), -math.inf), 0.0)
        others = math.log(-math.expm1(score)) if score < 0 else -math.inf
        normalizer = float(np.logaddexp(others, score + self.done_bias)) if self.done_bias else 0.0
        weighed = [(hit.score + self.done_bias * (hit.passage == done) - normalizer, hit) for hit in hits]
        weighed.sort(key=lambda pair: -pair[0])
        return weighed[: self.branch]

    def _hidden(self, chain: _Live, hop: int) -> list[int]:
        """Passages that may not come next."""
        hidden = [] if self.repeat else list(chain.passages)
        if not self.dynamic or hop < self.min_hops:
            hidden.append(self.retriever.done)
        return hidden

    def _keep(self, candidates: list[_Live], ended: list[list[tuple[_Live, bool]]]) -> list[_Live]:
        """The C best unfinished chains that can still win. Finished chains among the C best end."""
        if self.sets:
            candidates = _merged(candidates)
        candidates.sort(key=lambda chain: -chain.total)
        candidates = limit_per_first(candidates, self._begins, self.per_first)
        query = candidates[0].query
        for chain in candidates[: self.chains]:
            if chain.passages[-1] == self.retriever.done:
                ended[query].append((chain, True))
        best = self._best(ended[query])
        bar = best[-1][0].total if len(best) == self.chains else float("-inf")
        live = [chain for chain in candidates if chain.passages[-1] != self.retriever.done]
        return [chain for chain in live[: self.chains] if chain.total > bar]

    def _begins(self, chain: _Live) -> tuple[int, bool]:
        """What is counted: the first passage; ended chains take no place of those that go on."""
        return chain.passages[0], chain.passages[-1] == self.retriever.done

    def _best(self, ended: Sequence[tuple[_Live, bool]]) -> list[tuple[_Live, bool]]:
        """The C best chains of a query, within the limit of those that begin with the same passage."""
        ranked = sorted(ended, key=lambda pair: -pair[0].total)
        return limit_per_first(ranked, lambda pair: pair[0].passages[:1], self.per_first)[: self.chains]

    def _ranked(self, ended: Sequence[tuple[_Live, bool]]) -> list[Chain]:
        return [self._chain(chain, done) for chain, done in self._best(ended)]

    def _chain(self, chain: _Live, done: bool) -> Chain:
        passages = chain.passages[:-1] if done else chain.passages
        ids = self.retriever.corpus.ids(passages)
        hits = tuple(Hit(i, s) for i, s in zip(ids, chain.scores, strict=False))
        return Chain(hits, chain.total, done)


def _merged(chains: Sequence[_Live]) -> list[_Live]:
    """Merge the chains of one query that hold the same passages, into the likeliest order."""
    sets: dict[tuple[int, ...], list[_Live]] = {}
    for chain in chains:
        sets.setdefault(tuple(sorted(chain.passages)), []).append(chain)
    return [
        max(orders, key=lambda chain: chain.total)._replace(
            total=float(np.logaddexp.reduce([chain.total for chain in orders]))
        )
        for orders in sets.values()
    ]


def _remembering(find: NextHop, memory: Memory, queries: Sequence[Query]) -> NextHop:
    """``find`` with a cache: it is asked only for new chains."""

    def remembered(live: Sequence[Under], hop: int, k: int) -> list[list[ScoredPassage]]:
        keys = [(queries[chain.query], chain.passages, chain.hidden) for chain in live]
        new = [n for n, key in enumerate(keys) if key not in memory]
        for n, hits in zip(new, find([live[n] for n in new], hop, k) if new else (), strict=True):
            memory[keys[n]] = hits
        return [memory[key] for key in keys]

    return remembered
