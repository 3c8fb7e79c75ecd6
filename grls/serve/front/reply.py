"""What a client has got of a response: nothing, everything, or events that a repeated stream goes on from.

The hops of a query are the same each time. So a stream that is repeated is compared with the events that the
client has got, and goes on after them; if they differ (the folder has changed meanwhile), it ends with the
event ``problem``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Send

from grls.serve.front.connection import ResponseHead
from grls.serve.problems import problem

_END = b"\n\n"
_LAST = (b"event: end\n", b"event: problem\n")


class Reply:
    """A response, as far as the client has got it.

    Args:
        send: Sends to the client.
        endless: A stream has no end and is not compared (the messages of a session of MCP): when it is
            repeated, it goes on with what is new, and nothing of it is kept.
    """

    def __init__(self, send: Send, endless: bool = False):
        self._send, self._endless = send, endless
        self._events: list[bytes] = []
        self.begun = False

    @property
    def complete(self) -> bool:
        """Whether the client has got the last event of a stream."""
        return bool(self._events) and self._events[-1].startswith(_LAST)

    async def whole(self, head: ResponseHead, body: bytes) -> None:
        """Send a response that is no stream; if a stream has begun, as its last event."""
        if self.begun:
            await self._end_with(body)
        else:
            await self._begin(head)
            await self._part(body, more=False)

    async def refuse(self, refusal: Response) -> None:
        """Send an error; if a stream has begun, as its last event."""
        await self.whole(ResponseHead(refusal.status_code, list(refusal.raw_headers)), bytes(refusal.body))

    async def stream(self, head: ResponseHead, parts: AsyncIterator[bytes]) -> None:
        """Send the events of a stream that the client has not got yet.

        Raises:
            WorkerGoneError: The worker process has gone; the stream may be repeated.
        """
        if not self.begun:
            await self._begin(head)
        number = 0
        async for event in _events(parts):
            if self._endless:
                await self._part(event)
            elif number == len(self._events):
                await self._part(event)
                self._events.append(event)
            elif event != self._events[number]:
                text = "the worker process died, and the hops are no longer the same; send the request again."
                await self._end_with(bytes(problem(503, text).body))
                return
            number += 1
        await self.end()

    async def end(self) -> None:
        """End a stream."""
        await self._part(b"", more=False)

    async def _begin(self, head: ResponseHead) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": head.status, "headers": head.headers})

    async def _end_with(self, body: bytes) -> None:
        content = json.dumps(json.loads(body)).encode()  # in one line
        await self._part(b"event: problem\ndata: " + content + _END)
        await self.end()

    async def _part(self, content: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": content, "more_body": more})


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole events, and at the end what remains."""
    rest = b""
    async for part in parts:
        *events, rest = (rest + part).split(_END)
        for event in events:
            yield event + _END
    if rest:
        yield rest
