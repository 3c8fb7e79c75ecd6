"""The three programs of arXiv 2212.14024: open-domain, multi-hop and conversational questions.

Each is a ``dspy.Module``: its predictors take demonstrations from DSPy's optimizers, and its prediction has
``answer``, ``found`` (the ranking, best first) and ``read`` (the passages that the answer was written from;
both are lists of :class:`~grls.answer.dsp.retrieval.RetrievedPassage`). If nothing was retrieved, the context
says so and the model still answers. The instructions are ours; the paper takes demonstrations from a training
split.

The defaults are small. The paper's open-domain program reads 7 passages and takes the majority of 20 samples.
Its multi-hop program writes 10 queries a hop for two hops, keeps the summary of the highest average
log-probability (here: the first) and reads 5 passages in all (here: k a hop). Its conversational program
fuses 10 rewrites with the question (here: the rewrites only).
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
        retrieval: The retriever, with the number of passages to read.
        queries: Queries that the model writes; 0 retrieves for the question only. The rankings of these
            queries and of the question are fused.
        temperature: Temperature of the queries, if there are several.

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
        passages = self.retrieval.fused([question, *(one.query for one in written)])
        return answered(self.answer(context=context(passages), question=question), passages, passages)


class MultiHop(dspy.Module):
    """Questions that need several passages: a query, a summary of its passages, the next query, ….

    The hops end if a query is N/A or empty (for several draws: half of them). Then the model writes the
    answer from the summaries and the passages of the last hop. The first hop is always taken; it retrieves
    for the question itself if the model writes no query.

    Args:
        retrieval: The retriever, with the number of passages to read in a hop.
        hops: Most hops.
        queries: Queries of a hop. Several queries are drawn at a temperature, each with a summary; the first
            summary is kept, and the rankings are fused.
        temperature: Temperature of several queries.

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
        prediction = self.answer(context=[*notes, *context(hops[-1])], question=question)
        passages = in_turn(hops)
        return answered(prediction, passages, passages)


class Conversational(dspy.Module):
    """The last question of a conversation: rewrite it so that it stands alone, retrieve for it, answer it.

    The first question of a conversation stands alone and is not rewritten.

    Args:
        retrieval: The retriever, with the number of passages to read.
        queries: Number of rewrites. Several are drawn at a temperature, and their rankings are fused.
        temperature: Temperature of several rewrites.

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
        """Answer a question; ``history`` holds the turns before it, a turn a line."""
        asked = {"history": history, "question": question}
        written = [question]
        if history.strip():
            drawn = sampled(self.rewrite, self.queries, self.temperature, **asked)
            written = _searched(drawn) or [question]
        passages = self.retrieval.fused(written)
        return answered(self.answer(context=context(passages), **asked), passages, passages)


def stops(query: str) -> bool:
    """Whether a query says that no query is needed."""
    return query.strip().strip(".'\"`").casefold() in ("", STOP.casefold())


def _searched(drawn: Sequence[Any]) -> list[str]:
    """The queries to retrieve for."""
    return [one.query for one in drawn if not stops(one.query)]


def context(found: Sequence[RetrievedPassage]) -> list[str]:
    """Passages as the context of a prompt."""
    return [one.text for one in found] or [NOTHING]


def in_turn(hops: Sequence[Sequence[RetrievedPassage]]) -> list[RetrievedPassage]:
    """The passages of all hops as one ranking: the best of each hop in turn."""
    texts = {one.id: one.text for hop in hops for one in hop}
    order = interleave([[Hit(one.id, one.score) for one in hop] for hop in hops])
    return [RetrievedPassage(hit.id, texts[hit.id], hit.score, 0.0) for hit in order]


def answered(written: Any, found: Sequence[RetrievedPassage], read: Sequence[RetrievedPassage]) -> Any:
    """A program's prediction."""
    return dspy.Prediction(answer=written.answer, found=list(found), read=list(read))
