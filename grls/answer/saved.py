"""Saves answers, and the run of the passages read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grls.answer.direct import WrittenAnswer
from grls.answer.questions import SHOWN, Questions
from grls.answer.records import answer_record, shown_reading
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.evaluation.depth import RunDepth
from grls.runs.manifest import RunInfo
from grls.runs.run import Run


def save_readings(
    questions: Questions,
    output: str,
    readings: Sequence[WrittenAnswer],
    info: RunInfo,
    more: Sequence[dict[str, Any]] = (),
) -> None:
    """Print the first answers, write OUTPUT.answers.jsonl and the run, and print the scores.

    Args:
        questions: The questions.
        output: Path without ending.
        readings: The answer of each query.
        info: The manifest of the run.
        more: Further fields of each query's line of the answers.
    """
    corpus, asked = questions.corpus, questions.asked
    for query, reading in list(zip(asked, readings, strict=True))[:SHOWN]:
        print(shown_reading(query, reading, corpus) + "\n")
    answers = f"{output}{ENDING}"
    lines = (answer_record(*pair, corpus) for pair in zip(asked, readings, strict=True))
    write_answers(answers, lines if not more else (a | b for a, b in zip(lines, more, strict=True)))
    rankings = {query.id: list(one.ranking) for query, one in zip(asked, readings, strict=True)}
    run = Run.of(rankings, info=info)
    print(run.save(output, asked, corpus))
    depth = RunDepth.of(run, len(corpus), [])
    written = read_answers(answers, texts=False)
    scores = score_answers(written, asked, questions.qrels, corpus, depth=depth)
    print(summary(scores, info.seconds))
