"""Exact match and F1 of short answers, as SQuAD's evaluation defines them.

Convention: an answer is lower-cased, ASCII punctuation and the articles a, an, the are removed, and white
space becomes single. Exact match is equality after that; F1 compares the bags of words (1 if both are empty,
0 if one is). An answer of white space only scores 0. The best of several accepted answers counts; both scores
are averaged over queries. A query without accepted answers is refused, since no answer could be right.

If an answer has a character of a script without spaces between words (Chinese, Japanese, Thai, …; also
Korean), all punctuation and no article is removed, and each such character is a word, as in the evaluation
scripts of CMRC 2018 and MLQA for Chinese and of KorQuAD for Korean. White space between such characters does
not count.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import regex

from grls.data.words import UNSPACED, pieces
from grls.evaluation.metrics.averages import mean, metric_class

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_UNSPACED = regex.compile(f"[{UNSPACED}]")
_SIGNS = regex.compile(r"\p{P}")


def normalise_answer(answer: str) -> str:
    """An answer in the form in which answers are compared."""
    text = answer.lower().translate(_PUNCTUATION)
    if not text.isascii() and _UNSPACED.search(text):
        return " ".join(piece.strip() for piece in pieces(_SIGNS.sub("", text)))
    return " ".join(_ARTICLES.sub(" ", text).split())


def answer_scores(answer: str, accepted: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of one answer, in [0, 1]."""
    if not accepted:
        raise ValueError("a query without accepted answers cannot be scored")
    if not answer.strip():  # even if an accepted answer is only an article
        return 0.0, 0.0
    normalised = normalise_answer(answer)
    pairs = [
        (float(normalised == other), bag_f1(normalised.split(), other.split()))
        for other in map(normalise_answer, accepted)
    ]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)


def answer_f1(answers: Sequence[str], accepted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Mean exact match and F1, ``{"exact_match": …, "f1": …}``."""
    scores = [answer_scores(*pair) for pair in zip(answers, accepted, strict=True)]
    return {"exact_match": mean(exact for exact, _ in scores), "f1": mean(f1 for _, f1 in scores)}


def bag_f1(words: Sequence[str], accepted: Sequence[str]) -> float:
    """F1 of two bags of words: 1 if both are empty, 0 if only one is."""
    if not words or not accepted:
        return float(not words and not accepted)
    return 2 * _common(words, accepted) / (len(words) + len(accepted))


def share_within(answer: str, text: str) -> float:
    """The share of an answer's words that a text has, in [0, 1]: the precision of the answer in the text.

    Both are normalised; a word that the answer has twice must be twice in the text. An answer without words
    has the share 0.
    """
    words = normalise_answer(answer).split()
    return _common(words, normalise_answer(text).split()) / len(words) if words else 0.0


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    return sum((Counter(first) & Counter(second)).values())


AnswerF1 = metric_class(answer_f1, __name__, predictions="string", references=["string"])
