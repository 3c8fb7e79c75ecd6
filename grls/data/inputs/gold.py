"""Queries with their gold passages, from Python objects. All is checked before anything else happens."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, evidence_hint, proofs_of, read_qrels, relevant
from grls.data.inputs.gold_tables import (
    QUERY,
    SOURCE,
    OfQuery,
    is_row,
    of_query,
    of_rows,
    refuse_repeated_query,
)
from grls.data.inputs.queries import queries_from
from grls.data.inputs.tables import list_from, refuse_dict_of_tables, refuse_unnamed_index, table_from
from grls.data.inputs.values import existing_path, id_text, name_list, short_repr
from grls.data.types import Query
from grls.errors import DataError
from grls.io.counts import counted

WITHOUT_QRELS = " (without qrels, the lists in the field 'evidence' of the queries count)"
_NO_GOLD = " (without gold, the lists in the field 'evidence' of the queries count)"


@dataclass(frozen=True)
class Gold:
    """Queries and their gold passages.

    Attributes:
        queries: The queries; ``evidence`` holds the gold passages if their order is known, or if any order is
            correct (then the metadata holds ``any_order: true``).
        qrels: Query id -> passage id -> grade, for every query.
    """

    queries: list[Query]
    qrels: Qrels


def gold_of(gold: Any, queries: Any, corpus: Corpus | None = None) -> Gold:
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
        queries: The queries, see :func:`~grls.data.inputs.queries.queries_from`. If queries and gold are
            files, only the judged queries are taken; otherwise every query needs gold passages. Gold passages
            of further queries are ignored.
        corpus: Every gold passage must be in it; None: not checked.

    Raises:
        DataError: It is something else; a query has no gold passage; a gold passage is not in the corpus; a
            column is missing; or a grade is no whole number.
    """
    file = _qrels_file(gold, queries)
    asked = queries_from(queries)
    if file is not None:
        joined = _from_file(file, asked, existing_path(queries, "queries") is not None)
    else:
        joined = _joined(asked, _by_query(gold, asked), _NO_GOLD * (gold is None))
    refuse_unknown_gold(joined, [] if corpus is None else [corpus])
    return joined


def refuse_unknown_gold(gold: Gold, corpora: Iterable[Corpus]) -> None:
    """Refuse gold passages that are in no corpus.

    Args:
        gold: The queries and their gold passages.
        corpora: The corpora; none: nothing is checked.

    Raises:
        DataError: A passage of the grades, evidence or proofs is in none of them.
    """
    uses = {passage: query for query, grades in gold.qrels.items() for passage in grades}
    for query in gold.queries:
        for passages in (query.evidence, *proofs_of(query)):
            uses.update(dict.fromkeys(passages, query.id))
    unknown, names, first = list(uses), [], ""
    for corpus in corpora:
        names.append(corpus.source)
        first = name_list(corpus.ids(range(min(3, len(corpus)))))
        numbers = corpus.numbers(unknown)
        unknown = [passage for passage, number in zip(unknown, numbers, strict=True) if number is None]
    if names and unknown:
        listed = " A list as text must be read first, with json.loads." * unknown[0].startswith("[")
        raise DataError(
            f"query {uses[unknown[0]]!r}: the passage id {unknown[0]!r} is not in {' or '.join(names)} "
            f"({len(unknown)} such; the ids there begin with {first}); correct the id or add the "
            f"passage.{listed}",
            SOURCE,
        )


def _qrels_file(gold: Any, queries: Any) -> Path | None:
    """The qrels file that the gold names: a path, or a split of the data set folder of the queries."""
    folder = existing_path(queries, "queries")
    if isinstance(gold, str) and folder is not None:
        split = folder / "qrels" / f"{gold}.tsv"
        if split.is_file():
            return split
    file = existing_path(gold, SOURCE)
    if file is None and isinstance(gold, str):
        there = sorted(one.stem for one in folder.glob("qrels/*.tsv")) if folder is not None else []
        hint = evidence_hint(folder) if folder is not None else ""
        splits = f"; the data set has the splits {name_list(there)}" if there else hint
        raise DataError(f"{gold!r} is no file{splits}; expected qrels in BEIR's form.", SOURCE)
    if file is not None and file.is_dir():
        files = sorted([*file.glob("qrels/*.tsv"), *file.glob("*.tsv")])
        if len(files) != 1:
            raise DataError(
                f"expected the path of one qrels file, such as {file / 'qrels' / 'test.tsv'}; there are "
                f"{name_list([one.name for one in files])}.",
                file,
            )
        return files[0]
    return file


def _from_file(file: Path, queries: list[Query], subset: bool) -> Gold:
    """The gold of a qrels file; the grades may all be 0, as in the field's data sets."""
    qrels = read_qrels(file)
    ids = {query.id for query in queries}
    unknown = qrels.keys() - ids
    if subset and unknown:
        raise DataError(
            f"the query id {min(unknown)!r} is in none of the queries ({len(unknown)} such); add the query "
            "or drop its lines.",
            file,
        )
    if not subset:
        refuse_without_gold([query.id for query in queries if query.id not in qrels], file, unknown)
    judged = [query for query in queries if query.id in qrels]
    if not judged:
        raise DataError("the file judges none of the queries.", file)
    return Gold(judged, {name: grades for name, grades in qrels.items() if name in ids})


def _joined(queries: list[Query], of_queries: Mapping[str, OfQuery], hint: str) -> Gold:
    ids = {query.id for query in queries}
    without = [q.id for q in queries if q.id not in of_queries or not relevant(of_queries[q.id].grades)]
    refuse_without_gold(without, SOURCE, of_queries.keys() - ids, hint)
    completed = [_completed(query, of_queries[query.id]) for query in queries]
    return Gold(completed, {query.id: of_queries[query.id].grades for query in queries})


def refuse_without_gold(
    without: list[str], source: str | Path, further: Collection[str] = (), hint: str = ""
) -> None:
    """Refuse queries without gold passages: their training or measure would mean nothing.

    Args:
        without: The ids of such queries; none: nothing is refused.
        source: Where the gold was looked for.
        further: Ids that have gold, but are no queries: perhaps misspelled.
        hint: What else is to know, after the names of the queries.

    Raises:
        DataError: There are such queries.
    """
    if without:
        others = f"; there is gold of {name_list(sorted(further), 3)}, which is no query" if further else ""
        raise DataError(
            f"{counted(len(without), 'query has', 'queries have')} no gold passage: {name_list(without, 5)}"
            f"{others}{hint}. Add gold passages for each, or leave such queries out.",
            source,
        )


def _completed(query: Query, gold: OfQuery) -> Query:
    """The query with its evidence."""
    if gold.evidence is None:
        return query
    metadata = {name: value for name, value in json.loads(query.metadata).items() if name != "any_order"}
    if gold.any_order:
        metadata["any_order"] = True
    return query._replace(evidence=gold.evidence, metadata=json.dumps(metadata, ensure_ascii=False))


def _by_query(gold: Any, queries: list[Query]) -> dict[str, OfQuery]:
    """Query id -> its gold passages."""
    if gold is None:
        return {q.id: OfQuery(dict.fromkeys(q.evidence, 1)) for q in queries}
    ids = [query.id for query in queries]
    table = table_from(gold, SOURCE)
    if table is not None:
        refuse_unnamed_index(gold, table, (*QUERY, "_id", "id"), SOURCE)
        return of_rows(table.columns, table.rows, ids)
    refuse_dict_of_tables(gold, SOURCE)
    if isinstance(gold, Mapping) or _is_by_label(gold, ids):
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
    return _of_list(values, ids)


def _is_by_label(gold: Any, queries: list[str]) -> bool:
    """Whether this is a pandas series whose index names the queries."""
    if not (hasattr(gold, "items") and hasattr(gold, "index")):
        return False
    labels = list(gold.index)
    return labels != list(range(len(labels))) or {str(label) for label in labels} == set(queries)


def _of_list(gold: list[Any], queries: list[str]) -> dict[str, OfQuery]:
    """Gold passages in the order of the queries, or rows of a table."""
    if gold and all(is_row(one) for one in gold):
        return of_rows(dict.fromkeys(str(name) for row in gold for name in row), gold, queries)
    if len(gold) != len(queries):
        raise DataError(
            f"got {counted(len(gold), 'item')} for {counted(len(queries), 'query')}; a list of gold passages "
            "needs one item a query, in their order.",
            SOURCE,
        )
    return {query: of_query(value, query) for query, value in zip(queries, gold, strict=True)}
