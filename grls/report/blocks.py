"""The blocks of a page: plain values, free of HTML.

Numbers are formatted here, once: shares in percent with one decimal, ``–`` for a missing value. The best
value of a column is marked as it is printed, so equal figures get equal marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

NONE = "–"

Value = float | int | str | None
Kind = Literal["percent", "number", "count", "text"]


class Cell(NamedTuple):
    """One cell.

    Attributes:
        text: The text.
        strong: Whether the text is marked, as the best or as important.
        shade: Depth of the background in [0, 1]; None for no background.
    """

    text: str
    strong: bool = False
    shade: float | None = None


class ColumnHead(NamedTuple):
    """A heading over ``span`` columns."""

    text: str
    span: int = 1


class Table(NamedTuple):
    """A table.

    Attributes:
        name: Short name, unique on the page.
        caption: The caption.
        groups: A first line of headings, over several columns each; empty for none.
        heads: One heading a column.
        stubs: Number of leading columns that head their row.
        rows: The cells.
        note: How to read the table.
        heat: Whether it is a heat map.
    """

    name: str
    caption: str
    groups: tuple[ColumnHead, ...]
    heads: tuple[str, ...]
    stubs: int
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    heat: bool = False


class Picture(NamedTuple):
    """A picture.

    Attributes:
        name: Short name, unique on the page; also the file name.
        caption: The caption.
        svg: An ``<svg>`` element whose dark parts have the colour :data:`INK`.
        alt: The picture in words, for readers who do not see it.
    """

    name: str
    caption: str
    svg: str
    alt: str


INK = "#16181d"
"""Colour of text and axes in a picture; a page replaces it by its text colour."""


class Gallery(NamedTuple):
    """Pictures side by side; folded away under ``summary`` if it is not empty."""

    pictures: tuple[Picture, ...]
    summary: str = ""


class Text(NamedTuple):
    """A paragraph; ``warning`` marks what a reader must not miss."""

    text: str
    warning: bool = False


Block = Table | Gallery | Text


class Subsection(NamedTuple):
    """A part of a section, with its heading."""

    title: str
    blocks: tuple[Block, ...]


class Section(NamedTuple):
    """A section of the page."""

    title: str
    parts: tuple[Subsection, ...]


class Page(NamedTuple):
    """The page."""

    title: str
    summary: str
    sections: tuple[Section, ...]


class Column(NamedTuple):
    """A column of values.

    Attributes:
        head: The heading.
        kind: How values are printed.
        best: The value to mark: the highest, the lowest, or none.
        group: A heading shared with neighbouring columns.
    """

    head: str
    kind: Kind = "percent"
    best: Literal["high", "low", ""] = "high"
    group: str = ""


Row = tuple[tuple[str, ...], Sequence[Value]]
"""The heading cells of a row, and its values."""


def value_table(
    name: str,
    caption: str,
    stubs: Sequence[str],
    columns: Sequence[Column],
    rows: Sequence[Row],
    note: str = "",
    within: int | None = None,
) -> Table:
    """A table of values, the best of each column marked.

    Args:
        name: See :class:`Table`.
        caption: See :class:`Table`.
        stubs: Headings of the columns that head the rows.
        columns: The columns of values.
        rows: The rows, with one value a column.
        note: See :class:`Table`.
        within: Mark the best value among rows that are equal in this column of ``stubs``; None: in the whole
            table.
    """
    cells = [[Cell(printed(v, c.kind)) for v, c in zip(values, columns, strict=True)] for _, values in rows]
    alike: dict[str, list[int]] = {}  # rows to choose the best of
    for i, (key, _) in enumerate(rows):
        alike.setdefault("" if within is None else key[within], []).append(i)
    for n, column in enumerate(columns):
        for same in alike.values():
            numbers = [v for i in same if isinstance(v := rows[i][1][n], (int, float))]
            if not column.best or len({printed(number, column.kind) for number in numbers}) < 2:
                continue  # nothing to choose between
            best = printed(max(numbers) if column.best == "high" else min(numbers), column.kind)
            for i in same:
                if cells[i][n].text == best:
                    cells[i][n] = Cell(best, True)
    groups: tuple[ColumnHead, ...] = ()
    if any(column.group for column in columns):
        named = groupby(column.group for column in columns)
        groups = (ColumnHead("", len(stubs)), *(ColumnHead(name, len(list(same))) for name, same in named))
    printed_rows = tuple((*map(Cell, key), *line) for (key, _), line in zip(rows, cells, strict=True))
    heads = (*stubs, *(column.head for column in columns))
    return Table(name, caption, groups, heads, len(stubs), printed_rows, note)


def printed(value: Value, kind: Kind) -> str:
    """A value as the page prints it."""
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return value
    if kind == "percent":
        return f"{100 * value:.1f}"
    return f"{value:,.0f}" if kind == "count" else f"{value:,.1f}"
