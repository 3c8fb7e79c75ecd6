"""``POST /v1/search``: the best passages of queries."""

from __future__ import annotations

import math

from fastapi import Request
from starlette.responses import Response

from grls.data.types import Hit
from grls.serve.bodies import FoundBody, HitBody, ResultBody, SearchBody
from grls.serve.jobs import BatchKey, SearchJob
from grls.serve.serving import asked, check_limit, check_queries, serving
from grls.serve.waiting import outcome


async def answer_search(request: Request, body: SearchBody) -> Response:
    """The best passages of a query, or of each of several."""
    state, queries = serving(request), body.queries()
    check_queries(queries, state.limits)
    check_limit("k", body.k, state.limits.k)
    version, retriever, allow = asked(state, body)
    job = SearchJob(queries, BatchKey(retriever, body.k, allow))
    rankings = await outcome(request, version, job, state.limits.seconds)
    results = [
        ResultBody(query=query, hits=[hit_body(hit) for hit in hits])
        for query, hits in zip(queries, rankings, strict=True)
    ]
    found = FoundBody(retriever=version.name, version=version.number, results=results)
    return Response(found.model_dump_json(), media_type="application/json")  # FastAPI would check it again


def hit_body(hit: Hit) -> HitBody:
    """A hit, as it is sent."""
    return HitBody(id=hit.id, score=json_score(hit.score), title=hit.title, text=hit.text)


def json_score(score: float) -> float | None:
    """A score; None where JSON has no number for it."""
    return float(score) if math.isfinite(score) else None
