"""Corpora with judgements: MS MARCO's passages with TREC's deep-learning queries, BrowseComp-Plus, QReCC.

The corpus is written as it is read, up to 54 million passages. Grades stay as the makers give them, and a
passage graded above 0 is gold; TREC's own binary measures of 2019 and 2020 count grades from 2 on. A grade
below 0 is refused. The judged passages of a query have no order, so it has no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from data_prep import common, stream
from data_prep.raw import find_raw, read_json_lines, read_json_list, read_lines, read_parquet
from grls.data.dataset import Qrels
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.progress import counted

COLLECTION = "collection.tsv"
MSMARCO = {
    "train": ("queries.train.tsv", "qrels.train.tsv"),
    "dev": ("queries.dev.small.tsv", "qrels.dev.small.tsv"),
    "dl19": ("msmarco-test2019-queries.tsv", "2019qrels-pass.txt"),
    "dl20": ("msmarco-test2020-queries.tsv", "2020qrels-pass.txt"),
}
"""Split -> its queries and its judgements."""
MSMARCO_PUBLISHED = {"passages": 8_841_823, "dev queries": 6_980, "dl19 queries": 43, "dl20 queries": 54}

DECRYPTED = "browsecomp_plus_decrypted.jsonl"
BROWSECOMP_PUBLISHED = {"passages": 100_195, "test queries": 830}

QRECC = {"train": "scai-qrecc21-training-turns.json", "test": "scai-qrecc21-test-turns.json"}
QRECC_PUBLISHED = {"passages": 54_573_064, "train": 63_501, "test": 16_451}


def msmarco(raw: Path, out: Path, drop_leaks: bool = False, drop_missing: bool = False) -> None:
    """Prepare MS MARCO passage ranking, with the judged queries of TREC's deep learning tracks.

    Args:
        raw: Folder with collection.tsv, and the files of at least one split: queries.dev.small.tsv and
            qrels.dev.small.tsv (dev), msmarco-test2019-queries.tsv and 2019qrels-pass.txt (dl19),
            msmarco-test2020-queries.tsv and 2020qrels-pass.txt (dl20), queries.train.tsv and qrels.train.tsv.
        out: Folder to write; an earlier one is replaced.
        drop_leaks: Leave out queries whose text stands in a later split, instead of refusing the files.
        drop_missing: Leave out queries with a judged passage that the collection lacks, instead of refusing.
    """
    splits: dict[str, list[Query]] = {}
    grades: Qrels = {}
    for split, (queries_file, qrels_file) in MSMARCO.items():
        queries, judgements = find_raw(raw, queries_file), find_raw(raw, qrels_file)
        if queries.is_file() or judgements.is_file():
            grades |= read_trec(judgements)
            splits[split] = [Query(name, text) for name, text in _table(queries, ("query id", "query"))]
    if not splits:
        raise DataError(f"no queries here; expected {MSMARCO['dev'][0]} and {MSMARCO['dev'][1]}.", raw)
    collection = find_raw(raw, COLLECTION)
    corpus = (Passage(name, text) for name, text in _table(collection, ("passage id", "passage")))
    numbers = _write(out, corpus, collection, splits, grades, drop_leaks, drop_missing)
    there = {f"{split} queries" for split in splits} | {"passages"}
    common.compare(numbers, {name: count for name, count in MSMARCO_PUBLISHED.items() if name in there})


def browsecomp_plus(
    raw: Path, out: Path, gold: Literal["evidence", "golds"] = "evidence", drop_missing: bool = False
) -> None:
    """Prepare BrowseComp-Plus, as a test split.

    Args:
        raw: Folder with browsecomp_plus_decrypted.jsonl (written by the makers' decrypt_dataset.py),
            qrel_evidence.txt or qrel_golds.txt, and the Parquet files of the corpus, in any folder below.
        out: Folder to write; an earlier one is replaced.
        gold: Judgements: the documents that are needed to answer, or those that hold the answer.
        drop_missing: Leave out queries with a judged document that the corpus lacks, instead of refusing.
    """
    file, grades = find_raw(raw, DECRYPTED), read_trec(find_raw(raw, f"qrel_{gold}.txt"))
    queries = []
    for line, record in read_json_lines(file):
        texts = (common.field(record, key, str, file, line) for key in ("query_id", "query", "answer"))
        name, text, answer = texts
        queries.append(Query(name, text, answers=(answer,)))
    parts = sorted(raw.rglob("*.parquet"))
    if not parts:
        raise DataError("no Parquet file here or below; download those of the corpus.", raw)

    def corpus() -> Iterator[Passage]:
        for part in parts:
            for label, row in read_parquet(part, ("docid", "text")):
                text = common.field(row, "text", str, part, label)
                yield Passage(common.field(row, "docid", str, part, label), " ".join(text.split()))

    numbers = _write(out, corpus(), raw, {"test": queries}, grades, False, drop_missing)
    common.compare(numbers, BROWSECOMP_PUBLISHED)


def qrecc(
    raw: Path,
    out: Path,
    text: Literal["question", "rewrite"] = "question",
    drop_leaks: bool = False,
    drop_missing: bool = False,
) -> None:
    """Prepare QReCC as the SCAI task of 2021 released it: questions in conversations, with gold passages.

    Args:
        raw: Folder with scai-qrecc21-training-turns.json, scai-qrecc21-test-turns.json and the unpacked
            passages.zip, JSON lines in any folder below.
        out: Folder to write; an earlier one is replaced.
        text: The text of a query: the question, whose conversation stands in its metadata (``history``), or
            the question as annotators rewrote it to stand alone.
        drop_leaks: Leave out training questions whose text and conversation stand in the test split, instead
            of refusing the files.
        drop_missing: Leave out questions with a gold passage that the passages lack, instead of refusing.
    """
    splits: dict[str, list[Query]] = {}
    grades: Qrels = {}
    read = {}
    for split, name in QRECC.items():
        turns = list(_turns(find_raw(raw, name), split, text))
        read[split] = len(turns)
        grades |= {query.id: dict.fromkeys(query.evidence, 1) for query in turns if query.evidence}
        splits[split] = turns
    parts = sorted(raw.rglob("*.jsonl"))
    if not parts:
        raise DataError("no passages here or below; unpack passages.zip, files of JSON lines.", raw)

    def corpus() -> Iterator[Passage]:
        for part in parts:
            for line, record in read_json_lines(part):
                content = common.field(record, "contents", str, part, line)
                yield Passage(common.field(record, "id", str, part, line), " ".join(content.split()))

    numbers = _write(out, corpus(), raw, splits, grades, drop_leaks, drop_missing)
    common.compare(numbers, QRECC_PUBLISHED, **read)


def read_trec(file: Path) -> Qrels:
    """Judgements in TREC's form: query, 0, passage and grade, with white space between them.

    Raises:
        DataError: The file is missing, a line has another form, or a grade is below 0.
    """
    grades: Qrels = {}
    for line, text in read_lines(file, "judgements: query id, 0, passage id, grade"):
        fields = text.split()
        if not fields:
            continue
        if len(fields) != 4 or not fields[3].removeprefix("-").isdecimal():
            raise DataError(
                f"expected query id, 0, passage id and a whole grade, got {text!r:.120}.", file, line
            )
        if int(fields[3]) < 0:
            raise DataError(
                f"the grade {fields[3]} is below 0, which no measure agrees on; write 0, or remove the line.",
                file,
                line,
            )
        grades.setdefault(fields[0], {})[fields[2]] = int(fields[3])
    return grades


def _write(
    out: Path,
    corpus: Iterable[Passage],
    source: Path,
    splits: Mapping[str, Sequence[Query]],
    grades: Qrels,
    drop_leaks: bool,
    drop_missing: bool,
) -> common.Statistics:
    """Write the corpus, and the queries that are judged."""
    judged = {
        split: [query._replace(evidence=tuple(grades[query.id])) for query in queries if query.id in grades]
        for split, queries in splits.items()
    }
    if left_out := sum(map(len, splits.values())) - sum(map(len, judged.values())):
        print(f"{'left out':<20} {counted(left_out, 'query')} that nobody has judged")
    watch = stream.GoldWatch(stream.without_leaks(judged, common.asked_key, drop_leaks))

    def found() -> dict[str, list[Query]]:
        queries = watch.found(source, drop_missing)
        return {split: [q._replace(evidence=()) for q in part] for split, part in queries.items()}

    return stream.finish_stream(out, watch.watch(corpus), found, grades=grades)


def _table(file: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The rows of a tab-separated file with an id and a text, which may be empty."""
    expected = f"{columns[0]} and {columns[1]}, tab-separated"
    for line, row in read_lines(file, expected):
        name, tab, text = row.partition("\t")
        if not (name.strip() and tab) or "\t" in text:
            raise DataError(f"expected {expected}, got {row!r:.120}.", file, line)
        yield name.strip(), " ".join(text.split())


def _turns(file: Path, split: str, kind: str) -> Iterator[Query]:
    """The questions of a file; ``evidence`` are the gold passages, which may be none."""
    for label, record in read_json_list(file):
        conversation, turn = (
            common.field(record, k, int, file, label) for k in ("Conversation_no", "Turn_no")
        )
        context, gold = (_texts(record, k, file, label) for k in ("Context", "Truth_passages"))
        question, answer = common.field(record, "Question", str, file, label), record.get("Truth_answer")
        rewrite = str(record.get("Truth_rewrite") or question)
        stored: dict[str, Any] = {"rewrite": rewrite}
        if kind == "question":
            stored["history"] = [context[n : n + 2] for n in range(0, len(context), 2)]
        yield Query(
            id=f"{split}-{conversation}-{turn}",
            text=question if kind == "question" else rewrite,
            evidence=gold,
            answers=(answer,) if isinstance(answer, str) and answer.strip() else (),
            metadata=common.metadata(**stored),
        )


def _texts(record: Mapping[str, Any], key: str, file: Path, label: str) -> tuple[str, ...]:
    """A list of texts, which may be empty."""
    values = record.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise common.fault(f"expected {key!r} to be a list of texts, got {values!r:.80}.", file, label)
    return tuple(values)
