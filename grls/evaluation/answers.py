"""Answers with their evidence, ``NAME.answers.jsonl``: written, read and scored.

A line for every query that was asked, answered or not::

    {"query_id", "text", "answer", "ended",
     "quotes": [{"text", "keys", "passages", "closed", …}],
     "retrieved": [passage ids, best first]}

``quotes`` is the evidence that was written or read before the answer. Without ``retrieved`` its passages,
in their order, are the ranking. More keys (``pieces``, ``score``) are for people.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages, turns_of
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, Option
from grls.evaluation.measures import WHOLE, RunDepth
from grls.evaluation.metrics import answer_f1, hits, means, novel_f1
from grls.io.files import atomic_file
from grls.io.jsonl import read_jsonl, string_of, write_line
from grls.io.progress import counted
from grls.runs.portions import ANSWERS, RunInfo, differ, read_info, split_asked
from grls.runs.run import Run

if TYPE_CHECKING:
    from grls.models.entailment import Entailment

log = logging.getLogger(__name__)

KS = (1, 5)

Scores = dict[str, Any]
"""Metric -> value, ready for JSON; a metric that does not apply is None."""

Value = TypeVar("Value")


class Evidence(NamedTuple):
    """A quoted or read text, and the ids of the passages that hold it.

    ``closed`` is false if a length limit cut the quote: then it is no evidence.
    """

    text: str
    passages: tuple[str, ...]
    closed: bool


class Answered(NamedTuple):
    """The answer of a query (empty: none), its evidence in order, and passage ids, best first.

    ``ended`` is false if a length limit cut the answer.
    """

    answer: str = ""
    ended: bool = True
    evidence: tuple[Evidence, ...] = ()
    retrieved: tuple[str, ...] = ()


def write_answers(path: str | Path, records: Iterable[dict[str, Any]]) -> None:
    with atomic_file(path) as stream:
        for record in records:
            write_line(stream, record)


def read_answers(path: str | Path, texts: bool = True) -> dict[str, Answered]:
    """Query id -> answer; ``texts``: with the texts of evidence, which take most of the memory."""
    file = Path(path)
    answered: dict[str, Answered] = {}
    for line, record in read_jsonl(file):
        name = string_of(record, "query_id", file, line)
        if name in answered:
            raise DataError(f"the query id {name!r} is used twice.", file, line)
        try:
            answer = string_of(record, "answer", file, line, empty=True)
            quotes = tuple(
                Evidence(
                    _of_type(quote["text"], str, "a string") if texts else "",
                    _texts(quote["passages"]),
                    _of_type(quote["closed"], bool, "true or false"),
                )
                for quote in record["quotes"]
            )
            passages = (passage for quote in quotes if quote.closed for passage in quote.passages)
            retrieved = _texts(record["retrieved"]) if "retrieved" in record else tuple(passages)
            ended = _of_type(record["ended"], bool, "true or false")
            answered[name] = Answered(answer, ended, quotes, tuple(dict.fromkeys(retrieved)))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"expected a line as `grls answer` writes it ({error}).", file, line) from None
    if not answered:
        raise DataError("the file holds no answer; expected one JSON object a line.", file)
    return answered


def _of_type(value: Any, kind: type[Value], expected: str) -> Value:
    if not isinstance(value, kind):
        raise ValueError(f"expected {expected}, got {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_of_type(text, str, "a string") for text in _of_type(value, list, "a list of strings"))


def attributed(
    questions: Sequence[str], answers: Sequence[str], evidence: Sequence[Sequence[str]], judge: Entailment
) -> list[bool]:
    """AutoAIS: whether each answer follows from its evidence, as a model of entailment judges.

    AIS means "attributable to identified sources"; Auto- means that a model judges, not a person (attributed
    question answering, arXiv 2212.08037). The premise is the joined evidence of a query. RICHES (arXiv
    2407.00361) swaps the names of premise and hypothesis, but judges the same pair: all quoted keys and that
    sentence, without thoughts. A query without an answer or without evidence scores 0. The answer need not be
    right: a wrong answer that its evidence supports scores 1. The figure depends on the model, so name it
    beside the figure.
    """
    triples = list(zip(questions, answers, map(joined, evidence), strict=True))
    judged = [n for n, (_, answer, text) in enumerate(triples) if answer.strip() and text]
    entailed = judge.entails(
        [triples[n][2] for n in judged], [hypothesis(triples[n][0], triples[n][1]) for n in judged]
    )
    follows = dict(zip(judged, entailed, strict=True))
    return [follows.get(n, False) for n in range(len(triples))]


def hypothesis(question: str, answer: str) -> str:
    """The sentence that must follow from the evidence."""
    return f"The answer to the question '{question.strip()}' is '{answer.strip()}'"


def joined(evidence: Sequence[str]) -> str:
    """Pieces of evidence as one text, in their order, each once."""
    return "\n".join(dict.fromkeys(text.strip() for text in evidence if text.strip()))


def score_answers(
    answered: dict[str, Answered],
    queries: Sequence[Query],
    qrels: Qrels,
    ks: Sequence[int] = KS,
    judge: Entailment | None = None,
    depth: RunDepth = WHOLE,
) -> Scores:
    """Score answers. A query without a line, or with an empty answer, scores 0 everywhere.

    Args:
        judge: A model of entailment, for AutoAIS; None leaves AutoAIS out.
        depth: How deep the passages are known; ``hits@k`` of a deeper k is None.

    Returns:
        ``queries``, ``unanswered``, ``quotes`` (a query), ``not_closed`` (share of quotes), ``not_ended``
            (share of queries); ``hits@k`` over queries with gold passages (``judged``), ``f1`` and
            ``exact_match`` over queries with accepted answers (``asked``), ``novel_f1`` if one of them has
            a conversation before it; ``autoais``.
    """
    unknown = answered.keys() - {query.id for query in queries}
    if unknown:
        raise DataError(
            f"the query id {min(unknown)!r} of the answers is none of those asked ({len(unknown)} such): "
            f"they belong to another split or data set, or {Option('limit')} is too small."
        )
    missing = sum(query.id not in answered for query in queries)
    if missing:
        every = counted(len(queries), "query")
        log.warning("without a line among the answers: %d of %s; they score 0.", missing, every)
    rows = [answered.get(query.id, Answered()) for query in queries]
    quotes = [quote for row in rows for quote in row.evidence]
    scores: Scores = {
        "queries": len(queries),
        "unanswered": sum(not row.answer.strip() for row in rows),
        "quotes": fmean(len(row.evidence) for row in rows),
        "not_closed": fmean(not quote.closed for quote in quotes) if quotes else 0.0,
        "not_ended": fmean(not row.ended for row in rows),
    }
    golds = [gold_passages(query, qrels) for query in queries]
    judged = [(row.retrieved, gold) for row, gold in zip(rows, golds, strict=True) if gold]
    scores["judged"] = len(judged)
    if judged:
        scores |= means(hits, *zip(*judged, strict=True), ks=ks)
    questions = [(row, query) for row, query in zip(rows, queries, strict=True) if query.answers]
    scores |= {"asked": len(questions), "exact_match": None, "f1": None}
    if questions:
        written, accepted = [row.answer for row, _ in questions], [query.answers for _, query in questions]
        scores |= means(answer_f1, written, accepted)
        try:
            turns = [[*(turn[0] for turn in turns_of(query)), query.text] for _, query in questions]
        except DataError:  # the set has another meaning for `history`, so it holds no conversations
            turns = []
        if any(len(texts) > 1 for texts in turns):
            scores |= means(novel_f1, written, accepted, turns)
    scores["autoais"] = None
    if judge is not None:
        evidence = [[quote.text for quote in row.evidence if quote.closed] for row in rows]
        follows = attributed([q.text for q in queries], [row.answer for row in rows], evidence, judge)
        scores["autoais"] = fmean(follows)
    return depth.within(scores)


def summary(scores: Scores) -> str:
    spent = "" if scores["seconds"] is None else f", {scores['seconds']:.2f} s each"
    lines = [
        f"{counted(scores['queries'], 'query')}{spent}, {scores['unanswered']:,} without an answer; "
        f"{scores['quotes']:.2f} quotes a query, {100 * scores['not_closed']:.1f} % not closed at the length "
        "limit"
    ]
    if scores["judged"]:
        shares = [
            f"{name} {100 * share:.1f}"
            for name, share in scores.items()
            if name.startswith("hits@") and share is not None
        ]
        lines.append(f"passages: {', '.join(shares)} ({counted(scores['judged'], 'query')})")
    if scores["asked"]:
        novel = f", novel-F1 {100 * scores['novel_f1']:.1f}" if "novel_f1" in scores else ""
        lines.append(
            f"answers: exact match {100 * scores['exact_match']:.1f}, F1 {100 * scores['f1']:.1f}{novel} "
            f"({counted(scores['asked'], 'query')})"
        )
    if scores["autoais"] is not None:
        lines.append(f"attributed: AutoAIS {100 * scores['autoais']:.1f}")
    return "\n".join(lines)


def refuse_foreign_answers(file: str, info: RunInfo | None, corpus: Corpus) -> None:
    if info is not None and differ(info.corpus, corpus.fingerprint):
        raise DataError(
            f"these answers were retrieved from another corpus than {corpus.source}: give the "
            f"{Option('data')} that they were retrieved from, or answer again.",
            file,
        )


def score_file(
    file: str,
    queries: list[Query],
    qrels: Qrels,
    corpus: Corpus,
    ks: tuple[int, ...] | None = None,
    judge: Entailment | None = None,
) -> Scores:
    """Scores of one file, with its name and the seconds a query from its manifest."""
    if not file.endswith(ANSWERS):
        raise DataError(f"expected a name that ends in {ANSWERS}, as `grls answer` writes.", file)
    run = file.removesuffix(ANSWERS)
    info = read_info(f"{run}.jsonl")
    refuse_foreign_answers(file, info, corpus)
    answered = read_answers(file, texts=judge is not None)
    depth = WHOLE
    if info is not None:
        read = {query: [Hit(passage, 0.0) for passage in row.retrieved] for query, row in answered.items()}
        depth = RunDepth.of(replace(Run.of(read, info=info), path=file), len(corpus), [])
    depth.refuse(f"hits@{k}" for k in ks or ())
    try:
        scores = score_answers(answered, queries, qrels, KS if ks is None else ks, judge, depth)
    except DataError as error:
        raise DataError(error.text, file) from None
    seconds = None if info is None else info.seconds / len(answered)
    return {"file": file, "name": Path(run).name if info is None else info.name, **scores, "seconds": seconds}


def split_and_limit(files: list[str], split: str | None, limit: int | None) -> tuple[str, int | None]:
    """The split of answers, and the number of its first queries: ``limit``, else that of the manifests."""
    infos = [read_info(file.removesuffix(ANSWERS)) for file in files]
    splits = {info.split: (file, info) for file, info in zip(files, infos, strict=True) if info is not None}
    splits.pop(None, None)
    if len(splits) > 1:
        named = ", ".join(sorted(map(str, splits)))
        raise ConfigError(f"the answers are of the splits {named}; score each split by itself.")
    limits = [limit] if limit is not None else list(dict.fromkeys(info.limit for info in infos if info))
    if len(limits) > 1:
        counts = ", ".join("all queries" if n is None else f"the first {n:,}" for n in limits)
        raise ConfigError(
            f"the answers are of {counts}: give {Option('limit', 'N')}, or score each by itself."
        )
    file, info = next(iter(splits.values()), ("", None))
    return split_asked(file, info, split), limits[0] if limits else None


def table(rows: list[dict[str, Any]], first: str = "answers") -> list[str]:
    """Lines of a Markdown table, a row a file; values in percent except counts and seconds."""
    novel = {"novel_f1": "novel-F1"} if any("novel_f1" in row for row in rows) else {}
    shares = {"f1": "F1", **novel, "exact_match": "EM", "autoais": "AutoAIS"}
    cutoffs = dict.fromkeys(name for row in rows for name in row if name.startswith("hits@"))
    columns = {**{name: name.capitalize() for name in cutoffs}, **shares}
    header = [first, *columns.values(), "quotes a query", "not closed", "no answer", "s a query"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for row in rows:
        lines.append([
            row["name"].replace("|", "\\|"), *(_percent(row.get(name)) for name in columns),
            f"{row['quotes']:.2f}", _percent(row["not_closed"]),
            f"{row['unanswered']:,} of {row['queries']:,}",
            "-" if row["seconds"] is None else f"{row['seconds']:.2f}",
        ])  # fmt: skip
    widths = [max(len(line[n]) for line in lines) for n in range(len(header))]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
