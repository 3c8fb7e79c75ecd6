"""Answers are written to a file as they come, so that a killed run goes on where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from grls.answer.writer import Questions
from grls.answer.written import Record, Written
from grls.data.types import Hit, Query
from grls.evaluation.answers import score_file, summary, write_answers
from grls.io.progress import visible
from grls.io.work import all_done
from grls.runs.portions import ANSWERS, KeptResults, RunInfo, save_retrieved
from grls.runs.results import Retrieved

BATCHES = 4
"""Batches answered before the next write: prompts of similar length share a batch."""
_SHOWN, _NAMED, _WIDTH = 3, 3, 100
"""The first answers that are printed, passages of a quote that are named, and characters of a quote."""

Answer = Callable[[Sequence[Query], Callable[[int], object]], Sequence[Written]]
"""From queries, and a function that is called with the number of queries answered, to the answers."""


def answer_questions(
    questions: Questions,
    output: str,
    settings: dict[str, Any],
    answer: Answer,
    batch_size: int,
    spent: Callable[[], Mapping[str, int]],
    info: Callable[[Counter[str]], RunInfo],
) -> None:
    """Answer all questions, and go on where a killed run of the same settings stopped; save the answers.

    OUTPUT.written.jsonl has a line a query. ``spent``: totals of this process; ``info``: from what all groups
    have spent, and their ``seconds``, to the manifest.
    """

    def records(queries: Sequence[Query], report: Callable[[int], object]) -> list[Record]:
        return [
            written.record(query) for query, written in zip(queries, answer(queries, report), strict=True)
        ]

    with all_done(
        questions.queries, records, f"{output}.written.jsonl", settings, lambda query: {"query_id": query.id},
        BATCHES * batch_size, "answer", "queries", questions.every, spent,
    ) as file:  # fmt: skip

        def lines() -> Iterator[Record]:
            for record in islice(file, len(questions.queries)):
                record.pop("spent", None)
                yield record

        save_answers(questions, output, lines, info(file.spent()))


def save_answers(
    questions: Questions, output: str, lines: Callable[[], Iterable[Record]], info: RunInfo
) -> None:
    """Print the first answers, write OUTPUT.answers.jsonl and the run, and print the scores."""
    corpus, queries, answers = questions.corpus, questions.queries, f"{output}{ANSWERS}"
    for line in islice(lines(), _SHOWN):
        print(f"{shown_answer(line)}\n")
    write_answers(answers, lines())
    print(save_retrieved(output, queries, corpus, KeptResults([Path(answers)], queries, _retrieved), info))
    print(summary(score_file(answers, queries, questions.qrels, corpus)))


def _retrieved(line: Record) -> Retrieved:
    return Retrieved.ranked(line["query_id"], map(Hit, line["retrieved"], line["scores"]))


def shown_answer(line: Record) -> str:
    rows = [f"{line['query_id']}: {line['text']}"]
    for piece in line["pieces"]:
        text = piece["text"]
        if piece["quote"] is not None:
            quote = line["quotes"][piece["quote"]]
            names = quote["passages"]
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            source = (
                f"{', '.join(names[:_NAMED])}{more}"
                if quote["closed"]
                else "nothing, cut at the length limit"
            )
            text = f"  {text[:_WIDTH]}{'…' * (len(text) > _WIDTH)} -> {source}"
        rows.append(f"  {text}")
    return visible("\n".join(rows))
