"""Saves answers with quotes: the answers, the page, and the run of the quoted passages."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

from grls.answer.questions import SHOWN, Questions
from grls.answer.riches.page import quotes_page, terminal
from grls.answer.riches.written import cut_short, outputs, record_of, written_of
from grls.errors import Option
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.io.counts import counted
from grls.io.files import atomic_file
from grls.io.resumable import GrowingFile, Record
from grls.runs.portions import KeptResults
from grls.runs.results import Retrieved
from grls.runs.save import save_retrieved


def save_answers_and_page(
    questions: Questions, file: GrowingFile, output: str, title: str, markers: tuple[str, str]
) -> None:
    """Print the first answers; write the answers and the page."""
    queries = questions.asked
    for query, written in islice(zip(queries, outputs(file, queries), strict=True), SHOWN):
        print(terminal(query, written, markers, sys.stdout.isatty()) + "\n")
    lines = (record_of(*pair) for pair in zip(queries, outputs(file, queries), strict=True))
    write_answers(f"{output}{ENDING}", lines)
    with atomic_file(f"{output}.html") as stream:
        stream.writelines(quotes_page(title, queries, outputs(file, queries), questions.corpus, markers))


def save_quotes(
    questions: Questions, file: GrowingFile, output: str, title: str, options: dict[str, Any]
) -> None:
    """Write the run, and print the scores."""
    queries, corpus = questions.asked, questions.corpus
    seconds = sum(record.get("seconds", 0.0) for record in file.each())
    mode = options.pop("mode")
    whole = {**options, "k": None}  # as many quotes as were written: nothing was cut off
    info = questions.info("generator", title, mode, seconds, whole)
    print(save_retrieved(output, queries, corpus, KeptResults(file, queries, _retrieved), info))
    answers = read_answers(f"{output}{ENDING}", texts=False)
    print(summary(score_answers(answers, queries, questions.qrels, corpus), seconds))
    several = cut_short(file, queries)
    if file.count <= len(queries):  # else a run over more queries may resume from it
        file.remove()
    if several:
        quotes = counted(several, "quote is", "quotes are")
        print(f"{quotes} held by more keys than {Option('search.max_keys')!s} allows to name")


def _retrieved(query_id: str, record: Record) -> Retrieved:
    return Retrieved.ranked(query_id, written_of(record).ranking())
