"""``/health``, ``/ready`` and ``/metrics`` of the front process: about both processes, and without a wait."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from grls.serve.front.connection import Asked, WorkerGoneError
from grls.serve.front.counts import FrontCounts
from grls.serve.front.supervisor import Supervisor
from grls.serve.guards import CONTENT
from grls.serve.problems import problem

STATES = frozenset((method, path) for method in ("GET", "HEAD") for path in ("/health", "/ready", "/metrics"))
"""The addresses that are answered while there is no worker process, too."""


async def answer_state(asked: Asked, supervisor: Supervisor, counts: FrontCounts) -> Response:
    """What the worker process says, or what is to be said while there is none."""
    worker = supervisor.current
    if worker is not None:
        try:
            async with worker.connection() as connection:
                head = await connection.ask(asked._replace(method="GET"))  # of HEAD no body is sent
                body = await connection.body()
            if asked.path == "/metrics":
                return _metrics(body, counts)
            response = Response(body, head.status)
            response.raw_headers = head.headers
            return response
        except WorkerGoneError:
            pass
    return _metrics(b"", counts) if asked.path == "/metrics" else _away(asked.path, supervisor)


def _away(path: str, supervisor: Supervisor) -> Response:
    if path == "/health":
        versions = list(supervisor.versions.values())
        return JSONResponse({"status": "starting", "retrievers": versions})
    text = "the worker process is being started; try again, or use another server."
    return problem(503, text, {"Retry-After": "5"})


def _metrics(searches: bytes, counts: FrontCounts) -> Response:
    return Response(searches + counts.text(), media_type=CONTENT)
