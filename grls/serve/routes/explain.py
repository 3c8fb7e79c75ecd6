"""``POST /v1/explain``: why gold passages of a query are found, or why not."""

from __future__ import annotations

from fastapi import Request

from grls.api.explaining import ExplainedPassage
from grls.data.types import Query
from grls.serve.bodies import ExplainBody, ExplainedBody, StandingBody
from grls.serve.jobs import CallJob
from grls.serve.routes.search import json_score
from grls.serve.serving import check_queries, serving
from grls.serve.waiting import outcome


async def answer_explain(request: Request, body: ExplainBody) -> ExplainedBody:
    """Where the gold passages of a query stand, and why."""
    state = serving(request)
    check_queries([body.query], state.limits)
    version = state.find(body.retriever).version
    query = Query(
        "query", body.query, tuple(dict.fromkeys(body.gold))
    )  # a text alone may be the id of a query
    job = CallJob(lambda: version.searcher.explain(query, depth=body.depth))
    explained = await outcome(request, version, job, state.limits.seconds)
    passages = [_standing(one) for one in explained]
    return ExplainedBody(retriever=version.name, version=version.number, passages=passages)


def _standing(passage: ExplainedPassage) -> StandingBody:
    return StandingBody(
        gold=passage.gold,
        hop=passage.hop,
        rank=passage.rank,
        score=None if passage.score is None else json_score(passage.score),
        above=list(passage.above),
        report=str(passage),
    )
