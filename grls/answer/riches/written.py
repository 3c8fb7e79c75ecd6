"""Answers with quotes are written to a file as they come, so that a killed run goes on where it stopped.

All answers together may not fit into memory, so they are read from the file one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from time import perf_counter
from typing import Any

from grls.answer.questions import Questions, model_settings
from grls.answer.riches.answerer import Piece, Quote, Riches, Written
from grls.answer.riches.keys import build_keys, keys_in
from grls.answer.riches.options import KeyOptions, PromptOptions
from grls.answer.riches.prompts import Prompt
from grls.data.types import Query
from grls.decode.interleave.options import InterleaveOptions
from grls.io.files import sha256
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile
from grls.models.load.language import load_language_model


def riches_of(
    questions: Questions,
    model: str,
    keys: KeyOptions,
    prompt: PromptOptions,
    search: InterleaveOptions,
    device: str,
) -> tuple[Riches, dict[str, Any]]:
    """RICHES for questions, and everything that answers depend on, as JSON values."""
    loaded, tokenizer = load_language_model(model, device)
    corpus, options = questions.corpus, (keys.kind, keys.anywhere, keys.propositions, prompt.markers)
    made = (
        build_keys(corpus, tokenizer, *options) if keys.folder is None
        else keys_in(keys.folder, corpus, tokenizer, *options)
    )  # fmt: skip
    program = Riches(loaded, tokenizer, corpus, made, Prompt(**asdict(prompt)), search)
    settings = {
        **model_settings(model, loaded, tokenizer), **questions.fingerprints,
        "metadata": corpus.metadata_fingerprint, "markers": list(prompt.markers),
        "propositions": None if keys.propositions is None else sha256(keys.propositions),
        "max_key_tokens": search.max_key_tokens, **how_record(keys, prompt, search),
    }  # fmt: skip
    return program, settings


def how_record(keys: KeyOptions, prompt: PromptOptions, search: InterleaveOptions) -> dict[str, Any]:
    """The options that a manifest records."""
    names = ("beams", "beam", "mode", "whole", "repeat", "max_new_tokens", "max_keys")
    return {
        "keys": keys.kind, "anywhere": keys.anywhere, "prompt": prompt.kind, "keywords": prompt.keywords,
        "chat": prompt.chat, **{name: getattr(search, name) for name in names},
    }  # fmt: skip


def written_file(output: str, settings: dict[str, Any], questions: Questions) -> GrowingFile:
    """The file that holds the outputs."""
    path = f"{output}.written.jsonl"
    file = GrowingFile(path, settings, lambda record: "seconds" in record, keep=False)
    file.refuse_other(("query_id",), ((query.id,) for query in questions.every))
    return file


def write_missing(program: Riches, queries: Sequence[Query], file: GrowingFile, size: int) -> None:
    """Answer the queries that the file lacks, ``size`` at a time, and add the outputs to the file."""
    with Progress(len(queries), "riches", "queries", file.count) as bar:
        for first in range(file.count, len(queries), size):
            batch = queries[first : first + size]
            begun = perf_counter()
            records = [
                record_of(*pair) for pair in zip(batch, program.answer(batch, bar.update), strict=True)
            ]
            records[-1]["seconds"] = perf_counter() - begun
            file.add(records)


def outputs(file: GrowingFile, queries: Sequence[Query]) -> Iterator[Written]:
    """The output of each query, one at a time from the file."""
    return map(written_of, islice(file.each(), len(queries)))


def cut_short(file: GrowingFile, queries: Sequence[Query]) -> int:
    """Number of quotes with more keys than are named."""
    every = (quote for written in outputs(file, queries) for quote in written.quotes)
    return sum(quote.held > len(quote.keys) for quote in every)


def written_of(record: dict[str, Any]) -> Written:
    """The output in a record."""
    quotes = [
        Quote(**{**quote, "keys": tuple(quote["keys"]), "passages": tuple(quote["passages"])})
        for quote in record["quotes"]
    ]
    pieces = tuple(Piece(**piece) for piece in record["pieces"])
    said = record["answer"], record["score"], record["ended"], record.get("failed", "")
    return Written(pieces, tuple(quotes), *said)


def record_of(query: Query, written: Written) -> dict[str, Any]:
    """An output as a line of the answers."""
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
