"""What systems scored in an experiment, as a table: text, HTML, data frame or dict.

Values are shares of 1; text and HTML show them in points (percent). The module does not know how they were
measured: :mod:`grls.api.experiment`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from grls.evaluation.significance import Comparison, shown_p
from grls.io.counts import counted

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.05  # p below it are marked


class SystemScores(NamedTuple):
    """What one system scored.

    Attributes:
        name: The name of the system.
        means: Measure -> its mean over the queries.
        differences: Measure -> comparison with the baseline; empty for the baseline, or without one.
        p: Measure -> p of the difference, by Holm's correction for all systems that are compared.
        seconds: Seconds a query.
    """

    name: str
    means: dict[str, float]
    differences: dict[str, Comparison]
    p: dict[str, float]
    seconds: float


@dataclass(frozen=True, repr=False)
class ExperimentTable:
    """The table of an experiment; it prints itself, also in notebooks.

    Attributes:
        measures: The names of the measures.
        rows: What each system scored.
        baseline: The name of the system that the others are compared with; None: no comparison.
        k: Hits of each query.
        queries: Number of queries.
    """

    measures: tuple[str, ...]
    rows: tuple[SystemScores, ...]
    baseline: str | None
    k: int
    queries: int

    def __getitem__(self, name: str) -> SystemScores:
        """What the system of this name scored."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name!r} is none of the systems {', '.join(row.name for row in self.rows)}")

    def __repr__(self) -> str:
        cells = [self._head(), *map(self._cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join([self._caption(), *(_line(row, widths) for row in cells)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(text)}</th>" for text in self._head())
        rows = "".join(f"<tr>{''.join(self._html_cells(row))}</tr>" for row in self.rows)
        return (
            f"<table><caption>{escape(self._caption())}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )

    def to_dict(self) -> dict[str, Any]:
        """All values, ready for JSON."""
        systems = {
            row.name: {
                "means": dict(row.means),
                "differences": {
                    name: {**one._asdict(), "p_holm": row.p[name]} for name, one in row.differences.items()
                },
                "seconds": row.seconds,
            }
            for row in self.rows
        }
        return {"baseline": self.baseline, "k": self.k, "queries": self.queries, "systems": systems}

    def to_frame(self) -> pd.DataFrame:
        """A data frame of pandas with one row a system.

        Columns: each measure; with a baseline also ``<measure> difference`` and ``<measure> p``; ``seconds``.
        """
        import pandas as pd

        rows = []
        for row in self.rows:
            values: dict[str, float | None] = {}
            for name in self.measures:
                values[name] = row.means[name]
                if self.baseline is not None:
                    compared = row.differences.get(name)
                    values[f"{name} difference"] = None if compared is None else compared.difference
                    values[f"{name} p"] = row.p.get(name)
            rows.append({**values, "seconds": row.seconds})
        return pd.DataFrame(rows, index=pd.Index([row.name for row in self.rows], name="system"), dtype=float)

    def _caption(self) -> str:
        counts = f"{counted(self.queries, 'query')}, {counted(self.k, 'hit')} each; measures in points"
        if self.baseline is None:
            return counts
        return f"{counts}; difference to {self.baseline}, and its p by Holm's correction"

    def _head(self) -> list[str]:
        compared = [] if self.baseline is None else ["diff.", "p"]
        return ["system", *(text for name in self.measures for text in (name, *compared)), "seconds a query"]

    def _cells(self, row: SystemScores) -> list[str]:
        cells = [row.name]
        for name in self.measures:
            cells.append(f"{100 * row.means[name]:.1f}")
            if self.baseline is not None:
                compared = row.differences.get(name)
                cells += (
                    ["", ""] if compared is None else [_points(compared.difference), shown_p(row.p[name])]
                )
        return [*cells, f"{row.seconds:.4f}"]

    def _html_cells(self, row: SystemScores) -> Iterator[str]:
        head = self._head()
        names = [name for name in self.measures for _ in range(1 if self.baseline is None else 3)]
        for place, text in enumerate(self._cells(row)):
            marked = head[place] == "p" and text and row.p[names[place - 1]] < _LEVEL
            shown = f"<b>{escape(text)}</b>" if marked else escape(text)
            yield f"<th>{shown}</th>" if place == 0 else f"<td>{shown}</td>"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first cell to the left, the others to the right."""
    numbers = [f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([f"{cells[0]:<{widths[0]}}", *numbers])


def _points(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
