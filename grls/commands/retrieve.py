"""``grls retrieve``: retrieve for the queries of a data set, in a single step or hop by hop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grls.data.filter_options import NO_FILTER, FilterOptions
from grls.data.words import USUAL, Analyzer
from grls.models.precision_names import Precision
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from grls.data.filters import Filter
    from grls.data.types import Query
    from grls.retrieve.base import Retriever
    from grls.runs.manifest import RunInfo
    from grls.runs.results import Retrieved


def retrieve(
    retriever: str,
    *,
    data: str,
    output: str,
    split: str | None = "test",
    k: int = 10,
    search: SearchOptions = USUAL_SEARCH,
    hops: HopOptions = USUAL_HOPS,
    filter: FilterOptions = NO_FILTER,
    analyzer: Analyzer = USUAL,
    device: str = "auto",
    precision: Precision = "float32",
    name: str | None = None,
) -> None:
    """Retrieve for queries.

    Writes OUTPUT.trec (a TREC run; none where an id holds white space), OUTPUT.jsonl (with evidence text) and
    OUTPUT.info.json (what made them, for `grls fuse` and `grls report`). With many queries a killed run goes
    on where it stopped when it is called again with the same options (OUTPUT.retrieved.jsonl). What the
    folder says of search and hops holds where an option is not given.

    Args:
        retriever: Retriever folder of any kind, or `bm25`: BM25 over the corpus of the data set.
        data: Data set folder (queries and qrels), or a queries.jsonl where ``split`` is null.
        output: Path of the results without ending.
        split: Which queries; null takes all.
        k: Passages a query (in a single step, and with ``hops.pool``).
        search: How passages are searched for.
        hops: How retrieval goes hop by hop.
        filter: Which passages may be found.
        analyzer: How `bm25` splits texts into words.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the model computes: bfloat16 where the processor has it; float16-weights
            or int8 on CPUs (generators only); auto measures.
        name: What reports call this run; null makes one from the system and the steps.
    """
    from dataclasses import replace

    from grls.commands.opening import data_corpus, open_for, refuse_other_corpus
    from grls.data.dataset import read_queries, read_split
    from grls.data.filters import filters_of
    from grls.io.files import refuse_unwritable
    from grls.io.logs import quiet
    from grls.retrieve.queries import check_counts
    from grls.runs.portions import in_portions
    from grls.runs.save import save_retrieved

    quiet()
    check_counts(k=k)
    refuse_unwritable(output)
    corpus = data_corpus(data, split)
    queries = read_queries(data) if split is None else read_split(data, split, corpus)[0]
    filters = filters_of(filter, queries)
    opened = open_for(retriever, data, corpus, device, precision, search, hops, analyzer)
    refuse_other_corpus(opened, data, split, corpus)
    info = _info(opened, queries, data, split, k, name, filter)
    portions = in_portions(
        output,
        lambda: _settings(info, opened, queries, precision, filter),
        queries,
        lambda some: _retrieve(opened, queries[some], k, hops.pool, filters[some]),
    )
    info = replace(info, seconds=portions.seconds)
    print(save_retrieved(output, queries, opened.corpus, portions.retrieved, info))
    if portions.file is not None:
        portions.file.remove()


def _info(
    opened: Retriever,
    queries: list[Query],
    data: str,
    split: str | None,
    k: int,
    name: str | None,
    filter: FilterOptions,
) -> RunInfo:
    """The manifest of the run."""
    from grls.runs.manifest import RunInfo, fingerprint_queries

    told = opened.describe()
    pooled = ", pooled" if told.options.get("pool") else ""
    return RunInfo(
        system=told.system,
        name=name or f"{told.system}, {told.steps}{pooled}",
        steps=told.steps,
        corpus=opened.corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=data,
        split=split,
        score_mode=told.score_mode,
        stages=told.stages,
        members=told.members,
        options={"k": k, **told.options, **filter.record},
    )


def _settings(
    info: RunInfo, opened: Retriever, queries: list[Query], precision: str, filter: FilterOptions
) -> dict[str, Any]:
    """What the results of a run depend on."""
    import hashlib
    import json

    from grls.io.files import sha256

    kept = ("system", "steps", "corpus", "queries", "split", "score_mode", "options")
    own = [query.metadata for query in queries] if filter.queries else []
    return {
        **{name: getattr(info, name) for name in kept},
        "retriever": opened.fingerprint(),
        "precision": precision,
        "allow": None if filter.allow is None else sha256(filter.allow),
        "metadata": opened.corpus.metadata_fingerprint,
        "filters": hashlib.sha256(json.dumps(own).encode()).hexdigest(),
    }


def _retrieve(
    opened: Retriever, queries: list[Query], k: int, pool: bool, filters: list[Filter | None]
) -> list[Retrieved]:
    from grls.retrieve.base import EndsRankings, FindsChains
    from grls.retrieve.hops.pool import pooled_ranking
    from grls.runs.results import Retrieved

    ids = [query.id for query in queries]
    if isinstance(opened, EndsRankings):
        ended = opened.retrieve_sets(queries, filters)
        return [Retrieved.chained(i, chain, hits) for i, (hits, chain) in zip(ids, ended, strict=True)]
    if not isinstance(opened, FindsChains):
        rankings = opened.retrieve(queries, k, filters)
        return [Retrieved.ranked(i, hits) for i, hits in zip(ids, rankings, strict=True)]
    sets = opened.describe().sets
    retrieved = []
    for i, chains in zip(ids, opened.retrieve_chains(queries, filters), strict=True):
        hits = chains[0].hits if sets else pooled_ranking(chains, k) if pool else None
        retrieved.append(Retrieved.chained(i, chains[0], hits))
    return retrieved
