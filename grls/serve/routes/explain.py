"""``POST /v1/explain``: why passages are found for a query, or why not."""

from __future__ import annotations

from fastapi import Request

from grls.api.explaining import ExplainedPassage
from grls.data.types import Query
from grls.explain.parts import TEXT_ALONE, Part
from grls.serve.bodies import ExplainBody, ExplainedBody, PartBody, StandingBody
from grls.serve.jobs import CallJob
from grls.serve.routes.search import json_score
from grls.serve.serving import check_queries, serving
from grls.serve.waiting import outcome


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
