"""Tables of other libraries as rows: pandas, polars, ``datasets`` and pyarrow.

A table is known by its methods, so none of these libraries is imported here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any, NamedTuple

from grls.data.inputs.values import name_list
from grls.errors import DataError


class DataTable(NamedTuple):
    """The rows of a table.

    Attributes:
        columns: The names of the columns.
        rows: One object a row.
    """

    columns: list[str]
    rows: list[dict[str, Any]]


def table_from(value: Any, source: str) -> DataTable | None:
    """The rows of a table; None if the value is no table.

    A named index of pandas is a column.

    Raises:
        DataError: Two columns have one name.
    """
    if not _is_table(value):
        return None
    if hasattr(value, "to_dict") and hasattr(value, "index"):  # pandas
        frame = value if value.index.names == [None] else value.reset_index()
        columns = [str(name) for name in frame.columns]
        _refuse_repeated(columns, source)
        return DataTable(columns, [dict(zip(columns, row, strict=True)) for row in _pandas_rows(frame)])
    if hasattr(value, "to_dicts"):  # polars
        return DataTable(list(value.columns), value.to_dicts())
    if hasattr(type(value), "column_names") and not isinstance(value, Mapping):  # datasets, pyarrow
        rows = value.to_pylist() if hasattr(value, "to_pylist") else [dict(row) for row in value]
        return DataTable(list(value.column_names or (rows[0] if rows else ())), rows)
    return None


def list_from(value: Any) -> list[Any] | None:
    """The values of a list, an array, or a column of a table; None if the value is something else.

    A data frame (which yields the names of its columns) and an open file (lines) are something else.
    """
    if _is_table(value) or hasattr(value, "readline"):
        return None
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(value, method):
            values = getattr(value, method)()
            return values if isinstance(values, list) else None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Set):
        return list(value)
    return None


def refuse_dict_of_tables(value: Any, source: str) -> None:
    """Refuse a dict of data sets where one of them is expected.

    Raises:
        DataError: It is one.
    """
    splits = [name for name, one in value.items() if _is_table(one)] if isinstance(value, Mapping) else []
    if splits:
        raise DataError(
            f"this is a dict of data sets; choose one, as in data[{splits[0]!r}] (there are "
            f"{name_list(value)}).",
            source,
        )


def _is_table(value: Any) -> bool:
    """Whether a value has columns. Its class is asked: a lazy frame of polars would run its query."""
    return hasattr(type(value), "columns") or hasattr(type(value), "column_names")


def column_of(columns: Collection[str], names: Collection[str]) -> str | None:
    """The first of the names that is a column."""
    return next((name for name in names if name in columns), None)


def required_column(columns: Collection[str], names: Collection[str], what: str, source: str) -> str:
    """The column with one of these names.

    Args:
        columns: The columns that are there.
        names: The names that are looked for.
        what: What the column holds, for the error text.
        source: The name of the source, for the error text.

    Raises:
        DataError: There is none.
    """
    column = column_of(columns, names)
    if column is None:
        raise DataError(
            f"there is no column with {what}: looked for {name_list(names)}; there are "
            f"{name_list(columns, 20)}. Rename the column to {next(iter(names))!r}.",
            source,
        )
    return column


def refuse_unnamed_index(value: Any, table: DataTable, ids: Collection[str], source: str) -> None:
    """Refuse a data frame without ids whose index is not 0, 1, 2, …: the index may be meant as ids, or not.

    Raises:
        DataError: It is such a frame.
    """
    labels = getattr(value, "index", None)
    if labels is None or column_of(table.columns, ids) is not None or not hasattr(labels, "names"):
        return
    if list(labels) != list(range(len(table.rows))):
        raise DataError(
            f"there is no column with ids (looked for {name_list(ids)}; there are "
            f"{name_list(table.columns, 20)}), and the index is not 0, 1, 2, …: name the index with "
            "frame.rename_axis('id') if it holds the ids, or drop it with frame.reset_index(drop=True).",
            source,
        )


def _pandas_rows(frame: Any) -> Any:
    """The rows of a data frame as tuples, with the types of their columns."""
    return zip(*(frame.iloc[:, place].tolist() for place in range(frame.shape[1])), strict=True)


def _refuse_repeated(columns: list[str], source: str) -> None:
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise DataError(f"two columns have the name {min(repeated)!r}; rename or drop one.", source)
