"""``grls riches``: answers with the evidence retrieved while they are written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.answer.riches.answerer import Piece, Quote, Riches, Written
from grls.answer.riches.keys import KeyKind, build_keys, keys_in
from grls.answer.riches.page import quotes_page, terminal
from grls.answer.riches.prompts import Prompt, PromptKind
from grls.commands.output import Outcome, write_outputs
from grls.commands.portions import KeptParts
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Query
from grls.decode.interleave.continuations import Beam, InterleaveOptions
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.io.files import atomic_file, refuse_unwritable, sha256
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile, Record
from grls.models.load.language import load_language_model, weights_fingerprint
from grls.runs.manifest import RunInfo, fingerprint_queries

_PORTION = 8
"""Batches between two points where a run can go on."""


def riches(
    data: str,
    model: str,
    output: str,
    split: str = "test",
    keys: KeyKind = "sentence",
    anywhere: bool = False,
    propositions: str | None = None,
    index: str | None = None,
    prompt: PromptKind = "single",
    keywords: bool = True,
    chat: bool = False,
    markers: tuple[str, str] = ("«", "»"),
    beams: int = 10,
    beam: Beam = "adaptive",
    mode: ScoreMode = "full",
    whole: bool = True,
    repeat: bool = False,
    max_new_tokens: int = 128,
    max_key_tokens: int = 128,
    max_keys: int = 100,
    batch_size: int = 8,
    limit: int | None = None,
    show: int = 3,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions with interlaced retrieval (RICHES, arXiv 2407.00361).

    Writes OUTPUT.trec, OUTPUT.jsonl and OUTPUT.info.json as `grls retrieve` does (the passages of the quotes,
    in their order), OUTPUT.answers.jsonl (thoughts, quotes, answer), and OUTPUT.html to look at. A killed run
    goes on where it stopped when it is called again with the same options (OUTPUT.written.jsonl).

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        split: Which queries.
        keys: What may be quoted: sentence, paragraph, titled (with its title), title, header (title and
            section header, from metadata.section), or proposition. Passages under one title or header are
            ranked by TF-IDF.
        anywhere: A quote may begin anywhere in a key.
        propositions: JSONL with `passage` (its id) and `text`, for --keys proposition, as `grls propositions`
            writes it.
        index: Folder for the keys and their index: used where it holds them, else written.
        prompt: Examples of one hop (single) or several (multi), or none for a model that was fine-tuned.
        keywords: Let the model write what to look for before each quote.
        chat: Tell the model in turns, by its chat template.
        markers: What opens and closes a quote, as '["«", "»"]'.
        beams: Beam width.
        beam: adaptive: free text greedily, quotes with the whole beam; full or greedy: both alike.
        mode: Score mode within quotes: over the vocabulary, or over what may be quoted (renormalized).
        whole: A quote ends only where a key ends.
        repeat: Allow a key twice in one answer.
        max_new_tokens: Length limit of an answer.
        max_key_tokens: Length after which a quote that may end must.
        max_keys: How many of the keys that hold a quote are named, and their passages retrieved, at most.
        batch_size: Questions answered together.
        limit: Answer only so many questions, the first ones; null answers all.
        show: Print so many answers.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
    """
    quiet()
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit must be at least 1, got {limit}.")
    if batch_size < 1:
        raise ConfigError(f"--batch_size must be at least 1, got {batch_size}.")
    refuse_unwritable(output)
    options = InterleaveOptions(
        beams, beam, mode, whole, repeat, max_new_tokens, max_key_tokens, slots=batch_size, keys=max_keys
    )
    corpus = Corpus.read(data)
    every, qrels = read_split(data, split, corpus)
    queries = every[:limit]
    loaded, tokenizer = load_language_model(model, device)
    made = (
        build_keys(corpus, tokenizer, keys, anywhere, propositions, markers) if index is None
        else keys_in(index, corpus, tokenizer, keys, anywhere, propositions, markers)
    )  # fmt: skip
    program = Riches(loaded, tokenizer, corpus, made, Prompt(prompt, markers, keywords, chat), options)
    settings = {
        "weights": weights_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
        "corpus": corpus.fingerprint, "metadata": corpus.metadata_fingerprint,
        "queries": fingerprint_queries(every), "markers": list(markers),
        "propositions": None if propositions is None else sha256(propositions), "keys": keys,
        "anywhere": anywhere, "prompt": prompt, "keywords": keywords, "chat": chat, "beams": beams,
        "beam": beam, "mode": mode, "whole": whole, "repeat": repeat, "max_new_tokens": max_new_tokens,
        "max_key_tokens": max_key_tokens, "max_keys": max_keys,
    }  # fmt: skip
    file = GrowingFile(f"{output}.written.jsonl", settings, lambda record: "seconds" in record, keep=False)
    file.refuse_other(("query_id",), ((query.id,) for query in every))
    size = _PORTION * batch_size
    _answer(program, queries, file, size)
    seconds = sum(record.get("seconds", 0.0) for record in file.each())
    for query, written in islice(zip(queries, _outputs(file, queries), strict=True), show):
        print(terminal(query, written, markers, sys.stdout.isatty()) + "\n")
    answers = f"{output}{ENDING}"
    write_answers(answers, (_record(*pair) for pair in zip(queries, _outputs(file, queries), strict=True)))
    with atomic_file(f"{output}.html") as stream:
        stream.writelines(quotes_page(name or "RICHES", queries, _outputs(file, queries), corpus, markers))
    info = RunInfo(
        system="generator",
        name=name or f"RICHES, {keys}, {beam}",
        steps="single",
        corpus=corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=data,
        split=split,
        score_mode=mode,
        seconds=seconds,
        options={
            "model": Path(model).name, "keys": keys, "anywhere": anywhere, "prompt": prompt,
            "keywords": keywords, "chat": chat, "beams": beams, "beam": beam, "whole": whole,
            "repeat": repeat, "max_new_tokens": max_new_tokens, "max_keys": max_keys,
        },
    )  # fmt: skip
    write_outputs(output, queries, corpus, KeptParts(file, queries, size, _outcome), info)
    print(summary(score_answers(read_answers(answers, texts=False), queries, qrels, corpus), seconds))
    several = _cut_short(file, queries)
    if file.count <= len(queries):  # else a run of more queries goes on with it
        file.remove()
    if several:
        print(f"{several} quotes are held by more keys than --max_keys lets be named")


def _answer(program: Riches, queries: Sequence[Query], file: GrowingFile, size: int) -> None:
    """Write for the queries that the file lacks, and add them to it, so many at a time."""
    with Progress(len(queries), "riches", "queries", file.count) as bar:
        for first in range(file.count, len(queries), size):
            some = queries[first : first + size]
            begun = perf_counter()
            records = [_record(*pair) for pair in zip(some, program.answer(some, bar.update), strict=True)]
            records[-1]["seconds"] = perf_counter() - begun
            file.add(records)


def _outputs(file: GrowingFile, queries: Sequence[Query]) -> Iterator[Written]:
    """What was written for each query, one at a time from the file: together they may not fit the memory."""
    return map(_written, islice(file.each(), len(queries)))


def _outcome(records: Sequence[Record]) -> Outcome:
    return Outcome([_written(record).ranking() for record in records])


def _cut_short(file: GrowingFile, queries: Sequence[Query]) -> int:
    """How many quotes are held by more keys than are named."""
    every = (quote for written in _outputs(file, queries) for quote in written.quotes)
    return sum(quote.held > len(quote.keys) for quote in every)


def _written(record: dict[str, Any]) -> Written:
    quotes = [
        Quote(**{**quote, "keys": tuple(quote["keys"]), "passages": tuple(quote["passages"])})
        for quote in record["quotes"]
    ]
    pieces = tuple(Piece(**piece) for piece in record["pieces"])
    said = record["answer"], record["score"], record["ended"], record.get("failed", "")
    return Written(pieces, tuple(quotes), *said)


def _record(query: Query, written: Written) -> dict[str, Any]:
    return {
        "query_id": query.id,
        "text": query.text,
        "answer": written.answer,
        "score": written.score,
        "ended": written.ended,
        "pieces": [piece._asdict() for piece in written.pieces],
        "quotes": [quote._asdict() for quote in written.quotes],
        **({"failed": written.failed} if written.failed else {}),
    }
