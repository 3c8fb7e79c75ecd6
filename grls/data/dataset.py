"""A data set in BEIR's layout: reads queries and qrels, checks them against the corpus, writes a whole set.

A data set is a folder::

    corpus.jsonl            {"_id", "title", "text", "metadata"}
    queries.jsonl           {"_id", "text", "metadata", "evidence"}
    qrels/<split>.tsv       query-id <tab> corpus-id <tab> score, with a header line

``evidence`` (the gold passage ids in retrieval order) is an optional field of grls; without any qrels it is
the gold (:func:`evidence_qrels`). Short answers are in ``metadata.answers``. Any BEIR set on disk works
unchanged. This module defines the gold passages of a query, for training and evaluation.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.inputs.tables import QUERY_FORM, in_layout
from grls.data.types import Passage, Query
from grls.data.words import pieces
from grls.errors import DataError, Option
from grls.io.files import atomic_folder, near_name, text_lines
from grls.io.jsonl import object_of, read_jsonl, string_of, write_line
from grls.io.progress import counted, visible

if TYPE_CHECKING:
    from grls.data.codec import Codec

log = logging.getLogger(__name__)

Qrels = dict[str, dict[str, int]]
"""Query id -> passage id -> relevance grade."""

HIGHEST_GRADE = 1_000_000
"""The largest absolute grade of a passage: trec_eval counts the passages of each grade in 32-bit numbers."""

QRELS_HEADER = ("query-id", "corpus-id", "score")

_BREAKS = re.compile(r"[\t\r\n]")
_SHOWN = 20
"""How many faults are printed."""
_GRADE = re.compile(r"-?[0-9]{1,18}")


def read_queries(path: str | Path) -> list[Query]:
    """Read ``queries.jsonl`` (or the data set folder that holds it)."""
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
    """Read a qrels file in BEIR's form: three columns between tabs, with a header."""
    file = Path(path)
    if not file.is_file():
        hint = (
            f"; there are {splits_beside(file)}" if splits_beside(file) else evidence_hint(file.parent.parent)
        )
        raise DataError(f"no such file{hint}; expected BEIR qrels (query-id, corpus-id, score).", file)
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


def splits_beside(file: Path) -> str:
    return ", ".join(sorted(other.stem for other in file.parent.glob("*.tsv")))


def has_qrels(folder: str | Path) -> bool:
    return any((Path(folder) / "qrels").glob("*.tsv"))


def evidence_qrels(queries: Iterable[Query]) -> Qrels:
    """The evidence of the queries that have any, each passage with grade 1."""
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
    """The first queries of a split, as ``--limit`` counts them."""
    return queries[:limit]


def read_split(
    folder: str | Path,
    split: str,
    corpus: Corpus | None = None,
    limit: int | None = None,
    known: bool = False,
) -> tuple[list[Query], Qrels]:
    """The queries and qrels of one split of a data set; warns of what does not fit together.

    Queries are in the order of ``queries.jsonl``. Judgements of unknown queries are left out. Judged passages
    that the corpus lacks: :func:`told_unknown`.

    Args:
        folder: The data set.
        split: ``train``, ``dev``, ``test``: the name of the file in ``qrels/``.
        corpus: The corpus that should hold the passages of qrels and evidence; None: any.
        limit: Number of first queries; None: all.
        known: Leave out passages that the corpus lacks, as for training.
    """
    if not Path(folder).exists():
        raise DataError(
            "no such folder; a data set is a folder with corpus.jsonl, queries.jsonl and qrels/"
            f"{near_name(folder)}",
            folder,
        )
    file = Path(folder) / "qrels" / f"{split}.tsv"
    qrels = read_qrels(file)
    if not qrels:
        raise DataError(
            f"the split holds no query: add judgements, or choose another (there are {splits_beside(file)}).",
            file,
        )
    queries, qrels = judged_by(qrels, read_queries(folder), file)
    if corpus is not None:
        queries, qrels = told_unknown(queries, qrels, [corpus], file, known)
    if limit is not None:
        queries = first_queries(queries, limit)
        first = {query.id for query in queries}
        qrels = {query: grades for query, grades in qrels.items() if query in first}
    return queries, qrels


def judged_by(qrels: Qrels, queries: Iterable[Query], source: str | Path) -> tuple[list[Query], Qrels]:
    """The queries that qrels judge, and the qrels of these; warns of unknown queries."""
    judged = [query for query in queries if query.id in qrels]
    unknown = qrels.keys() - {query.id for query in judged}
    if not judged:
        raise DataError(
            f"judges none of the queries: {min(unknown)!r} is in no line of queries.jsonl.", source
        )
    if unknown:
        _warn_once(
            f"{source}: {counted(len(unknown), 'judged query is', 'judged queries are')} in no line of "
            f"queries.jsonl, such as {min(unknown)!r}, and left out."
        )
    return judged, {name: grades for name, grades in qrels.items() if name not in unknown}


def told_unknown(
    queries: list[Query], qrels: Qrels, corpora: Sequence[Corpus], source: str | Path, known: bool = False
) -> tuple[list[Query], Qrels]:
    """Queries and qrels; warns of judged passages and evidence that no corpus has.

    Such passages stay: no run finds them, as for trec_eval. ``known``: they are left out, as are queries that
    have no other gold.
    """
    uses = {passage: query for query, grades in qrels.items() for passage in grades}
    for query in queries:
        for passages in (query.evidence, *proofs_of(query)):
            uses.update(dict.fromkeys(passages, query.id))
    lacking = list(uses)
    for corpus in corpora:
        numbers = corpus.numbers(lacking)
        lacking = [passage for passage, number in zip(lacking, numbers, strict=True) if number is None]
    if not lacking or not corpora:
        return queries, qrels
    names = " or ".join(corpus.source for corpus in corpora)
    if len(lacking) == len(uses):
        first = ", ".join(map(repr, corpora[-1].ids(range(min(3, len(corpora[-1]))))))
        listed = " A list as text must be read first, with json.loads." * lacking[0].startswith("[")
        raise DataError(
            f"query {uses[lacking[0]]!r}: the passage id {lacking[0]!r} is not in {names}, nor is any other "
            f"(the ids there begin with {first}); give the corpus of these queries.{listed}",
            source,
        )
    remedy = "left out" if known else "no search finds such a passage"
    _warn_once(
        f"{source}: {counted(len(lacking), 'judged passage is', 'judged passages are')} not in {names}, such "
        f"as {lacking[0]!r} of the query {uses[lacking[0]]!r}: {remedy}."
    )
    if not known:
        return queries, qrels
    gone, kept, kept_qrels = set(lacking), [], {}
    for query in queries:
        grades = {name: grade for name, grade in qrels[query.id].items() if name not in gone}
        if relevant(grades) or not relevant(qrels[query.id]):
            evidence = tuple(passage for passage in query.evidence if passage not in gone)
            metadata = json.loads(query.metadata)
            if "proofs" in metadata:
                metadata["proofs"] = [proof for proof in metadata["proofs"] if gone.isdisjoint(proof)]
            text = json.dumps(metadata, ensure_ascii=False)
            kept.append(query._replace(evidence=evidence, metadata=text))
            kept_qrels[query.id] = grades
    if not kept:
        raise DataError(f"no gold passage is in {names}; give the corpus of these queries.", source)
    return kept, kept_qrels


@cache
def _warn_once(text: str) -> None:
    """Commands read a split more than once."""
    log.warning("%s", text)


def own_corpus(folder: str | Path) -> Corpus | None:
    """The corpus of a data set, to check gold passages against; None without such a file."""
    return Corpus.read(folder) if (Path(folder) / "corpus.jsonl").is_file() else None


def relevant(grades: Mapping[str, int]) -> list[str]:
    """The passages graded above 0."""
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


def passage_queries(queries: Sequence[Query], qrels: Qrels, corpus: Corpus) -> frozenset[str]:
    """Ids of the queries that are passages of the corpus; a query does not find itself.

    This is the rule ``ignore_identical_ids`` of BEIR and MTEB, for sets such as ArguAna and Quora: the
    passage with the id of a query is left out, unless it is gold. Ids may also be alike by chance (0, 1, 2,
    …): the rule holds where most of these passages have the text of their query.
    """
    numbers = corpus.numbers([query.id for query in queries])
    pairs = [
        (query, number)
        for query, number in zip(queries, numbers, strict=True)
        if number is not None and query.id not in gold_passages(query, qrels)
    ]
    passages = corpus.passages([number for _, number in pairs]) if pairs else []
    texts = [(query.text, passage) for (query, _), passage in zip(pairs, passages, strict=True)]
    same = sum(_alike(q, p.text) or _alike(q, f"{p.title} {p.text}") for q, p in texts)
    if 2 * same <= len(pairs):
        return frozenset()
    _warn_once(f"{own_told(len(pairs), str(corpus.source))}.")
    return frozenset(query.id for query, _ in pairs)


def _alike(first: str, second: str) -> bool:
    """Whether one text is the other, or half of it or more: a title or an end may be left out."""
    short, long = sorted((" ".join(text.casefold().split()) for text in (first, second)), key=len)
    return short in long and 2 * len(short) >= len(long)


def own_told(count: int, source: str) -> str:
    passages = counted(count, "query is a passage", "queries are passages")
    return (
        f"{passages} of {source}, by id and text: a query does not find itself (BEIR's ignore_identical_ids)"
    )


def any_order(query: Query) -> bool:
    """Whether the query's metadata hold ``any_order: true``."""
    return json.loads(query.metadata).get("any_order") is True


def free_order(query: Query) -> bool:
    """Whether a query's gold passages have no order: it has no evidence, or any order of it is correct."""
    return not query.evidence or any_order(query)


def proofs_of(query: Query) -> list[list[str]]:
    """Alternatives to the evidence, in the query's metadata (``proofs``: lists of passage ids)."""
    proofs: list[list[str]] = json.loads(query.metadata).get("proofs", [])
    return proofs


def turns_of(query: Query) -> list[list[str]]:
    """The turns of the conversation before a query; none without ``history``.

    ``metadata.history`` is a list of turns, each a string or a list of strings (a question and its reply).
    The texts of a turn are on one line each; a turn without texts is left out.
    """
    history: Any = json.loads(query.metadata).get("history", [])
    listed = history if isinstance(history, list) else [None]
    turns = [[turn] if isinstance(turn, str) else turn for turn in listed]
    if not all(map(_are_strings, turns)):
        raise DataError(
            f"metadata.history of the query {query.id!r} is no list of turns; expected strings, or lists of "
            "them."
        )
    return [[" ".join(text.split()) for text in turn] for turn in turns if turn]


def refuse_breaks(qrels: Mapping[str, Mapping[str, Mapping[str, int]]], source: str | Path) -> None:
    """Refuse ids that no qrels file could carry."""
    for judged in qrels.values():
        for query_id, grades in judged.items():
            for name in (query_id, *grades):
                if _BREAKS.search(name):
                    raise DataError(
                        f"the id {name!r} holds a tab or a line end, which qrels cannot carry; rename it.",
                        source,
                    )


def write_dataset(
    folder: str | Path,
    passages: Iterable[Passage | dict[str, Any]],
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> None:
    """Write a whole data set in BEIR's layout, atomically: the whole folder or nothing.

    Args:
        folder: Destination; an earlier data set there is replaced.
        passages: The corpus, streamed: passages, or objects of ``corpus.jsonl``. A :class:`Corpus` keeps the
            metadata of its passages.
        queries: All queries of all splits.
        qrels: Split -> query id -> passage id -> grade.
    """
    refuse_breaks(qrels, folder)
    with atomic_folder(folder, "corpus.jsonl") as new:
        with (new / "corpus.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
            for p in passages.records() if isinstance(passages, Corpus) else passages:
                if isinstance(p, Passage):
                    p = {"_id": p.id, "title": p.title, "text": p.text, "metadata": {}}
                write_line(stream, p)
        with (new / "queries.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
            for q in queries:
                write_line(stream, query_record(q))
        (new / "qrels").mkdir()
        for split, judged in qrels.items():
            with (new / "qrels" / f"{split}.tsv").open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(qrels_lines(judged))


def qrels_lines(qrels: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """The lines of a qrels file in BEIR's form."""
    yield "\t".join(QRELS_HEADER) + "\n"
    for query, grades in qrels.items():
        for passage, grade in grades.items():
            yield f"{query}\t{passage}\t{grade}\n"


def query_record(query: Query) -> dict[str, Any]:
    metadata = json.loads(query.metadata)
    if query.answers:
        metadata["answers"] = list(query.answers)
    record: dict[str, Any] = {"_id": query.id, "text": query.text, "metadata": metadata}
    if query.evidence:
        record["evidence"] = list(query.evidence)
    return record


def query_of(record: dict[str, Any], file: str | Path, line: int | None = None) -> Query:
    """A query from the object of a line; without a line, errors name ``file`` alone."""
    record = in_layout(record, QUERY_FORM, file, line)
    metadata = object_of(record, "metadata", file, line)
    answers = metadata.get("answers", [])
    if isinstance(answers, str):
        metadata["answers"] = answers = [answers]
    evidence = record.get("evidence") or []
    for name, value in (("evidence", evidence), ("metadata.answers", answers)):
        if not _are_strings(value):
            raise DataError(f"expected {name} to be a list of strings, got {value!r}.", file, line)
    proofs = metadata.get("proofs", [])
    if not isinstance(proofs, list) or not all(map(_are_strings, proofs)):
        raise DataError(
            f"expected metadata.proofs to be a list of lists of passage ids, got {proofs!r}; rename the key "
            "if it means something else.",
            file,
            line,
        )
    free = metadata.get("any_order")
    if free is not None and not isinstance(free, bool):
        raise DataError(f"expected metadata.any_order to be true or false, got {free!r}.", file, line)
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


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


class DataFault(NamedTuple):
    """A fault that retrieval, training or evaluation would refuse, in words.

    ``line`` is None if the fault concerns the whole file. ``told``: it is only warned of.
    """

    file: Path
    line: int | None
    what: str
    told: bool = False


class Finding(NamedTuple):
    """How many passages have something unusual, and a few ids; ``a = b`` names the earlier one, too."""

    kind: str
    passages: int
    examples: list[str]


class CorpusCheck(NamedTuple):
    """The report on a corpus, with a finding for every kind; ``tokens`` is the unit of lengths."""

    corpus: str
    passages: int
    tokens: str
    mean_tokens: float
    longest: int
    findings: list[Finding]


def check_corpus(
    corpus: Corpus, codec: Codec | None = None, limit: int = 512, examples: int = 3
) -> CorpusCheck:
    """Count duplicates, empty passages, and passages longer than ``limit``, which a generator cuts.

    Lengths are in tokens of ``codec``, without it in words. Of each kind ``examples`` ids are named.
    """
    first: dict[bytes, int] = {}
    lengths: list[int] = []
    duplicates: list[tuple[int, int]] = []
    empty: list[int] = []
    for batch in corpus.batches():
        if codec is None:
            sizes = [len(pieces(f"{passage.title} {passage.text}")) for passage in batch]
        else:
            titles = codec.texts([passage.title for passage in batch])
            texts = codec.texts([passage.text for passage in batch])
            rows = zip(titles, texts, strict=True)
            sizes = [len(codec.titled(title, text) if title else text) for title, text in rows]
        for number, (passage, size) in enumerate(zip(batch, sizes, strict=True), len(lengths)):
            lengths.append(size)
            mark = blake2b(f"{passage.title}\0{passage.text}".encode(), digest_size=16).digest()
            if (earlier := first.setdefault(mark, number)) != number:
                duplicates.append((number, earlier))
            if not passage.text.strip():
                empty.append(number)
    long = [number for number, length in enumerate(lengths) if length > limit]
    unit = "words" if codec is None else "tokens"
    cut = "" if codec is None else " (a generator of that limit cuts them)"
    pairs = [" = ".join(corpus.ids(pair)) for pair in duplicates[: max(examples, 0)]]
    findings = [
        Finding("duplicate of an earlier passage", len(duplicates), pairs),
        Finding("empty text", len(empty), corpus.ids(empty[: max(examples, 0)])),
        Finding(f"longer than {limit} {unit}{cut}", len(long), corpus.ids(long[: max(examples, 0)])),
    ]
    mean = sum(lengths) / max(len(lengths), 1)
    return CorpusCheck(corpus.source, len(corpus), unit, mean, max(lengths, default=0), findings)


def format_check(report: CorpusCheck) -> str:
    lines = [
        f"{report.corpus}: {counted(report.passages, 'passage')}, mean {report.mean_tokens:.1f} "
        f"{report.tokens}, longest {report.longest:,}"
    ]
    for finding in report.findings:
        shown = f"  ({', '.join(finding.examples)})" if finding.examples else ""
        lines.append(f"  {finding.passages:>9,}  {finding.kind}{shown}")
    return visible("\n".join(lines))


class CheckedFile(NamedTuple):
    """A checked file: the numbers of its entries (queries or judgements), of faults, and of unknown ids."""

    file: Path
    entries: int
    kind: str
    faults: int
    unknown: int


class GoldCount(NamedTuple):
    """The gold of a data set in numbers.

    Attributes:
        source: ``qrels``, or ``evidence`` of a data set without qrels.
        queries: Queries with a gold passage.
        without: Queries without one.
        unused: Those of ``without`` that have evidence, which does not count if there are qrels.
    """

    source: str
    queries: int
    without: int
    unused: int


class DataCheck(NamedTuple):
    """The report on queries, evidence and qrels; ``gold`` is None without readable queries and qrels."""

    faults: list[DataFault]
    files: list[CheckedFile]
    gold: GoldCount | None


def check_data(folder: str | Path, corpus: Corpus) -> DataCheck:
    """All faults in the queries, evidence and qrels of a data set, in the order of the files.

    Reading a data set stops at the first fault, and finds some faults only after a model is loaded. The
    corpus itself: :func:`check_corpus`.
    """
    file = Path(folder) / "queries.jsonl"
    splits = sorted((Path(folder) / "qrels").glob("*.tsv"))
    faults: list[DataFault] = []
    lines: dict[str, int] = {}
    queries: list[Query] = []
    judged: list[Qrels] = []  # of the splits that can be read
    if file.is_file():
        for line, query in _queries(file, faults):
            if query.id in lines:
                said = f"the query id {query.id!r} is in line {lines[query.id]} already"
                faults.append(DataFault(file, line, said))
            lines.setdefault(query.id, line)
            queries.append(query)
        evidence = [(lines[query.id], passage) for query in queries for passage in query.evidence]
        faults += _unknown(file, evidence, corpus, "evidence")
    for split in splits:
        if not file.is_file():
            faults.append(DataFault(split, None, "there is no queries.jsonl whose queries it judges"))
            continue
        try:
            judged.append(qrels := read_qrels(split))
        except DataError as error:
            faults.append(_as_fault(error, split))
            continue
        if not qrels:
            faults.append(DataFault(split, None, "the split judges no query"))
            continue
        faults += [
            DataFault(split, None, f"query {name!r} has no passage graded above 0")
            for name, grades in qrels.items()
            if not relevant(grades)
        ]
        pairs = [
            (line, fields[0], fields[1])
            for line, text in text_lines(split)
            if len(fields := text.split("\t")) == 3 and (line > 1 or fields[0] != QRELS_HEADER[0])
        ]
        unknown = [(line, query) for line, query, _ in pairs if query not in lines]
        faults += [
            DataFault(
                split,
                line,
                f"the query id {query!r} is in no line of queries.jsonl",
                len(unknown) < len(pairs),
            )
            for line, query in unknown
        ]
        faults += _unknown(split, [(line, passage) for line, _, passage in pairs], corpus, "judged")
    kinds = {file: "query"} if file.is_file() else {}
    files = []
    for path, kind in (kinds | dict.fromkeys(splits, "judgement")).items():
        with path.open("rb") as stream:
            filled = (line for line in stream if line.strip())
            entries = sum(not line.startswith(QRELS_HEADER[0].encode() + b"\t") for line in filled)
        told = [fault.told for fault in faults if fault.file == path]
        files.append(CheckedFile(path, entries, kind, told.count(False), told.count(True)))
    gold = None
    if queries and len(judged) == len(splits):
        graded = judged or [evidence_qrels(queries)]
        named = {name for qrels in graded for name, grades in qrels.items() if relevant(grades)}
        without = [query for query in queries if query.id not in named]
        unused, source = sum(bool(query.evidence) for query in without), "qrels" if splits else "evidence"
        gold = GoldCount(source, len(queries) - len(without), len(without), unused)
    return DataCheck(faults, files, gold)


def format_data_check(folder: str | Path, check: DataCheck) -> str:
    """One file a line, then the gold; a folder without queries and qrels is named as such."""
    lines = [
        f"{f.file}: {counted(f.entries, f.kind)} checked, {counted(f.faults, 'fault')}"
        + f", {counted(f.unknown, 'unknown id')} (warned of, not refused)" * bool(f.unknown)
        for f in check.files
    ] or [f"{folder}: no queries and no qrels, so only the corpus was checked"]
    gold = check.gold
    if gold is not None and not gold.queries and not gold.unused:
        lines.append(f"{folder}: no query has a gold passage, neither in qrels nor as `evidence`")
    elif gold is not None:
        source = "gold is that of qrels" if gold.source == "qrels" else "no qrels, so gold is `evidence`"
        unused = f" ({gold.unused:,} of them with `evidence`, which does not count beside qrels)"
        without = f", {gold.without:,} without{unused * bool(gold.unused)}"
        lines.append(f"{folder}: {source}: {counted(gold.queries, 'query')} with a gold passage{without}")
    return visible("\n".join(lines))


def format_faults(faults: list[DataFault]) -> str:
    lines = [f"{f.file}{'' if f.line is None else f', line {f.line}'}: {f.what}." for f in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        lines.append(f"… and {len(faults) - _SHOWN:,} more")
    return visible("\n".join(lines))


def _queries(file: Path, faults: list[DataFault]) -> Iterator[tuple[int, Query]]:
    """The queries that can be read. A malformed query is a fault; a line that is no JSON ends the reading."""
    try:
        for line, record in read_jsonl(file):
            try:
                yield line, query_of(record, file, line)
            except DataError as error:
                faults.append(_as_fault(error, file))
    except DataError as error:
        faults.append(_as_fault(error, file))


def _as_fault(error: DataError, file: Path) -> DataFault:
    prefix = f"{file}: " if error.line is None else f"{file}, line {error.line}: "
    return DataFault(file, error.line, str(error).removeprefix(prefix).rstrip("."))


def _unknown(file: Path, named: list[tuple[int, str]], corpus: Corpus, kind: str) -> list[DataFault]:
    """A fault for each (line, passage id) whose passage is not in the corpus; refused if it has none."""
    numbers = corpus.numbers([passage for _, passage in named])
    return [
        DataFault(
            file, line, f"the {kind} passage id {passage!r} is not in {corpus.source}", {*numbers} != {None}
        )
        for (line, passage), number in zip(named, numbers, strict=True)
        if number is None
    ]
