"""Exact match and F1 of short answers, as SQuAD's evaluation defines them.

Convention: an answer is lower-cased, its ASCII punctuation and the articles a, an, the taken out, and its
white space made single. Exact match is equality then; F1 is that of the bags of words (1 where both are
empty, 0 where one is). An answer of white space alone scores 0. Of several accepted answers the best counts;
each is averaged over queries. A query without accepted answers is refused, for nothing could be right.

An answer that has a character of a script whose words no white space parts (Chinese, Japanese, Thai, …; also
Korean) loses all punctuation and no article, and such characters are words of their own, as in the evaluation
scripts of CMRC 2018 and of MLQA for Chinese and of KorQuAD for Korean. White space between them counts for
nothing.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import datasets
import evaluate
import regex

from grls.data.words import UNSPACED, pieces
from grls.evaluation.metrics.averages import mean

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_UNSPACED = regex.compile(f"[{UNSPACED}]")
_SIGNS = regex.compile(r"\p{P}")


def normalise_answer(answer: str) -> str:
    """An answer as it is compared."""
    text = answer.lower().translate(_PUNCTUATION)
    if not text.isascii() and _UNSPACED.search(text):
        return " ".join(piece.strip() for piece in pieces(_SIGNS.sub("", text)))
    return " ".join(_ARTICLES.sub(" ", text).split())


def answer_scores(answer: str, accepted: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of one answer, in [0, 1].

    Raises:
        ValueError: Nothing is accepted.
    """
    if not accepted:
        raise ValueError("a query without accepted answers cannot be scored")
    if not answer.strip():  # also where an accepted answer is but an article
        return 0.0, 0.0
    given = normalise_answer(answer)
    pairs = [(float(given == other), _f1(given, other)) for other in map(normalise_answer, accepted)]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)


def answer_f1(answers: Sequence[str], accepted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Mean exact match and F1.

    Args:
        answers: One answer a query.
        accepted: Accepted answers of each query, in the same order of queries.

    Returns:
        ``{"exact_match": …, "f1": …}``, values in [0, 1].

    Raises:
        ValueError: A query has no accepted answer.
    """
    scores = [answer_scores(*pair) for pair in zip(answers, accepted, strict=True)]
    return {"exact_match": mean(exact for exact, _ in scores), "f1": mean(f1 for _, f1 in scores)}


def _f1(given: str, other: str) -> float:
    mine, theirs = given.split(), other.split()
    if not mine or not theirs:
        return float(mine == theirs)
    common = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * common / (len(mine) + len(theirs))


class AnswerF1(evaluate.Metric):  # type: ignore[misc]  # evaluate ships no types
    """``compute(predictions=<answers>, references=<accepted answers>)``."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=answer_f1.__doc__,
            features=datasets.Features({"predictions": text, "references": datasets.List(text)}),
        )

    def _compute(self, predictions: list[str], references: list[list[str]]) -> dict[str, Any]:
        return answer_f1(predictions, references)
