"""The addresses that explain and answer: what the beam considers, why a passage is found, an answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from grls.api.explaining import ExplainedPassage
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, Option
from grls.explain.beams import BeamTrace, TracedStep, no_beam, trace_beam
from grls.explain.text import TEXT_ALONE, Part
from grls.runs.results import find_passages
from grls.serve.answers.answering import AnswerJob, AnswerKey, Record
from grls.serve.answers.options import AnswerMethod
from grls.serve.bodies import (
    AnswerBody,
    AnsweredBody,
    ExplainBody,
    ExplainedBody,
    PartBody,
    PieceBody,
    QuoteBody,
    SourceBody,
    StandingBody,
    TraceBody,
    TracedBeamBody,
    TracedBody,
    TracedResultBody,
    TracedStepBody,
    TracedTokenBody,
)
from grls.serve.problems import RefusalError
from grls.serve.routes.search import json_score
from grls.serve.served import Version
from grls.serve.serving import Serving, asked, check_limit, check_queries, serving
from grls.serve.waiting import outcome
from grls.serve.worker import CallJob

if TYPE_CHECKING:
    from grls.serve.answers.answering import Answering

log = logging.getLogger(__name__)


async def answer_trace(request: Request, body: TraceBody) -> TracedBody:
    """What the beam considers at each token of the next passage, and what the constraint allows."""
    state = serving(request)
    check_queries([body.query], state.limits)
    check_limit("k", body.k or 1, state.limits.k)
    version, retriever, allow = asked(state, body, body.hops)
    reason = no_beam(retriever)
    if reason is not None:
        raise RefusalError(422, reason)
    evidence = list(dict.fromkeys(body.evidence))
    job = CallJob(lambda: trace_beam(retriever, body.query, evidence, allow, body.k, body.most))
    return _sent(version, await outcome(request, version, job, state.limits.seconds))


def _sent(version: Version, trace: BeamTrace) -> TracedBody:
    results = [
        TracedResultBody(id=one.id, title=one.title, text=one.text, score=json_score(one.score))
        for one in trace.results
    ]
    return TracedBody(
        retriever=version.name,
        version=version.number,
        evidence=list(trace.evidence),
        mode=trace.mode,
        beams=trace.beams,
        k=trace.k,
        early_stop=trace.early_stop,
        vocabulary=trace.vocabulary,
        passages=trace.passages,
        done_bias=trace.done_bias,
        rescored=trace.rescored,
        steps=[_step(step) for step in trace.steps],
        cut=trace.cut,
        results=results,
    )


def _step(step: TracedStep) -> TracedStepBody:
    beams = [
        TracedBeamBody(parent=one.parent, allowed=one.allowed, mass=_number(one.mass)) for one in step.beams
    ]
    tokens = [
        TracedTokenBody(
            beam=one.beam,
            token=one.token,
            full=_number(one.full),
            constrained=_number(one.constrained),
            prior=None if one.prior is None else _number(one.prior),
            score=_number(one.score),
            passages=one.passages,
            fate=one.fate,
            unique=one.unique,
            found=list(one.found),
        )
        for one in step.tokens
    ]
    return TracedStepBody(beams=beams, tokens=tokens, candidates=step.candidates)


def _number(value: float) -> float | None:
    """A number with as many digits as a picture needs."""
    finite = json_score(value)
    return None if finite is None else round(finite, 6)


# ``POST /v1/explain``: why passages are found for a query, or why not.


async def answer_explain(request: Request, body: ExplainBody) -> ExplainedBody:
    """Where passages stand for a query, and why."""
    state = serving(request)
    check_queries([body.query], state.limits)
    version = state.find(body.retriever).version
    # A text alone may be the id of a query.
    query = Query(TEXT_ALONE, body.query, tuple(dict.fromkeys(body.gold)))
    job = CallJob(lambda: version.searcher.explain(query, depth=body.depth))
    explained = await outcome(request, version, job, state.limits.seconds)
    passages = [_standing(one) for one in explained]
    return ExplainedBody(retriever=version.name, version=version.number, passages=passages)


def _part(part: Part) -> PartBody:
    return PartBody(kind=part.kind, rows=[list(row) for row in part.rows], marked=list(part.marks))


def _standing(passage: ExplainedPassage) -> StandingBody:
    return StandingBody(
        gold=passage.gold,
        hop=passage.hop,
        rank=passage.rank,
        score=None if passage.score is None else json_score(passage.score),
        above=list(passage.above),
        report=str(passage),
        parts=[_part(one) for one in passage.parts],
    )


# ``POST /v1/answer``: a language model answers a question, with the passages that it quotes or reads.


async def answer_question(request: Request, body: AnswerBody) -> AnsweredBody:
    """The answer of a language model, with the passages that it quotes or reads."""
    state = serving(request)
    answering = _answering(state)
    method = _method(body, answering)
    _check(state, answering, body)
    version, retriever, allow = asked(state, body, body.hops)
    how = AnswerKey(method, version, retriever, allow, body.k or answering.options.k, body.max_new_tokens)
    job = AnswerJob(Query("question", body.query), "\n".join(body.history), how, answering.answer)
    record = await outcome(request, version, job, state.limits.seconds, answering.worker)
    _refuse_failed(record, method)
    corpus = version.searcher.corpus
    answered: AnsweredBody = await run_in_threadpool(_answered, how, record, corpus, state.limits.k)
    return answered


def _answering(state: Serving) -> Answering:
    if state.answering is None:
        text = f"this server has no language model: start it with {Option('answer.model')}, or send searches."
        raise RefusalError(404, text)
    return state.answering


def _method(body: AnswerBody, answering: Answering) -> AnswerMethod:
    """The method of a request.

    Raises:
        RefusalError: The server does not answer by it.
        ConfigError: The method does not take a field of the request.
    """
    known = answering.options.methods
    method = body.method or known[0]
    if method not in known:
        raise RefusalError(422, f"method: this server answers by {', '.join(known)}, got {method}.")
    if method == "riches":
        for name in ("where", "allow", "hops", "k"):
            if getattr(body, name) is not None:
                raise ConfigError(f"{name}: riches quotes from the whole corpus; leave {name} out.")
    if body.history and method != "conversational":
        raise ConfigError("history: only the method conversational reads it; leave it out.")
    return method


def _check(state: Serving, answering: Answering, body: AnswerBody) -> None:
    """Refuse what is above a limit.

    Raises:
        RefusalError: A limit is exceeded, or the question is empty.
    """
    check_queries([body.query], state.limits)
    check_limit("k", body.k or 1, state.limits.k)
    check_limit("max_new_tokens", body.max_new_tokens or 1, answering.options.tokens)
    check_limit("history: the number of characters", sum(map(len, body.history)), state.limits.characters)


def _refuse_failed(record: Record, method: str) -> None:
    """Refuse a question for which nothing was written.

    Raises:
        RefusalError: The question is too long for the model, or the model failed.
    """
    failed = record.get("failed")
    if not failed:
        return
    if "cost" not in record:  # a reader: the question is too long, or a stored key is of another text
        raise RefusalError(422, f"nothing was written for the question: {failed}.")
    log.error("the language model failed: %s", failed.partition(":")[0])  # the rest may quote the question
    text = f"the language model failed at this question (method {method}); the log of the server says why."
    raise RefusalError(503, text, {"Retry-After": "5"})


def _answered(how: AnswerKey, record: Record, corpus: Corpus, most: int) -> AnsweredBody:
    wanted = [quote["passages"][:most] for quote in record["quotes"]]
    texts = find_passages(corpus, (passage for passages in wanted for passage in passages))
    quotes = [
        QuoteBody(
            text=quote["text"],
            closed=quote["closed"],
            sources=_sources([texts[passage] for passage in passages]),
            further=len(quote["passages"]) - len(passages),
        )
        for quote, passages in zip(record["quotes"], wanted, strict=True)
    ]
    pieces = [
        PieceBody(kind=one["kind"], text=one["text"], quote=one["quote"] if one["quote"] >= 0 else None)
        for one in record["pieces"]
    ]
    return AnsweredBody(
        retriever=how.version.name,
        version=how.version.number,
        method=how.method,
        query=record["text"],
        answer=record["answer"],
        ended=record["ended"],
        pieces=pieces,
        quotes=quotes,
    )


def _sources(passages: Sequence[Passage]) -> list[SourceBody]:
    return [SourceBody(id=one.id, title=one.title, text=one.text) for one in passages]
