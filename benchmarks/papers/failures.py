"""Why answers that quote are wrong: failures of index, search and attribution (arXiv 2407.00361, table 7).

    python -m benchmarks.papers.failures --answers runs/riches.answers.jsonl --output runs/failures.json

An answer is wrong if it does not match exactly. Its failure is the first that holds of:

=========== ==========================================================================================
index       a gold passage has no key, or no key of the gold passages holds an accepted answer and stands
            alone (begins with no pronoun); a title stands for its passages: these have to hold it
search      not every gold passage was quoted, or no quote holds an accepted answer
attribution both were, and the answer is another one
=========== ==========================================================================================

Where all accepted answers are yes or no, no key has to hold them. The paper told failures by reading; the
rules are ours. Answers of other programs are told as well: their keys are the passages with their titles,
as they were read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, get_args

from jsonargparse import auto_cli

from grls.answer.riches.keys import key_texts
from grls.answer.riches.options import KeyKind
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.errors import ConfigError, DataError
from grls.evaluation.answers import Answered, read_answers, refuse_foreign_answers
from grls.evaluation.metrics import answer_f1, contains_answer, normalise_answer
from grls.io.files import write_json
from grls.runs.portions import ANSWERS, read_info, split_asked

FAILURES = ("index", "search", "attribution")
_PRONOUNS = frozenset(
    ("he", "she", "it", "they", "his", "her", "its", "their", "this", "that", "these", "those", "there")
)


def judge_answers(answers: str, data: str | None, propositions: str | None) -> dict[str, str]:
    """Query -> ``right``, or its failure, of the queries that have accepted answers and gold passages.

    Split, limit, the kind of the keys, and a data set that is None, are those of the manifest of the run.
    """
    info, answered = read_info(f"{answers.removesuffix(ANSWERS)}.jsonl"), read_answers(answers)
    kind: Any = None if info is None else info.options.get("keys")
    kind = kind if kind in get_args(KeyKind) else "titled"
    if (kind == "proposition") != (propositions is not None):
        raise ConfigError(
            f"the keys of {answers} are of the kind {kind}: --propositions is of propositions alone."
        )
    data = data or ("" if info is None else info.data)
    if not data or not Path(data).is_dir():
        raise ConfigError(f"{answers}: of which data set are these answers? give --data.")
    corpus, limit = Corpus.read(data), None if info is None else info.limit
    refuse_foreign_answers(answers, info, corpus)
    queries, qrels = read_split(data, split_asked(answers, info, None), corpus, limit)
    golds = {query.id: gold for query in queries if query.answers and (gold := gold_passages(query, qrels))}
    if answered.keys().isdisjoint(golds):
        raise DataError("no query with accepted answers and gold passages stands in these answers.", answers)
    names = {name for gold in golds.values() for name in gold}
    numbered = zip(corpus.numbers(sorted(names)), sorted(names), strict=True)
    numbers = {number: name for number, name in numbered if number is not None}
    keys: dict[str, list[str]] = {}
    for text, number in key_texts(corpus, kind, propositions):
        if number in numbers:
            keys.setdefault(numbers[number], []).append(text)
    found = corpus.passages(list(numbers)) if kind == "title" else []
    texts = {passage.id: passage.titled for passage in found}
    judged = {}
    for query in (query for query in queries if query.id in golds):
        gold, written = golds[query.id], answered.get(query.id, Answered())
        needs_no_text = {normalise_answer(answer) for answer in query.answers} <= {"yes", "no"}
        leads = any(
            contains_answer(texts.get(name, key), query.answers)
            and (name in texts or key.split()[0].lower().strip(",") not in _PRONOUNS)
            for name in gold
            for key in keys.get(name, ())
        )
        quotes = [quote for quote in written.evidence if quote.closed]
        quoted = {passage for quote in quotes for passage in quote.passages}
        answer_is_quoted = needs_no_text or kind == "title"
        answer_is_quoted |= any(contains_answer(quote.text, query.answers) for quote in quotes)
        judged[query.id] = "attribution"
        if answer_f1(written.answer, query.answers)["exact_match"] == 1:
            judged[query.id] = "right"
        elif not all(name in keys for name in gold) or not (leads or needs_no_text):
            judged[query.id] = "index"
        elif not quoted.issuperset(gold) or not answer_is_quoted:
            judged[query.id] = "search"
    return judged


def main(answers: str, output: str, data: str | None = None, propositions: str | None = None) -> None:
    """Count the failures of wrong answers.

    Args:
        answers: NAME.answers.jsonl of `grls answer`; NAME.info.json beside it says what made it.
        output: JSON file: numbers of queries, right answers and failures, their shares of wrong answers, and
            the verdict of each query.
        data: Data set folder; null: that of the manifest.
        propositions: The keys of the kind proposition that the answers quote.
    """
    judged = judge_answers(answers, data, propositions)
    counts = Counter(judged.values())
    wrong = max(len(judged) - counts["right"], 1)
    shares = {name: counts[name] / wrong for name in FAILURES}
    numbers = {"queries": len(judged), **{name: counts[name] for name in ("right", *FAILURES)}}
    write_json(output, {**numbers, "shares": shares, "answers": judged})
    print(f"{len(judged):,} queries with gold passages and accepted answers, {counts['right']:,} right")
    for name in FAILURES:
        print(f"{name:<13}{counts[name]:>7,}{100 * shares[name]:7.1f}%")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
