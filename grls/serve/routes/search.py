"""``POST /v1/search``: the best passages of queries."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastapi import Request
from starlette.responses import Response

from grls.data.types import Hit
from grls.serve.bodies import FoundBody, FoundHitBody, HitBody, ResultBody, SearchBody
from grls.serve.jobs import BatchKey, SearchJob
from grls.serve.serving import asked, check_limit, check_queries, serving
from grls.serve.waiting import outcome


async def answer_search(request: Request, body: SearchBody) -> Response:
    """The best passages of a query, or of each of several."""
    state, queries = serving(request), body.queries()
    check_queries(queries, state.limits)
    check_limit("k", body.k, state.limits.k)
    version, retriever, allow = asked(state, body, body.hops)
    job = SearchJob(queries, BatchKey(retriever, body.k, allow))
    rankings = await outcome(request, version, job, state.limits.seconds)
    results = [result_body(query, hits, body.metadata) for query, hits in zip(queries, rankings, strict=True)]
    found = FoundBody(retriever=version.name, version=version.number, results=results)
    return Response(found.model_dump_json(), media_type="application/json")  # FastAPI would check it again


def result_body(query: str, hits: Sequence[Hit], metadata: bool) -> ResultBody:
    """A ranking or chain, as it is sent; metadata are read only where they are asked for."""
    bodies = [
        FoundHitBody(**dict(hit_body(hit)), hop=hit.hop, metadata=dict(hit.metadata) if metadata else None)
        for hit in hits
    ]
    return ResultBody(query=query, hits=bodies)


def hit_body(hit: Hit) -> HitBody:
    """A hit, as it is sent."""
    return HitBody(id=hit.id, score=json_score(hit.score), title=hit.title, text=hit.text)


def json_score(score: float) -> float | None:
    """A score; None where JSON has no number for it."""
    return float(score) if math.isfinite(score) else None
