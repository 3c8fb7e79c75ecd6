"""HTTP between the two processes, over a Unix socket: a connection has one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, TypeAlias

import h11

ACCEPTED = b"x-grls-accepted"
"""The header of a request that was accepted before, or has waited for the worker process."""
OF_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Headers that concern one connection, and are not handed on."""
Headers: TypeAlias = list[tuple[bytes, bytes]]
_CHUNK = 65_536


class WorkerGoneError(Exception):
    """The worker process has gone before the response was complete.

    Args:
        reached: It may have begun to handle the request.
    """

    def __init__(self, reached: bool = True):
        super().__init__("the worker process has gone.")
        self.reached = reached


class Asked(NamedTuple):
    """A request, as it is handed over.

    Attributes:
        method: Its method.
        path: Its path, decoded.
        target: Its address, as it was sent.
        headers: The headers that concern the worker process.
        body: Its body.
    """

    method: str
    path: str
    target: bytes
    headers: Headers
    body: bytes


class ResponseHead(NamedTuple):
    """The beginning of a response.

    Attributes:
        status: Its status.
        headers: Its headers, without those of the connection.
    """

    status: int
    headers: Headers

    @property
    def streams(self) -> bool:
        """Whether server-sent events follow."""
        return any(name == b"content-type" and b"event-stream" in value for name, value in self.headers)


class WorkerConnection:
    """A connection to the worker process.

    Args:
        reader: What it sends.
        writer: What it is sent.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, asked: Asked) -> ResponseHead:
        """Send a request, and return the beginning of the response.

        Raises:
            WorkerGoneError: The worker process has gone.
        """
        request = h11.Request(method=asked.method, target=asked.target, headers=asked.headers)
        events: list[h11.Event] = [request, h11.EndOfMessage()]
        if asked.body:
            events.insert(1, h11.Data(data=asked.body))
        try:
            self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
            await self._writer.drain()
        except OSError:
            raise WorkerGoneError from None
        while isinstance(event := await self._next(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise WorkerGoneError
        kept = [(name, value) for name, value in event.headers if name not in OF_CONNECTION]
        return ResponseHead(event.status_code, kept)

    async def parts(self) -> AsyncIterator[bytes]:
        """The parts of the body, as they come.

        Raises:
            WorkerGoneError: The worker process has gone.
        """
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise WorkerGoneError

    async def body(self) -> bytes:
        """The body.

        Raises:
            WorkerGoneError: The worker process has gone.
        """
        return b"".join([part async for part in self.parts()])

    def take_next(self) -> bool:
        """Get ready for another request; whether that is possible."""
        if (self._http.our_state, self._http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close it; the worker process sees that nobody waits for the response."""
        self._writer.close()

    async def _next(self) -> object:
        """The next event of the response."""
        try:
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._http.receive_data(await self._reader.read(_CHUNK))
        except (OSError, h11.RemoteProtocolError):
            raise WorkerGoneError from None


async def open_worker(socket: str) -> WorkerConnection:
    """A connection to the worker process that listens at a Unix socket.

    Raises:
        WorkerGoneError: It does not listen any more.
    """
    try:
        return WorkerConnection(*await asyncio.open_unix_connection(socket))
    except OSError:
        raise WorkerGoneError(reached=False) from None
