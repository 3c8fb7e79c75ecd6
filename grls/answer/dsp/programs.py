"""The three programs of arXiv 2212.14024: open-domain, multi-hop and conversational questions.

Each is a ``dspy.Module``: its predictors take demonstrations as DSPy's optimizers give them, and its
prediction has ``answer``, ``found`` (the ranking, best first) and ``read`` (the passages that the answer was
written from; both :class:`~grls.answer.dsp.retrieval.RetrievedPassage`). Where nothing was found, the model
is told so and answers all the same. We write our own instructions; the paper's demonstrations come from a
training split.

The defaults are small. The paper's read 7 passages and take the majority of 20 samples (open-domain);
write 10 queries a hop for two hops, keep the summary of the highest average log-probability, here the first,
and read 5 passages in all, here k of a hop (multi-hop); fuse 10 rewrites with the question as it is, here the
rewrites alone (conversational).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grls.answer.dsp.branch import sampled
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.retrieval import Retrieval, RetrievedPassage
from grls.answer.dsp.trace import note
from grls.data.types import Hit
from grls.retrieve.fusion.fuse import interleave
from grls.retrieve.queries import check_counts

NOTHING = "nothing was found"
STOP = "N/A"


class SearchQuery(dspy.Signature):
    """Write a search query that finds passages to answer the question."""

    question: str = dspy.InputField()
    query: str = dspy.OutputField()


class NextQuery(dspy.Signature):
    """Sum up in one sentence what the context says about the question; then write the search query for what is still missing, or N/A if nothing is."""  # noqa: E501

    notes: list[str] = dspy.InputField()
    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    summary: str = dspy.OutputField()
    query: str = dspy.OutputField()


class Rewrite(dspy.Signature):
    """Rewrite the last question of a conversation as a search query that can be understood without it."""

    history: str = dspy.InputField()
    question: str = dspy.InputField()
    query: str = dspy.OutputField()


class Answer(dspy.Signature):
    """Answer the question in a few words, from the context."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class ConversationAnswer(dspy.Signature):
    """Answer the last question of a conversation in a sentence, from the context."""

    context: list[str] = dspy.InputField()
    history: str = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class OpenQA(dspy.Module):
    """Open-domain questions: retrieve for the question and for queries that the model writes, then answer.

    Args:
        retrieval: What retrieves, and how many passages are read.
        queries: Queries that the model writes; 0 retrieves for the question alone. What is found for them and
            for the question is fused.
        temperature: Of the queries, where there are several.

    Raises:
        ConfigError: ``queries`` is negative.
    """

    def __init__(self, retrieval: Retrieval, queries: int = 1, temperature: float = 0.7):
        super().__init__()
        check_counts(queries=queries + 1)
        self.retrieval = retrieval
        self.queries = queries
        self.temperature = temperature
        self.query = dspy.Predict(SearchQuery)
        self.answer = dspy.ChainOfThought(Answer)

    def forward(self, question: str) -> Any:
        """Answer a question."""
        written: list[Any] = []
        if self.queries:
            written = sampled(self.query, self.queries, self.temperature, question=question)
        found = self.retrieval.fused([question, *(one.query for one in written)])
        return answered(self.answer(context=context(found), question=question), found, found)


class MultiHop(dspy.Module):
    """Questions that take several passages: a query, a summary of what it found, the next query, ….

    A hop is not taken where its query is N/A or empty (of several drawn, half of them): the answer is written
    instead, from the summaries and from what the last hop found. The first hop is always taken, for the
    question itself where no query is written.

    Args:
        retrieval: What retrieves, and how many passages a hop reads.
        hops: Most hops.
        queries: Queries of a hop; several are drawn at a temperature, each with a summary, of which the first
            is kept, and what they find is fused.
        temperature: Of these.

    Raises:
        ConfigError: A count is below 1.
    """

    def __init__(self, retrieval: Retrieval, hops: int = 2, queries: int = 1, temperature: float = 0.7):
        super().__init__()
        check_counts(hops=hops, queries=queries)
        self.retrieval = retrieval
        self.hops = hops
        self.queries = queries
        self.temperature = temperature
        self.first = dspy.Predict(SearchQuery)
        self.next = dspy.Predict(NextQuery)
        self.answer = dspy.ChainOfThought(Answer)

    def forward(self, question: str) -> Any:
        """Answer a question."""
        drawn = sampled(self.first, self.queries, self.temperature, question=question)
        hops = [self.retrieval.fused(_searched(drawn) or [question])]
        notes: list[str] = []
        while len(hops) < self.hops:
            asked = {"notes": list(notes), "context": context(hops[-1]), "question": question}
            drawn = sampled(self.next, self.queries, self.temperature, **asked)
            notes.append(drawn[0].summary)
            queries = _searched(drawn)
            if 2 * len(queries) <= len(drawn):
                note("stop", hop=len(hops) + 1, queries=[one.query for one in drawn])
                break
            hops.append(self.retrieval.fused(queries))
        given = self.answer(context=[*notes, *context(hops[-1])], question=question)
        found = in_turn(hops)
        return answered(given, found, found)


class Conversational(dspy.Module):
    """The last question of a conversation: rewritten so that it stands alone, retrieved for, answered.

    The first question of one stands alone already.

    Args:
        retrieval: What retrieves, and how many passages are read.
        queries: Rewritings; several are drawn at a temperature, and what they find is fused.
        temperature: Of these.

    Raises:
        ConfigError: ``queries`` is below 1.
    """

    def __init__(self, retrieval: Retrieval, queries: int = 1, temperature: float = 0.7):
        super().__init__()
        check_counts(queries=queries)
        self.retrieval = retrieval
        self.queries = queries
        self.temperature = temperature
        self.rewrite = dspy.Predict(Rewrite)
        self.answer = dspy.ChainOfThought(ConversationAnswer)

    def forward(self, question: str, history: str = "") -> Any:
        """Answer a question; ``history`` is what was said before, a turn a line."""
        asked = {"history": history, "question": question}
        written = [question]
        if history.strip():
            drawn = sampled(self.rewrite, self.queries, self.temperature, **asked)
            written = _searched(drawn) or [question]
        found = self.retrieval.fused(written)
        return answered(self.answer(context=context(found), **asked), found, found)


def stops(query: str) -> bool:
    """Whether a query says that none is needed."""
    return query.strip().strip(".'\"`").casefold() in ("", STOP.casefold())


def _searched(drawn: Sequence[Any]) -> list[str]:
    """The queries that are to be retrieved for."""
    return [one.query for one in drawn if not stops(one.query)]


def context(found: Sequence[RetrievedPassage]) -> list[str]:
    """What a model is told of what was found."""
    return [one.text for one in found] or [NOTHING]


def in_turn(hops: Sequence[Sequence[RetrievedPassage]]) -> list[RetrievedPassage]:
    """The passages of all hops as one ranking: the best of each hop in turn."""
    texts = {one.id: one.text for hop in hops for one in hop}
    order = interleave([[Hit(one.id, one.score) for one in hop] for hop in hops])
    return [RetrievedPassage(hit.id, texts[hit.id], hit.score, 0.0) for hit in order]


def answered(given: Any, found: Sequence[RetrievedPassage], read: Sequence[RetrievedPassage]) -> Any:
    """A program's prediction."""
    return dspy.Prediction(answer=given.answer, found=list(found), read=list(read))
