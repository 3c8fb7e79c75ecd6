"""A line of JSON for each request and each event, without anything that a client sent.

A request is named by an id that the server makes, and by the template of its address. JSON escapes line
breaks and control characters, so no text can begin a line of its own.
"""

from __future__ import annotations

import json
import logging
from secrets import token_hex
from time import perf_counter, time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grls.serve.metrics import RequestCounts
from grls.serve.problems import GONE

log = logging.getLogger("grls.serve.requests")
UNKNOWN = "unknown"
"""The address of requests to none of ours."""


class JsonLines(logging.Formatter):
    """Formats records as JSON, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= getattr(record, "values", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class RequestLog:
    """Writes a line for each request, and counts it.

    Args:
        app: The application behind it.
        counts: Counts it.
    """

    def __init__(self, app: ASGIApp, counts: RequestCounts):
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and log it when it ends."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, status, begun = token_hex(8), GONE, perf_counter()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name.encode())]
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            self._write(name, scope, status, perf_counter() - begun)

    def _write(self, name: str, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        self._counts.request(route, status, seconds)
        values = {"request": name, "route": route, "status": status, "seconds": round(seconds, 4)}
        log.info("request", extra={"values": values | {"ended": round(time(), 3)}})
