"""Queries with their gold passages from Python objects, all checked first."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import (
    HIGHEST_GRADE,
    Qrels,
    evidence_hint,
    judged_by,
    read_qrels,
    relevant,
    told_unknown,
)
from grls.data.inputs.entries import queries_from
from grls.data.inputs.tables import (
    column_of,
    existing_path,
    id_list,
    id_text,
    json_value,
    name_list,
    refuse_dict_of_tables,
    refuse_unnamed_index,
    required_column,
    table_from,
)
from grls.data.types import Query
from grls.errors import DataError
from grls.io.arguments import list_from, short_repr
from grls.io.progress import counted

SOURCE = "gold"
"""The name of gold in error texts."""

QUERY = ("query-id", "query_id", "qid", "query")
PASSAGE = ("corpus-id", "corpus_id", "passage_id", "docno", "docid", "doc_id")
_SCORE = ("score", "relevance", "label", "grade")
_ORDER = ("order", "hop")
_LISTS = ("evidence", "gold", "passage_ids", "passage-ids")
_QUERY_OF_LIST = (*QUERY[:-1], "_id", "id", QUERY[-1])  # beside an id, the column `query` holds texts


_NO_GOLD = " (without gold or qrels, the lists in the field 'evidence' of the queries count)"


class GoldOfQuery(NamedTuple):
    """Grades, and evidence if they are a list or a set."""

    grades: dict[str, int]
    evidence: tuple[str, ...] | None = None
    any_order: bool = False


class Gold(NamedTuple):
    """Queries and their gold passages.

    Attributes:
        queries: ``evidence`` holds the gold passages if their order is known, or if any order is correct
            (then the metadata hold ``any_order: true``).
        qrels: Query id -> passage id -> grade, for every query.
    """

    queries: list[Query]
    qrels: Qrels


def gold_of(gold: Any, queries: Any, corpus: Corpus | None = None, known: bool = False) -> Gold:
    """Join queries with their gold passages.

    Args:
        gold: One of these:

            - a dict from query ids to gold passages: a list of ids in the order of retrieval (evidence), a
              set of ids if any order is correct, a dict from ids to grades, or a single id;
            - a list of such gold passages, one for each query, in the order of the queries; or such a column
              of a table. A pandas series is a dict by its index, unless that is 0, 1, 2, …;
            - a data frame, a ``datasets.Dataset`` or an Arrow table with a row for each gold passage, and
              columns such as ``query-id``, ``corpus-id`` and ``score`` (without a score each row has the
              grade 1). A column ``order`` or ``hop`` makes them evidence in that order;
            - such a table with a row for each query, and columns such as ``query-id`` and ``evidence``: lists
              of ids, in order unless a column ``any_order`` says true. Without ids of queries, the rows are
              in the order of the queries;
            - the path of a qrels file in BEIR's form, or the name of a split if the queries are a data set
              folder;
            - None: the evidence of the queries.

            Passages graded above 0 are gold.
        queries: The queries, see :func:`~grls.data.inputs.entries.queries_from`. If queries and gold are
            files, only the judged queries are taken; otherwise every query needs gold passages. Gold passages
            of further queries are ignored.
        corpus: It should hold the gold passages (:func:`~grls.data.dataset.told_unknown`); None: not checked.
        known: Leave out gold passages that the corpus lacks.
    """
    file = _qrels_file(gold, queries)
    query_list = queries_from(queries)
    ids = {query.id for query in query_list}
    if file is not None:  # the grades may all be 0, as in the field's data sets
        qrels = read_qrels(file)
        if existing_path(queries, "queries") is None:
            without = [query.id for query in query_list if query.id not in qrels]
            refuse_without_gold(without, file, qrels.keys() - ids)
            qrels = {name: grades for name, grades in qrels.items() if name in ids}
        joined = Gold(*judged_by(qrels, query_list, file))
    else:
        golds = _by_query(gold, query_list)
        without = [q.id for q in query_list if q.id not in golds or not relevant(golds[q.id].grades)]
        place = existing_path(queries, SOURCE) if gold is None else None
        place = place / "queries.jsonl" if place is not None and place.is_dir() else place
        refuse_without_gold(without, place or SOURCE, golds.keys() - ids, _NO_GOLD * (gold is None))
        completed = []
        for query in query_list:
            _, evidence, any_order = golds[query.id]
            if evidence is not None:
                metadata = json.loads(query.metadata)
                metadata.pop("any_order", None)
                metadata |= {"any_order": True} if any_order else {}
                text = json.dumps(metadata, ensure_ascii=False)
                query = query._replace(evidence=evidence, metadata=text)
            completed.append(query)
        joined = Gold(completed, {query.id: golds[query.id].grades for query in query_list})
    return joined if corpus is None else Gold(*told_unknown(*joined, [corpus], file or SOURCE, known))


def _qrels_file(gold: Any, queries: Any) -> Path | None:
    """The qrels file that the gold names: a path, or a split of the data set folder of the queries."""
    folder = existing_path(queries, "queries")
    if isinstance(gold, str) and folder is not None:
        split = folder / "qrels" / f"{gold}.tsv"
        if split.is_file():
            return split
    file = existing_path(gold, SOURCE)
    if file is None and isinstance(gold, str):
        names = sorted(file.stem for file in folder.glob("qrels/*.tsv")) if folder is not None else []
        hint = evidence_hint(folder) if folder is not None else ""
        splits = f"; the data set has the splits {name_list(names)}" if names else hint
        raise DataError(f"{gold!r} is no file{splits}; expected qrels in BEIR's form.", SOURCE)
    if file is not None and file.is_dir():
        files = sorted([*file.glob("qrels/*.tsv"), *file.glob("*.tsv")])
        if len(files) != 1:
            raise DataError(
                f"expected the path of one qrels file, such as {file / 'qrels' / 'test.tsv'}; there are "
                f"{name_list([file.name for file in files])}.",
                file,
            )
        return files[0]
    return file


def refuse_without_gold(
    without: list[str], source: str | Path, further: Collection[str] = (), hint: str = ""
) -> None:
    """Refuse queries without gold passages (their ids): their training or measure would mean nothing.

    The error names the ``source`` of the gold, ids in it that are no queries (``further``), and a ``hint``.
    """
    if without:
        others = f"; there is gold of {name_list(sorted(further), 3)}, which is no query" if further else ""
        raise DataError(
            f"{counted(len(without), 'query has', 'queries have')} no gold passage: {name_list(without, 5)}"
            f"{others}{hint}. Add gold passages for each, or leave such queries out.",
            source,
        )


def _by_query(gold: Any, queries: list[Query]) -> dict[str, GoldOfQuery]:
    if gold is None:
        return {q.id: GoldOfQuery(dict.fromkeys(q.evidence, 1)) for q in queries}
    ids = [query.id for query in queries]
    table = table_from(gold, SOURCE)
    if table is not None:
        refuse_unnamed_index(gold, table, (*QUERY, "_id", "id"), SOURCE)
        return of_rows(table.columns, table.rows, ids)
    refuse_dict_of_tables(gold, SOURCE)
    by_label = isinstance(gold, Mapping)
    if hasattr(gold, "items") and hasattr(gold, "index"):  # a pandas series, whose index may name the queries
        labels = list(gold.index)
        by_label |= labels != list(range(len(labels))) or {str(label) for label in labels} == set(ids)
    if by_label:
        pairs = [(id_text(key, "a key of gold", SOURCE), value) for key, value in gold.items()]
        refuse_repeated_query(name for name, _ in pairs)
        return {name: of_query(value, name) for name, value in pairs}
    values = list_from(gold)
    if values is None:
        raise DataError(
            "expected a dict from query ids to passage ids, a list of them in the order of the queries, a "
            f"data frame or the path of a qrels file; got {type(gold).__name__} {short_repr(gold)}.",
            SOURCE,
        )
    if values and all(is_row(value) for value in values):
        return of_rows(dict.fromkeys(str(name) for row in values for name in row), values, ids)
    if len(values) != len(ids):
        raise DataError(
            f"got {counted(len(values), 'item')} for {counted(len(ids), 'query')}; a list of gold passages "
            "needs one item a query, in their order.",
            SOURCE,
        )
    return {query: of_query(value, query) for query, value in zip(ids, values, strict=True)}


def of_query(value: Any, query: str) -> GoldOfQuery:
    """The gold passages of a query: a list in order, a set, a dict of grades, or a single id."""
    label = f"query {query!r}"
    if isinstance(value, Mapping):
        grades: dict[str, int] = {}
        for key, grade in value.items():
            _add(grades, id_text(key, label, SOURCE), grade, label)
        return GoldOfQuery(grades)
    ids = id_list(value, label, SOURCE)
    return GoldOfQuery(dict.fromkeys(ids, 1), tuple(ids), isinstance(value, set | frozenset))


def is_row(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if column_of(value, QUERY) and column_of(value, PASSAGE):
        return True
    column = column_of(value, _LISTS)
    return column is not None and not isinstance(json_value(value[column]), int | float)


def of_rows(
    columns: Collection[str], rows: Sequence[Mapping[str, Any]], queries: Sequence[str]
) -> dict[str, GoldOfQuery]:
    """Lists without ids are in the order of ``queries``."""
    lists = column_of(columns, _LISTS)
    if lists is not None and column_of(columns, PASSAGE) is None:
        return _of_lists(lists, column_of(columns, _QUERY_OF_LIST), rows, queries)
    query_column = required_column(columns, QUERY, "the ids of queries", SOURCE)
    content = f"the ids of passages, one a row (lists of ids: {_LISTS[0]!r})"
    passage_column = required_column(columns, PASSAGE, content, SOURCE)
    score_column, order_column = column_of(columns, _SCORE), column_of(columns, _ORDER)
    qrels: dict[str, dict[str, int]] = {}
    orders: dict[str, dict[int, str]] = {}
    for n, row in enumerate(rows):
        query = id_text(row.get(query_column), f"row {n}, column {query_column!r}", SOURCE)
        value, label = row.get(passage_column), f"row {n}, column {passage_column!r}"
        if isinstance(json_value(value), list):
            raise DataError(
                f"{label}: expected the id of one passage, got the list {short_repr(value)}; name a column "
                f"of lists {_LISTS[0]!r}.",
                SOURCE,
            )
        passage = id_text(value, label, SOURCE)
        label = f"row {n}, query {query!r}"
        grade = 1 if score_column is None else row.get(score_column)
        _add(qrels.setdefault(query, {}), passage, grade, label)
        if order_column is None or qrels[query][passage] <= 0:
            continue
        number, order = _whole(row.get(order_column)), orders.setdefault(query, {})
        if number is None:
            raise DataError(
                f"{label}, column {order_column!r}: expected a whole number, got {row.get(order_column)!r}; "
                "drop the column if the order is not known.",
                SOURCE,
            )
        if order.setdefault(number, passage) != passage:
            raise DataError(
                f"{label}: the passages {order[number]!r} and {passage!r} have the same place {number} in "
                f"the column {order_column!r}; number them differently, or drop the column if any order is "
                "correct.",
                SOURCE,
            )
    if order_column is None:
        return {query: GoldOfQuery(grades) for query, grades in qrels.items()}
    ordered = {query: [order[n] for n in sorted(order)] for query, order in orders.items()}
    return {query: GoldOfQuery(grades, tuple(ordered.get(query, ()))) for query, grades in qrels.items()}


def _of_lists(
    lists: str, query_column: str | None, rows: Sequence[Mapping[str, Any]], queries: Sequence[str]
) -> dict[str, GoldOfQuery]:
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
    golds: dict[str, GoldOfQuery] = {}
    for name, row in zip(names, rows, strict=True):
        value = row.get(lists)
        if isinstance(value, Mapping):  # a data set has every key in every row
            value = {key: grade for key, grade in value.items() if json_value(grade) is not None}
        if json_value(value) is not None:
            gold = of_query(value, name)
            any_order = gold.any_order or json_value(row.get("any_order")) is True
            golds[name] = gold._replace(any_order=any_order)
    return golds


def refuse_repeated_query(names: Iterable[str]) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            raise DataError(f"the query id {name!r} is used twice.", SOURCE)
        known.add(name)


def _whole(value: Any) -> int | None:
    """None: no whole number. A column with missing values has floats."""
    number = json_value(value)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _add(grades: dict[str, int], passage: str, grade: Any, label: str) -> None:
    value = json_value(grade)
    number = int(value) if isinstance(value, bool) else _whole(value)
    if number is None or abs(number) > HIGHEST_GRADE:
        raise DataError(
            f"{label}, passage {passage!r}: expected a grade that is a whole number between "
            f"-{HIGHEST_GRADE:,} and {HIGHEST_GRADE:,}, got {grade!r}.",
            SOURCE,
        )
    if grades.setdefault(passage, number) != number:
        raise DataError(
            f"{label}, passage {passage!r}: it has the grade {grades[passage]} already, and here {number}; "
            "keep one of them.",
            SOURCE,
        )


def queries_and_qrels(splits: Mapping[str, Gold]) -> tuple[list[Query], dict[str, Qrels]]:
    """The queries of all splits, each once, and the judgements of each split."""
    queries = {query.id: query for gold in splits.values() for query in gold.queries}
    return [*queries.values()], {split: gold.qrels for split, gold in splits.items()}
