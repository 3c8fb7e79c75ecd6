"""A run whose queries are shared by workers: each opens the retriever and answers shards of the queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.cluster.options import Workers
from grls.cluster.plan import Shard, ShardPlan, Work, refuse_other_reading, seen_elsewhere, shards_folder
from grls.cluster.work import done_by_workers
from grls.data.filter_options import FilterOptions
from grls.data.words import Analyzer
from grls.errors import ConfigError
from grls.models.precision_names import Precision
from grls.retrieve.bm25_options import BM25Options
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.registry import BM25
from grls.retrieve.run import Elsewhere, RetrieverRun, retrieve_results
from grls.retrieve.spec import MANIFEST
from grls.runs.manifest import fingerprint_queries
from grls.runs.portions import PORTION, FiledResults, Portions, write_retrieved

_FILE = "retrieved.jsonl"


@dataclass(frozen=True)
class AskedAgain:
    """The options of `grls retrieve`, with which a worker opens the same retriever and the same queries.

    The attributes are named like the options.
    """

    retriever: str
    data: str
    split: str | None
    limit: int | None
    k: int
    search: SearchOptions
    hops: HopOptions
    filter: FilterOptions
    bm25: BM25Options
    analyzer: Analyzer
    device: str
    precision: Precision

    def opened(self) -> RetrieverRun:
        """Open the retriever and read the queries.

        Raises:
            ConfigError: The queries have a limit, and are those of no split.
            MismatchError: The retriever is over another corpus than the data set.
        """
        from grls.commands.opening import open_for, refuse_other_corpus
        from grls.data.dataset import own_corpus, read_queries, read_split
        from grls.data.filters import filters_of

        corpus = None if self.split is None else own_corpus(self.data)
        if self.split is not None:
            queries = read_split(self.data, self.split, corpus, self.limit)[0]
        elif self.limit is None:
            queries = read_queries(self.data)
        else:
            raise ConfigError(
                "--limit counts the queries of a split: name one with --split, or give fewer queries."
            )
        filters = filters_of(self.filter, queries)
        where = (self.retriever, self.data, corpus, self.device, self.precision)
        opened = open_for(*where, self.search, self.hops, self.analyzer, self.bm25)
        refuse_other_corpus(opened, self.data, self.split, corpus)
        which = (self.data, self.split, self.k, self.hops.pool)
        return RetrieverRun(opened, queries, *which, filters, self.filter, self.precision, self.limit)

    def elsewhere(self) -> AskedAgain:
        """The same with absolute paths: a worker runs in another folder."""
        plain_bm25 = self.retriever == BM25 and not (Path(BM25) / MANIFEST).is_file()
        retriever = self.retriever if plain_bm25 else seen_elsewhere(self.retriever)
        allow = None if self.filter.allow is None else seen_elsewhere(self.filter.allow)
        inside = replace(self.filter, allow=allow)
        return replace(self, retriever=retriever, data=seen_elsewhere(self.data), filter=inside)

    def work(self, fingerprints: dict[str, str]) -> Work:
        """Open the retriever and the queries on a worker.

        Args:
            fingerprints: Those of the retriever and the queries, which the worker must read, too.

        Returns:
            What answers the queries of a shard, and writes the results to its folder.

        Raises:
            MismatchError: The worker reads another retriever, or other queries.
        """
        run = self.opened()
        places = {"retriever": (self.retriever, "retriever"), "data": (self.data, "set of queries")}
        refuse_other_reading(_fingerprints(run), fingerprints, places)

        def retrieve(shard: Shard, folder: Path) -> dict[str, Any]:
            begun = perf_counter()
            where = slice(shard.first, shard.end)
            results = retrieve_results(run.retriever, run.queries[where], run.k, run.pool, run.filters[where])
            write_retrieved(results, folder / _FILE)
            return {"seconds": perf_counter() - begun}

        return retrieve


def _fingerprints(run: RetrieverRun) -> dict[str, str]:
    return {"retriever": run.retriever.fingerprint(), "data": fingerprint_queries(run.queries)}


def share_queries(run: RetrieverRun, asked: AskedAgain, workers: Workers, output: str) -> Elsewhere:
    """Let workers answer the queries of a run.

    Args:
        run: The run, as this process opened it.
        asked: The options of the command.
        workers: The workers.
        output: Path of the results; the shards stand beside it.
    """

    def share(settings: dict[str, Any]) -> Portions:
        size = workers.options.shard or PORTION
        plan = ShardPlan(shards_folder(output), settings, len(run.queries), size)
        begun = perf_counter()
        make = partial(asked.elsewhere().work, _fingerprints(run))
        done = done_by_workers(plan, make, workers, "retrieve", "queries")
        files = [one.folder / _FILE for one in done]
        return Portions(FiledResults(files, run.queries), perf_counter() - begun, plan)

    return share
