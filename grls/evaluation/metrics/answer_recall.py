"""Answer recall@k: does any of the first k retrieved passages contain an accepted answer?

Convention (DPR's ``has_answer``, usual in open-domain question answering): a query scores 1 if the text of at
least one of the top k passages contains at least one accepted answer, else 0; then the mean over queries.
Passage and answer are converted to Unicode NFD and lower case and split into tokens: a token is a run of
letters, digits and marks, or any other single character that is neither space nor control. A passage contains
an answer if it has the answer's tokens in the same order without a gap. So "cat" is not in "catalogue", and
"U.S." is not in "us". Unlike SQuAD's normalisation, articles and punctuation stay. A query without an
accepted answer scores 0, and an answer without a token is never contained.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

import regex

from grls.evaluation.metrics.averages import KS, cutoffs, mean, metric_class

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")  # DPR's


def padded_tokens(text: str) -> str:
    """The tokens of a text with one space before and after each; a single space for a text without tokens."""
    return " ".join(["", *_TOKEN.findall(unicodedata.normalize("NFD", text).lower()), ""])


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether a text contains one of the answers."""
    return _any_within(padded_tokens(text), [padded_tokens(answer) for answer in answers])


def answer_recall(
    texts: Sequence[Sequence[str]], answers: Sequence[Sequence[str]], ks: Sequence[int] = KS
) -> dict[str, float]:
    """Mean answer recall at each cut-off, ``{"answer_recall@1": …}``.

    ``texts`` are those of the retrieved passages of each query, best first; ``answers`` its accepted answers.
    """
    limits = cutoffs(ks)
    once = cache(padded_tokens)
    ranks = []
    for ranked, accepted in zip(texts, answers, strict=True):
        padded = [padded_tokens(answer) for answer in accepted]
        first = ranked[: limits[-1]]
        containing = (rank for rank, text in enumerate(first, 1) if _any_within(once(text), padded))
        ranks.append(next(containing, limits[-1] + 1))
    return {f"answer_recall@{k}": mean(rank <= k for rank in ranks) for k in limits}


def _any_within(text: str, answers: Sequence[str]) -> bool:
    return any(answer in text for answer in answers if answer.strip())


AnswerRecall = metric_class(answer_recall, __name__, predictions=["string"], references=["string"])
