"""Retrieval hop by hop: each found passage is appended as evidence, until DONE or a number of hops.

Legend: Q queries, C chain beams a query, W passages that continue a chain at each hop.

A chain's score is the sum of its hops' log-probabilities, so log p(chain | query) =
sum over hops h of log p(passage h | query, passages before h), DONE included (arXiv 2204.13596, the
dynamic multi-step setting). C chains live side by side, so the best chain wins and not only the best
first hop. DONE is one token that competes with whole passages, and a model may write it too early:
``done_bias`` b shifts its log-odds at every hop. With p the probability of DONE and
Z = 1 - p + p exp(b), DONE then has p exp(b) / Z and every other passage 1 / Z of what it had, so the
probabilities of all chains still sum to one, those of passages with equal tokens counted once (each has the
probability of the text that they share). (A bonus added to finished chains would not do: each has one
DONE, and their order would stay.)

Where any order of the evidence is right, a model spreads a set's probability over its orders, and chains of
many passages look less likely than they are. With ``sets``, chains of the same passages are one: log p(set |
query) is the log of the sum over those of its orders that the beams reach, and sets compete, also for where
to stop. It is approximate from the third passage on: a set goes on in its likeliest order alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Query
from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.retrieve.base import NextHop, Under, WritesChains
from grls.retrieve.queries import check_counts, queries_of


class _Live(NamedTuple):
    """A chain under way.

    Attributes:
        query: Its place among the queries.
        passages: Numbers of the passages found so far.
        scores: Log-probability of each.
        total: What chains are ranked by.
    """

    query: int
    passages: tuple[int, ...]
    scores: tuple[float, ...]
    total: float


Memory = dict[tuple[Query, tuple[int, ...], tuple[int, ...]], list[ScoredPassage]]
"""A query, a chain, what is hidden -> what may continue it, best first."""


@dataclass
class MultistepRetriever:
    """Multi-step retrieval with chain beams.

    Args:
        retriever: Finds the passages of each hop: a generator, or a hybrid whose scores are normalized.
        hops: Exactly this many where ``dynamic`` is off, else at most.
        dynamic: End a chain when the model writes DONE.
        chains: Chain beams C kept a query.
        branch: Passages W that continue each chain at each hop.
        done_bias: Added to the log-odds (nats) of DONE at every hop; negative values make chains longer. Tune
            it on dev. A DONE that is not among the ``beams`` best of a hop counts as impossible there.
        min_hops: Hops before DONE is allowed.
        repeat: Allow a passage twice in a chain.
        sets: Chains of the same passages in another order are one, in the order of the likeliest.
        memory: What continues a chain, kept for when the same queries are asked again with another
            ``done_bias`` and all else as it is; None keeps nothing.

    Raises:
        ConfigError: A count is not positive, or a hybrid's scores are no log-probabilities.
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
    memory: Memory | None = None

    def __post_init__(self) -> None:
        check_counts(hops=self.hops, chains=self.chains, branch=self.branch)
        if not self.retriever.writes_chains:
            raise ConfigError(
                "sums of scores with priors are no log-probabilities of chains: normalize them, or take "
                "grls.retrieve.hops.appending.AppendingMultistep."
            )

    @property
    def corpus(self) -> Corpus:
        """What it retrieves from."""
        return self.retriever.corpus

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """At most C chains a query, best first.

        Args:
            queries: The queries.
            allow: What every hop may find; see :class:`~grls.retrieve.base.Retriever`. A filter says nothing
                about DONE. Give the same one to retrievers that share a memory.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: A filter cannot be used, or none of them leaves a passage.
        """
        queries = queries_of(queries)
        find = self.retriever.next_hop(queries, allow)
        if self.memory is not None:
            find = _remembering(find, self.memory, queries)
        live = [_Live(q, (), (), 0.0) for q in range(len(queries))]
        ended: list[list[tuple[_Live, bool]]] = [[] for _ in queries]
        for hop in range(self.hops):
            if not live:
                break
            live = self._hop(find, live, hop, ended)
        for chain in live:
            ended[chain.query].append((chain, False))
        return [self._ranked(some) for some in ended]

    def _hop(
        self,
        find: NextHop,
        live: list[_Live],
        hop: int,
        ended: list[list[tuple[_Live, bool]]],
    ) -> list[_Live]:
        """Continue every chain by one passage; chains that end are moved to ``ended``."""
        under = [Under(chain.query, chain.passages, tuple(self._hidden(chain, hop))) for chain in live]
        found = find(under, hop, self._width)
        candidates: dict[int, list[_Live]] = {}
        for chain, hits in zip(live, found, strict=True):
            if not hits:  # every passage that may be found is in the chain already
                ended[chain.query].append((chain, False))
            for gain, hit in self._weighed(hits):
                longer = _Live(
                    chain.query,
                    (*chain.passages, hit.passage),
                    (*chain.scores, hit.score),
                    chain.total + gain,
                )
                candidates.setdefault(chain.query, []).append(longer)
        return [chain for some in candidates.values() for chain in self._keep(some, ended)]

    @property
    def _width(self) -> int:
        """Hits to ask for: with a bias, the probability of DONE must be known where it can matter."""
        weighed = self.done_bias or self.memory is not None
        return max(self.branch, self.retriever.widest) if weighed else self.branch

    def _weighed(self, hits: Sequence[ScoredPassage]) -> list[tuple[float, ScoredPassage]]:
        """The W best hits once DONE is weighed, each with what it adds to the chain's total."""
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
        """The C best unfinished chains that can still matter; finished ones among the C best end."""
        if self.sets:
            candidates = _merged(candidates)
        candidates.sort(key=lambda chain: -chain.total)
        query = candidates[0].query
        for chain in candidates[: self.chains]:
            if chain.passages[-1] == self.retriever.done:
                ended[query].append((chain, True))
        done = sorted((chain.total for chain, _ in ended[query]), reverse=True)
        bar = done[self.chains - 1] if len(done) >= self.chains else float("-inf")
        live = [chain for chain in candidates if chain.passages[-1] != self.retriever.done]
        return [chain for chain in live[: self.chains] if chain.total > bar]

    def _ranked(self, ended: list[tuple[_Live, bool]]) -> list[Chain]:
        ended.sort(key=lambda pair: -pair[0].total)
        return [self._chain(chain, done) for chain, done in ended[: self.chains]]

    def _chain(self, chain: _Live, done: bool) -> Chain:
        passages = chain.passages[:-1] if done else chain.passages
        ids = self.retriever.corpus.ids(passages)
        hits = tuple(Hit(i, s) for i, s in zip(ids, chain.scores, strict=False))
        return Chain(hits, chain.total, done)


def _merged(chains: Sequence[_Live]) -> list[_Live]:
    """Chains of one query that hold the same passages as one, in the order of the likeliest."""
    sets: dict[tuple[int, ...], list[_Live]] = {}
    for chain in chains:
        sets.setdefault(tuple(sorted(chain.passages)), []).append(chain)
    return [
        max(some, key=lambda chain: chain.total)._replace(
            total=float(np.logaddexp.reduce([chain.total for chain in some]))
        )
        for some in sets.values()
    ]


def _remembering(find: NextHop, memory: Memory, queries: Sequence[Query]) -> NextHop:
    """The same, which asks only for chains that have not been met."""

    def remembered(live: Sequence[Under], hop: int, k: int) -> list[list[ScoredPassage]]:
        keys = [(queries[chain.query], chain.passages, chain.hidden) for chain in live]
        new = [n for n, key in enumerate(keys) if key not in memory]
        for n, hits in zip(new, find([live[n] for n in new], hop, k) if new else (), strict=True):
            memory[keys[n]] = hits
        return [memory[key] for key in keys]

    return remembered
