"""Any BEIR folder, or a pair of JSONL files with other keys, into our layout.

A BEIR folder is validated (ids, qrels, evidence) and copied with its metadata; its splits stay, unless
it has a single qrels file and ``--ratios`` asks for a split by query. Without qrels they are written from the
evidence of the queries. A pair of files is a corpus and
the queries that name their gold passages by id. An option names each key of these files, and other fields of
a record join its metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep import common
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, evidence_qrels, query_of, read_queries, read_split, told_unknown
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError
from grls.io.jsonl import object_of, read_jsonl
from grls.io.progress import counted, visible


def prepare(
    out: Path,
    raw: Path | None = None,
    corpus_file: Path | None = None,
    queries_file: Path | None = None,
    ratios: Sequence[float] = (),
    drop_leaks: bool = False,
    seed: int = 0,
    tokenizer: Path | None = None,
) -> None:
    """Prepare a BEIR folder (--raw) or a pair of JSONL files (--corpus_file, --queries_file).

    Args:
        out: Folder to write; an earlier one is replaced.
        raw: A BEIR folder: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv. Without any qrels the `evidence` of
            its queries becomes them; without --ratios they are those of test.
        corpus_file: Instead of --raw: JSONL with one passage a line.
        queries_file: With --corpus_file: JSONL with one query a line.
        ratios: Shares of train, dev and test, as [0.8,0.1,0.1]. A folder must have a single qrels file for
            this. For a pair of files the default puts all queries into test.
        drop_leaks: If a query text stands in two splits, drop it from train before dev, and from other splits
            before test, instead of refusing the folder.
        seed: Seed of the split.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    if ratios:
        common.refuse_other_than_three(ratios)
    if raw is not None and corpus_file is None and queries_file is None:
        _copy(raw, out, ratios, drop_leaks, seed, tokenizer)
    elif raw is None and corpus_file is not None and queries_file is not None:
        of_passages, of_queries = (
            Fields("_id", "text", "title", passages=True),
            Fields("_id", "text", "evidence"),
        )
        read = list(_passages(corpus_file, of_passages))
        passages = Corpus.from_passages(
            [p for p, _ in read], str(corpus_file), [metadata for _, metadata in read]
        )
        queries = list(_queries(queries_file, of_queries))
        told_unknown(queries, {}, [passages], queries_file)
        common.finish(out, common.dataset(passages, _split(queries, ratios or (0, 0, 1), seed)), tokenizer)
        for file, fields in ((corpus_file, of_passages), (queries_file, of_queries)):
            fields.tell(file)
    else:
        raise ConfigError("expected --raw, or --corpus_file and --queries_file.")


class Fields:
    """The fields of records without an option: they join the metadata.

    A field is left out if the metadata have it with another value, or if its value does not fit a known key
    of the metadata (``answers`` that are no list of texts).

    Args:
        named: The fields with an option.
        passages: Whether the records are passages, whose metadata are free; otherwise queries.

    Attributes:
        joined: Field -> number of records whose metadata it has joined.
        lost: Field -> number of records in which it was left out.
    """

    def __init__(self, *named: str, passages: bool = False):
        self._passages = passages
        self._named = {*named, "metadata"}
        self.joined, self.lost = Counter[str](), Counter[str]()

    def metadata(self, record: dict[str, Any], file: Path, line: int) -> dict[str, Any]:
        """The metadata of a record, with its other fields.

        Raises:
            DataError: ``metadata`` is no object.
        """
        joined = dict(object_of(record, "metadata", file, line))
        for name, value in record.items():
            if name in self._named:
                continue
            if name not in joined and (self._passages or _fits(name, value)):
                joined[name] = value
            joins = name in joined and joined[name] == value
            (self.joined if joins else self.lost)[name] += 1
        return joined

    def tell(self, file: Path) -> None:
        """Print which fields of a file joined the metadata, and which were left out."""
        for verb, counts in (("joined the metadata", self.joined), ("left out", self.lost)):
            if counts:
                listed = ", ".join(f"{name} ({counts[name]:,})" for name in sorted(counts))
                print(f"{verb:<20} {visible(listed)} of {file.name}")


def _fits(name: str, value: Any) -> bool:
    """Whether a query's metadata may have this value."""
    try:
        query_of({"_id": name or "-", "text": "-", "metadata": {name: value}}, Path(), 0)
    except DataError:
        return False
    return True


def _copy(
    raw: Path, out: Path, ratios: Sequence[float], drop_leaks: bool, seed: int, tokenizer: Path | None
) -> None:
    corpus = Corpus.read(raw)
    queries = read_queries(raw)
    names = sorted(file.stem for file in (raw / "qrels").glob("*.tsv"))
    ordered = [n for n in common.SPLITS if n in names] + [n for n in names if n not in common.SPLITS]
    qrels = {name: read_split(raw, name, corpus)[1] for name in ordered}
    if not qrels:
        qrels = {"test": evidence_qrels(queries)}
        count = len(qrels["test"])
        if not count:
            raise DataError(
                "no qrels here, and no query has `evidence`; expected at least one of train.tsv, dev.tsv, "
                "test.tsv.",
                raw / "qrels",
            )
        told_unknown(queries, {}, [corpus], raw / "queries.jsonl")
        print(f"{'gold':<20} evidence of {counted(count, 'query')}, {len(queries) - count:,} without")
    if ratios:
        if len(qrels) > 1:
            raise ConfigError(
                f"{raw} already has the splits {', '.join(qrels)}; leave --ratios out, or keep one qrels "
                "file."
            )
        (judged,) = qrels.values()
        parts = _split([q for q in queries if q.id in judged], ratios, seed)
        qrels = {name: {q.id: judged[q.id] for q in part} for name, part in parts.items()}
    if drop_leaks:
        qrels = _without_leaks(queries, qrels)
    common.finish(out, common.Dataset(corpus, queries, qrels), tokenizer)


def _without_leaks(queries: Sequence[Query], qrels: dict[str, Qrels]) -> dict[str, Qrels]:
    """The qrels with each query text in one split only: the last of train, dev, test that has it."""
    texts = {query.id: common.query_key(query.text) for query in queries}
    ranked = sorted(qrels, key=lambda name: common.SPLITS.index(name) if name in common.SPLITS else -1)
    owner = {texts[q]: name for name in ranked for q in qrels[name]}
    return {
        name: {q: grades for q, grades in judged.items() if owner[texts[q]] == name}
        for name, judged in qrels.items()
    }


def _split(queries: list[Query], ratios: Sequence[float], seed: int) -> dict[str, list[Query]]:
    return {name: part for name, part in common.three_splits(queries, ratios, seed).items() if part}


def _passages(file: Path, fields: Fields) -> Iterator[tuple[Passage, dict[str, Any]]]:
    """The passages, each with its metadata."""
    lines: dict[str, int] = {}
    for line, record in read_jsonl(file):
        passage = Passage(
            id=_id(record, file, line),
            text=common.field(record, "text", str, file, line),
            title=common.field(record, "title", str, file, line) if record.get("title") else "",
        )
        if lines.setdefault(passage.id, line) != line:
            raise DataError(f"the id {passage.id!r} stands in line {lines[passage.id]} already.", file, line)
        yield passage, fields.metadata(record, file, line)
    if not lines:
        raise DataError("the file holds no passage; expected one JSON object a line.", file)


def _queries(file: Path, fields: Fields) -> Iterator[Query]:
    lines: dict[str, int] = {}
    for line, record in read_jsonl(file):
        query = query_of(
            {
                "_id": _id(record, file, line),
                "text": common.field(record, "text", str, file, line),
                "evidence": [str(i) for i in common.field(record, "evidence", list, file, line)],
                "metadata": fields.metadata(record, file, line),
            },
            file,
            line,
        )
        if lines.setdefault(query.id, line) != line:
            raise DataError(
                f"the query id {query.id!r} stands in line {lines[query.id]} already.", file, line
            )
        yield query
    if not lines:
        raise DataError("the file holds no query; expected one JSON object a line.", file)


def _id(record: dict[str, Any], file: Path, line: int) -> str:
    """An id; a number becomes its digits."""
    value = record.get("_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return common.field(record, "_id", str, file, line)
