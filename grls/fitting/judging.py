"""Questions that a person judges: the first hits of several candidates are pooled, and some of them are gold.

The journal ``judged.jsonl`` holds the answers in their order, also those without gold. The data set beside it
(``corpus.jsonl``, ``queries.jsonl``, ``qrels/dev.tsv``) is written anew after each answer. This module asks
nobody: ``grls.commands.judge`` and the page of ``grls.serve.judge_page`` do.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from grls.data.dataset import qrels_lines, query_of, query_record, read_queries, refuse_breaks
from grls.data.types import Hit, Query
from grls.errors import DataError
from grls.evaluation.measures import query_values
from grls.evaluation.significance import CONFIDENCE, compare, compare_with, shown_p, shown_points
from grls.fitting.journal import JOURNAL
from grls.fitting.splits import DEV
from grls.io.files import atomic_file, named_lines, refuse_unusable
from grls.io.jsonl import write_line
from grls.io.progress import counted
from grls.io.work import GrowingFile
from grls.models.option_names import Device, Precision
from grls.retrieve.base import Retriever
from grls.retrieve.hits import search_hits, with_texts
from grls.retrieve.registry import Opening, load_named, load_retriever
from grls.retrieve.spec import is_retriever
from grls.tune.search import paired_error

JUDGED = "judged.jsonl"
MEASURES = ("R@5", "nDCG@10")
_DEPTH = 10  # hits that the measures read
_RANKINGS = "rankings"
_FEWEST, _MOST = 8, 200
"""Queries with gold from which the needed number is told; more than so many further ones are too many."""
_TWO_SIDED = 1.96


def open_candidates(
    folders: Mapping[str, str], device: Device = "auto", precision: Precision = "float32"
) -> dict[str, Retriever]:
    """The retrievers of folders by their names; the output of ``grls fit`` stands for all its candidates."""
    paths: dict[str, Path] = {}
    for name, folder in folders.items():
        if not (Path(folder) / JOURNAL).is_file():
            paths[name] = Path(folder)
            continue
        members = sorted(path for path in Path(folder).glob("members/*") if is_retriever(path))
        prefix = f"{name}/" if len(folders) > 1 else ""
        paths |= {f"{prefix}{path.name}": path for path in members} or {name: Path(folder)}
    opening = Opening(device, precision, truncate_queries=True, opened={})
    opened: dict[str, Retriever] = {}
    for name, path in paths.items():
        first = next(iter(opened.values()), None)
        if first is None:
            opened[name] = load_retriever(path, opening)
        else:
            opened[name] = load_named(str(path), first.corpus, opening)
    return opened


def read_questions(file: str | Path) -> list[Query]:
    """The queries of ``queries.jsonl`` or a data set folder; of any other file a question a line."""
    if Path(file).is_dir() or Path(file).suffix == ".jsonl":
        return read_queries(file)
    return [Query("", text.strip()) for _, text in named_lines(file, "a question a line")]


def place_of(hit: Hit) -> str:
    """Where a passage stands in its file; empty without one."""
    unit = next((unit for unit in ("page", "line") if unit in hit.metadata), None)
    parts = [hit.metadata.get("file"), unit and f"{unit} {hit.metadata[unit]}", hit.metadata.get("heading")]
    return ", ".join(str(part) for part in parts if part)


def apart(better: Sequence[float], other: Sequence[float]) -> str:
    """How many more questions tell two candidates apart, of their values for those that are judged."""
    difference, judged = fmean(better) - fmean(other), len(better)
    if not difference:
        return "find equally much so far."
    needed = math.ceil(judged * (_TWO_SIDED * paired_error(better, other) / difference) ** 2)
    text = f"differ by {100 * difference:.1f} points of {MEASURES[0]}"
    if compare(better, other).p < 1 - CONFIDENCE:
        return f"{text}, which is more than chance."
    if needed - judged > _MOST:
        return f"{text}; they cannot be told apart by fewer than {needed:,}."
    more = (
        f"about {needed - judged:,}" if needed > judged else "a few"
    )  # few that differ: a normal is too bold
    return f"{text}; {more} more would tell them apart."


class PooledQuestion(NamedTuple):
    """The question that is asked, and its pool in an order that tells nothing of the candidates."""

    query: Query
    hits: list[Hit]
    rankings: dict[str, list[str]]


class Judging:
    """The questions that are judged, and those that wait.

    Args:
        candidates: Retrievers over one corpus.
        output: The data set folder; one that was begun over the same corpus is continued.
        questions: What is asked; what is judged already is left out.
        k: Hits of each candidate in the pool.
    """

    def __init__(
        self,
        candidates: Mapping[str, Retriever],
        output: str | Path,
        questions: Iterable[Query] = (),
        k: int = 5,
    ):
        refuse_unusable(output, JUDGED)
        self.candidates, self.output, self.k = candidates, Path(output), k
        self.corpus = next(iter(candidates.values())).corpus
        self._prints = {name: retriever.fingerprint() for name, retriever in candidates.items()}
        fields = {"_id": str, "text": str, "evidence": list, _RANKINGS: dict}
        self.journal = GrowingFile(self.output / JUDGED, {"corpus": self.corpus.fingerprint}, fields)
        self.records = list(self.journal)
        self.waiting = deque(
            {query.text: query for query in questions if not self.knows(query.text)}.values()
        )
        self._asked: PooledQuestion | None = None
        if self.records:
            self._write()

    def knows(self, text: str) -> bool:
        return any(record["text"] == text for record in self.records)

    @property
    def gold(self) -> list[dict[str, Any]]:
        """The records of the questions that have gold."""
        return [record for record in self.records if record["evidence"]]

    def ask(self, text: str) -> None:
        """Put a question before those that wait."""
        if self.knows(text):
            raise DataError(f"this question is judged already: {text}")
        self._asked = None
        self.waiting.appendleft(Query("", text))

    def asked(self) -> PooledQuestion | None:
        """The question that waits first, with its pool; None: no question waits."""
        if self._asked is None and self.waiting:
            query = self.waiting[0]
            rankings = {name: self._search(name, [query])[0] for name in self.candidates}
            pool = sorted({id for ranking in rankings.values() for id in ranking[: self.k]})
            random.Random(query.text).shuffle(pool)
            (hits,) = with_texts([[Hit(id, 0.0) for id in pool]], self.corpus)
            self._asked = PooledQuestion(
                query, hits, {self._prints[name]: ids for name, ids in rankings.items()}
            )
        return self._asked

    def judge(self, gold: Sequence[str]) -> None:
        """Record the gold passages of the question that is asked, in the order of need; none: it has none."""
        asked = self.asked()
        assert asked is not None
        query, taken = asked.query, {record["_id"] for record in self.records}
        if not query.id or query.id in taken:
            query = query._replace(id=f"q-{blake2b(query.text.encode(), digest_size=6).hexdigest()}")
        refuse_breaks({DEV: {query.id: dict.fromkeys(gold, 1)}}, self.output)
        record = query_record(query) | {"evidence": list(gold), _RANKINGS: asked.rankings}
        self.journal.add([record])
        self.records.append(record)
        self.skip()
        self._write()

    def skip(self) -> None:
        """Leave the question for another call."""
        self.waiting.popleft()
        self._asked = None

    def undo(self) -> bool:
        """Take the last answer back, and ask that question again; false: there is none."""
        if not self.records:
            return False
        record = self.records.pop()
        self._write(less=True)
        self.journal.cut(len(self.records))
        fields = {name: value for name, value in record.items() if name != _RANKINGS}
        self._asked = None
        self.waiting.appendleft(query_of(fields, self.output / JUDGED)._replace(evidence=()))
        return True

    def close(self) -> None:
        self.journal.close()

    def told(self) -> str:
        """What the judged questions say of the two best candidates, without their names."""
        values, (measure, _) = self._values(), MEASURES
        if len(values) < 2 or len(self.gold) < _FEWEST:
            return ""
        first, second = (values[name][measure] for name in _ranked(values)[:2])
        return (
            f"{counted(len(self.gold), 'question')} with gold: the two best candidates {apart(first, second)}"
        )

    def table(self) -> list[list[str]]:
        """Heads, and a row for each candidate, the best first; empty without gold."""
        values, (measure, _) = self._values(), MEASURES
        if not self.gold:
            return []
        best, *others = _ranked(values)
        compared = compare_with(values[best][measure], {name: values[name][measure] for name in others})
        rows = [["candidate", *MEASURES, f"{measure} to the best (95 %)", "p"]]
        for name in (best, *others):
            row = [name, *(f"{100 * fmean(each):.1f}" for each in values[name].values()), "", ""]
            if name in compared:
                beside, p = compared[name]
                row[-2:] = [f"{shown_points(beside.difference)} ({beside.interval})", shown_p(p)]
            rows.append(row)
        return rows

    def _values(self) -> dict[str, dict[str, list[float]]]:
        """Candidate -> measure -> its values of the questions with gold."""
        qrels = {record["_id"]: dict.fromkeys(record["evidence"], 1) for record in self.gold}
        values = {}
        for name, print in self._prints.items():
            lacking = [record for record in self.gold if print not in record[_RANKINGS]]
            if lacking:  # they were judged before there was this candidate
                queries = [Query(record["_id"], record["text"]) for record in lacking]
                for record, ids in zip(lacking, self._search(name, queries), strict=True):
                    record[_RANKINGS][print] = ids
            rankings = {record["_id"]: record[_RANKINGS][print] for record in self.gold}
            values[name] = query_values(MEASURES, rankings, qrels)
        return values

    def _search(self, name: str, queries: Sequence[Query]) -> list[list[str]]:
        rankings = search_hits(self.candidates[name], queries, max(self.k, _DEPTH))
        return [list(dict.fromkeys(hit.id for hit in hits)) for hits in rankings]

    def _write(self, less: bool = False) -> None:
        """Write the data set; no judgement is ever without its query."""
        if not (corpus := self.output / "corpus.jsonl").is_file():
            self.corpus.write(corpus)
        files = [self.output / "queries.jsonl", self.output / "qrels" / f"{DEV}.tsv"]
        files[1].parent.mkdir(exist_ok=True)
        for file in reversed(files) if less else files:
            if not self.gold:  # a split without a query is none
                file.unlink(missing_ok=True)
                continue
            with atomic_file(file) as stream:
                if file.suffix == ".tsv":
                    qrels = {record["_id"]: dict.fromkeys(record["evidence"], 1) for record in self.gold}
                    stream.writelines(qrels_lines(qrels))
                else:
                    for record in self.gold:
                        write_line(stream, {key: record[key] for key in record if key != _RANKINGS})


def _ranked(values: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    """The names of candidates, the best first."""
    return sorted(values, key=lambda name: [*map(fmean, values[name].values())], reverse=True)
