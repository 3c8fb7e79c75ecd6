"""Shows answers: coloured in a terminal, and as a page of HTML with every quote and its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from grls.answer.riches.answerer import Piece, Quote, Written
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.io.html import framed
from grls.io.terminal import visible

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
            lines.append(visible(f"    {_source(piece, written)}"))
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
            body = _body(n, written, corpus, markers)
            yield f"<article><h2>{escape(query.text)}</h2>{body}</article>"

    return framed(title, _STYLE, parts())


def _body(number: int, written: Written, corpus: Corpus, markers: tuple[str, str]) -> str:
    shown = []
    for piece in written.pieces:
        text = escape(_marked(piece, written, markers))
        if piece.kind == "quote" and written.quotes[piece.quote].closed:
            shown.append(f'<p><a class="quote" href="#s{number}-{piece.quote}">{text}</a></p>')
        else:
            kind = "cut" if piece.kind == "quote" else piece.kind
            shown.append(f'<p class="{kind}">{text}</p>')
    sources = []
    for q, quote in enumerate(written.quotes):
        if not quote.closed:
            continue
        numbers = [number for number in corpus.numbers(quote.passages) if number is not None]
        cut = f'<dt class="cut">{escape(_cut(quote))}</dt>' if _cut(quote) else ""
        passages = "".join(
            f"<dt>{escape(p.title or p.id)}</dt><dd>{escape(p.text)}</dd>" for p in corpus.passages(numbers)
        )
        sources.append(f'<dl id="s{number}-{q}">{cut}{passages}</dl>')
    if sources:
        shown.append(f"<details open><summary>Sources</summary>{''.join(sources)}</details>")
    return "".join(shown)


def _marked(piece: Piece, written: Written, markers: tuple[str, str]) -> str:
    if piece.kind != "quote":
        return piece.text
    closed = written.quotes[piece.quote].closed
    return (
        f"{markers[0]} {piece.text} {markers[1]}" if closed else f"{markers[0]} {piece.text} … (not closed)"
    )


def _source(piece: Piece, written: Written) -> str:
    quote = written.quotes[piece.quote]
    if not quote.closed:
        return "-> nothing: the length limit came before the end of the quote"
    more = f" and {len(quote.passages) - 3} more" if len(quote.passages) > 3 else ""
    cut = f"; {_cut(quote)}" if _cut(quote) else ""
    return f"-> {', '.join(quote.passages[:3])}{more}  ({quote.score:.2f}){cut}"


def _cut(quote: Quote) -> str:
    """A note if more keys hold a quote than are named; else empty."""
    named = len(quote.keys)
    return f"{named:,} of the {quote.held:,} keys that hold it are named" if quote.held > named else ""
