"""``POST /v1/stream``: the hops of a query as server-sent events, each as soon as it is found.

The events are ``hop`` (each with the best chain so far) and ``end``. An error after the first hop is the
event ``problem``. An error before it is a response with its status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic

from fastapi import Request
from starlette.responses import StreamingResponse

from grls.api.streaming import StreamedHop
from grls.data.filters import Filter
from grls.errors import GrlsError
from grls.retrieve.base import Retriever
from grls.serve.bodies import HopBody, StreamBody
from grls.serve.jobs import StreamJob
from grls.serve.problems import problem_for
from grls.serve.routes.search import hit_body, json_score
from grls.serve.served import Version
from grls.serve.serving import asked, check_queries, serving
from grls.serve.waiting import late, public_error, while_there

EVENTS = "text/event-stream"


async def answer_stream(request: Request, body: StreamBody) -> StreamingResponse:
    """The hops of a query, each as soon as it is found."""
    state = serving(request)
    check_queries([body.query], state.limits)
    version, retriever, allow = asked(state, body, body.hops)
    hops = HopStream(version, state.limits.seconds)
    hops.start(retriever, body.query, allow)
    try:
        first = await while_there(request, hops.next(), state.limits.seconds)
    except BaseException:
        hops.stop()
        raise
    return StreamingResponse(hops.events(first), media_type=EVENTS, headers={"Cache-Control": "no-store"})


class HopStream:
    """The way of hops from the thread of a retriever to a client.

    Args:
        version: The retriever.
        seconds: Time that all hops may take.
    """

    def __init__(self, version: Version, seconds: float):
        self._version, self._end, self._seconds = version, monotonic() + seconds, seconds
        self._queue: asyncio.Queue[StreamedHop | None] = asyncio.Queue()

    def start(self, retriever: Retriever, query: str, allow: Filter | None) -> None:
        """Let the hops wait for the retriever.

        Args:
            retriever: The retriever, of the hops that are asked for.
            query: The query.
            allow: The filter of every hop.

        Raises:
            QueueFullError: Too many requests wait.
        """
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
