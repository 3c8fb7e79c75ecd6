"""The baselines of arXiv 2212.14024: the model alone, retrieve-then-read, self-ask.

They are DSPy modules; their predictions have the same fields as those of the programs.
"""

from __future__ import annotations

from typing import Any

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.programs import Answer, answered, context, in_turn, stops
from grls.answer.dsp.retrieval import Retrieval, RetrievedPassage
from grls.answer.dsp.trace import note
from grls.retrieve.queries import check_counts


class Ask(dspy.Signature):
    """Answer the question in a few words."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class FollowUp(dspy.Signature):
    """Write the follow-up question to ask next, or N/A if the question can be answered now."""

    question: str = dspy.InputField()
    known: list[str] = dspy.InputField(desc="follow-up questions and their answers so far")
    follow_up: str = dspy.OutputField()


class Conclude(dspy.Signature):
    """Answer the question in a few words, from the follow-up questions and their answers."""

    question: str = dspy.InputField()
    known: list[str] = dspy.InputField(desc="follow-up questions and their answers")
    answer: str = dspy.OutputField()


class Vanilla(dspy.Module):
    """The model alone."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict(Ask)

    def forward(self, question: str) -> Any:
        """Answer a question."""
        return answered(self.answer(question=question), (), ())


class RetrieveThenRead(dspy.Module):
    """Retrieve for the question, then answer from the passages.

    Args:
        retrieval: The retriever, with the number of passages to read.
    """

    def __init__(self, retrieval: Retrieval):
        super().__init__()
        self.retrieval = retrieval
        self.answer = dspy.Predict(Answer)

    def forward(self, question: str) -> Any:
        """Answer a question."""
        passages = self.retrieval.find(question)
        return answered(self.answer(context=context(passages), question=question), passages, passages)


class SelfAsk(dspy.Module):
    """Self-ask (arXiv 2210.03350) with retrieval: retrieve for each follow-up question and answer it.

    It ends with N/A, an empty follow-up, or one that was asked before; then the model writes the answer.

    Args:
        retrieval: The retriever, with the number of passages to read for a follow-up.
        hops: Most follow-ups.

    Raises:
        ConfigError: ``hops`` is below 1.
    """

    def __init__(self, retrieval: Retrieval, hops: int = 2):
        super().__init__()
        check_counts(hops=hops)
        self.retrieval = retrieval
        self.hops = hops
        self.follow_up = dspy.Predict(FollowUp)
        self.reply = dspy.Predict(Answer)
        self.answer = dspy.Predict(Conclude)

    def forward(self, question: str) -> Any:
        """Answer a question."""
        hops: list[list[RetrievedPassage]] = []
        known: list[str] = []
        asked: set[str] = set()
        for hop in range(1, self.hops + 1):
            follow = self.follow_up(question=question, known=list(known)).follow_up
            if stops(follow) or follow.casefold() in asked:
                note("stop", hop=hop, queries=[follow])
                break
            asked.add(follow.casefold())
            hops.append(self.retrieval.find(follow))
            reply = self.reply(context=context(hops[-1]), question=follow).answer
            known.append(f"{follow} {reply}")
        passages = in_turn(hops)
        return answered(self.answer(question=question, known=list(known)), passages, passages)
