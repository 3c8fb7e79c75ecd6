"""Why answers that quote are wrong: failures of index, search and attribution (arXiv 2407.00361, table 7).

An answer is wrong if it does not match exactly. Its failure is the first that holds of:

=========== ==========================================================================================
index       a gold passage has no key, or no key of the gold passages holds an accepted answer and stands
            alone (begins with no pronoun); a title or header stands for its passages: these have to hold it
search      not every gold passage was quoted, or no quote holds an accepted answer
attribution both were, and the answer is another one
=========== ==========================================================================================

Where all accepted answers are yes or no, no key has to hold them. The paper told failures by reading; the
rules are ours. Answers of other programs are told as well: their keys are the passages with their titles,
as they were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from grls.answer.riches.keys import SHARED, key_texts
from grls.answer.riches.options import KeyKind
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.data.types import Query
from grls.errors import ConfigError, DataError, Option
from grls.evaluation.answers import ENDING, Answered, read_answers, refuse_foreign_answers
from grls.evaluation.metrics import answer_f1, contains_answer, normalise_answer
from grls.explain.text import Part, facts_part, query_line, text_part
from grls.io.progress import counted
from grls.runs.portions import read_info, split_asked

FAILURES = {
    "index": "a gold passage has no key, or no key of theirs leads to the answer and stands alone",
    "search": "such keys exist, and were not quoted",
    "attribution": "they were quoted, and the answer is another one",
}
_PRONOUNS = frozenset(
    ("he", "she", "it", "they", "his", "her", "its", "their", "this", "that", "these", "those", "there")
)
_SHOWN = 5


class JudgedAnswer(NamedTuple):
    """An answer, and why it is wrong.

    Attributes:
        answer: The answer.
        failure: One of :data:`FAILURES`; None for a right answer.
        keys: Keys of the gold passages that hold an accepted answer and stand alone.
        quotes: The closed quotes.
    """

    query: Query
    answer: str
    failure: str | None
    keys: tuple[str, ...]
    quotes: tuple[str, ...]


def judge_answers(
    file: str, data: str | None, split: str | None, limit: int | None, propositions: str | None = None
) -> list[JudgedAnswer]:
    """Judge the answers of a file to the queries that have accepted answers and gold passages.

    The manifest of the run says the kind of the keys, and the data set, split and limit that are None.
    """
    info, answered = read_info(f"{file.removesuffix(ENDING)}.jsonl"), read_answers(file)
    kind: Any = None if info is None else info.options.get("keys")
    kind = kind if kind in get_args(KeyKind) else "titled"
    if (kind == "proposition") != (propositions is not None):
        raise ConfigError(
            f"the keys of {file} are of the kind {kind}: {Option('case.propositions', 'FILE')} is of "
            "propositions alone."
        )
    split = split_asked(file, info, split)
    if data is None:
        data = "" if info is None else info.data
        if not data or not Path(data).is_dir():
            why = f"their manifest names {data!r}, which is no folder here" if data else "no manifest says it"
            raise ConfigError(
                f"{file}: of which data set are these answers? {why}; give {Option('data', 'DIR')}."
            )
    corpus, limit = Corpus.read(data), limit if info is None or limit is not None else info.limit
    refuse_foreign_answers(file, info, corpus)
    queries, qrels = read_split(data, split, corpus, limit)
    golds = {query.id: gold for query in queries if query.answers and (gold := gold_passages(query, qrels))}
    if answered.keys().isdisjoint(golds):
        raise DataError(
            f"no query of the split {split} with accepted answers and gold passages stands in {file}: give "
            f"the {Option('data')} and {Option('split')} that it was written for.",
            data,
        )
    names = {name for gold in golds.values() for name in gold}
    numbered = zip(corpus.numbers(sorted(names)), sorted(names), strict=True)
    numbers = {number: name for number, name in numbered if number is not None}
    keys: dict[str, list[str]] = {}
    for text, number in key_texts(corpus, kind, propositions):
        if number in numbers:
            keys.setdefault(numbers[number], []).append(text)
    found = corpus.passages(list(numbers)) if kind in SHARED else []
    texts = {passage.id: passage.titled for passage in found}
    judged = []
    for query in (query for query in queries if query.id in golds):
        gold, written = golds[query.id], answered.get(query.id, Answered())
        needs_no_text = {normalise_answer(answer) for answer in query.answers} <= {"yes", "no"}
        holding = tuple(
            key
            for name in gold
            for key in keys.get(name, ())
            if contains_answer(texts.get(name, key), query.answers)
            and (name in texts or key.split()[0].lower().strip(",") not in _PRONOUNS)
        )
        closed = [quote for quote in written.evidence if quote.closed]
        quotes = tuple(quote.text for quote in closed)
        quoted = {passage for quote in closed for passage in quote.passages}
        answer_is_quoted = (
            needs_no_text or kind in SHARED or any(contains_answer(text, query.answers) for text in quotes)
        )
        failure: str | None = "attribution"
        if answer_f1(written.answer, query.answers)["exact_match"] == 1:
            failure = None
        elif not all(name in keys for name in gold) or not (holding or needs_no_text):
            failure = "index"
        elif not quoted.issuperset(gold) or not answer_is_quoted:
            failure = "search"
        judged.append(JudgedAnswer(query, written.answer, failure, holding, quotes))
    return judged


def answer_parts(judged: JudgedAnswer) -> list[Part]:
    accepted = ", ".join(judged.query.answers)
    facts = [("query", query_line(judged.query)), ("answer", judged.answer or "–"), ("accepted", accepted)]
    facts += [("key", key) for key in judged.keys[:_SHOWN]] + [
        ("quote", text) for text in judged.quotes[:_SHOWN]
    ]
    verdict = judged.failure or "right"
    why = FAILURES.get(verdict, "it is an accepted answer")
    return [facts_part(*facts), text_part(f"{verdict.upper()}: {why}.")]


def failure_record(judged: Sequence[JudgedAnswer]) -> dict[str, Any]:
    """Numbers of ``queries``, ``right`` answers and each failure; ``shares`` of failures of wrong answers."""
    counts = Counter(answer.failure for answer in judged)
    wrong = max(len(judged) - counts[None], 1)
    numbers = {"queries": len(judged), "right": counts[None], **{name: counts[name] for name in FAILURES}}
    return {**numbers, "shares": {name: counts[name] / wrong for name in FAILURES}}


def format_failures(judged: Sequence[JudgedAnswer]) -> str:
    record = failure_record(judged)
    wrong = record["queries"] - record["right"]
    lines = [f"{counted(len(judged), 'query')} with gold passages and accepted answers, {wrong:,} wrong", ""]
    for name, meaning in FAILURES.items():
        lines.append(f"{name:<13}{record[name]:>7,}{100 * record['shares'][name]:7.1f}%   {meaning}")
    return "\n".join(lines)
