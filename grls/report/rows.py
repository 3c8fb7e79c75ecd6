"""Rows of a table, joined over data sets by their heading cells.

Each of several data sets is a group of columns. A row is a run; runs of different data sets share a row if
system, name and steps are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from grls.report.blocks import NONE, Column, Table, Value, value_table
from grls.report.measure import Measured, MeasuredGroup
from grls.report.runs import STEPS, SYSTEMS, place_of

Key = tuple[str, ...]
Rows = Mapping[Key, Mapping[str, Value]]
"""Heading cells of a row -> metric -> value, for one data set."""

IDENTITY = ("run", "system", "steps")
"""Headings of the cells of :func:`identity`."""

REACH = (
    "A ranking that was cut off before k has no value at k; lists that are whole and chains that end keep "
    "their value beyond their end."
)
"""What a dash in a column of cut-off k means; a page says it once."""


def system(run: Measured) -> str:
    """The kind of retriever, as the page names it."""
    return SYSTEMS.get(run.entry.system, NONE)


def steps(run: Measured) -> str:
    """Single, ranked, fixed or dynamic; a dash if unknown."""
    return run.entry.steps or NONE


def identity(run: Measured) -> Key:
    """The heading cells of a run's row."""
    return run.label, system(run), steps(run)


def across(
    name: str,
    caption: str,
    stubs: Sequence[str],
    groups: Sequence[MeasuredGroup],
    rows_of: Callable[[MeasuredGroup], Rows],
    metrics: Sequence[tuple[str, Column]],
    note: str,
    within: int | None = None,
    by: str | None = None,
) -> Table | None:
    """A table whose rows are joined over data sets by their heading cells; None without a row.

    With ``by``, rows are sorted by their mean of that metric over data sets, best first; rows without it come
    last.
    """
    rows_by_group = [rows_of(group) for group in groups]
    groups = [group for group, rows in zip(groups, rows_by_group, strict=True) if rows]
    rows_by_group = [rows for rows in rows_by_group if rows]
    keys = sorted(dict.fromkeys(key for rows in rows_by_group for key in rows), key=_place(stubs, within))
    if not keys:
        return None
    if by is not None:
        keys.sort(key=lambda key: -_mean_of([rows.get(key, {}).get(by) for rows in rows_by_group]))
    several = len(groups) > 1
    columns = [c._replace(group=g.group.name if several else "") for g in groups for _, c in metrics]
    table = [
        (key, [rows.get(key, {}).get(metric) for rows in rows_by_group for metric, _ in metrics])
        for key in keys
    ]
    suffix = "all" if several else groups[0].group.name
    return value_table(f"{name}-{suffix}", caption, stubs, columns, table, note, within)


def _mean_of(values: Sequence[Value]) -> float:
    """The mean of the numbers; -1, below every measure, if there is none."""
    numbers = [value for value in values if isinstance(value, int | float)]
    return fmean(numbers) if numbers else -1.0


def _place(stubs: Sequence[str], within: int | None) -> Callable[[Key], tuple[Any, ...]]:
    """The order of rows: by system and steps as in the paper, else in the order of the runs."""

    def place(key: Key) -> tuple[Any, ...]:
        named = dict(zip(stubs, key, strict=True))
        if "ensemble" in named:
            return (0,)
        return (
            named["run"] == "gold",
            place_of(named.get("system"), [*SYSTEMS.values()]) if within is None else 0,
            place_of(named.get("steps"), STEPS),
            named.get("corpus", ""),
        )

    return place
