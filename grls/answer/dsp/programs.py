"""The three programs of arXiv 2212.14024: open-domain, multi-hop and conversational questions; its baselines.

Each is a ``dspy.Module``: its predictors take demonstrations from DSPy's optimizers, and its prediction has
``answer``, ``found`` (the ranking, best first) and ``read`` (the passages that the answer was written from;
both are lists of :class:`~grls.answer.dsp.retrieval.RetrievedPassage`). If nothing was retrieved, the context
says so and the model still answers. The instructions are ours; the paper takes demonstrations from a training
split.

The defaults are small; the paper's numbers are in ``configs/paper/dsp-….yaml``. Its open-domain program reads
7 passages and takes the majority of 20 samples. Its multi-hop program writes 10 queries a hop for two hops,
keeps the summary of the highest average log-probability and reads 5 passages in all. Its conversational
program fuses 10 rewrites with the question.

:class:`Branch` is DSP's ``branch``: several runs of a program or baseline at a temperature, and their
majority (DSPy's ``majority`` counts the answers) or a choice among the commonest answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.options import Summary, Vote
from grls.answer.dsp.patience import LIKELIHOOD
from grls.answer.dsp.retrieval import Retrieval, RetrievedPassage
from grls.answer.dsp.trace import note
from grls.data.types import Hit
from grls.errors import ConfigError, Option, at_least, bounded
from grls.evaluation.metrics.answer_f1 import normalise_answer
from grls.retrieve.fusion.fuse import interleave
from grls.retrieve.queries import check_counts

NOTHING = "nothing was found"
STOP = "N/A"

SPREAD = 1000
"""Distance between the seeds of two branches; the draws within a branch take the seeds between."""
CHOICES = 4
"""Most answers to choose from, as in the paper."""


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
    answer from the summaries and passages. The first hop is always taken; it retrieves
    for the question itself if the model writes no query.

    Args:
        retrieval: The retriever, with the number of passages to read in a hop.
        hops: Most hops.
        queries: Queries of a hop. Several queries are drawn at a temperature, each with a summary; one
            summary is kept, and the rankings are fused.
        temperature: Temperature of several queries.
        summary: The summary that is kept: the ``first``, or the ``likeliest``, of the highest average
            log-probability over the tokens of summary and query (arXiv 2212.14024, section 4).
        passages: Most passages of all hops that the answer is written from; None: those of the last hop.

    Raises:
        ConfigError: A count is below 1; or, when it runs, the model gives no log-probabilities.
    """

    def __init__(
        self,
        retrieval: Retrieval,
        hops: int = 2,
        queries: int = 1,
        temperature: float = 0.7,
        summary: Summary = "first",
        passages: int | None = None,
    ):
        super().__init__()
        check_counts(hops=hops, queries=queries, **({} if passages is None else {"passages": passages}))
        self.summary = summary
        self.passages = passages
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
            scored = self.summary == "likeliest"
            drawn = sampled(self.next, self.queries, self.temperature, scored, **asked)
            notes.append((likeliest(drawn) if scored else drawn[0]).summary)
            queries = _searched(drawn)
            if 2 * len(queries) <= len(drawn):
                note("stop", hop=len(hops) + 1, queries=[one.query for one in drawn])
                break
            hops.append(self.retrieval.fused(queries))
        found = in_turn(hops)
        read = hops[-1] if self.passages is None else found[: self.passages]
        prediction = self.answer(context=[*notes, *context(read)], question=question)
        return answered(prediction, found, found if self.passages is None else read)


class Conversational(dspy.Module):
    """The last question of a conversation: rewrite it so that it stands alone, retrieve for it, answer it.

    The first question of a conversation stands alone and is not rewritten.

    Args:
        retrieval: The retriever, with the number of passages to read.
        queries: Number of rewrites. Several are drawn at a temperature, and their rankings are fused.
        temperature: Temperature of several rewrites.
        fuse_question: Also retrieve for the question as it stands (arXiv 2212.14024, section 4).

    Raises:
        ConfigError: ``queries`` is below 1.
    """

    def __init__(
        self,
        retrieval: Retrieval,
        queries: int = 1,
        temperature: float = 0.7,
        fuse_question: bool = False,
    ):
        super().__init__()
        check_counts(queries=queries)
        self.fuse_question = fuse_question
        self.retrieval = retrieval
        self.queries = queries
        self.temperature = temperature
        self.rewrite = dspy.Predict(Rewrite)
        self.answer = dspy.ChainOfThought(ConversationAnswer)

    def forward(self, question: str, history: str = "") -> Any:
        """Answer a question; ``history`` holds the turns before it, a turn a line."""
        asked: dict[str, Any] = {"history": history, "question": question}
        written = [question]
        if history.strip():
            drawn = sampled(self.rewrite, self.queries, self.temperature, **asked)
            written = _searched(drawn)
            if self.fuse_question or not written:
                written.append(question)
        passages = self.retrieval.fused(written)
        return answered(self.answer(context=context(passages), **asked), passages, passages)


class Choose(dspy.Signature):
    """Choose the right answer to the question from the choices, from the context; write the chosen answer."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    choices: list[str] = dspy.InputField()
    answer: str = dspy.OutputField()


class Branch(dspy.Module):
    """Runs a program several times with different seeds and returns the prediction of the winning answer.

    Answers are compared as exact match does. Among equally common answers the earliest wins. A failed run is
    noted and left out.

    With the vote ``choice`` the model chooses among the four commonest answers (arXiv 2212.14024, section 3).
    It reads passages that are retrieved for the question followed by each of them, fused. The prediction
    keeps its ranking, and ``read`` are these passages. If the model names no choice, the commonest one wins.

    Args:
        program: The program; a predictor with its own LM is not sampled.
        n: Number of runs; 1 runs the program as it is.
        temperature: Temperature of the model.
        vote: How the answer is found.

    Raises:
        ConfigError: ``n`` is below 1, the temperature is not above 0, or the vote is ``choice`` and the
            program retrieves nothing, or its question does not stand alone.
    """

    def __init__(self, program: Any, n: int = 1, temperature: float = 0.7, vote: Vote = "majority"):
        super().__init__()
        at_least(1, n=n)
        bounded("(0, inf)", temperature=temperature)
        if vote == "choice" and (isinstance(program, Conversational) or not hasattr(program, "retrieval")):
            raise ConfigError(
                f"{Option('dsp.vote', 'choice')} retrieves for the question with each answer, and this "
                "program retrieves nothing or its question is part of a conversation: take another program "
                f"(openqa, multihop, retrieve-then-read, self-ask), or {Option('dsp.vote', 'majority')}."
            )
        self.program = program
        self.n = n
        self.temperature = temperature
        self.vote = vote
        self.choose = dspy.Predict(Choose)

    def forward(self, **inputs: Any) -> Any:
        """The winning run's prediction.

        Raises:
            DSPyError: Every run failed; this is the last error.
        """
        if self.n == 1:
            return self.program(**inputs)
        lm = dspy.settings.lm
        runs, failure = [], None
        for number in range(self.n):
            note("branch", number=number)
            try:
                with dspy.context(lm=lm.copy(temperature=self.temperature, seed=SPREAD * (number + 1))):
                    runs.append(self.program(**inputs))
            except dspy.DSPyError as error:
                failure = error
        if failure is not None and not runs:
            raise failure
        answers = [run.answer for run in runs]
        won = dspy.majority([{"answer": answer} for answer in answers], normalize=_normalised).answer
        note("majority", answers=answers, answer=won)
        if self.vote == "choice" and len(choices := commonest(answers)) > 1:
            question = inputs["question"]
            passages = self.program.retrieval.fused([f"{question} {answer}" for answer in choices])
            said = self.choose(context=context(passages), question=question, choices=choices).answer
            won = chosen(said, choices) or won
            note("choice", choices=choices, answer=won)
            prediction = next(run for run in runs if run.answer == won)
            return answered(prediction, prediction.found, passages)
        return next(run for run in runs if run.answer == won)


def commonest(answers: Sequence[str]) -> list[str]:
    """The commonest answers, at most four, each as it was first written; empty ones are left out."""
    counts = Counter(filter(None, map(_normalised, answers)))  # equal counts: the earliest first
    return [next(a for a in answers if _normalised(a) == key) for key, _ in counts.most_common(CHOICES)]


def chosen(said: str, choices: Sequence[str]) -> str | None:
    """The choice that a model named by its text, its number (``[2]``) or both; None for anything else."""
    texts = {_normalised(choice): choice for choice in choices}
    numbered = re.fullmatch(r"\W*(\d+)\W*(.*)", said, re.DOTALL)
    if _normalised(said) in texts or numbered is None:
        return texts.get(_normalised(said))
    number, text = int(numbered[1]), _normalised(numbered[2])
    by_number = choices[number - 1] if 0 < number <= len(choices) else None
    return by_number if text is None else texts.get(text)


def sampled(
    predict: Callable[..., Any], n: int, temperature: float, scored: bool = False, **inputs: Any
) -> list[Any]:
    """Predictions of one predictor: a single plain call for n = 1, else n draws at a temperature.

    Args:
        predict: The predictor.
        n: Number of predictions.
        temperature: Temperature of several draws.
        scored: Ask the model for the log-probabilities of several draws; see :func:`likeliest`.
        inputs: The predictor's inputs.
    """
    if n == 1:
        return [predict(**inputs)]
    first = int(dspy.settings.lm.kwargs.get("seed") or 0)
    wish = {"logprobs": True} if scored else {}
    draws = ({"temperature": temperature, "seed": first + number, **wish} for number in range(1, n + 1))
    return [predict(**inputs, config=draw) for draw in draws]


def likeliest(drawn: Sequence[Any]) -> Any:
    """The prediction of the highest average log-probability of its tokens; of equal ones the first.

    Raises:
        ConfigError: There are several, and the model gave no log-probabilities for one.
    """
    if len(drawn) == 1:
        return drawn[0]
    scores: list[Any] = [getattr(one, LIKELIHOOD, None) for one in drawn]
    if None in scores:
        raise ConfigError(
            f"the language model {dspy.settings.lm.model} gives no log-probabilities of its tokens, which "
            f"{Option('dsp.summary', 'likeliest')} compares: take {Option('dsp.summary', 'first')}, or a "
            "model that gives them (one in this process, or an OpenAI-compatible endpoint with logprobs)."
        )
    return drawn[scores.index(max(scores))]


def _normalised(answer: str) -> str | None:
    return normalise_answer(answer) or None


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
