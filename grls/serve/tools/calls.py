"""What the tools do: search, hops, passages. The module does not know how they are called."""

from __future__ import annotations

import json

from grls.serve.bodies import Body, HopBody, PassageBody, ResultBody
from grls.serve.jobs import BatchKey, SearchJob
from grls.serve.problems import RefusalError, problem_for
from grls.serve.routes.passages import no_passage, passages_of
from grls.serve.routes.search import result_body
from grls.serve.routes.stream import HopStream, hop_body
from grls.serve.serving import Serving, asked, check_limit, check_queries
from grls.serve.tools.arguments import HopsCall, PassagesCall, SearchCall
from grls.serve.waiting import outcome

_LONGEST = 100
"""Characters of an unknown id that an error names."""


class HopChainBody(Body):
    """The hops of a query, in order."""

    query: str
    hops: list[HopBody]


class PassagesBody(Body):
    """The passages of the ids, in order, and the ids of which the corpus has none."""

    passages: list[PassageBody]
    unknown: list[str] | None


async def answer_call(serving: Serving, call: Body) -> Body:
    """What a tool finds.

    Args:
        serving: The retrievers and limits.
        call: The arguments of a tool of :mod:`grls.serve.tools.arguments`.

    Raises:
        GrlsError: It cannot be done.
    """
    match call:
        case SearchCall():
            return await _search(serving, call)
        case HopsCall():
            return await _hops(serving, call)
        case PassagesCall():
            return await _passages(serving, call)
    raise AssertionError(call)


def error_text(error: Exception) -> str:
    """An error of a call as the server words it, with arguments of tools; unexpected ones are logged."""
    response = problem_for(error, lambda field: field.removeprefix("hops."))
    text: str = json.loads(bytes(response.body))["detail"]
    return text


async def _search(serving: Serving, call: SearchCall) -> ResultBody:
    check_queries([call.query], serving.limits)
    check_limit("k", call.k, serving.limits.k)
    version, retriever, allow = asked(serving, call, None)
    job = SearchJob([call.query], BatchKey(retriever, call.k, allow))
    (hits,) = await outcome(None, version, job, serving.limits.seconds)
    return result_body(call.query, hits, call.metadata)


async def _hops(serving: Serving, call: HopsCall) -> HopChainBody:
    check_queries([call.query], serving.limits)
    version, retriever, allow = asked(serving, call, call)
    stream, hops = HopStream(version, serving.limits.seconds), list[HopBody]()
    stream.start(retriever, call.query, allow)
    try:
        while (hop := await stream.next()) is not None:
            hops.append(hop_body(hop))
            if hop.last:
                break
    finally:
        stream.stop()
    return HopChainBody(query=call.query, hops=hops)


async def _passages(serving: Serving, call: PassagesCall) -> PassagesBody:
    check_limit("ids: the number of ids", len(call.ids), serving.limits.k)
    version = serving.find(call.retriever).version
    bodies = await passages_of(version, call.ids)
    unknown = [name[:_LONGEST] for name, body in zip(call.ids, bodies, strict=True) if body is None]
    passages = [body for body in bodies if body is not None]
    if not passages:
        refusal = no_passage(version)
        raise RefusalError(refusal.status, f"{', '.join(map(repr, unknown[:3]))}: {refusal}")
    return PassagesBody(passages=passages, unknown=unknown or None)
