"""AutoAIS: the share of answers that follow from their evidence, as a model of entailment judges.

AIS means "attributable to identified sources"; Auto- means that a model judges, not a person (attributed
question answering, arXiv 2212.08037). The premise is the joined evidence of a query; the hypothesis states
question and answer in one sentence (:func:`hypothesis`). RICHES (arXiv 2407.00361) swaps the two names, but
judges the same pair: all quoted keys and that sentence, without thoughts.

Convention: a query without an answer or without evidence scores 0 and is never skipped. The answer need not
be right: a wrong answer that its evidence supports scores 1. The figure depends on the model, so name the
model beside the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grls.evaluation.metrics.averages import mean, metric_class
from grls.models.entailment import Entailment, load_entailment


def hypothesis(question: str, answer: str) -> str:
    """The sentence that must follow from the evidence."""
    return f"The answer to the question '{question.strip()}' is '{answer.strip()}'"


def premise(evidence: Sequence[str]) -> str:
    """Pieces of evidence as one text, in their order, each once."""
    return "\n".join(dict.fromkeys(text.strip() for text in evidence if text.strip()))


def attributed(
    questions: Sequence[str], answers: Sequence[str], evidence: Sequence[Sequence[str]], judge: Entailment
) -> list[bool]:
    """Whether each answer follows from its evidence; False without an answer or without evidence.

    Args:
        questions: One a query.
        answers: One a query; empty for a query without an answer.
        evidence: The texts of each query's evidence.
        judge: The model, see :func:`grls.models.entailment.load_entailment`.
    """
    triples = list(zip(questions, answers, map(premise, evidence), strict=True))
    judged = [n for n, (_, answer, text) in enumerate(triples) if answer.strip() and text]
    entailed = judge.entails(
        [triples[n][2] for n in judged], [hypothesis(triples[n][0], triples[n][1]) for n in judged]
    )
    follows = dict(zip(judged, entailed, strict=True))
    return [follows.get(n, False) for n in range(len(triples))]


def _of_records(
    answers: Sequence[str],
    references: Sequence[Mapping[str, Any]],
    nli: str,
    device: str = "auto",
    batch_size: int = 16,
) -> dict[str, float]:
    """AutoAIS by a folder or hub name of a model of entailment, of ``{"question", "evidence"}`` a query."""
    questions, evidence = ([reference[key] for reference in references] for key in ("question", "evidence"))
    judge = load_entailment(nli, device, batch_size)
    return {"autoais": mean(attributed(questions, answers, evidence, judge))}


AutoAIS = metric_class(
    _of_records,
    __name__,
    predictions="string",
    references={"question": "string", "evidence": ["string"]},
)
