"""``grls retrieve``: single-step, fixed or dynamic multi-step retrieval."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Literal

from grls.commands.output import Outcome, write_outputs
from grls.corpus import Corpus, read_queries, read_split
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.manifest import RunInfo, Steps, System, fingerprint_queries
from grls.logs import quiet
from grls.retrieve.appending import AppendingMultistep
from grls.retrieve.generative import GenerativeRetriever, SearchOptions
from grls.retrieve.multistep import MultistepRetriever
from grls.retrieve.sparse import BM25Retriever
from grls.types import Query


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
    chains: int = 4,
    branch: int = 4,
    done_bias: float = 0.0,
    repeat: bool = False,
    mode: ScoreMode = "renormalized",
    early_stop: bool | None = None,
    batch_size: int = 32,
    truncate_queries: bool = False,
    device: str = "auto",
    precision: Literal["float32", "bfloat16"] = "float32",
    name: str | None = None,
) -> None:
    """Retrieve for queries.

    Writes OUTPUT.trec (a TREC run), OUTPUT.jsonl (with evidence text) and OUTPUT.info.json (what made them,
    for `grls ensemble` and `grls report`).

    Args:
        data: Data set folder (queries and qrels), or a queries.jsonl where ``split`` is null.
        output: Path of the results without ending.
        retriever: Retriever folder that ``grls index`` wrote.
        bm25: Retrieve with BM25 from the data set's corpus instead (single or fixed).
        split: Which queries; null takes all.
        steps: ``single``: the top k; ``fixed``: exactly ``hops`` hops; ``dynamic``: hops until DONE.
        k: Passages a query (single-step).
        hops: Number of hops (fixed), most hops (dynamic).
        beams: Beam width of each hop.
        chains: Chains kept side by side (multi-step).
        branch: Passages that continue a chain at each hop (multi-step).
        done_bias: Added to the log-odds of DONE at every hop; negative makes chains longer. Tune it on dev.
        repeat: Allow a passage twice in a chain.
        mode: Score mode: over the allowed tokens, or over the vocabulary.
        early_stop: Stop at the unique prefix; null means where it is exact (renormalized).
        batch_size: Model inputs decoded together.
        truncate_queries: Cut queries that are too long instead of refusing them.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: Of the weights.
        name: What reports call this run; null makes one from the system and the steps.
    """
    quiet()
    if bm25 == (retriever is not None):
        raise ConfigError("give either --retriever FOLDER or --bm25 true.")
    queries = read_queries(data) if split is None else read_split(data, split)[0]
    if bm25:
        if not Path(data).is_dir():
            raise ConfigError(f"BM25 retrieves from the corpus of a data set folder, and {data} is none.")
        corpus = Corpus.read(data)
        start = perf_counter()
        found = _bm25(corpus, queries, steps, k, hops)
        kind: System = "bm25"
        score_mode: str = "bm25"
        stages: tuple[str, ...] = ()
    else:
        assert retriever is not None
        options = SearchOptions(beams, mode, early_stop, batch_size, truncate_queries, progress=True)
        opened = GenerativeRetriever.from_pretrained(retriever, device, precision, options)
        corpus, kind, score_mode, stages = opened.corpus, "generator", mode, opened.stages
        start = perf_counter()
        if steps == "single":
            found = Outcome(rankings=opened.retrieve(queries, k))
        else:
            search = MultistepRetriever(
                opened, hops, steps == "dynamic", chains, branch, done_bias=done_bias, repeat=repeat
            )
            found = Outcome(chains=[best[0] for best in search.retrieve_chains(queries)])
    seconds = perf_counter() - start
    given = {"k": k, "hops": hops, "beams": beams, "chains": chains, "branch": branch, "done_bias": done_bias}
    info = RunInfo(
        system=kind,
        name=name or f"{kind}, {steps}",
        steps=steps,
        corpus=corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=data,
        split=split,
        score_mode=score_mode,
        stages=stages,
        seconds=seconds,
        options=given,
    )
    write_outputs(output, queries, corpus, found, info)


def _bm25(corpus: Corpus, queries: list[Query], steps: Steps, k: int, hops: int) -> Outcome:
    sparse = BM25Retriever(corpus)
    if steps == "single":
        return Outcome(rankings=sparse.retrieve(queries, k))
    if steps == "fixed":
        return Outcome(chains=AppendingMultistep(sparse, corpus, hops).retrieve(queries))
    raise ConfigError("BM25 never writes DONE: choose --steps single or fixed.")
