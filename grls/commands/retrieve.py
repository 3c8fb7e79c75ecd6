"""``grls retrieve``: single-step, fixed or dynamic multi-step retrieval."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from grls.commands.output import Outcome, write_outputs
from grls.commands.portions import in_portions
from grls.commands.priors import open_hybrid, prior_options, tell_unlike_training
from grls.data.corpus import Corpus, corpus_file
from grls.data.dataset import own_corpus, read_queries, read_split
from grls.data.filters import Filter, both, own_filters, read_allowed
from grls.data.filters import where as parse_where
from grls.data.types import Query
from grls.data.words import USUAL, Analyzer
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError, MismatchError
from grls.io.files import refuse_unwritable, sha256
from grls.io.logs import quiet
from grls.models.precision import Precision
from grls.retrieve.base import FindsChains, Retriever, Steps
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import Choice, HopOptions
from grls.retrieve.hops.pool import pooled_ranking
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid.retriever import DONE_SHARE
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import open_retriever
from grls.runs.manifest import RunInfo, fingerprint_queries


def retrieve(
    data: str,
    output: str,
    retriever: str | None = None,
    bm25: bool = False,
    split: str | None = "test",
    steps: Steps = "single",
    k: int = 10,
    hops: int = 20,
    beams: int = 10,
    chains: int | None = None,
    branch: int | None = None,
    done_bias: float = 0.0,
    repeat: bool = False,
    sets: bool = False,
    choose: Choice = "likeliest",
    pool: bool = False,
    mode: ScoreMode = "renormalized",
    early_stop: bool | None = None,
    span_temperature: float = 3.0,
    batch_size: int = 32,
    truncate_queries: bool = False,
    device: str = "auto",
    precision: Precision = "float32",
    name: str | None = None,
    allow: str | None = None,
    where: str | None = None,
    query_filters: bool = False,
    compile: bool = False,
    prior: list[str] | str | None = None,
    prior_weight: list[float] | float | None = None,
    prior_temperature: list[float] | float | None = None,
    prior_normalized: bool = False,
    empty_weight: float = 0.0,
    done_share: float = DONE_SHARE,
    rescore: int = 0,
    rescore_weight: float = 1.0,
    analyzer: Analyzer = USUAL,
) -> None:
    """Retrieve for queries.

    Writes OUTPUT.trec (a TREC run; none where an id holds white space), OUTPUT.jsonl (with evidence text) and
    OUTPUT.info.json (what made them, for `grls ensemble` and `grls report`). With many queries a killed run
    goes on where it stopped when it is called again with the same options (OUTPUT.retrieved.jsonl).

    Args:
        data: Data set folder (queries and qrels), or a queries.jsonl where ``split`` is null.
        output: Path of the results without ending.
        retriever: Retriever folder that ``grls index`` wrote, generative or dense.
        bm25: Retrieve with BM25 from the data set's corpus instead (single or fixed).
        split: Which queries; null takes all.
        steps: ``single``: the top k; ``fixed``: exactly ``hops`` hops; ``dynamic``: hops until DONE.
        k: Passages a query (single-step, and with ``pool``).
        hops: Number of hops (fixed), most hops (dynamic).
        beams: Beam width of each hop (generative). A generator that writes spans ranks ``k`` passages
            whatever it is: what the beam has left counts, too.
        chains: Chains kept side by side (multi-step); null: 4 for a generative retriever, 1 for others.
        branch: Passages that continue a chain at each hop (multi-step); null: 4 for a generative retriever,
            as many as ``chains`` for others.
        done_bias: Added to the log-odds of DONE at every hop (dense: to its score); negative makes chains
            longer. Tune it on dev.
        repeat: Allow a passage twice in a chain.
        sets: Chains of the same passages in another order are one, whose probability is the sum of theirs:
            where any order is right (generative).
        choose: Of the chains kept the ``likeliest``; or, of passages of any of them, the set whose F1 is
            highest on average over the chains: ``expected-f1`` (dynamic, generative; the more ``chains`` the
            better). Its passages come by their probability, with its logarithm as the score.
        pool: Rank the passages of all chains, the best chain's first, up to ``k`` (fixed).
        mode: Score mode: over the allowed tokens, or over the vocabulary (generative).
        early_stop: Stop at the unique prefix; null means where it is exact (renormalized).
        span_temperature: How the spans of a passage make its score (a generator that writes spans): 1 adds
            their probabilities, above it counts the more how many of them are likely. Tune it on dev.
        batch_size: Model inputs decoded or embedded together.
        truncate_queries: Cut queries that are too long instead of refusing them.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the model computes: bfloat16 where the processor has it; float16-weights
            or int8 on CPUs (generators only); auto measures.
        name: What reports call this run; null makes one from the system, the steps and ``pool``.
        allow: A file of the passages that may be found: a passage id a line, or `query-id <tab> passage-id`.
        where: Find only passages whose metadata meet this: `year>=2000`, or `lang=de|fr and year<1990`.
        query_filters: Heed each query's own metadata, too: `allow` (a list of passage ids) and `where`.
        compile: Compile the whole step of the search (generative), on a GPU to be replayed as a CUDA graph:
            it takes minutes at first and pays for thousands of queries.
        prior: Hybrid decoding: folders of bi-encoders over the same corpus, or `bm25`, whose scores look
            ahead for the generator while it writes. One, or a list.
        prior_weight: What each prior counts beside the generator; null: 1. Tune it on dev: `grls tune-hybrid`
            writes a file for --config.
        prior_temperature: What the scores of each prior are divided by; null: 0.05 for a
            bi-encoder of unit vectors, 1 for another, 2 for BM25.
        prior_normalized: Normalize the sums of scores at every token, for a generator that was trained beside
            these priors (`--data.prior`) with these weights.
        empty_weight: How much of a passage's log-probability under an empty prompt is taken from its score,
            against what the generator favours whatever is asked (with or without --prior).
        done_share: Log of DONE's share of a prior that knows nothing of it (dynamic, with a prior).
        rescore: How many of the best passages (of each hop) the generator reads to their end and rescores,
            which ranks them anew, before all others; 0: none. For a generator that has learned to
            (`--data.rescore`); one that writes whole passages has beams as many at least.
        rescore_weight: What a rescore counts beside the score. Tune it on dev: `grls tune-rescore` writes
            a file for --config.
        analyzer: How BM25 splits texts into words: language, stemming and function words.
    """
    quiet()
    check_counts(k=k)
    refuse_unwritable(output)
    if bm25 == (retriever is not None):
        raise ConfigError("give either --retriever FOLDER or --bm25 true.")
    hop_options = HopOptions(steps, hops, chains, branch, done_bias, repeat, sets, choose, pool)
    if compile and bm25:
        raise ConfigError("--compile true compiles the search of a generative retriever; BM25 has no such.")
    corpus = None if split is None else own_corpus(data)
    queries = read_queries(data) if split is None else read_split(data, split, corpus)[0]
    options = SearchOptions(
        beams, mode, early_stop, batch_size, truncate_queries, span_temperature,
        progress=True, compile=compile, rescore=rescore, rescore_weight=rescore_weight,
    )  # fmt: skip
    filters = _filters(queries, allow, where, query_filters)
    priors = prior_options(prior, prior_weight, prior_temperature, empty_weight, done_share, prior_normalized)
    opened = opened_retriever(data, retriever, device, precision, options, analyzer, corpus)
    if priors.given:
        opened = open_hybrid(opened, priors, device, options, analyzer)
    if rescore and not opened.describe().options.get("rescore"):
        raise ConfigError("--rescore is for a generative retriever that has learned to (--data.rescore).")
    refuse_other_corpus(opened, data, split, corpus)
    tell_unlike_training(opened)
    if steps != "single":
        opened = HopsRetriever(opened, hop_options)
    told = opened.describe()
    given = {"allow": allow, "where": where, "query_filters": query_filters or None}
    filtered = {option: value for option, value in given.items() if value is not None}
    info = RunInfo(
        system=told.system,
        name=name or f"{told.system}, {steps}{', pooled' if pool else ''}",
        steps=steps,
        corpus=opened.corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=data,
        split=split,
        score_mode=told.score_mode,
        stages=told.stages,
        options={"k": k, **told.options, **filtered},
    )
    found = in_portions(
        output,
        lambda: _settings(info, opened, queries, precision, allow, query_filters),
        queries,
        lambda some: _retrieve(opened, queries[some], k, pool, filters[some]),
    )
    info = replace(info, seconds=found.seconds)
    write_outputs(output, queries, opened.corpus, found.parts, info)
    if found.file is not None:
        found.file.remove()


def _settings(
    info: RunInfo,
    opened: Retriever,
    queries: list[Query],
    precision: Precision,
    allow: str | None,
    query_filters: bool,
) -> dict[str, Any]:
    """What the results of a run depend on."""
    kept = ("system", "steps", "corpus", "queries", "split", "score_mode", "options")
    own = [query.metadata for query in queries] if query_filters else []
    return {
        **{name: getattr(info, name) for name in kept},
        "retriever": opened.fingerprint(),
        "precision": precision,
        "allow": None if allow is None else sha256(allow),
        "metadata": opened.corpus.metadata_fingerprint,
        "filters": hashlib.sha256(json.dumps(own).encode()).hexdigest(),
    }


def _filters(queries: list[Query], allow: str | None, where: str | None, own: bool) -> list[Filter | None]:
    """What each query may find: every filter that is given must let a passage through."""
    listed = [None] * len(queries) if allow is None else read_allowed(allow, queries)
    everywhere = None if where is None else parse_where(where)
    theirs = own_filters(queries) if own else [None] * len(queries)
    return [both(mine, everywhere, its) for mine, its in zip(listed, theirs, strict=True)]


def opened_retriever(
    data: str,
    retriever: str | None,
    device: str,
    precision: str,
    options: SearchOptions,
    analyzer: Analyzer = USUAL,
    corpus: Corpus | None = None,
) -> Retriever:
    """A retriever folder, or BM25 over the corpus of a data set (``corpus``, where it is read already).

    Raises:
        ConfigError: BM25 is asked for, and ``data`` is no folder.
    """
    if retriever is not None:
        return open_retriever(retriever, device, precision, options)
    if not Path(data).is_dir():
        raise ConfigError(f"BM25 retrieves from the corpus of a data set folder, and {data} is none.")
    return BM25Retriever(corpus or Corpus.read(data), analyzer=analyzer)


def refuse_other_corpus(
    opened: Retriever, data: str, split: str | None, corpus: Corpus | None = None
) -> None:
    """A run is scored against the data set own passages (``corpus``, where it is read already), so the
    retriever must be over the same; without a split over any.

    Raises:
        MismatchError: It is over others.
    """
    if split is None or not corpus_file(data).is_file():
        return
    corpus = corpus or Corpus.read(data)
    if corpus is not opened.corpus and corpus.fingerprint != opened.corpus.fingerprint:
        raise MismatchError(
            f"the retriever is over another corpus than {corpus_file(data)}, so the run could not be scored "
            f"there: make it again with `grls index --corpus {data}`, or give {data}/queries.jsonl and "
            "--split null to retrieve for the queries alone."
        )


def _retrieve(
    opened: Retriever, queries: list[Query], k: int, pool: bool, filters: list[Filter | None]
) -> Outcome:
    if not isinstance(opened, FindsChains):
        return Outcome(rankings=opened.retrieve(queries, k, filters))
    chains = opened.retrieve_chains(queries, filters)
    best = [some[0] for some in chains]
    if opened.describe().sets:
        return Outcome([list(chain.hits) for chain in best], best)
    return Outcome([pooled_ranking(some, k) for some in chains] if pool else None, best)
