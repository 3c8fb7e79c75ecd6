"""A report in parts (facts by name, sentences, tables): a terminal prints them, a page lays them out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from grls.data.types import Query
from grls.io.terminal import visible

TEXT_ALONE = "query"
"""The id of a query that was asked as a text, without an id."""

NO_MARKS: Mapping[int, str] = {}


class Part(NamedTuple):
    """A part of a report.

    Attributes:
        kind: ``facts``: rows of a name and a value; ``text``: rows of sentences; ``table``: rows of cells,
            the header first.
        rows: Its rows.
        left: Of a table, the columns that are aligned left.
        marks: The rows that stand out -> their ANSI colour.
    """

    kind: Literal["facts", "text", "table"]
    rows: tuple[tuple[str, ...], ...]
    left: Collection[int] = ()
    marks: Mapping[int, str] = NO_MARKS


def facts_part(*rows: tuple[str, str]) -> Part:
    """Facts by name."""
    return Part("facts", rows)


def text_part(*lines: str) -> Part:
    """Sentences."""
    return Part("text", tuple((line,) for line in lines))


def parts_text(parts: Sequence[Part], colour: bool = False) -> str:
    """The parts for a terminal.

    Args:
        parts: The parts of a report.
        colour: Use ANSI colours.
    """
    return "\n\n".join("\n".join(_lines(part, colour)) for part in parts)


def _lines(part: Part, colour: bool) -> list[str]:
    if part.kind == "table":
        lines = aligned(part.rows, part.left)
    elif part.kind == "facts":
        lines = [visible(f"{name:<8} {value}") for name, value in part.rows]
    else:
        lines = [visible(row[0]) for row in part.rows]
    marked = part.marks if colour else NO_MARKS
    return [f"\x1b[1;{marked[n]}m{line}\x1b[0m" if n in marked else line for n, line in enumerate(lines)]


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Rows as aligned lines; the columns in ``left`` are aligned left."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = []
    for row in rows:
        parts = [
            cell.ljust(w) if c in left else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def shortened(text: str, limit: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def with_id(name: str, text: str) -> str:
    """A text after its id, unless it begins with it (a passage whose title is its id; DONE)."""
    return text if text == name or text.startswith(f"{name}: ") else f"{name}: {text}"


def query_line(query: Query) -> str:
    """A query with its id; the text alone where it was asked without an id."""
    return query.text if query.id == TEXT_ALONE else with_id(query.id, query.text)
