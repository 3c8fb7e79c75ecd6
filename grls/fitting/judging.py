"""Questions that a person judges: the first hits of several candidates are pooled, and some of them are gold.

The journal ``judged.jsonl`` holds the answers in their order, also those without gold. The data set beside it
(``corpus.jsonl``, ``queries.jsonl``, ``qrels/dev.tsv``) is written anew after each answer. This module asks
nobody: ``grls.commands.judge`` and the page of ``grls.serve.judge_page`` do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from grls.data.dataset import qrels_lines, query_of, query_record, read_queries, refuse_breaks
from grls.data.inputs.splits import DEV
from grls.data.types import Hit, Query
from grls.errors import DataError, MismatchError, Option
from grls.evaluation.measures import query_values
from grls.evaluation.significance import CONFIDENCE, Comparison, compare_with, shown_p, shown_points
from grls.fitting.journal import JOURNAL
from grls.io.ending import without_warnings
from grls.io.files import atomic_file, named_lines, refuse_unusable
from grls.io.jsonl import write_line
from grls.io.progress import counted
from grls.io.work import GrowingFile
from grls.models.option_names import Device, Precision
from grls.retrieve.base import Retriever
from grls.retrieve.fusion.retriever import FUSED
from grls.retrieve.hits import search_hits, with_texts
from grls.retrieve.registry import Opening, load_named, load_retriever, names_bm25
from grls.retrieve.spec import is_retriever
from grls.tune.search import paired_error

JUDGED = "judged.jsonl"
MEASURES = ("R@5", "nDCG@10")
_FEWEST = 8  # questions with gold from which the needed number is told
_POWER = 2.8  # standard errors of a difference that is found at 5 % (1.96) four times in five (0.84)


def open_candidates(
    folders: Mapping[str, str], device: Device = "auto", precision: Precision = "float32"
) -> dict[str, Retriever]:
    """The retrievers of folders by name, each once; the output of ``grls fit`` stands for its candidates."""
    paths: dict[str, Path] = {}
    for name, folder in folders.items():
        if not (Path(folder) / JOURNAL).is_file():
            paths[name] = Path(folder)
            continue
        members = sorted(path for path in Path(folder).glob("members/*") if is_retriever(path))
        prefix = f"{name}/" if len(folders) > 1 else ""
        paths |= {f"{prefix}{path.name}": path for path in members} or {name: Path(folder)}
    opening = Opening(device, precision, truncate_queries=True, opened={})
    opened: dict[str, tuple[str, Retriever]] = {}
    corpus = None
    for name, path in sorted(paths.items(), key=lambda item: names_bm25(str(item[1]))):
        retriever = load_named(str(path), corpus, opening) if corpus else load_retriever(path, opening)
        corpus = retriever.corpus
        opened.setdefault(retriever.fingerprint(), (name, retriever))
    return dict(opened.values())


def read_questions(file: str | Path) -> list[Query]:
    """The queries of ``queries.jsonl`` or a data set folder; of any other file a question a line."""
    if Path(file).is_dir() or Path(file).suffix == ".jsonl":
        queries = read_queries(file)
        refuse_breaks({DEV: {query.id: {} for query in queries}}, file)
        return queries
    return [Query("", text.strip()) for _, text in named_lines(file, "a question a line")]


def place_of(hit: Hit) -> str:
    """Where a passage stands in its file; empty without one."""
    unit = next((unit for unit in ("page", "line") if unit in hit.metadata), None)
    parts = [hit.metadata.get("file"), unit and f"{unit} {hit.metadata[unit]}", hit.metadata.get("heading")]
    return ", ".join(str(part) for part in parts if part)


def apart(better: Sequence[float], other: Sequence[float], measure: str, p: float) -> str:
    """How many more questions tell two candidates apart, of their values for those that are judged."""
    difference, judged = fmean(better) - fmean(other), len(better)
    if not round(difference, 9):
        return "find equally much so far."
    text = f"differ by {100 * difference:.1f} points of {measure}"
    if p < 1 - CONFIDENCE:
        return f"{text}, which is more than chance."
    more = math.ceil(judged * (_POWER * paired_error(better, other) / difference) ** 2) - judged
    many = f"about {more:,}" if more > 0 else "a few"  # few that differ: a normal is too bold
    return f"{text}; {many} more would tell them apart four times in five."


class PooledQuestion(NamedTuple):
    """The question that is asked, and its pool in an order that tells nothing of the candidates."""

    query: Query
    hits: list[Hit]


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
        self._found: dict[tuple[str, str, int], list[Hit]] = {}  # retriever, question and depth -> ranking
        fields = {"_id": str, "text": str, "evidence": list}
        try:
            self.journal = GrowingFile(self.output / JUDGED, {"corpus": self.corpus.fingerprint}, fields)
        except MismatchError:
            raise MismatchError(
                f"{output} was judged over another corpus: choose another {Option('output')}, with "
                f"{Option('queries', str(output))} to judge its questions again."
            ) from None
        self.records = list(self.journal)
        self.waiting = {query.text: query for query in questions if not self.knows(query.text)}
        if self.records:
            self._write(self.records)

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
        self.waiting = {text: Query("", text)} | self.waiting  # one that waits already stays as it is

    def asked(self) -> PooledQuestion | None:
        """The question that waits first, with its pool; None: no question waits."""
        if not self.waiting:
            return None
        query = next(iter(self.waiting.values()))
        rankings = [self._rankings(name, [query])[0] for name in self.candidates]
        pool = sorted({id for ranking in rankings for id in ranking[: self.k]})
        random.Random(query.text).shuffle(pool)
        (hits,) = with_texts([[Hit(id, 0.0) for id in pool]], self.corpus)
        return PooledQuestion(query, hits)

    def judge(self, gold: Sequence[str]) -> None:
        """Record the gold passages of the question that is asked, in the order of need; none: it has none."""
        query, taken = next(iter(self.waiting.values())), {record["_id"] for record in self.records}
        if not query.id or query.id in taken:
            query = query._replace(id=f"q-{blake2b(query.text.encode(), digest_size=6).hexdigest()}")
        refuse_breaks({DEV: {query.id: dict.fromkeys(gold, 1)}}, self.output)
        record = query_record(query) | {"evidence": list(gold)}
        self.journal.add([record])
        self.records.append(record)
        self.skip()
        self._write(self.records)

    def skip(self) -> None:
        """Ask the question no more; another call asks those of its file again."""
        del self.waiting[next(iter(self.waiting))]

    def undo(self) -> bool:
        """Take the last answer back, and ask that question again; false: there is none."""
        if not self.records:
            return False
        *kept, last = self.records
        self._write(kept)
        self.journal.cut(len(kept))
        self.records = kept
        query = query_of(last, self.output / JUDGED)._replace(evidence=())
        self.waiting = {query.text: query} | self.waiting
        return True

    def close(self) -> None:
        self.journal.close()

    def told(self) -> str:
        """What the judged questions say of the two best candidates, without their names."""
        if len(self.candidates) < 2 or len(self.gold) < _FEWEST:
            return ""
        values, measure, compared = self._compared()
        first, second, *_ = values
        said = apart(values[first][measure], values[second][measure], measure, compared[second][1])
        return f"{counted(len(self.gold), 'question')} with gold: the two best candidates {said}"

    def table(self) -> list[list[str]]:
        """Heads, and a row for each candidate, the best first; empty without gold."""
        if not self.gold:
            return []
        values, measure, compared = self._compared()
        rows = [["candidate", *MEASURES, f"{measure} to the best (95 %)", "p"]]
        for name, measured in values.items():
            row = [name, *(f"{100 * fmean(each):.1f}" for each in measured.values()), "", ""]
            if name in compared:
                beside, p = compared[name]
                row[-2:] = [f"{shown_points(beside.difference)} ({beside.interval})", shown_p(p)]
            rows.append(row)
        return rows

    def _compared(self) -> tuple[dict[str, dict[str, list[float]]], str, dict[str, tuple[Comparison, float]]]:
        """Values of the questions with gold, the best candidate first; and all others compared with it.

        They are compared by the second measure where the two best are equal by the first.
        """
        qrels = _qrels(self.gold)
        queries = [Query(record["_id"], record["text"]) for record in self.gold]
        values = {}
        for name in self.candidates:
            rankings = dict(zip(qrels, self._rankings(name, queries), strict=True))
            values[name] = query_values(MEASURES, rankings, qrels)
        means = {name: [round(fmean(each), 9) for each in values[name].values()] for name in values}
        best, *others = sorted(values, key=means.__getitem__, reverse=True)
        measure = MEASURES[bool(others) and means[best][0] == means[others[0]][0]]
        compared = compare_with(values[best][measure], {name: values[name][measure] for name in others})
        return {name: values[name] for name in (best, *others)}, measure, compared

    def _rankings(self, name: str, queries: Sequence[Query]) -> list[list[str]]:
        with without_warnings():  # they name the candidate
            rankings = self._search(self.candidates[name], queries, max(self.k, FUSED))
        return [list(dict.fromkeys(hit.id for hit in hits)) for hits in rankings]

    def _search(self, retriever: Retriever, queries: Sequence[Query], depth: int) -> list[list[Hit]]:
        """What was found before is not searched again: the members of fusions are candidates, too."""
        known = retriever.fingerprint()
        if new := [query for query in queries if (known, query.text, depth) not in self._found]:
            if fused := getattr(retriever, "fused", None):
                rankings = fused(depth, lambda member, k: self._search(member, new, k))
            else:
                rankings = search_hits(retriever, new, depth)
            for query, hits in zip(new, rankings, strict=True):
                self._found[known, query.text, depth] = hits
        return [self._found[known, query.text, depth] for query in queries]

    def _write(self, records: Sequence[dict[str, Any]]) -> None:
        """Write the data set; no judgement is ever without its query."""
        if not (corpus := self.output / "corpus.jsonl").is_file():
            self.corpus.write(corpus)
        queries, qrels = self.output / "queries.jsonl", self.output / "qrels" / f"{DEV}.tsv"
        qrels.parent.mkdir(exist_ok=True)
        gold = [record for record in records if record["evidence"]]
        for file in (queries, qrels) if len(records) == len(self.records) else (qrels, queries):
            if not gold:  # a split without a query is none
                file.unlink(missing_ok=True)
                continue
            with atomic_file(file) as stream:
                if file == queries:
                    for record in gold:
                        write_line(stream, record)
                else:
                    stream.writelines(qrels_lines(_qrels(gold)))


def _qrels(gold: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    return {record["_id"]: dict.fromkeys(record["evidence"], 1) for record in gold}
