"""Novel-F1 of answers in conversations: F1 over the words that the questions have not said already.

Convention (arXiv 2212.14024, section 4: nF1): answers are normalised as for F1
(:mod:`grls.evaluation.metrics.answer_f1`). Then the function words of English and all words of the questions
so far are removed from the answer and from the accepted one, and the bags of words that remain are compared
(1 if both are empty, 0 if one is). An answer of white space only scores 0. The best of several accepted
answers counts; the mean is over queries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grls.data.words import function_words
from grls.evaluation.metrics.answer_f1 import bag_f1, normalise_answer
from grls.evaluation.metrics.averages import mean, metric_class


def novel_f1(
    answers: Sequence[str], accepted: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Mean novel-F1, ``{"novel_f1": …}``.

    ``questions``: those of each query's conversation, the last one included.
    """
    stop = {normalise_answer(word) for word in function_words("en")}
    scores = []
    for answer, accepted_answers, turns in zip(answers, accepted, questions, strict=True):
        if not accepted_answers:
            raise ValueError("a query without accepted answers cannot be scored")
        known = stop.union(*(normalise_answer(question).split() for question in turns))
        novel = _novel(answer, known)
        best = max(bag_f1(novel, _novel(right, known)) for right in accepted_answers)
        scores.append(best if answer.strip() else 0.0)
    return {"novel_f1": mean(scores)}


def _novel(text: str, known: Collection[str]) -> list[str]:
    return [word for word in normalise_answer(text).split() if word not in known]


NovelF1 = metric_class(novel_f1, __name__, predictions="string", references=["string"], questions=["string"])
