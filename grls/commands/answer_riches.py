"""``grls answer riches``: answers with the evidence retrieved while they are written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from grls.answer.riches.options import USUAL_KEYS, USUAL_PROMPT, KeyOptions, PromptOptions
from grls.commands.readings import SHOWN, Questions, model_settings
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions

if TYPE_CHECKING:
    from grls.answer.riches.answerer import Riches, Written
    from grls.commands.output import Outcome
    from grls.data.types import Query
    from grls.io.resumable import GrowingFile, Record

_PORTION = 8
"""Batches between two points where a run can go on."""


def answer_riches(
    *,
    data: str,
    model: str,
    output: str,
    keys: KeyOptions = USUAL_KEYS,
    prompt: PromptOptions = USUAL_PROMPT,
    search: InterleaveOptions = USUAL_INTERLEAVE,
    split: str = "test",
    limit: int | None = None,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions with interlaced retrieval (RICHES, arXiv 2407.00361).

    Writes the passages of the quotes, in their order, as a run (OUTPUT.trec, OUTPUT.jsonl, OUTPUT.info.json),
    thoughts, quotes and answer (OUTPUT.answers.jsonl), and OUTPUT.html to look at; `grls evaluate` scores
    run and answers. A killed run goes on where it stopped when it is called again with the same options
    (OUTPUT.written.jsonl).

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        keys: What may be quoted.
        prompt: What stands before an answer.
        search: How free text and quotes are decoded.
        split: Which queries.
        limit: Only the first so many queries; null takes all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
    """
    from grls.io.logs import quiet

    quiet()
    questions = Questions.read(data, split, limit, output)
    program, settings = _program(questions, model, keys, prompt, search, device)
    file = _file(output, settings, questions)
    size = _PORTION * search.batch_size
    _answer(program, questions.asked, file, size)
    title = name or f"RICHES, {keys.kind}, {search.beam}"
    _write(questions, file, output, name or "RICHES", prompt.markers)
    _conclude(questions, file, output, title, {"model": Path(model).name, **_how(keys, prompt, search)}, size)


def _program(
    questions: Questions,
    model: str,
    keys: KeyOptions,
    prompt: PromptOptions,
    search: InterleaveOptions,
    device: str,
) -> tuple[Riches, dict[str, Any]]:
    """What answers, and all that answers depend on."""
    from grls.answer.riches.answerer import Riches
    from grls.answer.riches.keys import build_keys, keys_in
    from grls.answer.riches.prompts import Prompt
    from grls.io.files import sha256
    from grls.models.load.language import load_language_model

    loaded, tokenizer = load_language_model(model, device)
    corpus, given = questions.corpus, (keys.kind, keys.anywhere, keys.propositions, prompt.markers)
    made = (
        build_keys(corpus, tokenizer, *given) if keys.folder is None
        else keys_in(keys.folder, corpus, tokenizer, *given)
    )  # fmt: skip
    program = Riches(loaded, tokenizer, corpus, made, Prompt(**asdict(prompt)), search)
    settings = {
        **model_settings(model, loaded, tokenizer), **questions.fingerprints,
        "metadata": corpus.metadata_fingerprint, "markers": list(prompt.markers),
        "propositions": None if keys.propositions is None else sha256(keys.propositions),
        "max_key_tokens": search.max_key_tokens, **_how(keys, prompt, search),
    }  # fmt: skip
    return program, settings


def _how(keys: KeyOptions, prompt: PromptOptions, search: InterleaveOptions) -> dict[str, Any]:
    """The options that a manifest tells."""
    names = ("beams", "beam", "mode", "whole", "repeat", "max_new_tokens", "max_keys")
    return {
        "keys": keys.kind, "anywhere": keys.anywhere, "prompt": prompt.kind, "keywords": prompt.keywords,
        "chat": prompt.chat, **{name: getattr(search, name) for name in names},
    }  # fmt: skip


def _file(output: str, settings: dict[str, Any], questions: Questions) -> GrowingFile:
    """Where outputs are kept as they come."""
    from grls.io.resumable import GrowingFile

    path = f"{output}.written.jsonl"
    file = GrowingFile(path, settings, lambda record: "seconds" in record, keep=False)
    file.refuse_other(("query_id",), ((query.id,) for query in questions.every))
    return file


def _write(
    questions: Questions, file: GrowingFile, output: str, title: str, markers: tuple[str, str]
) -> None:
    """Print the first answers; write the answers and the page."""
    from grls.answer.riches.page import quotes_page, terminal
    from grls.evaluation.answers import ENDING, write_answers
    from grls.io.files import atomic_file

    queries = questions.asked
    for query, written in islice(zip(queries, _outputs(file, queries), strict=True), SHOWN):
        print(terminal(query, written, markers, sys.stdout.isatty()) + "\n")
    lines = (_record(*pair) for pair in zip(queries, _outputs(file, queries), strict=True))
    write_answers(f"{output}{ENDING}", lines)
    with atomic_file(f"{output}.html") as stream:
        stream.writelines(quotes_page(title, queries, _outputs(file, queries), questions.corpus, markers))


def _conclude(
    questions: Questions, file: GrowingFile, output: str, title: str, options: dict[str, Any], size: int
) -> None:
    """Write the run, and say what was reached."""
    from grls.commands.output import write_outputs
    from grls.commands.portions import KeptParts
    from grls.evaluation.answers import ENDING, read_answers, score_answers, summary

    queries, corpus = questions.asked, questions.corpus
    seconds = sum(record.get("seconds", 0.0) for record in file.each())
    mode = options.pop("mode")
    info = questions.info("generator", title, mode, seconds, options)
    write_outputs(output, queries, corpus, KeptParts(file, queries, size, _outcome), info)
    answers = read_answers(f"{output}{ENDING}", texts=False)
    print(summary(score_answers(answers, queries, questions.qrels, corpus), seconds))
    several = _cut_short(file, queries)
    if file.count <= len(queries):  # else a run of more queries goes on with it
        file.remove()
    if several:
        print(f"{several} quotes are held by more keys than --search.max_keys lets be named")


def _answer(program: Riches, queries: Sequence[Query], file: GrowingFile, size: int) -> None:
    """Write for the queries that the file lacks, and add them to it, so many at a time."""
    from grls.io.progress import Progress

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
    from grls.commands.output import Outcome

    return Outcome([_written(record).ranking() for record in records])


def _cut_short(file: GrowingFile, queries: Sequence[Query]) -> int:
    """How many quotes are held by more keys than are named."""
    every = (quote for written in _outputs(file, queries) for quote in written.quotes)
    return sum(quote.held > len(quote.keys) for quote in every)


def _written(record: dict[str, Any]) -> Written:
    from grls.answer.riches.answerer import Piece, Quote, Written

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
