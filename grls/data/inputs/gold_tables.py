"""The gold passages of queries from the rows of a table, and those of one query.

A table has a row for each gold passage (its query, its grade, its place in the order), or a row for each
query, with a column of lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from grls.data.dataset import HIGHEST_GRADE
from grls.data.inputs.tables import column_of, required_column
from grls.data.inputs.values import id_list, id_text, json_value, name_list, short_repr
from grls.errors import DataError
from grls.io.counts import counted

SOURCE = "gold"
"""The name of gold in error texts."""

QUERY = ("query-id", "query_id", "qid", "query")
PASSAGE = ("corpus-id", "corpus_id", "passage_id", "docno", "docid", "doc_id")
_SCORE = ("score", "relevance", "label", "grade")
_ORDER = ("order", "hop")
_LISTS = ("evidence", "gold", "passage_ids", "passage-ids")
_QUERY_OF_LIST = (*QUERY[:-1], "_id", "id", QUERY[-1])  # beside an id, the column `query` holds texts


class OfQuery(NamedTuple):
    """The gold passages of one query: grades, and evidence if they are a list or a set."""

    grades: dict[str, int]
    evidence: tuple[str, ...] | None = None
    any_order: bool = False


def of_query(value: Any, query: str) -> OfQuery:
    """The gold passages of a query: a list in order, a set, a dict of grades, or a single id.

    Raises:
        DataError: It is something else.
    """
    what = f"query {query!r}"
    if isinstance(value, Mapping):
        grades: dict[str, int] = {}
        for key, grade in value.items():
            _add(grades, id_text(key, what, SOURCE), grade, what)
        return OfQuery(grades)
    ids = id_list(value, what, SOURCE)
    return OfQuery(dict.fromkeys(ids, 1), tuple(ids), isinstance(value, set | frozenset))


def is_row(value: Any) -> bool:
    """Whether an object is a row of such a table, and no grades of passages."""
    if not isinstance(value, Mapping):
        return False
    if column_of(value, QUERY) and column_of(value, PASSAGE):
        return True
    column = column_of(value, _LISTS)
    return column is not None and not isinstance(json_value(value[column]), int | float)


def of_rows(
    columns: Collection[str], rows: Sequence[Mapping[str, Any]], queries: Sequence[str]
) -> dict[str, OfQuery]:
    """Query id -> its gold passages.

    Args:
        columns: The columns of the table.
        rows: Its rows.
        queries: The ids of the queries: a column of lists without ids is in their order.

    Raises:
        DataError: A column is missing, or a row is malformed.
    """
    lists = column_of(columns, _LISTS)
    if lists is not None and column_of(columns, PASSAGE) is None:
        return _of_lists(lists, column_of(columns, _QUERY_OF_LIST), rows, queries)
    query_column = required_column(columns, QUERY, "the ids of queries", SOURCE)
    what = f"the ids of passages, one a row (lists of ids: {_LISTS[0]!r})"
    passage_column = required_column(columns, PASSAGE, what, SOURCE)
    score_column, order_column = column_of(columns, _SCORE), column_of(columns, _ORDER)
    qrels: dict[str, dict[str, int]] = {}
    orders: dict[str, dict[int, str]] = {}
    for n, row in enumerate(rows):
        query = id_text(row.get(query_column), f"row {n}, column {query_column!r}", SOURCE)
        passage = _passage(row.get(passage_column), f"row {n}, column {passage_column!r}")
        what = f"row {n}, query {query!r}"
        _add(qrels.setdefault(query, {}), passage, 1 if score_column is None else row.get(score_column), what)
        if order_column is not None and qrels[query][passage] > 0:
            _place(orders.setdefault(query, {}), row.get(order_column), passage, what, order_column)
    if order_column is None:
        return {query: OfQuery(grades) for query, grades in qrels.items()}
    ordered = {query: [places[n] for n in sorted(places)] for query, places in orders.items()}
    return {query: OfQuery(grades, tuple(ordered.get(query, ()))) for query, grades in qrels.items()}


def _of_lists(
    lists: str, query_column: str | None, rows: Sequence[Mapping[str, Any]], queries: Sequence[str]
) -> dict[str, OfQuery]:
    """The gold of a table with a row for each query; a row without gold passages is left out."""
    names = list(queries)
    if query_column is not None:
        names = [id_text(row.get(query_column), f"row {n}, column {query_column!r}", SOURCE)
                 for n, row in enumerate(rows)]  # fmt: skip
        refuse_repeated_query(names)
    elif len(rows) != len(names):
        raise DataError(
            f"got {counted(len(rows), 'row')} for {counted(len(names), 'query')}, and no column with the ids "
            f"of queries (looked for {name_list(_QUERY_OF_LIST)}): add one.",
            SOURCE,
        )
    made: dict[str, OfQuery] = {}
    for name, row in zip(names, rows, strict=True):
        value = row.get(lists)
        if isinstance(value, Mapping):  # a data set has every key in every row
            value = {key: grade for key, grade in value.items() if json_value(grade) is not None}
        if json_value(value) is not None:
            made[name] = of_query(value, name)
            made[name] = made[name]._replace(
                any_order=made[name].any_order or json_value(row.get("any_order")) is True
            )
    return made


def refuse_repeated_query(names: Iterable[str]) -> None:
    """Refuse gold passages of one query in two places.

    Raises:
        DataError: An id is repeated.
    """
    known: set[str] = set()
    for name in names:
        if name in known:
            raise DataError(f"the query id {name!r} is used twice.", SOURCE)
        known.add(name)


def _passage(value: Any, what: str) -> str:
    if isinstance(json_value(value), list):
        raise DataError(
            f"{what}: expected the id of one passage, got the list {short_repr(value)}; name a column of "
            f"lists {_LISTS[0]!r}.",
            SOURCE,
        )
    return id_text(value, what, SOURCE)


def _place(places: dict[int, str], order: Any, passage: str, what: str, column: str) -> None:
    """Put a gold passage at its place in the order of retrieval."""
    number = _whole(order)
    if number is None:
        raise DataError(
            f"{what}, column {column!r}: expected a whole number, got {order!r}; drop the column if the "
            "order is not known.",
            SOURCE,
        )
    if places.setdefault(number, passage) != passage:
        raise DataError(
            f"{what}: the passages {places[number]!r} and {passage!r} have the same place {number} in the "
            f"column {column!r}; number them differently, or drop the column if any order is correct.",
            SOURCE,
        )
    if list(places.values()).count(passage) > 1:
        raise DataError(
            f"{what}: the passage {passage!r} has two places in the column {column!r}; name it once.",
            SOURCE,
        )


def _whole(value: Any) -> int | None:
    """A whole number; None: it is something else. Missing values make fractions of a column's numbers."""
    number = json_value(value)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _add(grades: dict[str, int], passage: str, grade: Any, what: str) -> None:
    """Add the grade of a passage, checked."""
    value = json_value(grade)
    number = int(value) if isinstance(value, bool) else _whole(value)
    if number is None or abs(number) > HIGHEST_GRADE:
        raise DataError(
            f"{what}, passage {passage!r}: expected a grade that is a whole number between "
            f"-{HIGHEST_GRADE:,} and {HIGHEST_GRADE:,}, got {grade!r}.",
            SOURCE,
        )
    if grades.setdefault(passage, number) != number:
        raise DataError(
            f"{what}, passage {passage!r}: it has the grade {grades[passage]} already, and here {number}; "
            "keep one of them.",
            SOURCE,
        )
