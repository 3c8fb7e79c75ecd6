"""What the commands do: each function is a command, its arguments the options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from grls.check import check_corpus, format_check
from grls.corpus import Corpus, read_queries, read_split
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.evaluate import evaluate_run, format_report
from grls.evaluation.examples import format_examples
from grls.evaluation.results import write_results
from grls.evaluation.run import chain_ranking, write_run
from grls.files import read_json, refuse_foreign, write_json
from grls.logs import quiet
from grls.models.build import Pretrained, load_tokenizer
from grls.retrieve.appending import AppendingMultistep
from grls.retrieve.generative import MANIFEST, GenerativeRetriever, SearchOptions
from grls.retrieve.multistep import MultistepRetriever
from grls.retrieve.sparse import BM25Retriever
from grls.text import LIMITS, Codec, Limits
from grls.types import Chain, Hit, Query

Steps = Literal["single", "fixed", "dynamic"]


def index(
    model: str,
    corpus: str,
    output: str,
    backend: Literal["array", "marisa", "flat"] = "array",
    max_passage_tokens: int | None = None,
    max_query_tokens: int | None = None,
    max_input_tokens: int | None = None,
) -> None:
    """Build a retriever folder: model, tokenizer, corpus and constraint index.

    Args:
        model: Folder that a training stage wrote (``<output>/model``), or a hub name.
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        output: The retriever folder; an earlier one there is replaced.
        backend: Index backend.
        max_passage_tokens: Passages are cut to this length; null: as in training (512 for other models).
        max_query_tokens: Longest query; null: as in training (256).
        max_input_tokens: Longest model input, evidence included; null: as in training (512).
    """
    quiet()
    refuse_foreign(output, MANIFEST)
    source = Pretrained(model)
    loaded = source.load()
    passages = Corpus.read(corpus)
    trained = Path(model) / LIMITS
    limits = Limits(**read_json(trained)) if trained.is_file() else Limits()
    given = {"passage": max_passage_tokens, "query": max_query_tokens, "input": max_input_tokens}
    limits = limits._replace(**{name: value for name, value in given.items() if value is not None})
    retriever = GenerativeRetriever.assemble(
        loaded.model, loaded.tokenizer, passages, limits, backend, progress=True, stages=source.stages()
    )
    retriever.save_pretrained(output)
    rows = retriever.index.rows
    size = sum(file.stat().st_size for file in (Path(output) / "index").iterdir())
    print(
        f"{output}: {len(passages):,} passages, {len(rows):,} distinct sequences with DONE, "
        f"{len(rows.tokens):,} tokens, index {size / 2**20:.1f} MiB ({size / len(rows.tokens):.2f} B a token)"
    )


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
) -> None:
    """Retrieve for queries; writes OUTPUT.trec (a TREC run) and OUTPUT.jsonl (with evidence text).

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
    """
    quiet()
    if bm25 == (retriever is not None):
        raise ConfigError("give either --retriever FOLDER or --bm25 true.")
    queries = read_queries(data) if split is None else read_split(data, split)[0]
    if bm25:
        if not Path(data).is_dir():
            raise ConfigError(f"BM25 retrieves from the corpus of a data set folder, and {data} is none.")
        corpus = Corpus.read(data)
        ranked, found = _bm25(corpus, queries, steps, k, hops)
        kind = "bm25"
    else:
        assert retriever is not None
        options = SearchOptions(beams, mode, early_stop, batch_size, truncate_queries, progress=True)
        opened = GenerativeRetriever.from_pretrained(retriever, device, precision, options)
        corpus, kind = opened.corpus, mode
        if steps == "single":
            ranked, found = opened.retrieve(queries, k), None
        else:
            dynamic = steps == "dynamic"
            search = MultistepRetriever(
                opened, hops, dynamic, chains, branch, done_bias=done_bias, repeat=repeat
            )
            ranked, found = None, [best[0] for best in search.retrieve_chains(queries)]
    _write(output, queries, corpus, kind, ranked, found, dynamic=steps == "dynamic")


def _bm25(
    corpus: Corpus, queries: list[Query], steps: Steps, k: int, hops: int
) -> tuple[list[list[Hit]] | None, list[Chain] | None]:
    sparse = BM25Retriever(corpus)
    if steps == "single":
        return sparse.retrieve(queries, k), None
    if steps == "fixed":
        return None, AppendingMultistep(sparse, corpus, hops).retrieve(queries)
    raise ConfigError("BM25 never writes DONE: choose --steps single or fixed.")


def _write(
    output: str,
    queries: list[Query],
    corpus: Corpus,
    kind: str,
    ranked: list[list[Hit]] | None,
    found: list[Chain] | None,
    dynamic: bool,
) -> None:
    """Write a TREC run and JSONL. A fixed number of hops is a ranking: it has no DONE to miss."""
    ids = [query.id for query in queries]
    if ranked is None:
        assert found is not None
        ranked = [chain_ranking(chain) for chain in found]
    rankings = dict(zip(ids, ranked, strict=True))
    chains = dict(zip(ids, found, strict=True)) if found is not None and dynamic else None
    if chains is None:
        write_results(f"{output}.jsonl", queries, corpus, kind, rankings=rankings)
    else:
        write_results(f"{output}.jsonl", queries, corpus, kind, chains=chains)
    write_run(f"{output}.trec", rankings)  # last: a TREC run cannot hold every id, JSONL can
    print(f"{output}.trec, {output}.jsonl: {len(queries):,} queries, score mode {kind}")


def evaluate(
    run: str,
    data: str,
    split: str = "test",
    ks: tuple[int, ...] = (1, 5, 10, 20),
    output: str | None = None,
    examples: int = 0,
) -> None:
    """Score a run with every metric that applies.

    Args:
        run: JSONL that ``grls retrieve`` wrote, or any TREC run.
        data: Data set folder.
        split: Which qrels.
        ks: Cut-offs of recall.
        output: Write the report as JSON here, too.
        examples: Print this many queries with what was retrieved, successes and failures mixed.
    """
    corpus = Corpus.read(data)
    report = evaluate_run(run, data, split, list(ks), corpus)
    print(format_report(report))
    if examples:
        print("\n" + format_examples(run, data, split, corpus, examples))
    if output is not None:
        write_json(output, report)


def check(
    corpus: str,
    tokenizer: str | None = None,
    max_passage_tokens: int = 512,
    examples: int = 3,
    output: str | None = None,
) -> None:
    """Report what is peculiar about a corpus; none of it breaks retrieval.

    Counts, with examples: duplicates, empty passages, passages longer than the limit, passages that are a
    prefix of another one, passages equal to another once cut, passages that do not survive the tokenizer's
    round trip.

    Args:
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        tokenizer: Folder or hub name of a tokenizer or model; without it, tokens are words and the round
            trip is not tried.
        max_passage_tokens: The length limit.
        examples: Ids shown of each kind.
        output: Write the report as JSON here, too.
    """
    quiet()
    codec = None if tokenizer is None else Codec(load_tokenizer(tokenizer), Limits(max_passage_tokens))
    report = check_corpus(Corpus.read(corpus), codec, max_passage_tokens, examples)
    print(format_check(report))
    if output is not None:
        write_json(output, report._asdict() | {"findings": [f._asdict() for f in report.findings]})
