"""A data set in BEIR's layout: reads queries and qrels, checks them against the corpus, writes a whole set.

A data set is a folder::

    corpus.jsonl            {"_id", "title", "text", "metadata"}
    queries.jsonl           {"_id", "text", "metadata", "evidence"}
    qrels/<split>.tsv       query-id <tab> corpus-id <tab> score, with a header line

``evidence`` (the gold passage ids in retrieval order) is an optional field of grls; without any qrels it is
the gold (:func:`evidence_qrels`). Short answers are in ``metadata.answers``. Any BEIR set on disk works as it
is. This module defines the gold passages of a query, for training and evaluation.
Passages: :mod:`grls.data.corpus`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import DataError, Option, at_least
from grls.io.files import atomic_folder, text_lines
from grls.io.progress import counted
from grls.io.resumable import object_of, read_jsonl, string_of, write_line

Qrels = dict[str, dict[str, int]]
"""Query id -> passage id -> relevance grade."""

HIGHEST_GRADE = 1_000_000
"""The largest absolute grade of a passage: trec_eval counts the passages of each grade in 32-bit numbers."""

QRELS_HEADER = ("query-id", "corpus-id", "score")

_BREAKS = re.compile(r"[\t\r\n]")
_GRADE = re.compile(r"-?[0-9]{1,18}")


def read_queries(path: str | Path) -> list[Query]:
    """Read ``queries.jsonl`` (or the data set folder that holds it).

    Raises:
        DataError: The file is missing, empty, malformed (with the line), or repeats an id.
    """
    file = Path(path) / "queries.jsonl" if Path(path).is_dir() else Path(path)
    queries: dict[str, Query] = {}
    for line, record in read_jsonl(file):
        query = query_of(record, file, line)
        if query.id in queries:
            raise DataError(f"the query id {query.id!r} is used twice.", file, line)
        queries[query.id] = query
    if not queries:
        raise DataError("the file holds no query; expected one JSON object a line.", file)
    return list(queries.values())


def read_qrels(path: str | Path) -> Qrels:
    """Read a qrels file in BEIR's form (three tab-separated columns, with a header).

    Raises:
        DataError: The file is missing or a line is malformed.
    """
    file = Path(path)
    if not file.is_file():
        others = f"; there are {_splits(file)}" if _splits(file) else evidence_hint(file.parent.parent)
        raise DataError(f"no such file{others}; expected BEIR qrels (query-id, corpus-id, score).", file)
    qrels: Qrels = {}
    for line, text in text_lines(file):
        fields = text.split("\t")
        if (line == 1 and fields[0] == QRELS_HEADER[0]) or fields == [""]:
            continue
        if len(fields) != 3 or not _GRADE.fullmatch(fields[2]):
            raise DataError(
                f"expected three tab-separated columns {', '.join(QRELS_HEADER)}, the last a "
                f"whole number, got {text!r}.",
                file,
                line,
            )
        if abs(int(fields[2])) > HIGHEST_GRADE:
            raise DataError(
                f"expected a grade between -{HIGHEST_GRADE:,} and {HIGHEST_GRADE:,}, got {fields[2]}.",
                file,
                line,
            )
        grades, grade = qrels.setdefault(fields[0], {}), int(fields[2])
        if grades.setdefault(fields[1], grade) != grade:
            raise DataError(
                f"query {fields[0]!r} and passage {fields[1]!r} have the grade {grades[fields[1]]} already, "
                f"and here {grade}; keep one of them.",
                file,
                line,
            )
    return qrels


def _splits(file: Path) -> str:
    """The names of the qrels files of a folder, for the error text."""
    return ", ".join(sorted(other.stem for other in file.parent.glob("*.tsv")))


def has_qrels(folder: str | Path) -> bool:
    """Whether a data set has judgements of any split."""
    return any((Path(folder) / "qrels").glob("*.tsv"))


def evidence_qrels(queries: Iterable[Query]) -> Qrels:
    """The gold of a data set without qrels: the evidence of the queries that have any, each with grade 1."""
    return {query.id: dict.fromkeys(query.evidence, 1) for query in queries if query.evidence}


def evidence_hint(folder: Path) -> str:
    """For the error of missing qrels: how they are written from evidence, where queries have any."""
    if has_qrels(folder) or not (folder / "queries.jsonl").is_file():
        return ""
    queries = read_queries(folder)
    judged = len(evidence_qrels(queries))
    if not judged:
        return "; the queries have no `evidence` either"
    return (
        f"; there are no qrels, but {judged:,} of {counted(len(queries), 'query')} have `evidence`: write "
        f"qrels of it with `grls prepare beir {Option('raw', folder)} {Option('out', 'NEW')} "
        f"{Option('ratios', [0.8, 0.1, 0.1])}`"
    )


def first_queries(queries: list[Query], limit: int | None) -> list[Query]:
    """The first queries of a split, as ``--limit`` counts them; None: all.

    Raises:
        ConfigError: The limit is below 1.
    """
    at_least(1, limit=limit)
    return queries[:limit]


def read_split(
    folder: str | Path, split: str, corpus: Corpus | None = None, limit: int | None = None
) -> tuple[list[Query], Qrels]:
    """The queries and qrels of one split of a data set, checked against each other.

    Args:
        folder: The data set.
        split: ``train``, ``dev``, ``test``: the name of the file in ``qrels/``.
        corpus: If given, every passage id of qrels and evidence must be in it.
        limit: Number of first queries; None: all.

    Returns:
        The queries in the order of ``queries.jsonl``, and their qrels.

    Raises:
        ConfigError: The limit is below 1.
        DataError: The split judges no query, a qrel names an unknown query or passage, or evidence an
            unknown passage.
    """
    if not Path(folder).exists():
        raise DataError(
            "no such folder; a data set is a folder with corpus.jsonl, queries.jsonl and qrels/.", folder
        )
    file = Path(folder) / "qrels" / f"{split}.tsv"
    qrels = read_qrels(file)
    if not qrels:
        raise DataError(
            f"the split holds no query: add judgements, or choose another (there are {_splits(file)}).", file
        )
    queries = [query for query in read_queries(folder) if query.id in qrels]
    unknown = qrels.keys() - {query.id for query in queries}
    if unknown:
        raise DataError(
            f"query id {min(unknown)!r} is in no line of queries.jsonl ({len(unknown)} such); "
            "add the query or drop its qrels.",
            file,
        )
    if corpus is not None:
        uses = [(p, f"qrel of query {q!r}", file) for q, grades in qrels.items() for p in grades]
        queries_file = file.parent.parent / "queries.jsonl"
        uses += [(p, f"evidence of query {q.id!r}", queries_file) for q in queries for p in q.evidence]
        for (passage, use, where), number in zip(uses, corpus.numbers([u[0] for u in uses]), strict=True):
            if number is None:
                raise DataError(
                    f"{use}: passage id {passage!r} is not in {corpus.source}; add the passage or "
                    "remove the reference.",
                    where,
                )
    if limit is not None:
        queries = first_queries(queries, limit)
        asked = {query.id for query in queries}
        qrels = {query: grades for query, grades in qrels.items() if query in asked}
    return queries, qrels


def own_corpus(folder: str | Path) -> Corpus | None:
    """The corpus in the folder of a data set, to check gold passages against; None if there is none."""
    return Corpus.read(folder) if (Path(folder) / "corpus.jsonl").is_file() else None


def relevant(grades: Mapping[str, int]) -> list[str]:
    """The gold passages in the qrels of one query: the passages graded above 0."""
    return [passage for passage, grade in grades.items() if grade > 0]


def gold_passages(query: Query, qrels: Qrels) -> list[str]:
    """A query's gold passage ids, each once; the one definition for training and evaluation.

    If the qrels judge the query, a passage is gold if it is graded above 0: first those of ``evidence``, in
    its order, then the others. Otherwise the gold passages are ``evidence``.
    """
    if query.id not in qrels:
        return list(dict.fromkeys(query.evidence))
    gold = relevant(qrels[query.id])
    return list(dict.fromkeys([*(p for p in query.evidence if p in set(gold)), *gold]))


def any_order(query: Query) -> bool:
    """Whether any order of the evidence is correct: the query's metadata holds ``any_order: true``."""
    return json.loads(query.metadata).get("any_order") is True


def free_order(query: Query) -> bool:
    """Whether a query's gold passages have no order: it has no evidence, or any order of it is correct."""
    return not query.evidence or any_order(query)


def proofs_of(query: Query) -> list[list[str]]:
    """Alternatives to the evidence from the query's metadata (``proofs``: lists of passage ids)."""
    proofs: list[list[str]] = json.loads(query.metadata).get("proofs", [])
    return proofs


def turns_of(query: Query) -> list[list[str]]:
    """The turns of the conversation before a query, from its metadata; none without ``history``.

    ``metadata.history`` is a list of turns, each a string or a list of strings (a question and its reply).

    Returns:
        The texts of each turn, on one line each; a turn without texts is left out.

    Raises:
        DataError: ``metadata.history`` is no such list.
    """
    history: Any = json.loads(query.metadata).get("history", [])
    turns: list[Any] = [None]
    if isinstance(history, list):
        turns = [[turn] if isinstance(turn, str) else turn for turn in history]
    if not all(isinstance(turn, list) and all(isinstance(text, str) for text in turn) for turn in turns):
        raise DataError(
            f"metadata.history of the query {query.id!r} is no list of turns; expected strings, or lists of "
            "them."
        )
    return [[" ".join(text.split()) for text in turn] for turn in turns if turn]


def write_dataset(
    folder: str | Path,
    passages: Iterable[Passage],
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> None:
    """Write a whole data set in BEIR's layout, atomically: the whole folder or nothing.

    Args:
        folder: Destination; an earlier data set there is replaced.
        passages: The corpus, streamed; a :class:`Corpus` keeps the metadata of its passages.
        queries: All queries of all splits.
        qrels: Split -> query id -> passage id -> grade.

    Raises:
        DataError: An id in the qrels holds a tab or a line end, which would break its line of the file.
    """
    for judged in qrels.values():
        for query_id, grades in judged.items():
            for name in (query_id, *grades):
                if _BREAKS.search(name):
                    raise DataError(
                        f"the id {name!r} holds a tab or a line end, which qrels cannot carry; rename it.",
                        folder,
                    )
    with atomic_folder(folder, "corpus.jsonl") as new:
        with (new / "corpus.jsonl").open("w", encoding="utf-8") as stream:
            plain = ({"_id": p.id, "title": p.title, "text": p.text, "metadata": {}} for p in passages)
            for record in passages.records() if isinstance(passages, Corpus) else plain:
                write_line(stream, record)
        with (new / "queries.jsonl").open("w", encoding="utf-8") as stream:
            for q in queries:
                write_line(stream, query_record(q))
        (new / "qrels").mkdir()
        for split, judged in qrels.items():
            with (new / "qrels" / f"{split}.tsv").open("w", encoding="utf-8") as stream:
                stream.write("\t".join(QRELS_HEADER) + "\n")
                for query_id, grades in judged.items():
                    for passage_id, grade in grades.items():
                        stream.write(f"{query_id}\t{passage_id}\t{grade}\n")


def query_record(query: Query) -> dict[str, Any]:
    """A query as the JSON object of one line of ``queries.jsonl``."""
    metadata = json.loads(query.metadata)
    if query.answers:
        metadata["answers"] = list(query.answers)
    record: dict[str, Any] = {"_id": query.id, "text": query.text, "metadata": metadata}
    if query.evidence:
        record["evidence"] = list(query.evidence)
    return record


def query_of(record: dict[str, Any], file: str | Path, line: int | None = None) -> Query:
    """A query from the JSON object of a line of ``queries.jsonl``; without a line, ``file`` says its place.

    Raises:
        DataError: A field is missing or malformed.
    """
    metadata = object_of(record, "metadata", file, line)
    answers = metadata.get("answers", [])
    evidence = record.get("evidence", [])
    for name, value in (("evidence", evidence), ("metadata.answers", answers)):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise DataError(f"expected {name} to be a list of strings, got {value!r}.", file, line)
    proofs = metadata.get("proofs", [])
    if not isinstance(proofs, list) or not all(
        isinstance(proof, list) and all(isinstance(passage, str) for passage in proof) for proof in proofs
    ):
        raise DataError(
            f"expected metadata.proofs to be a list of lists of passage ids, got {proofs!r}; rename the key "
            "if it means something else.",
            file,
            line,
        )
    if "any_order" in record:
        raise DataError(
            "any_order stands beside the metadata, where nothing reads it; write it into them: "
            '"metadata": {"any_order": true}.',
            file,
            line,
        )
    said = metadata.get("any_order")
    if said is not None and not isinstance(said, bool):
        raise DataError(f"expected metadata.any_order to be true or false, got {said!r}.", file, line)
    text = string_of(record, "text", file, line)
    if not text.strip():
        raise DataError("the query text is empty; give it a text or remove the line.", file, line)
    return Query(
        id=string_of(record, "_id", file, line),
        text=text,
        evidence=tuple(evidence),
        answers=tuple(answers),
        metadata=json.dumps(metadata, ensure_ascii=False),
    )
