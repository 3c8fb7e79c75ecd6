"""``grls read``: answers without retrieval, from retrieved passages, or by follow-up questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from grls.answer.direct import DirectReader, WrittenAnswer
from grls.answer.finished import FinishedRun
from grls.answer.iterative import IterativeReader
from grls.answer.kept import read_on, spent_on
from grls.answer.prompts import shown
from grls.answer.writer import TextWriter
from grls.commands.output import Outcome, write_outputs
from grls.commands.run_files import refuse_own_output
from grls.commands.sources import Folders, Named, Source, open_source
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Hit, Passage, Query
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.io.files import refuse_unwritable, sha256
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile
from grls.io.terminal import visible
from grls.models.load.language import load_language_model, weights_fingerprint
from grls.retrieve.fusion.fuse import Method as FusionMethod
from grls.retrieve.queries import check_counts
from grls.runs.manifest import RunInfo, Steps, fingerprint_queries
from grls.runs.results import find_passages

Method = Literal["closed-book", "retrieve", "iterative"]
Origin = Source | FinishedRun

BATCHES = 4
"""Batches that are answered together before they are kept: prompts of like lengths share one."""


def read(
    data: str,
    model: str,
    output: str,
    method: Method = "retrieve",
    retriever: Folders = None,
    bm25: bool = False,
    run: str | None = None,
    steps: Steps = "single",
    chain_hops: int | None = None,
    done_bias: float = 0.0,
    fusion: FusionMethod = "interleave",
    weights: list[float] | None = None,
    split: str = "test",
    k: int | None = None,
    depth: int = 10,
    hops: int = 4,
    chat: bool = False,
    max_new_tokens: int = 32,
    batch_size: int = 8,
    limit: int | None = None,
    show: int = 3,
    device: str = "auto",
    name: str | None = None,
    analyzer: Analyzer = USUAL,
) -> None:
    """Answer questions with a language model that reads passages: the baselines of `grls riches`.

    Writes a line a query to OUTPUT.readings.jsonl as they are answered; a run that was ended goes on where it
    stopped when it is called again with the same options. At the end it writes OUTPUT.trec, OUTPUT.jsonl and
    OUTPUT.info.json as `grls retrieve` does, and OUTPUT.answers.jsonl as `grls riches` does; `grls answers`
    scores it.

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        method: closed-book: no retrieval; retrieve: retrieve for the question, then read; iterative: the
            model asks follow-up questions, each is retrieved for, until it answers.
        retriever: Retriever folders that `grls index` wrote, generative or dense; what several find is fused.
        bm25: Retrieve with BM25 from the data set's corpus.
        run: A finished run of these queries, .jsonl or .trec (retrieve); its time is not counted.
        steps: How each retrieves: ``single``; ``fixed``: ``chain_hops`` hops, each found passage joins the
            query; ``dynamic``: hops until DONE. The passages of a query's chains are its ranking.
        chain_hops: Hops of a chain (fixed), most hops (dynamic); null: 2.
        done_bias: Added to the log-odds of DONE (dynamic); see `grls retrieve`.
        fusion: How several are fused: interleave, rrf or sum; see `grls ensemble`.
        weights: One a retriever, BM25's last (rrf, sum); null weighs all alike.
        split: Which queries.
        k: Passages to read, for a question (null: 3) or a follow-up question (null: 1).
        depth: Length of the ranking, of which the first k are read (retrieve).
        hops: Most follow-up questions (iterative).
        chat: Tell the model in turns, by its chat template.
        max_new_tokens: Length limit of an answer or a follow-up question.
        batch_size: Questions answered together.
        limit: Answer only so many questions, the first ones; null answers all.
        show: Print so many answers.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
        analyzer: How BM25 splits texts into words: language, stemming and function words.
    """
    quiet()
    named = Named.of(retriever, bm25, steps, chain_hops, done_bias, fusion, weights, analyzer)
    _check(method, named, run)
    k = (1 if method == "iterative" else 3) if k is None else k
    check_counts(**{"--k": k, "--depth": depth, "--hops": hops, "--batch_size": batch_size})
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit must be at least 1, got {limit}.")
    refuse_unwritable(output)
    if run is not None:
        refuse_own_output(output, [run])
    corpus = Corpus.read(data)
    every, qrels = read_split(data, split, corpus)
    queries = every[:limit]
    source = (
        FinishedRun(run, corpus, every, split)
        if run is not None
        else open_source(named, data, device, batch_size, split)
    )
    loaded, tokenizer = load_language_model(model, device)
    writer = TextWriter(loaded, tokenizer, max_new_tokens, batch_size)
    system, score_mode, own = _origin(source, method)
    reads = {} if method == "closed-book" else {"k": k}
    reads |= {"depth": depth} if method == "retrieve" else {"hops": hops} if method == "iterative" else {}
    settings = {
        "model": Path(model).name, "weights": weights_fingerprint(loaded),
        "tokenizer": tokenizer_fingerprint(tokenizer), "method": method, **named.settings(),
        **({"retriever_fingerprint": source.fingerprint} if isinstance(source, Source) else {}),
        "run": None if run is None else sha256(run), **reads, "chat": chat, "max_new_tokens": max_new_tokens,
        "corpus": corpus.fingerprint, "queries": fingerprint_queries(every),
    }  # fmt: skip
    file = GrowingFile(f"{output}.readings.jsonl", settings, lambda record: "spent" in record)
    file.refuse_other(("query_id",), [(query.id,) for query in every])
    readings = _read(writer, source, corpus, queries, method, k, depth, hops, chat, file)
    spent = spent_on(file)
    seconds = spent.pop("seconds")
    for query, reading in list(zip(queries, readings, strict=True))[:show]:
        print(shown_reading(query, reading, corpus) + "\n")
    answers = f"{output}{ENDING}"
    write_answers(answers, (answer_record(*pair, corpus) for pair in zip(queries, readings, strict=True)))
    info = RunInfo(
        system=system,
        name=name or (method if source is None else f"{method}, {_label(source)}, k={k}"),
        steps="single",
        corpus=corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=data,
        split=split,
        score_mode=score_mode,
        seconds=seconds,
        options={
            "model": Path(model).name, "method": method, **reads, **own, "chat": chat,
            "max_new_tokens": max_new_tokens, "cut": sum(reading.cut for reading in readings),
            **spent,
        },
    )  # fmt: skip
    write_outputs(output, queries, corpus, Outcome([list(one.ranking) for one in readings]), info)
    print(summary(score_answers(read_answers(answers), queries, qrels, corpus), seconds))


def _check(method: Method, named: Named, run: str | None) -> None:
    sources = bool(named) + (run is not None)
    if method == "closed-book" and sources:
        raise ConfigError("--method closed-book retrieves nothing: leave out --retriever, --bm25 and --run.")
    if method != "closed-book" and sources != 1:
        raise ConfigError(
            "give --retriever FOLDER or --bm25 true (or both, fused), or --run FILE alone, or --method "
            "closed-book."
        )
    if method == "iterative" and run is not None:
        raise ConfigError("a finished run knows no follow-up questions: give --retriever or --bm25 true.")


def _read(
    writer: TextWriter, source: Origin | None, corpus: Corpus, queries: Sequence[Query], method: Method,
    k: int, depth: int, hops: int, chat: bool, file: GrowingFile,
) -> list[WrittenAnswer]:  # fmt: skip
    known = {record["query_id"] for record in file.records}
    done = sum(query.id in known for query in queries)
    with Progress(len(queries), "read", "queries", done) as bar:

        def answer(some: Sequence[Query]) -> list[WrittenAnswer]:
            if method == "iterative" and isinstance(source, Source):
                reader = IterativeReader(writer, source.retriever, corpus, k, hops, chat)
                return reader.answer(some, bar.update)
            rankings: list[list[Hit]] = [[] for _ in some]
            if source is not None:
                found = source.retriever if isinstance(source, Source) else source
                rankings = found.retrieve(some, max(k, depth))
            direct = DirectReader(writer, corpus, chat)
            return direct.answer(some, rankings, 0 if source is None else k, bar.update)

        return read_on(file, queries, answer, writer.spent, BATCHES * writer.batch_size)


def _origin(source: Origin | None, method: Method) -> tuple[str, str, dict[str, Any]]:
    """System, score mode, and options of what retrieved."""
    if source is None:
        return "generator", "none", {}
    if isinstance(source, FinishedRun):
        info = source.info
        return ("generator" if info is None else info.system), source.score_mode, {"run": _label(source)}
    return source.system, ("rank" if method == "iterative" else source.score_mode), source.options


def _label(source: Origin) -> str:
    """What a retriever is called."""
    if isinstance(source, FinishedRun):
        return "a finished run" if source.info is None else source.info.name
    return source.label


def answer_record(query: Query, reading: WrittenAnswer, corpus: Corpus) -> dict[str, Any]:
    """A line of the answers: a passage that was read stands where a quote of RICHES does."""
    texts = find_passages(corpus, reading.read)
    quotes = [
        {"text": shown(texts[i]), "keys": [shown(texts[i])], "passages": [i], "closed": True}
        for i in reading.read
    ]
    return {
        "query_id": query.id,
        "text": query.text,
        "answer": reading.answer,
        "ended": reading.ended,
        "pieces": _pieces(reading, texts),
        "quotes": quotes,
        "retrieved": [hit.id for hit in reading.ranking],
        **({"failed": reading.failed} if reading.failed else {}),
    }


def _pieces(reading: WrittenAnswer, texts: dict[str, Passage]) -> list[dict[str, Any]]:
    """Follow-up questions, passages and answer, in order, as RICHES writes its pieces."""
    place = {passage: number for number, passage in enumerate(reading.read)}
    pieces: list[dict[str, Any]] = []
    groups = [(step.question, step.passages) for step in reading.steps] or [("", reading.read)]
    for question, passages in groups:
        pieces += [{"kind": "thought", "text": question, "quote": -1}] if question else []
        pieces += [{"kind": "quote", "text": shown(texts[i]), "quote": place[i]} for i in passages]
    answer = {"kind": "answer", "text": reading.answer, "quote": -1}
    return [*pieces, *([answer] if reading.answer else [])]


def shown_reading(query: Query, reading: WrittenAnswer, corpus: Corpus) -> str:
    """One query and its answer, for the terminal."""
    lines = [f"{query.id}: {query.text}"]
    for piece in _pieces(reading, find_passages(corpus, reading.read)):
        text = piece["text"]
        if piece["kind"] == "quote":
            text = f"  {text[:100]}{'…' * (len(text) > 100)} -> {reading.read[piece['quote']]}"
        lines.append(f"  {text}")
    return visible("\n".join(lines))
