"""What may come next in chains: the passages of a hop, and the score of DONE.

A generator writes the next passage (:class:`Writes`). Other retrievers search with the evidence so far
(:class:`SearchesAgain`, :func:`found_after`): as passages where they take it so, and else with titles and
texts appended to the query. A hybrid whose scores are no log-probabilities writes ranked hops alone; for
chains it searches again, since the scores of its hops do not add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from grls.data.evidence import excerpt
from grls.data.filters import Allow, Filter, one_each
from grls.data.types import Hit, Query
from grls.decode.beam import ScoredPassage
from grls.models.base import once_each
from grls.retrieve.base import (
    ChainToContinue,
    DecodesHops,
    DecodesPassages,
    Evidence,
    HopHits,
    Retriever,
    ScoresAll,
    ScoresDoneAfter,
    TakesEvidence,
    has_log_probabilities,
    single_steps,
)
from grls.retrieve.queries import evidence_numbers, with_evidence_text

_TOGETHER = 16
"""Queries that hop together where hops read on: a causal model keeps what 60 chains of excerpts read."""


class LiveChain(NamedTuple):
    """A chain so far.

    Attributes:
        query: Index of its query.
        hits: Its passages, in order; the score is that of its hop (ranked hops: the probability of the
            passage, given those before it).
        total: What chains are compared by: the sum of the scores of the hops, or the probability.
        done: DONE has ended it.
        first: The best score of the first hop.
        among: The log-probability of each passage among the hits of its hop alone (ranked hops).
    """

    query: int
    hits: tuple[Hit, ...] = ()
    total: float = 0.0
    done: bool = False
    first: float = 0.0
    among: tuple[float, ...] = ()


class HopRequest(NamedTuple):
    """The request of hop number ``hop`` (from 0) for at most k passages of each chain.

    Attributes:
        known: The numbers of passages by id; those of the hits are added.
        deep: The score of DONE is needed also where DONE is not among the k best.
    """

    chains: Sequence[ChainToContinue]
    hop: int
    k: int
    known: dict[str, int]
    deep: bool = False


Find = Callable[[HopRequest], "list[HopHits]"]
"""Finds the passages that may continue each chain."""


@dataclass
class Writes:
    """Lets a generator write the next passage: none that it hides, and DONE only where the chain may end.

    ``repeat`` allows a passage twice. DONE is one of the k passages, or with ``beside`` one more.
    """

    retriever: DecodesHops
    repeat: bool = False
    beside: bool = False

    def hidden(self, passages: tuple[int, ...], may_end: bool) -> tuple[int, ...]:
        """The passages of the chain, and DONE if it may not end."""
        return (*(() if self.repeat else passages), *(() if may_end else (self.retriever.done,)))

    def start(self, queries: Sequence[Query], filters: Sequence[Filter | None]) -> Find:
        find = self.retriever.next_hop(queries, filters)

        def hits_of(request: HopRequest) -> list[HopHits]:
            rankings = find(request.chains, request.hop, self.width(request))
            return hits_and_done(rankings, self.retriever, request.k, request.known)

        return hits_of

    def width(self, request: HopRequest) -> int:
        """Passages to decode, DONE among them."""
        if self.beside:
            return request.k + 1
        return max(request.k, self.retriever.widest) if request.deep else request.k

    @property
    def together(self) -> int | None:
        """A causal model reads on where the hop before has ended, if it knows the inputs of that hop."""
        generator = self.retriever.generator if isinstance(self.retriever, DecodesPassages) else None
        return _TOGETHER if generator is not None and generator.reads_on else None

    def distinct(self, ids: Sequence[str]) -> int:
        """A passage that is hidden hides those of equal tokens."""
        generator = self.retriever.generator if isinstance(self.retriever, DecodesPassages) else None
        if generator is None or generator.spans is not None:
            return len(ids)
        rows = generator.index.rows.row_of
        return len({int(rows[number]) for number in self.retriever.corpus.numbers(ids)})


@dataclass
class SearchesAgain:
    """Searches with the evidence so far (:func:`found_after`).

    ``words`` of each passage at most are evidence (0: all). ``by_rank``: hits are scored by their ranks.
    """

    retriever: Retriever
    words: int = 0
    by_rank: bool = False

    def hidden(self, passages: tuple[int, ...], may_end: bool) -> tuple[int, ...]:
        """Nothing: passages of the chain are left out after the search."""
        return ()

    def start(self, queries: Sequence[Query], filters: Sequence[Filter | None]) -> Find:
        corpus = self.retriever.corpus

        def hits_of(request: HopRequest) -> list[HopHits]:
            numbers = list(dict.fromkeys(number for chain in request.chains for number in chain.passages))
            passages = dict(zip(numbers, corpus.passages(numbers), strict=True)) if numbers else {}
            evidence = [
                [excerpt(queries[chain.query].text, passages[n], self.words) for n in chain.passages]
                for chain in request.chains
            ]
            own_queries = [queries[chain.query] for chain in request.chains]
            allowed = [filters[chain.query] for chain in request.chains]
            steps = found_after(self.retriever, own_queries, evidence, request.k, allowed)
            return list(map(by_rank, steps)) if self.by_rank else steps

        return hits_of

    @property
    def together(self) -> int | None:
        return None

    def width(self, request: HopRequest) -> int:
        return request.k + 1

    def distinct(self, ids: Sequence[str]) -> int:
        return len(ids)


Finder = Writes | SearchesAgain
"""Finds the passages that may continue chains."""


def hits_and_done(
    rankings: Sequence[Sequence[ScoredPassage]],
    retriever: DecodesHops,
    k: int,
    known: dict[str, int] | None = None,
) -> list[HopHits]:
    """The k best passages of each ranking as hits, and the score of DONE; their numbers go to ``known``."""
    done, best, ends = retriever.done, [], []
    for ranking in rankings:
        best.append([hit for hit in ranking if hit.passage != done][:k])
        ends.append(next((hit.score for hit in ranking if hit.passage == done), None))
    numbers = list(dict.fromkeys(hit.passage for ranking in best for hit in ranking))
    ids = dict(zip(numbers, retriever.corpus.ids(numbers), strict=True))
    if known is not None:
        known |= {name: number for number, name in ids.items()}
    return [
        HopHits([Hit(ids[hit.passage], hit.score) for hit in passages], end)
        for passages, end in zip(best, ends, strict=True)
    ]


def found_after(
    retriever: Retriever,
    queries: Sequence[Query],
    evidence: Evidence,
    k: int,
    allow: Allow = None,
) -> list[HopHits]:
    """The top-k passages of queries, given evidence.

    A ``TakesEvidence`` gets the evidence as passages, a generator their numbers; for other retrievers titles
    and texts are appended to the query. A retriever that works hop by hop takes a
    single step. Passages of equal texts are read once: in two rows of a batch a model gives them two
    embeddings, which differ by rounding.
    """
    retriever = single_steps(retriever)
    takes, filters = isinstance(retriever, TakesEvidence), one_each(allow, len(queries))
    if not takes and has_log_probabilities(retriever):
        # No passage of the evidence, and DONE only after evidence.
        finder, chains = Writes(retriever, beside=True), []
        for query, passages in enumerate(evidence):
            known = tuple(evidence_numbers(retriever.corpus, passages))
            chains.append(ChainToContinue(query, known, finder.hidden(known, bool(known))))
        longest = max((len(passages) for passages in evidence), default=0)
        return finder.start(queries, filters)(HopRequest(chains, longest, k, {}))
    texts = [tuple((passage.title, passage.text) for passage in passages) for passages in evidence]
    requests = list(zip(queries, texts, filters, strict=True))
    distinct, numbers = once_each(requests)
    evidence_of = dict(zip(requests, evidence, strict=True))
    evidence, filters = [evidence_of[request] for request in distinct], [rule for *_, rule in distinct]
    queries = [query for query, *_ in distinct]
    if takes:
        steps = cast(TakesEvidence, retriever).retrieve_hop(queries, evidence, k, filters)
    else:
        pairs = zip(queries, evidence, strict=True)
        longer = [query._replace(text=with_evidence_text(query, passages)) for query, passages in pairs]
        steps = [HopHits(hits, None) for hits in retriever.retrieve(longer, k, filters)]
    return [steps[number] for number in numbers]


@runtime_checkable
class RescoresHops(ScoresDoneAfter, Protocol):
    """A retriever that adds to the scores of another one's hops, in their unit."""

    retriever: Retriever
    rereading: Any


OF_RANKS = 0.4
"""The temperature of minus the logarithm of a rank, by training questions (docs/guides/multi-hop.md)."""


def by_rank(step: HopHits) -> HopHits:
    """The hits of a hop with minus the logarithm of their rank as score."""
    return step._replace(hits=[Hit(hit.id, -math.log(rank)) for rank, hit in enumerate(step.hits, 1)])


def usual_temperature(retriever: Retriever) -> float | None:
    """The temperature that makes the scores of a retriever log-probabilities.

    None: they have no unit of their own, as those of fusions, so hops read ranks (:func:`by_rank`).
    """
    if isinstance(retriever, RescoresHops):
        return usual_temperature(retriever.retriever)
    if isinstance(retriever, ScoresAll):
        return retriever.temperature
    if isinstance(retriever, DecodesPassages):  # its scores are log-probabilities, of spans divided by T
        generator = retriever.generator
        return 1.0 if generator.spans is None else 1 / generator.options.span_temperature
    if isinstance(retriever, ScoresDoneAfter):
        return 1.0
    return None
