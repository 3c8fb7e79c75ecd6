"""``grls retrieve``: retrieve for the queries of a data set, in a single step or hop by hop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.cluster.options import USUAL_WORKERS, WorkerOptions, Workers, workers_of
from grls.cluster.plan import Shard, Work, refuse_other_reading, seen_elsewhere
from grls.cluster.shards import done_shards
from grls.data.dataset import own_corpus, passage_queries, read_queries, read_split
from grls.data.filters import FilterOptions, filters_of
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.io.arguments import Count, options
from grls.io.files import refuse_unwritable, without_ending
from grls.models.option_names import Device, Precision
from grls.retrieve.bm25 import USUAL_BM25, BM25Options, refuse_words
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions
from grls.retrieve.registry import BM25, Opening, index_seconds, load_retriever, names_bm25
from grls.retrieve.run import Elsewhere, RetrieverRun
from grls.runs.portions import ENDINGS, PORTION, KeptResults, Portions, fingerprint_queries, write_retrieved

_FILE = "retrieved.jsonl"


@options(kw_only=True)
class RetrieveOptions:
    """What retrieves for which queries; a worker opens the same by it.

    Args:
        retriever: Retriever folder of any kind, or `bm25`: BM25 over the corpus of the data set.
        data: Data set folder (queries and qrels), or a queries.jsonl where ``split`` is null.
        split: Split of the queries; null: all queries of the file.
        limit: Number of first queries of the split; null: all. The manifest records it: the run is scored on
            these queries, and is fused and compared with runs for the same ones.
        k: Passages a query (in a single step, with ranked hops, and with ``hops.pool``).
        search: Options of search.
        hops: Options of retrieval hop by hop.
        where: A filter over the metadata of passages: `year>=2000`, or `lang=de|fr and year<1990`. It holds
            in every hop, so it must hold the passages on the way as well.
        allow: A file of the passages that may be found: one passage id a line, or
            `query-id <tab> passage-id`.
        query_filters: Also apply the filters in the metadata of each query: `allow` (a list of passage ids)
            and `where`. A passage must pass all filters.
        bm25: How `bm25` scores passages.
        analyzer: How `bm25` splits texts into words.
    """

    retriever: str
    data: str
    split: str | None = "test"
    limit: Count | None = None
    k: Count = 10
    search: SearchOptions = USUAL_SEARCH
    hops: HopOptions = USUAL_HOPS
    where: str | None = None
    allow: str | None = None
    query_filters: bool = False
    bm25: BM25Options = USUAL_BM25
    analyzer: Analyzer = USUAL
    device: Device = "auto"
    precision: Precision = "float32"

    def opened(self) -> RetrieverRun:
        from grls.commands.retrievers import bm25_over, refuse_other_corpus, tell_unlike_training
        from grls.retrieve.hops.retriever import hop_by_hop

        corpus = None if self.split is None else own_corpus(self.data)
        if self.split is not None:
            queries, qrels = read_split(self.data, self.split, corpus, self.limit)
        elif self.limit is None:
            queries = read_queries(self.data)
        else:
            raise ConfigError(
                "--limit counts the queries of a split: name one with --split, or give fewer queries."
            )
        rule = FilterOptions(self.allow, self.where, self.query_filters)
        filters = filters_of(rule, queries)
        begun = perf_counter()
        refuse_words(self.retriever, self.analyzer, self.bm25)
        if names_bm25(self.retriever):
            if self.search.compile or self.search.rescore:
                raise ConfigError(
                    "--search.compile and --search.rescore are for a generator; bm25 takes neither: leave "
                    "them out."
                )
            opened = bm25_over(self.data, corpus, self.analyzer, self.bm25)
        else:
            opened = load_retriever(self.retriever, Opening(self.device, self.precision, self.search))
        opened = hop_by_hop(opened, self.hops)
        tell_unlike_training(opened)
        indexed = perf_counter() - begun if names_bm25(self.retriever) else index_seconds(self.retriever)
        refuse_other_corpus(opened, self.data, self.split, corpus)
        own = frozenset() if self.split is None else passage_queries(queries, qrels, opened.corpus)
        options = (self.data, self.split, self.k, self.precision, filters, rule, self.limit, indexed)
        return RetrieverRun(opened, queries, *options, own)

    def elsewhere(self) -> RetrieveOptions:
        """The same with absolute paths: a worker runs in another folder."""
        retriever = BM25 if names_bm25(self.retriever) else seen_elsewhere(self.retriever)
        allow = None if self.allow is None else seen_elsewhere(self.allow)
        return replace(self, retriever=retriever, data=seen_elsewhere(self.data), allow=allow)

    def work(self, fingerprints: dict[str, str]) -> Work:
        """The work on a shard by a worker, which opens the retriever and the queries once."""
        run = self.opened()
        paths = {"retriever": (self.retriever, "retriever"), "data": (self.data, "set of queries")}
        refuse_other_reading(_fingerprints(run), fingerprints, paths)

        def retrieve(shard: Shard, folder: Path) -> dict[str, Any]:
            begun = perf_counter()
            write_retrieved(run.retrieve(slice(shard.first, shard.end)), folder / _FILE)
            return {"seconds": perf_counter() - begun}

        return retrieve


def retrieve(
    retriever: str,
    *,
    output: str,
    name: str | None = None,
    ray: str | None = None,
    workers: WorkerOptions = USUAL_WORKERS,
    **options: Any,
) -> None:
    """Retrieve for queries.

    Writes OUTPUT.trec (a TREC run; none where an id holds white space), OUTPUT.jsonl (with evidence text) and
    OUTPUT.info.json (what made them, for `grls fuse` and `grls experiment`). With many queries a killed run
    resumes when it is called again with the same options (OUTPUT.retrieved.jsonl). Options of search and hops
    that the folder stores replace the defaults.

    Args:
        retriever: Retriever folder of any kind, or `bm25`: BM25 over the corpus of the data set.
        output: Path of the results without ending.
        name: Name of the run in reports; null: a name from the system and the steps.
        ray: Address of a Ray cluster whose workers share the queries: HOST:PORT, auto, or local for a cluster
            on this machine. All its machines must see the files. Scores are those of one process up to the
            rounding of float32.
        workers: How many workers, and their shards.
        options: See :class:`RetrieveOptions`.
    """
    asked = RetrieveOptions(retriever=retriever, **options)
    sharing = workers_of(ray, workers)
    output = without_ending(output, ENDINGS)
    refuse_unwritable(output)
    run = asked.opened()
    print(run.save(output, name, None if sharing is None else _by_workers(run, asked, sharing, output)))


def _fingerprints(run: RetrieverRun) -> dict[str, str]:
    return {"retriever": run.retriever.fingerprint(), "data": fingerprint_queries(run.queries)}


def _by_workers(run: RetrieverRun, options: RetrieveOptions, workers: Workers, output: str) -> Elsewhere:
    """The function with which workers answer the queries of a run; the shards stand beside ``output``."""

    @contextmanager
    def share(settings: dict[str, Any]) -> Iterator[Portions]:
        begun, size = perf_counter(), workers.options.shard or PORTION
        make = partial(options.elsewhere().work, _fingerprints(run))
        with done_shards(
            output, settings, len(run.queries), size, make, workers, "retrieve", "queries"
        ) as done:
            files = [shard.folder / _FILE for shard in done]
            yield Portions(KeptResults(files, run.queries), perf_counter() - begun)

    return share
