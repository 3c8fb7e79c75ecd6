"""The blocks of a page: plain values, and a table that also prints itself as text, Markdown and LaTeX.

Numbers are formatted here. The best value of a column is marked as it is printed, so equal figures get
equal marks.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import pandas as pd

from grls.io.progress import aligned

NONE = "–"

Value = float | int | str | None
Kind = Literal["percent", "number", "count", "text"]


class Cell(NamedTuple):
    """One cell; ``shade`` is the depth of its background in [0, 1]."""

    text: str
    strong: bool = False
    shade: float | None = None


class Table(NamedTuple):
    """A table, which prints itself; a page prints it in a frame of its own.

    Attributes:
        stubs: Number of leading columns that head their row.
        heat: Whether it is a heat map.
    """

    name: str
    caption: str
    heads: tuple[str, ...]
    stubs: int
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    heat: bool = False

    @property
    def left(self) -> list[bool]:
        """Whether each column is aligned left: it heads rows, or holds words and no number."""
        columns = [[cell.text for cell in column] for column in zip(*self.rows, strict=True)]
        worded = [any(map(str.isalpha, "".join(c))) and not any(map(_NUMBER.fullmatch, c)) for c in columns]
        return [True] * self.stubs + (worded or [False] * len(self.heads))[self.stubs :]

    def text(self) -> str:
        cells = [self.heads, *(tuple(cell.text for cell in row) for row in self.rows)]
        lines = aligned(cells, [n for n, left in enumerate(self.left) if left])
        return "\n".join([self.caption, *lines, *textwrap.wrap(self.note, 100)])

    def markdown(self) -> str:
        def line(cells: Iterable[Cell]) -> str:
            texts = [re.sub(r"([\\|*_`<])", r"\\\1", " ".join(cell.text.split())) for cell in cells]
            bold = [f"**{t}**" if cell.strong else t for t, cell in zip(texts, cells, strict=True)]
            return f"| {' | '.join(bold)} |"

        rule = [":--" if left else "--:" for left in self.left]
        lines = [line([*map(Cell, self.heads)]), f"| {' | '.join(rule)} |", *map(line, self.rows)]
        return "\n\n".join(filter(None, (self.caption, "\n".join(lines), self.note)))

    def latex(self) -> str:
        def escaped(text: str) -> str:
            return re.sub(r"[\\&%$#_{}~^±†–−<>]", lambda sign: _LATEX[sign[0]], " ".join(text.split()))

        def line(cells: Iterable[Cell]) -> str:
            texts = [(escaped(cell.text), cell.strong) for cell in cells]
            return " & ".join(f"\\textbf{{{text}}}" if strong else text for text, strong in texts) + r" \\"

        columns = "".join("l" if left else "r" for left in self.left)
        caption = escaped(f"{self.caption}. {self.note}".strip())
        label = re.sub(r"\W+", "-", self.name.lower()).strip("-")
        lines = [
            r"\begin{table}", r"\centering", f"\\caption{{{caption}}}", f"\\label{{tab:{label}}}",
            f"\\begin{{tabular}}{{{columns}}}", r"\toprule", line(map(Cell, self.heads)), r"\midrule",
            *map(line, self.rows), r"\bottomrule", r"\end{tabular}", r"\end{table}",
        ]  # fmt: skip
        return "\n".join(lines)

    def csv(self) -> str:
        rows = [[cell.text for cell in row] for row in self.rows]
        return str(pd.DataFrame(rows, columns=self.heads).to_csv(index=False))


_NUMBER = re.compile(r"[(<>+−-]* ?\d[\d.,]*( ?(±|to) ?[+−-]?[\d.,]+| ?[a-z]{1,3}(?![a-z])( \d+)?)*[†)%]*")
"""A cell with a number, its spread or unit, and marks."""

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "†": r"$^\dagger$", "–": "--", "−": "$-$", "<": "$<$", ">": "$>$"},
}


class Picture(NamedTuple):
    """A picture; ``alt`` describes it in words."""

    name: str
    caption: str
    svg: str
    alt: str


class Text(NamedTuple):
    """A paragraph; ``warning`` marks what a reader must not miss."""

    text: str
    warning: bool = False


class KeyFigures(NamedTuple):
    """What a reader wants to know first: figures in large type, each with the words below it."""

    facts: tuple[tuple[str, str], ...]


Block = Table | Picture | Text | KeyFigures


class Subsection(NamedTuple):
    """A part of a section, with its heading."""

    title: str
    blocks: tuple[Block, ...]


class Section(NamedTuple):
    """A section of the page."""

    title: str
    parts: tuple[Subsection, ...]


class Page(NamedTuple):
    """The page: its ``answer`` on the first screen, the sections folded below."""

    title: str
    summary: str
    sections: tuple[Section, ...]
    answer: tuple[Block, ...] = ()


class Column(NamedTuple):
    """A column of values; ``best`` is the value to mark."""

    head: str
    kind: Kind = "percent"
    best: Literal["high", "low", ""] = "high"


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

    With ``within``, the best among rows that are equal in this column of ``stubs`` is marked.
    """
    cells = [[Cell(printed(v, c.kind)) for v, c in zip(values, columns, strict=True)] for _, values in rows]
    alike: dict[str, list[int]] = {}  # rows to choose the best of
    for i, (key, _) in enumerate(rows):
        alike.setdefault("" if within is None else key[within], []).append(i)
    for n, column in enumerate(columns):
        for peers in alike.values():
            numbers = [v for i in peers if isinstance(v := rows[i][1][n], (int, float))]
            if not column.best or len({printed(number, column.kind) for number in numbers}) < 2:
                continue  # nothing to choose between
            best = printed(max(numbers) if column.best == "high" else min(numbers), column.kind)
            if best in ("0", "0.0"):
                continue  # none of a kind
            for i in peers:
                if cells[i][n].text == best:
                    cells[i][n] = Cell(best, True)
    printed_rows = tuple((*map(Cell, key), *line) for (key, _), line in zip(rows, cells, strict=True))
    heads = (*stubs, *(column.head for column in columns))
    return Table(name, caption, heads, len(stubs), printed_rows, note)


def printed(value: Value, kind: Kind) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return value
    if kind == "percent":
        return f"{100 * value:.1f}"
    return f"{value:,.0f}" if kind == "count" else f"{value:,.1f}"


def two_digits(value: float) -> str:
    """A time or another cost with two significant digits, up to four decimals; all digits of 100 or more."""
    return f"{value:,.0f}" if value >= 99.5 else f"{round(float(f'{value:.2g}'), 4):g}"
