"""Answers are written to a file as they come, so that a killed run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from grls.answer.direct import FollowUpStep, WrittenAnswer
from grls.answer.prompts import shown
from grls.answer.writer import SHOWN, Questions, Spent, TextWriter
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.evaluation.measures import RunDepth
from grls.io.progress import visible
from grls.io.work import Record, all_done
from grls.runs.portions import RunInfo
from grls.runs.results import find_passages
from grls.runs.run import Run

BATCHES = 4
"""Batches answered before the next write: prompts of similar length share a batch."""

Answer = Callable[[Sequence[Query], Callable[[int], object]], Sequence[WrittenAnswer]]
"""From queries, and a function that is called with the number of queries answered, to the answers."""


def read_all(
    questions: Questions, output: str, settings: dict[str, Any], writer: TextWriter, answer: Answer
) -> tuple[list[WrittenAnswer], float, dict[str, int]]:
    """Answer all questions, and go on where a killed run of the same settings stopped.

    OUTPUT.readings.jsonl has a line a query. Returns the answers, the seconds that all took, and the numbers
    of passages cut, calls and tokens.
    """

    def records(queries: Sequence[Query], report: Callable[[int], object]) -> list[Record]:
        return [_record(reading) for reading in answer(queries, report)]

    with all_done(
        questions.queries, records, f"{output}.readings.jsonl", settings,
        lambda query: {"query_id": query.id}, BATCHES * writer.batch_size, "read", "queries", questions.every,
        lambda: asdict(writer.spent),
    ) as file:  # fmt: skip
        readings = [_reading(record) for record in islice(file, len(questions.queries))]
        spent = file.spent()
    costs = {name: int(spent[name]) for name in asdict(Spent())}
    return readings, float(spent["seconds"]), {"cut": sum(reading.cut for reading in readings), **costs}


def _record(reading: WrittenAnswer) -> Record:
    record = reading._asdict()
    if not reading.failed:
        del record["failed"]
    return record


def _reading(record: dict[str, Any]) -> WrittenAnswer:
    return WrittenAnswer(
        record["answer"],
        record["ended"],
        tuple(record["read"]),
        tuple(Hit(*fields) for fields in record["ranking"]),
        tuple(FollowUpStep(question, tuple(passages)) for question, passages in record["steps"]),
        record["cut"],
        record.get("failed", ""),
    )


def save_readings(
    questions: Questions,
    output: str,
    readings: Sequence[WrittenAnswer],
    info: RunInfo,
    more: Sequence[dict[str, Any]] = (),
) -> None:
    """Print the first answers, write OUTPUT.answers.jsonl and the run, and print the scores.

    ``more`` has further fields of each query's line of the answers.
    """
    corpus, queries = questions.corpus, questions.queries
    for query, reading in list(zip(queries, readings, strict=True))[:SHOWN]:
        print(shown_reading(query, reading, corpus) + "\n")
    answers = f"{output}{ENDING}"
    lines = (answer_record(*pair, corpus) for pair in zip(queries, readings, strict=True))
    write_answers(answers, lines if not more else (a | b for a, b in zip(lines, more, strict=True)))
    rankings = {query.id: list(reading.ranking) for query, reading in zip(queries, readings, strict=True)}
    run = Run.of(rankings, info=info)
    print(run.save(output, queries, corpus))
    depth = RunDepth.of(run, len(corpus), [])
    written = read_answers(answers, texts=False)
    scores = score_answers(written, queries, questions.qrels, depth=depth)
    print(summary(scores, info.seconds))


def answer_record(query: Query, reading: WrittenAnswer, corpus: Corpus) -> dict[str, Any]:
    """A line of the answers: a passage that the model read takes the place of a quote of RICHES."""
    texts = find_passages(corpus, reading.read)
    quotes = [
        {"text": shown(texts[i]), "keys": [shown(texts[i])], "passages": [i], "closed": True}
        for i in reading.read
    ]
    return {
        "query_id": query.id,
        "text": query.text,
        "answer": reading.answer,
        "ended": reading.ended,
        "pieces": _pieces(reading, texts),
        "quotes": quotes,
        "retrieved": [hit.id for hit in reading.ranking],
        **({"failed": reading.failed} if reading.failed else {}),
    }


def _pieces(reading: WrittenAnswer, texts: dict[str, Passage]) -> list[dict[str, Any]]:
    numbers = {passage: number for number, passage in enumerate(reading.read)}
    pieces: list[dict[str, Any]] = []
    groups = [(step.question, step.passages) for step in reading.steps] or [("", reading.read)]
    for question, passages in groups:
        pieces += [{"kind": "thought", "text": question, "quote": -1}] if question else []
        pieces += [{"kind": "quote", "text": shown(texts[i]), "quote": numbers[i]} for i in passages]
    answer = {"kind": "answer", "text": reading.answer, "quote": -1}
    return [*pieces, *([answer] if reading.answer else [])]


def shown_reading(query: Query, reading: WrittenAnswer, corpus: Corpus) -> str:
    lines = [f"{query.id}: {query.text}"]
    for piece in _pieces(reading, find_passages(corpus, reading.read)):
        text = piece["text"]
        if piece["kind"] == "quote":
            text = f"  {text[:100]}{'…' * (len(text) > 100)} -> {reading.read[piece['quote']]}"
        lines.append(f"  {text}")
    return visible("\n".join(lines))
