"""Answers with quotes are written to a file as they come, so that a killed run goes on where it stopped.

All answers together may not fit into memory, so they are read from the file one at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.answer.questions import SHOWN, Questions, model_settings
from grls.answer.riches.answerer import Piece, Quote, Riches, Written
from grls.answer.riches.keys import build_keys, keys_in
from grls.answer.riches.options import KeyOptions, PromptOptions
from grls.answer.riches.prompts import Prompt
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.decode.interleave.options import InterleaveOptions
from grls.errors import Option
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.io.files import atomic_file, sha256
from grls.io.html import framed
from grls.io.option_errors import visible
from grls.io.progress import Progress, counted
from grls.io.resumable import GrowingFile, Record
from grls.models.load.language import load_language_model
from grls.runs.portions import KeptResults
from grls.runs.results import Retrieved
from grls.runs.save import save_retrieved


def run_riches(
    questions: Questions,
    model: str,
    keys: KeyOptions,
    prompt: PromptOptions,
    search: InterleaveOptions,
    device: str,
    output: str,
    name: str | None,
    portion: int,
) -> None:
    """Answer questions with quotes; save the answers, their page and the run, and print the scores.

    Args:
        questions: The questions.
        model: The name of the language model.
        keys: Options of the keys that may be quoted.
        prompt: Options of the prompt.
        search: Options of decoding.
        device: Device of the model.
        output: Path without ending; outputs are kept in OUTPUT.written.jsonl until all are there.
        name: Name of the run; None: by the options.
        portion: Batches between two points where a run can go on.
    """
    corpus, queries = questions.corpus, questions.asked
    loaded, tokenizer = load_language_model(model, device)
    options = (keys.kind, keys.anywhere, keys.propositions, prompt.markers)
    made = (
        build_keys(corpus, tokenizer, *options) if keys.folder is None
        else keys_in(keys.folder, corpus, tokenizer, *options)
    )  # fmt: skip
    program = Riches(loaded, tokenizer, corpus, made, Prompt(**asdict(prompt)), search)
    names = ("beams", "beam", "mode", "whole", "repeat", "max_new_tokens", "max_keys")
    how = {
        "keys": keys.kind, "anywhere": keys.anywhere, "prompt": prompt.kind, "keywords": prompt.keywords,
        "chat": prompt.chat, **{name: getattr(search, name) for name in names},
    }  # fmt: skip
    settings = {
        **model_settings(model, loaded, tokenizer), **questions.fingerprints,
        "metadata": corpus.metadata_fingerprint, "markers": list(prompt.markers),
        "propositions": None if keys.propositions is None else sha256(keys.propositions),
        "max_key_tokens": search.max_key_tokens, **how,
    }  # fmt: skip

    file = GrowingFile(f"{output}.written.jsonl", settings, lambda record: "seconds" in record, keep=False)
    file.refuse_other(("query_id",), ((query.id,) for query in questions.every))
    size = portion * search.batch_size
    with Progress(len(queries), "riches", "queries", file.count) as bar:
        for first in range(file.count, len(queries), size):
            batch = queries[first : first + size]
            begun = perf_counter()
            answers = program.answer(batch, bar.update)
            records = [record_of(*pair) for pair in zip(batch, answers, strict=True)]
            records[-1]["seconds"] = perf_counter() - begun
            file.add(records)

    for query, written in islice(zip(queries, outputs(file, queries), strict=True), SHOWN):
        print(terminal(query, written, prompt.markers, sys.stdout.isatty()) + "\n")
    lines = (record_of(*pair) for pair in zip(queries, outputs(file, queries), strict=True))
    write_answers(f"{output}{ENDING}", lines)
    with atomic_file(f"{output}.html") as stream:
        page = quotes_page(name or "RICHES", queries, outputs(file, queries), corpus, prompt.markers)
        stream.writelines(page)

    seconds = sum(record.get("seconds", 0.0) for record in file.each())
    mode = how.pop("mode")
    # No limit of passages: as many quotes as were written, nothing was cut off.
    recorded = {"model": Path(model).name, **how, "k": None}
    title = name or f"RICHES, {keys.kind}, {search.beam}"
    info = questions.info("generator", title, mode, seconds, recorded)
    print(save_retrieved(output, queries, corpus, KeptResults(file, queries, _retrieved), info))
    scores = score_answers(read_answers(f"{output}{ENDING}", texts=False), queries, questions.qrels, corpus)
    print(summary(scores, seconds))
    every = (quote for written in outputs(file, queries) for quote in written.quotes)
    several = sum(quote.held > len(quote.keys) for quote in every)
    if file.count <= len(queries):  # else a run over more queries may resume from it
        file.remove()
    if several:
        quotes = counted(several, "quote is", "quotes are")
        print(f"{quotes} held by more keys than {Option('search.max_keys')!s} allows to name")


def outputs(file: GrowingFile, queries: Sequence[Query]) -> Iterator[Written]:
    """The output of each query, one at a time from the file."""
    return map(written_of, islice(file.each(), len(queries)))


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


def _retrieved(query_id: str, record: Record) -> Retrieved:
    return Retrieved.ranked(query_id, written_of(record).ranking())


_COLOURS = {"thought": "2", "quote": "36", "answer": "1;32"}
_STYLE = """\
article { border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1rem; margin: 1rem 0; }
article h2 { font-size: 1.05rem; margin: 0.2rem 0 0.6rem; }
.thought { color: var(--soft); }
.quote { color: var(--heat); text-decoration: none; }
.quote:hover { text-decoration: underline; }
.cut { color: var(--warn); }
.answer { color: var(--best); font-weight: 600; }
details { margin-top: 0.6rem; font-size: 0.9rem; }
dt { font-weight: 600; margin-top: 0.5rem; }
dd { margin: 0 0 0 1rem; }
"""


def terminal(query: Query, written: Written, markers: tuple[str, str], colour: bool = True) -> str:
    """One query and its output, for a terminal."""
    lines = [visible(f"{query.id}: {query.text}")]
    for piece in written.pieces:
        text = visible(f"  {_marked(piece, written, markers)}")
        lines.append(f"\x1b[{_COLOURS[piece.kind]}m{text}\x1b[0m" if colour else text)
        if piece.kind == "quote":
            quote = written.quotes[piece.quote]
            more = f" and {len(quote.passages) - 3} more" if len(quote.passages) > 3 else ""
            cut = f"; {_cut(quote)}" if _cut(quote) else ""
            source = f"{', '.join(quote.passages[:3])}{more}  ({quote.score:.2f}){cut}"
            if not quote.closed:
                source = "nothing: the length limit came before the end of the quote"
            lines.append(visible(f"    -> {source}"))
    return "\n".join(lines)


def quotes_page(
    title: str,
    queries: Sequence[Query],
    outputs: Iterable[Written],
    corpus: Corpus,
    markers: tuple[str, str],
) -> Iterator[str]:
    """A page of HTML, part by part: thoughts, quotes that link to their source below, answers."""

    def parts() -> Iterator[str]:
        yield f"<h1>{escape(title)}</h1>"
        for n, (query, written) in enumerate(zip(queries, outputs, strict=True)):
            yield f"<article><h2>{escape(query.text)}</h2>"
            for piece in written.pieces:
                text = escape(_marked(piece, written, markers))
                if piece.kind == "quote" and written.quotes[piece.quote].closed:
                    yield f'<p><a class="quote" href="#s{n}-{piece.quote}">{text}</a></p>'
                else:
                    kind = "cut" if piece.kind == "quote" else piece.kind
                    yield f'<p class="{kind}">{text}</p>'
            sources = []
            for q, quote in enumerate(written.quotes):
                if quote.closed:
                    numbers = [number for number in corpus.numbers(quote.passages) if number is not None]
                    sources.append(f'<dl id="s{n}-{q}">')
                    sources.append(f'<dt class="cut">{escape(_cut(quote))}</dt>' if _cut(quote) else "")
                    for p in corpus.passages(numbers):
                        sources.append(f"<dt>{escape(p.title or p.id)}</dt><dd>{escape(p.text)}</dd>")
                    sources.append("</dl>")
            if sources:
                yield f"<details open><summary>Sources</summary>{''.join(sources)}</details>"
            yield "</article>"

    return framed(title, _STYLE, parts())


def _marked(piece: Piece, written: Written, markers: tuple[str, str]) -> str:
    if piece.kind != "quote":
        return piece.text
    closed = written.quotes[piece.quote].closed
    return (
        f"{markers[0]} {piece.text} {markers[1]}" if closed else f"{markers[0]} {piece.text} … (not closed)"
    )


def _cut(quote: Quote) -> str:
    """A note if more keys hold a quote than are named; else empty."""
    named = len(quote.keys)
    return f"{named:,} of the {quote.held:,} keys that hold it are named" if quote.held > named else ""
