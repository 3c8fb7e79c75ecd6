"""Reading, validating and writing a data set in BEIR's layout.

A data set is a folder::

    corpus.jsonl            {"_id", "title", "text", "metadata"}
    queries.jsonl           {"_id", "text", "metadata", "evidence"}
    qrels/<split>.tsv       query-id <tab> corpus-id <tab> score, with a header line

``evidence`` (the gold passage ids in retrieval order) is optional and ours; short answers stand in
``metadata.answers``. Any BEIR set on disk works as it is. The corpus lives in an Arrow table of
``datasets``: in memory while it is small, memory-mapped from a cache file when it is not, so it may be
larger than memory. Nothing here knows of tokens.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc

from grls.errors import DataError
from grls.files import atomic_file, atomic_folder
from grls.types import Passage, Query

Qrels = dict[str, dict[str, int]]
"""Query id -> passage id -> relevance grade."""

QRELS_HEADER = ("query-id", "corpus-id", "score")

_SCHEMA = pa.schema([(name, pa.large_string()) for name in ("_id", "title", "text", "metadata")])
_IN_MEMORY_BYTES = 256 * 2**20
_BATCH = 10_000
_GRADE = re.compile(r"-?[0-9]{1,18}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a pair of escapes, or a lone one


class Corpus:
    """An ordered collection of passages; passage *number* n is its place in the file.

    Build one with :meth:`read` or :meth:`from_passages`.

    Args:
        table: Columns ``_id, title, text, metadata``, all strings.
        source: Where it came from, for error texts.
    """

    def __init__(self, table: datasets.Dataset, source: str = "corpus"):
        self.table = table
        self.source = source

    @classmethod
    def read(cls, path: str | Path) -> Corpus:
        """Read ``corpus.jsonl`` (or the data set folder that holds it).

        Raises:
            DataError: The file is missing, empty, malformed (with the line), or repeats an id.
        """
        file = corpus_file(path)
        if not file.is_file():
            raise DataError("no such file; a corpus is a JSONL file or a folder with corpus.jsonl.", file)
        batches = _passage_batches(file)
        if file.stat().st_size <= _IN_MEMORY_BYTES:
            table = datasets.Dataset(datasets.table.InMemoryTable(pa.Table.from_batches(batches, _SCHEMA)))
        else:
            table = datasets.Dataset.from_file(str(_cached_arrow(file, batches)))
        corpus = cls(table, str(file))
        if not len(corpus):
            raise DataError("the corpus is empty; expected one JSON object a line.", file)
        corpus._refuse_repeated_ids(file)
        return corpus

    @classmethod
    def from_passages(cls, passages: Iterable[Passage], source: str = "corpus") -> Corpus:
        """A corpus in memory."""
        rows = [(p.id, p.title, p.text, "{}") for p in passages]
        columns = [pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)]
        columns = columns or [pa.array([], pa.large_string())] * len(_SCHEMA)
        table = datasets.table.InMemoryTable(pa.Table.from_arrays(columns, schema=_SCHEMA))
        return cls(datasets.Dataset(table), source)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: int) -> Passage:
        return self.passages([number])[0]

    def __iter__(self) -> Iterator[Passage]:
        for batch in self.batches():
            yield from batch

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages with these numbers, in the order asked for."""
        return _as_passages(self.table[[int(n) for n in numbers]])

    def batches(self, size: int = _BATCH) -> Iterator[list[Passage]]:
        """All passages in order, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield _as_passages(self.table[start : start + size])

    @cached_property
    def _ids(self) -> pa.ChunkedArray:
        return self.table.data.column("_id")

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of the passages with these numbers."""
        return [str(i) for i in self._ids.take(pa.array(numbers, pa.int64())).to_pylist()]

    def numbers(self, ids: Sequence[str]) -> list[int | None]:
        """The numbers of these ids, None where the corpus does not hold the id.

        One call hashes the whole id column, so ask for many ids at once.
        """
        found = pc.index_in(pa.array(ids, pa.large_string()), value_set=self._ids.combine_chunks())
        return [None if n is None else int(n) for n in found.to_pylist()]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids, titles and texts in order."""
        digest = hashlib.sha256()
        for batch in self.batches():
            digest.update(json.dumps(batch, ensure_ascii=False).encode())
        return digest.hexdigest()

    def write(self, path: str | Path) -> None:
        """Write ``corpus.jsonl``, atomically."""
        with atomic_file(path) as stream:
            for record in self.records():
                _write_line(stream, record)

    def records(self) -> Iterator[dict[str, Any]]:
        """The objects of ``corpus.jsonl`` in order, with metadata."""
        for start in range(0, len(self), _BATCH):
            rows = self.table[start : start + _BATCH]
            for name, title, text, metadata in zip(*(rows[key] for key in _SCHEMA.names), strict=True):
                yield {"_id": name, "title": title, "text": text, "metadata": json.loads(metadata)}

    def _refuse_repeated_ids(self, file: Path) -> None:
        if pc.count_distinct(self._ids).as_py() == len(self):
            return
        first: dict[str, int] = {}
        for line, record in read_jsonl(file):
            if record["_id"] in first:
                raise DataError(
                    f"the id {record['_id']!r} stands in line {first[record['_id']]} already; "
                    "every passage needs an id of its own.",
                    file,
                    line,
                )
            first[record["_id"]] = line


def corpus_file(path: str | Path) -> Path:
    """``path`` itself, or ``path/corpus.jsonl`` where ``path`` is a folder."""
    return Path(path) / "corpus.jsonl" if Path(path).is_dir() else Path(path)


def read_queries(path: str | Path) -> list[Query]:
    """Read ``queries.jsonl`` (or the data set folder that holds it).

    Raises:
        DataError: The file is missing, empty, malformed (with the line), or repeats an id.
    """
    file = Path(path) / "queries.jsonl" if Path(path).is_dir() else Path(path)
    queries: dict[str, Query] = {}
    for line, record in read_jsonl(file):
        query = _as_query(record, file, line)
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
        raise DataError("no such file; expected BEIR qrels (query-id, corpus-id, score).", file)
    qrels: Qrels = {}
    with file.open("rb") as stream:
        for line, raw in enumerate(stream, 1):
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise DataError(f"expected UTF-8 text ({error}).", file, line) from None
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
            qrels.setdefault(fields[0], {})[fields[1]] = int(fields[2])
    return qrels


def read_split(folder: str | Path, split: str, corpus: Corpus | None = None) -> tuple[list[Query], Qrels]:
    """The queries and qrels of one split of a data set, checked against each other.

    Args:
        folder: The data set.
        split: ``train``, ``dev``, ``test``: the name of the file in ``qrels/``.
        corpus: Where given, every qrel and evidence id must stand in it.

    Returns:
        The queries in the order of ``queries.jsonl``, and the qrels.

    Raises:
        DataError: A qrel names an unknown query or passage, or evidence an unknown passage.
    """
    file = Path(folder) / "qrels" / f"{split}.tsv"
    qrels = read_qrels(file)
    queries = [query for query in read_queries(folder) if query.id in qrels]
    unknown = qrels.keys() - {query.id for query in queries}
    if unknown:
        raise DataError(
            f"query id {min(unknown)!r} stands in no line of queries.jsonl ({len(unknown)} such); "
            "add the query or drop its qrels.",
            file,
        )
    if corpus is not None:
        _refuse_unknown_passages(corpus, queries, qrels, file)
    return queries, qrels


def _refuse_unknown_passages(corpus: Corpus, queries: list[Query], qrels: Qrels, file: Path) -> None:
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


def relevant(grades: Mapping[str, int]) -> list[str]:
    """The passages of one query's qrels that are gold: those graded above 0."""
    return [passage for passage, grade in grades.items() if grade > 0]


def gold_passages(query: Query, qrels: Qrels) -> list[str]:
    """A query's gold passage ids, each once; the one definition for training and evaluation.

    Where the qrels judge the query they decide what is gold, and ``evidence`` decides the order: first the
    evidence that is graded above 0, then the other passages that are. Where they do not, it is the evidence.
    """
    if query.id not in qrels:
        return list(dict.fromkeys(query.evidence))
    gold = relevant(qrels[query.id])
    return list(dict.fromkeys([*(p for p in query.evidence if p in set(gold)), *gold]))


def any_order(query: Query) -> bool:
    """Whether any order of the evidence is right: the query's metadata says ``any_order: true``."""
    return json.loads(query.metadata).get("any_order") is True


def write_dataset(
    folder: str | Path,
    passages: Iterable[Passage],
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> None:
    """Write a whole data set in BEIR's layout, atomically: all of the folder or nothing.

    Args:
        folder: Destination; an earlier one is replaced.
        passages: The corpus, streamed; a :class:`Corpus` keeps the metadata of its passages.
        queries: All queries of all splits.
        qrels: Split -> query id -> passage id -> grade.
    """
    with atomic_folder(folder, "corpus.jsonl") as new:
        with (new / "corpus.jsonl").open("w", encoding="utf-8") as stream:
            for record in passages.records() if isinstance(passages, Corpus) else map(_record, passages):
                _write_line(stream, record)
        with (new / "queries.jsonl").open("w", encoding="utf-8") as stream:
            for q in queries:
                _write_line(stream, query_record(q))
        (new / "qrels").mkdir()
        for split, judged in qrels.items():
            with (new / "qrels" / f"{split}.tsv").open("w", encoding="utf-8") as stream:
                stream.write("\t".join(QRELS_HEADER) + "\n")
                for query_id, grades in judged.items():
                    for passage_id, grade in grades.items():
                        stream.write(f"{query_id}\t{passage_id}\t{grade}\n")


def _record(passage: Passage) -> dict[str, Any]:
    return {"_id": passage.id, "title": passage.title, "text": passage.text, "metadata": {}}


def query_record(query: Query) -> dict[str, Any]:
    """A query as the JSON object of one line of ``queries.jsonl``."""
    metadata = json.loads(query.metadata)
    if query.answers:
        metadata["answers"] = list(query.answers)
    record: dict[str, Any] = {"_id": query.id, "text": query.text, "metadata": metadata}
    if query.evidence:
        record["evidence"] = list(query.evidence)
    return record


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for every line that is not blank.

    Raises:
        DataError: The file is missing, is not UTF-8, or a line is not a JSON object, or holds an escape
            that is half a character.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError("no such file; expected one JSON object a line.", file)
    with file.open("rb") as stream:
        for line, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            try:
                record = json.loads(raw.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise DataError(f"expected UTF-8 text ({error}).", file, line) from None
            except (ValueError, RecursionError) as error:  # also an integer that Python does not read
                raise DataError(f"expected a JSON object ({error}).", file, line) from None
            if not isinstance(record, dict):
                raise DataError(f"expected a JSON object, got {type(record).__name__}.", file, line)
            if _SURROGATE.search(raw):
                _refuse_lone_surrogates(record, file, line)
            yield line, record


def _refuse_lone_surrogates(record: dict[str, Any], file: Path, line: int) -> None:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the escape \\u{ord(error.object[error.start]):04x} is half a character (a lone surrogate), "
            "which no UTF-8 text can hold; remove or repair it.",
            file,
            line,
        ) from None


def _passage_batches(file: Path) -> Iterator[pa.RecordBatch]:
    columns: list[list[str]] = [[], [], [], []]
    for line, record in read_jsonl(file):
        values = (
            _string(record, "_id", file, line),
            _string(record, "title", file, line, default=""),
            _string(record, "text", file, line, empty=True),
            json.dumps(_object(record, "metadata", file, line), ensure_ascii=False),
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        if len(columns[0]) == _BATCH:
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, pa.large_string()) for c in columns], schema=_SCHEMA
            )
            columns = [[], [], [], []]
    if columns[0]:
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.large_string()) for c in columns], schema=_SCHEMA)


def _cached_arrow(file: Path, batches: Iterator[pa.RecordBatch]) -> Path:
    """An Arrow file with the passages of ``file``, made once for each state of the file."""
    state = file.stat()
    key = json.dumps([str(file.resolve()), state.st_size, state.st_mtime_ns]).encode()
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "grls" / hashlib.sha256(key).hexdigest()[:32]
    if not folder.exists():
        with (
            atomic_folder(folder, "corpus.arrow") as new,
            pa.OSFile(os.fspath(new / "corpus.arrow"), "wb") as sink,
            pa.ipc.new_stream(sink, _SCHEMA) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
    return folder / "corpus.arrow"


def _as_passages(rows: dict[str, list[str]]) -> list[Passage]:
    return [Passage(*row) for row in zip(rows["_id"], rows["text"], rows["title"], strict=True)]


def _as_query(record: dict[str, Any], file: Path, line: int) -> Query:
    metadata = _object(record, "metadata", file, line)
    answers = metadata.get("answers", [])
    evidence = record.get("evidence", [])
    for name, value in (("evidence", evidence), ("metadata.answers", answers)):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise DataError(f"expected {name} to be a list of strings, got {value!r}.", file, line)
    text = _string(record, "text", file, line)
    if not text.strip():
        raise DataError("the query text is empty; give it a text or remove the line.", file, line)
    return Query(
        id=_string(record, "_id", file, line),
        text=text,
        evidence=tuple(evidence),
        answers=tuple(answers),
        metadata=json.dumps(metadata, ensure_ascii=False),
    )


def _string(
    record: dict[str, Any], key: str, file: Path, line: int, default: str | None = None, empty: bool = False
) -> str:
    value = record.get(key, default)
    if isinstance(value, str) and (value or empty or default is not None):
        return value
    if value is None and default is not None:
        return default
    what = "the key is missing" if key not in record else f"got {value!r}"
    raise DataError(f"expected {key!r} to be a {'' if empty else 'non-empty '}string, {what}.", file, line)


def _object(record: dict[str, Any], key: str, file: Path, line: int) -> dict[str, Any]:
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"expected {key!r} to be a JSON object, got {value!r}.", file, line)
    return value


def _write_line(stream: IO[str], record: dict[str, Any]) -> None:
    stream.write(json.dumps(record, ensure_ascii=False) + "\n")
