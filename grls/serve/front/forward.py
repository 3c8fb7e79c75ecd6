"""Hands requests to the worker process, and repeats those that it has not answered when it dies.

A request waits for the worker process as it would wait in its queue: within its time, and so many at once. A
request under which the worker process has died twice is suspected: it is repeated once more with no other
suspect beside it, so that one bad request takes no others with it, and then refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import NamedTuple

from starlette.types import Message, Receive, Scope, Send

from grls.errors import GrlsError
from grls.serve.front.connection import ACCEPTED, OF_CONNECTION, Asked, ResponseHead, WorkerGoneError
from grls.serve.front.counts import FrontCounts
from grls.serve.front.reply import Reply
from grls.serve.front.state import STATES, answer_state
from grls.serve.front.supervisor import Supervisor, WorkerProcess, WorkerStartError
from grls.serve.guards import UNKNOWN
from grls.serve.options import RequestLimits
from grls.serve.problems import RefusalError, problem, problem_for
from grls.serve.waiting import late
from grls.serve.worker import QueueFullError

_SUSPECTED, _REFUSED = 2, 3
"""Deaths of worker processes after which a request is repeated alone, and after which it is refused."""
_SLACK = 1.0
"""Seconds by which the worker process may be late to say that the time of a request is up."""
_RETRY = 5
"""Seconds after which a client is asked to come back."""
_DROPPED = OF_CONNECTION | {b"content-length", b"expect"}


class Address(NamedTuple):
    """The address of a request, for the log and the counts."""

    path: str


class Front:
    """The application of the front process.

    Args:
        supervisor: Has the worker process.
        limits: The limits of requests.
        counts: The counts.
    """

    def __init__(self, supervisor: Supervisor, limits: RequestLimits, counts: FrontCounts):
        self._supervisor, self._limits, self._counts = supervisor, limits, counts
        self._waiting = 0
        self._alone = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; if its client goes, the worker process sees it."""
        if scope["type"] != "http":
            return
        asked = await _asked(scope, receive)
        reply = Reply(send, endless=asked.method == "GET")
        scope["route"] = Address(self._template(asked.path))
        answer = self._answer_state if (asked.method, asked.path) in STATES else self._answer
        work = asyncio.ensure_future(answer(asked, reply))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _template(self, path: str) -> str:
        """The template of an address, which has nothing that a client sent."""
        routes = self._supervisor.routes
        if path in routes:
            return path
        openings = [route for route in routes if "{" in route and path.startswith(route.partition("{")[0])]
        return openings[0] if openings else UNKNOWN

    async def _answer_state(self, asked: Asked, reply: Reply) -> None:
        await reply.refuse(await answer_state(asked, self._supervisor, self._counts))

    async def _answer(self, asked: Asked, reply: Reply) -> None:
        seconds = self._limits.seconds
        endless = asked.path.startswith("/admin")  # a new version is loaded for as long as it takes
        end = None if endless else asyncio.get_running_loop().time() + seconds + _SLACK
        try:
            async with asyncio.timeout_at(end) as limit:
                await self._until_answered(asked, reply, limit)
        except TimeoutError:
            await reply.refuse(problem_for(late(seconds)))
        except WorkerStartError:
            text = "the worker process cannot be started, and the server ends; use another one."
            await reply.refuse(problem(503, text, {"Retry-After": str(_RETRY)}))
        except GrlsError as error:
            await reply.refuse(problem_for(error))

    async def _until_answered(self, asked: Asked, reply: Reply, limit: asyncio.Timeout) -> None:
        deaths, waited, end = 0, False, limit.when()
        while not reply.complete:
            async with self._alone if deaths >= _SUSPECTED else nullcontext():
                if self._supervisor.current is None:
                    waited = True
                async with self._place(deaths):
                    worker = await self._supervisor.worker()
                try:
                    await self._ask(worker, _marked(asked, deaths > 0 or waited), reply, limit)
                    return
                except WorkerGoneError as gone:
                    limit.reschedule(end)
                    await _ended(worker)
                    deaths += gone.reached
            if deaths >= _REFUSED:
                raise RefusalError(
                    503,
                    f"the worker process has died {deaths} times while it had this request, which is not "
                    "tried again; the log of the server says how it died.",
                )
            self._counts.repeated.inc()
        await reply.end()

    async def _ask(self, worker: WorkerProcess, asked: Asked, reply: Reply, limit: asyncio.Timeout) -> None:
        """Hand a request over once, and the response back."""
        async with worker.connection() as connection:
            head = await connection.ask(asked)
            if head.streams:
                limit.reschedule(None)  # the worker process bounds the time of a stream
                self._note(asked, head, b"")
                await reply.stream(head, connection.parts())
                return
            body = await connection.body()
        limit.reschedule(None)  # the client may read slowly
        self._note(asked, head, body)
        await reply.whole(head, body)

    def _note(self, asked: Asked, head: ResponseHead, body: bytes) -> None:
        if head.status == 200 and asked.method == "POST":
            self._supervisor.answered()
            if asked.path == "/admin/reload":
                self._supervisor.note(json.loads(body))

    @asynccontextmanager
    async def _place(self, deaths: int) -> AsyncIterator[None]:
        """A place among those that wait for the worker process.

        Raises:
            QueueFullError: Too many wait. A request that was accepted before is not refused.
        """
        if self._supervisor.current is None and not deaths and self._waiting >= self._limits.queue:
            raise QueueFullError(_RETRY)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


async def _asked(scope: Scope, receive: Receive) -> Asked:
    """The request, with its body, which has been read before."""
    body, more = b"", True
    while more:
        message: Message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [
        (name, value)
        for name, value in scope["headers"]
        if name not in _DROPPED and not name.startswith(b"x-grls-")
    ]
    if all(name != b"host" for name, _ in headers):  # HTTP/1.0
        headers.append((b"host", b"localhost"))
    if body:
        headers.append((b"content-length", str(len(body)).encode()))
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    return Asked(scope["method"], scope["path"], target, headers, body)


def _marked(asked: Asked, accepted: bool) -> Asked:
    """A request that no full queue refuses, if it was accepted before."""
    return asked._replace(headers=[*asked.headers, (ACCEPTED, b"1")]) if accepted else asked


async def _ended(worker: WorkerProcess) -> None:
    """Wait until a process that has closed a connection has ended, too; but not for long."""
    try:
        async with asyncio.timeout(_SLACK):
            await worker.ended.wait()
    except TimeoutError:
        pass


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
