"""A run of a retriever over the queries of a data set: portion by portion, then saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from grls.data.filters import Filter, FilterOptions
from grls.data.types import Query
from grls.io.files import sha256
from grls.retrieve.base import (
    DecodesPassages,
    FindsChains,
    Retriever,
    ranking_fingerprint,
    single_steps,
)
from grls.retrieve.hops.retriever import pooled_ranking
from grls.runs.portions import Portions, RunInfo, fingerprint_queries, in_portions, save_retrieved
from grls.runs.results import Retrieved

Elsewhere = Callable[[dict[str, Any]], AbstractContextManager[Portions]]
"""Retrieves for all queries of a run with these settings."""


@dataclass(frozen=True)
class RetrieverRun:
    """A retriever and its queries.

    Attributes:
        data: The data set of the queries; like ``split`` and ``limit`` (None: all), for the manifest.
        k: Number of passages for each query.
        filters: The filter of each query; None: there is none.
        filter: The options that made them, for the manifest.
        index_seconds: Seconds that the index took, for the manifest; None: unknown.
        own: Ids of the queries that are passages, and do not find themselves
            (:func:`~grls.data.dataset.passage_queries`).
    """

    retriever: Retriever
    queries: Sequence[Query]
    data: str
    split: str | None
    k: int
    precision: str
    filters: Sequence[Filter | None] | None = None
    filter: FilterOptions = field(default_factory=FilterOptions)
    limit: int | None = None
    index_seconds: float | None = None
    own: Set[str] = frozenset()

    def save(self, output: str, name: str | None = None, share: Elsewhere | None = None) -> str:
        """Retrieve and save, and return a line about the files. A killed run is resumed.

        ``output`` is a path without ending; ``name`` None: a name from the system and the steps. ``share``
        retrieves by workers.
        """
        info = self.info(name)
        results: AbstractContextManager[Portions]
        if share is None:
            results = in_portions(output, lambda: self.settings(info), self.queries, self.retrieve)
        else:
            info = replace(info, search="")  # workers choose their search
            results = share(self.settings(info))
        with results as portions:
            info = replace(info, seconds=portions.seconds, computed_tokens=portions.tokens)
            return save_retrieved(output, self.queries, self.retriever.corpus, portions.retrieved, info)

    def retrieve(self, part: slice) -> list[Retrieved]:
        """The results of some of the queries."""
        queries = self.queries[part]
        filters = [None] * len(queries) if self.filters is None else self.filters[part]
        return retrieve_results(self.retriever, queries, self.k, filters, self.own)

    def info(self, name: str | None) -> RunInfo:
        described, inner = self.retriever.describe(), single_steps(self.retriever)
        pooled = ", pooled" if described.options.get("pool") else ""
        own = {"ignore_identical_ids": len(self.own)} if self.own else {}
        ranks = ranking_fingerprint(self.retriever)
        same = json.dumps({"retriever": ranks, "where": self.filter.where, **self._filters()})
        return RunInfo(
            system=described.system,
            name=name or f"{described.system}, {described.steps}{pooled}",
            steps=described.steps,
            corpus=self.retriever.corpus.fingerprint,
            queries=fingerprint_queries(self.queries),
            data=self.data,
            split=self.split,
            score_mode=described.score_mode,
            stages=described.stages,
            members=described.members,
            options={"k": self.k, **described.options, **self.filter.record, **own},
            retriever=hashlib.sha256(same.encode()).hexdigest(),
            limit=self.limit,
            index_seconds=self.index_seconds,
            search=inner.generator.searched_by if isinstance(inner, DecodesPassages) else "",
        )

    def settings(self, info: RunInfo) -> dict[str, Any]:
        names = ("system", "steps", "corpus", "queries", "split", "score_mode", "options", "search")
        return {
            **{name: getattr(info, name) for name in names},
            "retriever": self.retriever.fingerprint(),
            "precision": self.precision,
            "metadata": self.retriever.corpus.metadata_fingerprint,
            **self._filters(),
        }

    def _filters(self) -> dict[str, str | None]:
        metadata = [query.metadata for query in self.queries] if self.filter.queries else []
        allow = self.filter.allow
        return {
            "allow": None if allow is None else sha256(allow),
            "filters": hashlib.sha256(json.dumps(metadata).encode()).hexdigest(),
        }


def retrieve_results(
    retriever: Retriever,
    queries: Sequence[Query],
    k: int,
    filters: Sequence[Filter | None],
    own: Set[str] = frozenset(),
) -> list[Retrieved]:
    """What a run holds of each query, and so what every measure reads.

    It is a ranking of k passages; of fixed hops and hops until DONE the best chain, whatever its length, as
    in a search. By options, it is the chosen set (``expected-f1``), or the passages of all chains (``pool``).
    A query in ``own`` does not find itself.
    """
    if not own.isdisjoint(query.id for query in queries):
        results = retrieve_results(retriever, queries, k + 1, filters)
        results = [result.without_own() if result.query_id in own else result for result in results]
        described = retriever.describe()
        ranked = not isinstance(retriever, FindsChains) or described.options.get("pool")
        if described.sets or not ranked:
            return results
        return [result._replace(hits=result.hits[:k]) for result in results]
    ids = [query.id for query in queries]
    if not isinstance(retriever, FindsChains):
        rankings = retriever.retrieve(queries, k, filters)
        return [Retrieved.ranked(i, hits) for i, hits in zip(ids, rankings, strict=True)]
    described = retriever.describe()
    sets, pool = described.sets, described.options.get("pool")
    retrieved = []
    for i, chains in zip(ids, retriever.retrieve_chains(queries, filters), strict=True):
        hits = chains[0].hits if sets else pooled_ranking(chains, k) if pool else None
        retrieved.append(Retrieved.chained(i, chains[0], hits))
    return retrieved
