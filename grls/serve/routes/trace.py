"""The addresses that explain and answer: what the beam considers, why a passage is found, an answer."""

from __future__ import annotations

import logging

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from grls.api.explaining import ExplainedQuery
from grls.data.types import Query
from grls.errors import ConfigError, Option
from grls.explain.beams import BeamTrace, no_beam, trace_beam
from grls.explain.text import TEXT_ALONE
from grls.runs.results import find_passages
from grls.serve.answers.answering import AnswerJob, AnswerKey, Record
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
from grls.serve.serving import asked, check_limit, check_queries, serving
from grls.serve.waiting import outcome
from grls.serve.worker import CallJob

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
    trace: BeamTrace = await outcome(request, version, job, state.limits.seconds)
    steps = []
    for step in trace.steps:
        beams = [TracedBeamBody(**beam._asdict() | {"mass": _number(beam.mass)}) for beam in step.beams]
        tokens = []
        for token in step.tokens:
            numbers = {name: _number(getattr(token, name)) for name in _LOGARITHMS}
            tokens.append(TracedTokenBody(**token._asdict() | numbers | {"found": list(token.found)}))
        steps.append(TracedStepBody(beams=beams, tokens=tokens, candidates=step.candidates))
    results = [TracedResultBody(**hit._asdict() | {"score": json_score(hit.score)}) for hit in trace.results]
    lists = {"evidence": list(trace.evidence), "steps": steps, "results": results}
    return TracedBody(retriever=version.name, version=version.number, **trace._asdict() | lists)


_LOGARITHMS = ("full", "constrained", "prior", "score")
"""Numbers of a token that are sent as :func:`_number` writes them."""


def _number(value: float | None) -> float | None:
    """A number with as many digits as a picture needs; None where there is none, or JSON has none for it."""
    finite = None if value is None else json_score(value)
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
    explained: ExplainedQuery = await outcome(request, version, job, state.limits.seconds)
    passages = [
        StandingBody(
            gold=passage.gold,
            hop=passage.hop,
            rank=passage.rank,
            score=None if passage.score is None else json_score(passage.score),
            above=list(passage.above),
            report=str(passage),
            parts=[
                PartBody(kind=part.kind, rows=[list(row) for row in part.rows], marked=list(part.marks))
                for part in passage.parts
            ],
        )
        for passage in explained
    ]
    return ExplainedBody(retriever=version.name, version=version.number, passages=passages)


# ``POST /v1/answer``: a language model answers a question, with the passages that it quotes or reads.


async def answer_question(request: Request, body: AnswerBody) -> AnsweredBody:
    """The answer of a language model, with the passages that it quotes or reads."""
    state = serving(request)
    answering, limits = state.answering, state.limits
    if answering is None:
        text = f"this server has no language model: start it with {Option('answer.model')}, or send searches."
        raise RefusalError(404, text)
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
    check_queries([body.query], limits)
    check_limit("k", body.k or 1, limits.k)
    check_limit("max_new_tokens", body.max_new_tokens or 1, answering.options.tokens)
    check_limit("history: the number of characters", sum(map(len, body.history)), limits.characters)
    version, retriever, allow = asked(state, body, body.hops)
    how = AnswerKey(method, version, retriever, allow, body.k or answering.options.k, body.max_new_tokens)
    job = AnswerJob(Query("question", body.query), "\n".join(body.history), how, answering.answer)
    record: Record = await outcome(request, version, job, limits.seconds, answering.worker)
    if failed := record.get("failed"):
        if "cost" not in record:  # a reader: the question is too long, or a stored key is of another text
            raise RefusalError(422, f"nothing was written for the question: {failed}.")
        cause = failed.partition(":")[0]  # the rest may quote the question
        log.error("the language model failed: %s", cause)
        raise RefusalError(
            503,
            f"the language model failed at this question (method {method}); the log of the server says why.",
            {"Retry-After": "5"},
        )
    answered: AnsweredBody = await run_in_threadpool(_answered, how, record, limits.k)
    return answered


def _answered(how: AnswerKey, record: Record, most: int) -> AnsweredBody:
    """The answer, as it is sent, with the texts of at most so many passages of a quote."""
    wanted = [quote["passages"][:most] for quote in record["quotes"]]
    corpus = how.version.searcher.corpus
    texts = find_passages(corpus, (passage for passages in wanted for passage in passages))
    quotes = [
        QuoteBody(
            text=quote["text"],
            closed=quote["closed"],
            sources=[
                SourceBody(id=source.id, title=source.title, text=source.text)
                for source in (texts[passage] for passage in passages)
            ],
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
