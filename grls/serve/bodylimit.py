"""Bounds the body of a request: its bytes, and the time in which it is sent."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grls.serve.problems import RefusalError, problem


class BodyLimit:
    """Reads the body of each request before the request is handled, and refuses what is too long or too slow.

    Args:
        app: The application behind it.
        most: Largest number of bytes.
        seconds: Time in which the body must be there.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float):
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body, or refuse it."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            self._check_announced(scope)
            async with asyncio.timeout(self._seconds):
                body = await self._read(receive)
        except RefusalError as refusal:
            await problem(refusal.status, str(refusal), {"Connection": "close"})(scope, receive, send)
        except TimeoutError:
            text = f"the body was not there within {self._seconds:g} s; send it faster, or a shorter one."
            await problem(408, text, {"Connection": "close"})(scope, receive, send)
        else:
            if body is not None:  # else the client has gone
                await self._app(scope, _again(body, receive), send)

    def _check_announced(self, scope: Scope) -> None:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and len(value) < 20 and int(value) > self._most:
                raise self._too_long()

    async def _read(self, receive: Receive) -> bytes | None:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._most:
                raise self._too_long()
        return b"".join(parts)

    def _too_long(self) -> RefusalError:
        return RefusalError(413, f"a body has at most {self._most:,} bytes; send fewer or shorter queries.")


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that has been read, and then what the connection brings."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message
