"""The addresses that search: the best passages of queries, hops as they are found, passages, retrievers."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from time import monotonic

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from grls.api.streaming import StreamedHop
from grls.data.filters import Filter
from grls.data.types import Hit
from grls.errors import GrlsError
from grls.explain.beams import no_beam
from grls.retrieve.base import Retriever, WrapsSingleSteps, single_steps
from grls.retrieve.hops.options import HopOptions
from grls.serve.bodies import (
    FoundBody,
    FoundHitBody,
    HitBody,
    HopBody,
    LimitsBody,
    OwnHopsBody,
    PassageBody,
    ResultBody,
    RetrieverBody,
    RetrieversBody,
    SearchBody,
    StreamBody,
)
from grls.serve.problems import RefusalError, problem_for
from grls.serve.served import Version, example_queries
from grls.serve.serving import asked, check_limit, check_queries, serving
from grls.serve.waiting import late, outcome, public_error, while_there
from grls.serve.worker import BatchKey, SearchJob, StreamJob


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


# ``POST /v1/stream``: the hops of a query as server-sent events, each as soon as it is found.
#
# The events are ``hop`` (each with the best chain so far) and ``end``. An error after the first hop is the
# event ``problem``. An error before it is a response with its status.


EVENTS = "text/event-stream"


async def answer_stream(request: Request, body: StreamBody) -> StreamingResponse:
    """The hops of a query, each as soon as it is found."""
    state = serving(request)
    check_queries([body.query], state.limits)
    version, retriever, allow = asked(state, body, body.hops)
    hops = HopStream(version, retriever, body.query, allow, state.limits.seconds)
    try:
        first = await while_there(request, hops.next(), state.limits.seconds)
    except BaseException:
        hops.stop()
        raise
    return StreamingResponse(hops.events(first), media_type=EVENTS, headers={"Cache-Control": "no-store"})


class HopStream:
    """The way of hops from the thread of a retriever to a client.

    Args:
        version: The version that is asked.
        retriever: Its retriever, of the hops that are asked for.
        query: The query.
        allow: The filter of every hop.
        seconds: Time that all hops may take.

    Raises:
        QueueFullError: Too many requests wait.
    """

    def __init__(
        self, version: Version, retriever: Retriever, query: str, allow: Filter | None, seconds: float
    ):
        self._version, self._end, self._seconds = version, monotonic() + seconds, seconds
        self._queue: asyncio.Queue[StreamedHop | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(hop: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._queue.put_nowait, hop)  # type: ignore[arg-type]

        self._job = StreamJob(retriever, query, allow, put)
        self._job.future.add_done_callback(lambda _: put(None))
        self._version.worker.submit(self._job)

    async def next(self) -> StreamedHop | None:
        """The next hop; None: there is none.

        Raises:
            GrlsError: The retriever refuses the request.
            RefusalError: The time is up.
        """
        try:
            hop = await asyncio.wait_for(self._queue.get(), max(0.0, self._end - monotonic()))
        except TimeoutError:
            raise late(self._seconds) from None
        if hop is None:
            try:
                self._job.future.result()
            except GrlsError as error:
                raise public_error(self._version, error) from error
        return hop

    async def events(self, hop: StreamedHop | None) -> AsyncIterator[str]:
        """The events, from the first hop on."""
        try:
            while hop is not None:
                yield server_event("hop", hop_body(hop).model_dump())
                hop = None if hop.last else await self.next()
            yield server_event("end", {"retriever": self._version.name, "version": self._version.number})
        except Exception as error:
            yield server_event("problem", json.loads(bytes(problem_for(error).body)))
        finally:
            self.stop()

    def stop(self) -> None:
        """Withdraw what is not done yet."""
        self._version.worker.withdraw(self._job)


def server_event(name: str, content: object) -> str:
    """A server-sent event; JSON has no line breaks of its own."""
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"


def hop_body(hop: StreamedHop) -> HopBody:
    """A hop, as it is sent."""
    return HopBody(
        number=hop.number,
        hit=None if hop.hit is None else hit_body(hop.hit),
        chain=[hit.id for hit in hop.chain],
        scores=[json_score(hit.score) for hit in hop.chain],
        score=json_score(hop.score),
        done=hop.done,
        last=hop.last,
    )


# ``GET /v1/passages/{passage}``: a passage of a corpus.


async def show_passage(request: Request, passage: str, retriever: str | None = None) -> PassageBody:
    """A passage by its id."""
    version = serving(request).find(retriever).version
    (body,) = await passages_of(version, [passage])
    if body is None:
        raise no_passage(version)
    return body


def no_passage(version: Version) -> RefusalError:
    """The refusal of an id that the corpus of a version does not have."""
    return RefusalError(
        404, f"the corpus of {version.name} has no passage of this id; ids are those of hits."
    )


async def passages_of(version: Version, ids: Sequence[str]) -> list[PassageBody | None]:
    """The passages of a version by their ids, in order; None: there is none of this id."""
    corpus = version.searcher.corpus

    def read() -> list[PassageBody | None]:
        numbers = corpus.numbers(ids)
        known = [number for number in numbers if number is not None]
        parts = zip(corpus.passages(known), corpus.metadata_of(known), strict=True)
        bodies = (
            PassageBody(retriever=version.name, metadata=metadata, **passage._asdict())
            for passage, metadata in parts
        )
        return [None if number is None else next(bodies) for number in numbers]

    bodies: list[PassageBody | None] = await run_in_threadpool(read)
    return bodies


# ``GET /v1/retrievers``: what the server has, and how it may be asked.


async def show_retrievers(request: Request) -> RetrieversBody:
    """The retrievers of the server, and the limits of requests."""
    state = serving(request)
    versions = [one.version for one in state.retrievers.values()]
    described = await run_in_threadpool(lambda: [_described(version, state.examples) for version in versions])
    limits = state.limits
    sent = LimitsBody(**{name: getattr(limits, name) for name in LimitsBody.model_fields})
    answers = [] if state.answering is None else list(state.answering.options.methods)
    return RetrieversBody(limits=sent, answers=answers, retrievers=described)


_READ = 200
"""Passages whose metadata are looked at for fields."""


def _described(version: Version, examples: tuple[str, ...]) -> RetrieverBody:
    retriever = version.searcher.retriever
    description = retriever.describe()
    hops = OwnHopsBody(steps=description.steps, max=None)  # fused chains have hops that no option names
    if isinstance(retriever, WrapsSingleSteps):
        own: HopOptions = retriever.hops
        hops = OwnHopsBody(steps=own.steps, max=None if own.steps == "single" else own.count)
    metadata = retriever.corpus.metadata_of(range(min(_READ, len(retriever.corpus))))
    return RetrieverBody(
        retriever=version.name,
        version=version.number,
        passages=len(retriever.corpus),
        kind=single_steps(retriever).kind,
        name=description.name,
        scores=description.score_mode,
        hops=hops,
        no_beam=no_beam(retriever),
        fields=list(dict.fromkeys(field for values in metadata for field in values)),
        examples=list(examples or example_queries(version.searcher.folder)),
    )
