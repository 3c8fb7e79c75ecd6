"""Lists all faults in the queries and judgements of a data set, each with its file and line.

Reading a data set stops at the first fault, and finds some faults only after a model is loaded. This module
looks for all faults before hours of work are spent. The corpus itself: :mod:`grls.index.corpus_check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import QRELS_HEADER, evidence_qrels, query_of, read_qrels, relevant
from grls.data.types import Query
from grls.errors import DataError
from grls.io.files import text_lines
from grls.io.option_errors import visible
from grls.io.progress import counted
from grls.io.resumable import read_jsonl


class DataFault(NamedTuple):
    """A fault that retrieval, training or evaluation would refuse.

    Attributes:
        file: The file with the fault.
        line: The line with the fault; None if the fault concerns the whole file.
        what: What is wrong.
    """

    file: Path
    line: int | None
    what: str


def check_data(folder: str | Path, corpus: Corpus) -> list[DataFault]:
    """Check the queries, evidence and qrels of a data set.

    Args:
        folder: The data set.
        corpus: Its corpus.

    Returns:
        All faults, in the order of the files; an empty list if there are neither queries nor qrels.
    """
    file = Path(folder) / "queries.jsonl"
    splits = sorted((Path(folder) / "qrels").glob("*.tsv"))
    if not file.is_file():
        return [
            DataFault(split, None, "there is no queries.jsonl whose queries it judges") for split in splits
        ]
    faults: list[DataFault] = []
    lines: dict[str, int] = {}
    queries: list[Query] = []
    for line, query in _queries(file, faults):
        if query.id in lines:
            faults.append(
                DataFault(file, line, f"the query id {query.id!r} is in line {lines[query.id]} already")
            )
        lines.setdefault(query.id, line)
        queries.append(query)
    evidence = [(lines[query.id], passage) for query in queries for passage in query.evidence]
    faults += _unknown(file, evidence, corpus, "evidence")
    for split in splits:
        try:
            qrels = read_qrels(split)
        except DataError as error:
            faults.append(DataFault(split, None, _without_place(error, split, None)))
            continue
        if not qrels:
            faults.append(DataFault(split, None, "the split judges no query"))
            continue
        faults += [
            DataFault(split, None, f"query {name!r} has no passage graded above 0")
            for name, grades in qrels.items()
            if not relevant(grades)
        ]
        judged: list[tuple[int, str]] = []
        for line, text in text_lines(split):
            fields = text.split("\t")
            if len(fields) != 3 or (line == 1 and fields[0] == QRELS_HEADER[0]):
                continue
            if fields[0] not in lines:
                what = f"the query id {fields[0]!r} is in no line of queries.jsonl"
                faults.append(DataFault(split, line, what))
            judged.append((line, fields[1]))
        faults += _unknown(split, judged, corpus, "judged")
    return faults


class CheckedFile(NamedTuple):
    """A file of queries or judgements that was checked.

    Attributes:
        file: The file.
        entries: Its queries or judgements; lines that cannot be read count, too.
        kind: ``query`` or ``judgement``.
        faults: The faults in it.
    """

    file: Path
    entries: int
    kind: str
    faults: int


def checked_files(folder: str | Path, faults: list[DataFault]) -> list[CheckedFile]:
    """What :func:`check_data` looked at; an empty list if there are neither queries nor qrels.

    Args:
        folder: The data set.
        faults: The faults in it.
    """
    queries = Path(folder) / "queries.jsonl"
    kinds = {queries: "query"} if queries.is_file() else {}
    kinds |= dict.fromkeys(sorted((Path(folder) / "qrels").glob("*.tsv")), "judgement")
    checked = []
    for file, kind in kinds.items():
        with file.open("rb") as lines:  # those that are neither blank nor the header of qrels
            filled = (line for line in lines if line.strip())
            entries = sum(not line.startswith(QRELS_HEADER[0].encode() + b"\t") for line in filled)
        checked.append(CheckedFile(file, entries, kind, sum(fault.file == file for fault in faults)))
    return checked


class GoldCount(NamedTuple):
    """What is the gold of a data set.

    Attributes:
        source: ``qrels``, or ``evidence`` where there are no qrels.
        queries: Queries with a gold passage.
        without: Queries without one.
        unused: Those of ``without`` that have evidence, which does not count beside qrels.
    """

    source: str
    queries: int
    without: int
    unused: int


def count_gold(folder: str | Path) -> GoldCount | None:
    """Count the queries with and without gold passages; None without a query or a file that can be read.

    Args:
        folder: The data set; what is wrong with its files is for :func:`check_data` to say.
    """
    file = Path(folder) / "queries.jsonl"
    queries = [query for _, query in _queries(file, [])] if file.is_file() else []
    try:
        splits = [read_qrels(split) for split in sorted((Path(folder) / "qrels").glob("*.tsv"))]
    except DataError:
        return None
    if not queries:
        return None
    judged = splits or [evidence_qrels(queries)]
    named = {name for split in judged for name, grades in split.items() if relevant(grades)}
    without = [query for query in queries if query.id not in named]
    unused = sum(bool(query.evidence) for query in without)
    source = "qrels" if splits else "evidence"
    return GoldCount(source, len(queries) - len(without), len(without), unused)


def format_gold(folder: str | Path, gold: GoldCount) -> str:
    """What is the gold of a data set, and how many queries have none, in a line."""
    if not gold.queries and not gold.unused:
        return visible(f"{folder}: no query has a gold passage, neither in qrels nor as `evidence`")
    source = "gold is that of qrels" if gold.source == "qrels" else "no qrels, so gold is `evidence`"
    unused = f" ({gold.unused:,} of them with `evidence`, which does not count beside qrels)"
    without = f", {gold.without:,} without{unused * bool(gold.unused)}"
    return visible(f"{folder}: {source}: {counted(gold.queries, 'query')} with a gold passage{without}")


def format_checked(folder: str | Path, files: list[CheckedFile]) -> str:
    """What was checked, one file a line; a folder without queries and qrels is named as such."""
    lines = [f"{f.file}: {counted(f.entries, f.kind)} checked, {counted(f.faults, 'fault')}" for f in files]
    return visible("\n".join(lines) or f"{folder}: no queries and no qrels, so only the corpus was checked")


def format_faults(faults: list[DataFault], most: int = 20) -> str:
    """The first ``most`` faults, one a line."""
    lines = [f"{f.file}{'' if f.line is None else f', line {f.line}'}: {f.what}." for f in faults[:most]]
    if len(faults) > most:
        lines.append(f"… and {len(faults) - most:,} more")
    return visible("\n".join(lines))


def _queries(file: Path, faults: list[DataFault]) -> Iterator[tuple[int, Query]]:
    """The queries that can be read. A malformed query is a fault; a line that is no JSON ends the reading."""
    try:
        for line, record in read_jsonl(file):
            try:
                yield line, query_of(record, file, line)
            except DataError as error:
                faults.append(DataFault(file, line, _without_place(error, file, line)))
    except DataError as error:
        faults.append(DataFault(file, None, _without_place(error, file, None)))


def _without_place(error: DataError, file: Path, line: int | None) -> str:
    place = str(file) if line is None else f"{file}, line {line}"
    return str(error).removeprefix(f"{place}: ").rstrip(".")


def _unknown(file: Path, named: list[tuple[int, str]], corpus: Corpus, what: str) -> list[DataFault]:
    """A fault for each (line, passage id) whose passage is not in the corpus."""
    numbers = corpus.numbers([passage for _, passage in named])
    return [
        DataFault(file, line, f"the {what} passage id {passage!r} is not in {corpus.source}")
        for (line, passage), number in zip(named, numbers, strict=True)
        if number is None
    ]
