"""Multi-step retrieval for any text retriever: the evidence so far is appended to the query.

Legend: C chain beams a query, W passages that continue a chain at each hop.

This is for retrievers without a decoder (BM25, a bi-encoder), with the chain beams of MDR (Xiong et al. 2021,
arXiv 2009.12756): the score of a chain is the sum of the scores of its hops. A retriever that embeds DONE
among its passages (``TakesEvidence``) ends chains by itself. Sums favour long chains where scores are
positive, as inner products mostly are. So dynamic chains are ranked by the mean score of a hop, DONE
included.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter, one_each, resolved
from grls.data.types import Chain, Hit, Passage, Query
from grls.decode import ScoredPassage
from grls.errors import ConfigError, MismatchError
from grls.models.base import once_each
from grls.retrieve.base import (
    HopHits,
    ReadsEvidence,
    Retriever,
    SoFar,
    TakesEvidence,
    Under,
    WritesChains,
)
from grls.retrieve.hops.diverse import limit_per_first
from grls.retrieve.hops.steps import AskedHop, Steps, as_decodings, hits_and_done, planned, walked
from grls.retrieve.joins import Plan
from grls.retrieve.queries import check_counts, evidence_numbers, joined, queries_of

log = logging.getLogger(__name__)


class _Path(NamedTuple):
    """A chain so far.

    Attributes:
        query: Index of its query.
        hits: Its hits; the hit of DONE is the last one of a chain that has ended.
        total: Sum of the scores.
    """

    query: int
    hits: tuple[Hit, ...] = ()
    total: float = 0.0

    @property
    def done(self) -> bool:
        return bool(self.hits) and self.hits[-1].id == DONE_ID


@dataclass
class AppendingMultistep:
    """Multi-step retrieval by scores: each hop continues a chain with new passages (C = W = 1: the best one).

    Args:
        retriever: Retrieves each hop. A ``TakesEvidence`` or ``ReadsEvidence`` gets the evidence as passages;
            for other retrievers titles and texts are appended to the query.
        corpus: The corpus of the retriever.
        hops: Length of a chain (``dynamic``: largest length); shorter where the retriever finds nothing new.
        dynamic: End a chain where DONE scores best.
        chains: Number of chain beams C of a query.
        branch: Number of passages W (or DONE) that continue a chain at each hop.
        done_bias: Bias added to the score of DONE at every hop; a negative bias makes chains longer. Tune it
            on dev.
        min_hops: Number of hops before DONE is allowed.
        repeat: Allow a passage twice in a chain.
        per_first: Largest number of kept chains that begin with the same passage; None: no limit.

    Raises:
        ConfigError: A count is not positive, or the retriever of ``dynamic`` chains does not know DONE.
    """

    retriever: Retriever
    corpus: Corpus
    hops: int
    dynamic: bool = False
    chains: int = 1
    branch: int = 1
    done_bias: float = 0.0
    min_hops: int = 1
    repeat: bool = False
    per_first: int | None = None

    def __post_init__(self) -> None:
        check_counts(hops=self.hops, chains=self.chains, branch=self.branch)
        if self.dynamic and not isinstance(self.retriever, TakesEvidence):
            raise ConfigError(
                f"{self.retriever.kind} never writes DONE: choose --hops.steps fixed, or a single step."
            )
        if (
            self.dynamic
            and isinstance(self.retriever, TakesEvidence)
            and self.retriever.learned_done is False
        ):
            log.warning(
                "the model was not trained with DONE (an encoder as it is, or --fit.done false or "
                "--fit.multistep false in training), so where a chain ends is chance: train it with `grls "
                "train biencoder` --fit.multistep true --fit.done true and index it again, or choose "
                "--hops.steps fixed."
            )

    def retrieve(self, queries: Sequence[Query | str], allow: Allow = None) -> list[Chain]:
        """The best chain of each query, in their order."""
        queries = queries_of(queries)
        return [chains[0] for chains in self.retrieve_chains(queries, allow)]

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """At most C chains a query, and at least one, best first.

        ``Hit.score`` is the retriever's score at that hop; ``Chain.score`` is their sum, or where ``dynamic``
        their mean, with DONE's score and bias: log-probabilities only where the retriever's scores are.

        Args:
            queries: The queries.
            allow: The filter of every hop; see :class:`~grls.retrieve.base.Retriever`.
        """
        *_, last = self.walk(queries, allow)
        return last.chains()

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        """:meth:`retrieve_chains`, hop by hop; see :class:`~grls.retrieve.base.WalksHops`."""
        queries = queries_of(queries)
        filters = resolved(one_each(allow, len(queries)), self.corpus)
        yield from walked(self._steps(len(queries)), partial(self._find, queries, filters))

    def plan(
        self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object] = lambda _: None
    ) -> Plan[SoFar]:
        """:meth:`walk` of one query, for a search that others join; ``tell`` is called after every hop.

        The retriever is a generator, or one with priors.
        """
        corpus, done = self.corpus, cast(WritesChains, self.retriever).done

        def got(hop: AskedHop, rankings: list[list[ScoredPassage]]) -> list[HopHits]:
            return [hits_and_done(ranking, corpus, done, hop.k) for ranking in rankings]

        return planned(self._steps(1), partial(as_decodings, query=query, allow=allow, more=1), got, tell)

    def _steps(self, queries: int) -> Steps[SoFar]:
        """The hops of these queries; each asks for the hits of its chains."""
        live = [_Path(n) for n in range(queries)]
        ended: list[list[_Path]] = [[] for _ in range(queries)]
        for hop in range(self.hops):
            if live:
                k = self.branch + (0 if self.repeat else hop)
                under = [Under(path.query, numbers, ()) for path, numbers in self._numbered(live)]
                live = self._hop(live, (yield AskedHop(under, hop, k)), hop, ended)
            last = not live or hop + 1 == self.hops
            yield SoFar(hop + 1, last, partial(self._all, ended, live))
            if last:
                return

    def _all(self, ended: list[list[_Path]], live: Sequence[_Path]) -> list[list[Chain]]:
        """The chains of each query, those that go on among them."""
        paths = [[*own] for own in ended]
        for path in live:
            paths[path.query].append(path)
        return [self._ranked(own) for own in paths]

    def _hop(
        self, live: list[_Path], steps: Sequence[HopHits], hop: int, ended: list[list[_Path]]
    ) -> list[_Path]:
        """Continue every chain; those that end are moved to ``ended``."""
        candidates: dict[int, list[_Path]] = {}
        for path, step in zip(live, steps, strict=True):
            hits = self._allowed(path, step, hop)
            if not hits:  # the retriever finds no new passage
                ended[path.query].append(path)
            for hit in hits:
                longer = _Path(path.query, (*path.hits, hit), path.total + hit.score)
                candidates.setdefault(path.query, []).append(longer)
        return [path for paths in candidates.values() for path in self._keep(paths, ended)]

    def _find(
        self, queries: Sequence[Query], filters: Sequence[Filter | None], hop: AskedHop
    ) -> list[HopHits]:
        """For each chain, the hits of the retriever."""
        numbers = list(dict.fromkeys(number for chain in hop.live for number in chain.passages))
        passages = dict(zip(numbers, self.corpus.passages(numbers), strict=True)) if numbers else {}
        evidence = [[passages[number] for number in chain.passages] for chain in hop.live]
        asked = [queries[chain.query] for chain in hop.live]
        allow = [filters[chain.query] for chain in hop.live]
        return found_after(self.retriever, asked, evidence, hop.k, allow)

    def _allowed(self, path: _Path, step: HopHits, hop: int) -> list[Hit]:
        """The W best hits of a step that may continue a chain; among equal scores, DONE is last."""
        taken = set() if self.repeat else {hit.id for hit in path.hits}
        hits = [hit for hit in step.hits if hit.id not in taken]
        if self.dynamic and hop >= self.min_hops and step.done is not None:
            hits.append(Hit(DONE_ID, step.done + self.done_bias))
            hits.sort(key=lambda hit: -hit.score)
        return hits[: self.branch]

    def _numbered(self, live: list[_Path]) -> list[tuple[_Path, tuple[int, ...]]]:
        """The chains, each with the numbers of its passages."""
        ids = list(dict.fromkeys(hit.id for path in live for hit in path.hits))
        if not ids:
            return [(path, ()) for path in live]
        numbers = [number for number in self.corpus.numbers(ids) if number is not None]
        if len(numbers) < len(ids):
            raise MismatchError(
                f"the retriever returns passages that are not in {self.corpus.source}: give the corpus that "
                "it retrieves from."
            )
        number = dict(zip(ids, numbers, strict=True))
        return [(path, tuple(number[hit.id] for hit in path.hits)) for path in live]

    def _keep(self, candidates: list[_Path], ended: list[list[_Path]]) -> list[_Path]:
        """The C best unfinished chains, until C have finished. Finished chains among the C best end."""
        candidates.sort(key=lambda path: -path.total)  # all have the same number of hops
        candidates = limit_per_first(candidates, lambda path: (path.hits[0].id, path.done), self.per_first)
        finished = ended[candidates[0].query]
        finished += [path for path in candidates[: self.chains] if path.done]
        done = [path for path in finished if path.done]
        if len(limit_per_first(done, lambda path: path.hits[0].id, self.per_first)) >= self.chains:
            return []
        return [path for path in candidates if not path.done][: self.chains]

    def _ranked(self, ended: list[_Path]) -> list[Chain]:
        chains = [self._chain(path) for path in ended]
        chains.sort(key=lambda chain: -chain.score)
        return limit_per_first(chains, _first, self.per_first)[: self.chains]

    def _chain(self, path: _Path) -> Chain:
        score = path.total / max(len(path.hits), 1) if self.dynamic else path.total
        return Chain(path.hits[:-1] if path.done else path.hits, score, path.done)


def _first(chain: Chain) -> str | None:
    """The first passage; None: nothing was found."""
    return chain.hits[0].id if chain.hits else None


def found_after(
    retriever: Retriever,
    queries: Sequence[Query],
    evidence: Sequence[Sequence[Passage]],
    k: int,
    allow: Allow = None,
) -> list[HopHits]:
    """The top-k passages of queries, given evidence.

    Passages of equal texts are equal evidence, and it is read once: in two rows of a batch a model gives it
    two embeddings, which differ by rounding.

    Args:
        retriever: A ``TakesEvidence`` or ``ReadsEvidence`` gets the evidence as passages, a generator their
            numbers; for other retrievers titles and texts are appended to the query.
        queries: The queries, without evidence in their texts.
        evidence: The evidence of each query so far, in order.
        k: Largest number of hits for a query.
        allow: The filter; see :class:`~grls.retrieve.base.Retriever`.
    """
    takes = isinstance(retriever, TakesEvidence)
    if not takes and isinstance(retriever, WritesChains) and retriever.writes_chains:
        return written_after(retriever, queries, evidence, k, allow)
    filters = one_each(allow, len(queries))
    texts = [tuple((passage.title, passage.text) for passage in passages) for passages in evidence]
    requests = list(zip(queries, texts, filters, strict=True))
    distinct, numbers = once_each(requests)
    passages_of = dict(zip(requests, evidence, strict=True))
    before, within = [passages_of[request] for request in distinct], [allowed for *_, allowed in distinct]
    asked = [query for query, *_ in distinct]
    if takes:
        steps = cast(TakesEvidence, retriever).retrieve_hop(asked, before, k, within)
    elif isinstance(retriever, ReadsEvidence):
        steps = [HopHits(hits, None) for hits in retriever.retrieve_after(asked, before, k, within)]
    else:
        asked = [
            query._replace(text=joined(query, passages))
            for query, passages in zip(asked, before, strict=True)
        ]
        steps = [HopHits(hits, None) for hits in retriever.retrieve(asked, k, within)]
    return [steps[number] for number in numbers]


def written_after(
    retriever: WritesChains,
    queries: Sequence[Query],
    evidence: Sequence[Sequence[Passage]],
    k: int,
    allow: Allow,
) -> list[HopHits]:
    """:func:`found_after` of a retriever that decodes passages and DONE.

    The evidence is not retrieved again, and DONE only after evidence.
    """
    corpus, done = retriever.corpus, retriever.done
    chains = []
    for place, passages in enumerate(evidence):
        known = tuple(evidence_numbers(corpus, passages))
        chains.append(Under(place, known, known or (done,)))
    longest = max((len(passages) for passages in evidence), default=0)
    rankings = retriever.next_hop(queries, allow)(chains, longest, k + 1)
    return [hits_and_done(ranking, corpus, done, k) for ranking in rankings]
