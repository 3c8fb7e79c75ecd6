"""What a run came to: the retriever that is kept, and what every system was worth (``fit.json``)."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from grls.errors import DataError
from grls.io.files import read_json, write_json

RESULT = "fit.json"
FORMAT = 1

_PACKAGES = ("grls", "torch", "transformers", "sentence-transformers", "lightning", "bm25s")


@dataclass(frozen=True)
class Fitted:
    """A run that is done.

    Attributes:
        output: Its folder, which opens as the retriever that is kept.
        kept: The name of the system that is kept.
        why: The reason.
        queries: Split -> number of queries that were compared.
        metrics: System -> measure, with its split before it (``test R@5``) -> mean, a share of 1.
        seconds: Seconds of the whole run.
        notes: What people should know of the data.
        query_seconds: System -> seconds that ranking a query took, in batches and without loading; empty: of
            a run before these were kept.
    """

    output: Path
    kept: str
    why: str
    queries: Mapping[str, int]
    metrics: Mapping[str, Mapping[str, float]]
    seconds: float
    notes: tuple[str, ...] = ()
    query_seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, output: str | Path) -> Fitted:
        """Read ``fit.json`` of a run that is done.

        Raises:
            DataError: There is none.
        """
        file = Path(output) / RESULT
        found = read_json(file)
        try:
            data, kept, why = found["data"], found["kept"], found["why"]
            queries, notes = data["compared"], tuple(data["notes"])
            took = found.get("query_seconds", {})
            fitted = cls(Path(output), kept, why, queries, found["metrics"], found["seconds"], notes, took)
            fitted.text()
            return fitted
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise DataError(f"expected the result of a run ({error}); fit again.", file) from None

    @property
    def report(self) -> Path:
        """The page that compares the systems."""
        return self.output / "report.html"

    def text(self) -> str:
        """The table for people, in percent."""
        counted = ", ".join(f"{count:,} {split}" for split, count in self.queries.items())
        table = _table(self.metrics, self.kept, self.query_seconds)
        return "\n".join([f"queries: {counted}", *table, f"kept: {self.kept}, {self.why}"])


def _table(metrics: Mapping[str, Mapping[str, float]], kept: str, took: Mapping[str, float]) -> list[str]:
    heads = list(dict.fromkeys(name for measures in metrics.values() for name in measures))
    rows = [["", *heads, *(["ms a query"] if took else [])]]
    for name, measures in metrics.items():
        values = [measures.get(head) for head in heads]
        mark = "* " if name == kept else "  "
        cells = ["-" if value is None else f"{100 * value:.1f}" for value in values]
        rows.append([mark + name, *cells, *([milliseconds(took.get(name))] if took else [])])
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(first), *(c.rjust(w) for c, w in zip(row[1:], widths, strict=True))])
        for row in rows
    ]


def milliseconds(seconds: float | None) -> str:
    """A time of a query, for people; with a tenth below ten milliseconds."""
    if seconds is None:
        return "-"
    return f"{1000 * seconds:,.1f}" if seconds < 0.00995 else f"{1000 * seconds:,.0f}"


def versions() -> dict[str, str]:
    """The versions of what a run depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_result(output: Path, content: Mapping[str, Any]) -> None:
    """Write ``fit.json``, atomically."""
    write_json(output / RESULT, {"format": FORMAT, **content, "versions": versions()})
