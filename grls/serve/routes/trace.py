"""``POST /v1/trace``: what the beam of a search considers at each token."""

from __future__ import annotations

from fastapi import Request

from grls.explain.beams import BeamTrace, TracedStep, no_beam, trace_beam
from grls.serve.bodies_trace import (
    TraceBody,
    TracedBeamBody,
    TracedBody,
    TracedResultBody,
    TracedStepBody,
    TracedTokenBody,
)
from grls.serve.jobs import CallJob
from grls.serve.problems import RefusalError
from grls.serve.routes.search import json_score
from grls.serve.served import Version
from grls.serve.serving import asked, check_limit, check_queries, serving
from grls.serve.waiting import outcome


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
