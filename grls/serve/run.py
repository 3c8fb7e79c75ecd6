"""One process serves retrievers until a signal ends it; running requests are finished.

The server listens in a thread of its own while the main thread loads the retrievers (``/ready`` says so),
so that a signal or an error ends the server then, too.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from grls.errors import ConfigError, GrlsError, Option
from grls.io.ending import SIGNALS
from grls.serve.app import create_app
from grls.serve.guards import accepted_hosts, log_lines
from grls.serve.options import RequestLimits, ServerOptions
from grls.serve.serving import Serving
from grls.serve.start import address_of, loading, say


def run_server(options: ServerOptions, host: str, port: int) -> None:
    serving = Serving(options)  # refuses wrong options before the first line
    app = create_app(serving, accepted_hosts(host, options.access.allowed_hosts))
    sockets = bound(host, port)
    server, address = HttpServer(app, options.limits), address_of(host, sockets[0].getsockname()[1])
    say(loading(options.folders, address))
    log_lines()
    sys.setswitchinterval(_SWITCH)
    ended = Event()  # Thread.join, interrupted by a signal, takes the thread for an ended one (Python 3.11)

    def listen() -> None:
        try:
            server.run(sockets)
        finally:
            ended.set()

    Thread(target=listen, name="grls-serve-http", daemon=True).start()
    try:
        serving.load(say=say)
        if not ended.is_set():
            say(f"Ready: open {address}")
        _wait(ended)
        raise GrlsError("the server has ended by itself: its log says why.")
    except (KeyboardInterrupt, SystemExit):
        if serving.loading:
            raise
    finally:
        with signals_ignored():
            server.force_exit = bool(serving.loading)  # no search runs, and the error is told at once
            serving.ending = server.should_exit = True
            _wait(ended)


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Let no further signal but Ctrl-C cut short the wait for what runs."""
    before = {}
    for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name)):
        before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _wait(ended: Event) -> None:
    """Wait for an event; on Windows a signal ends no wait without a limit."""
    while not ended.wait(0.5):
        pass


_WAITING, _AT_ONCE = 2048, 8
"""Connections that wait in the queue of the system, and that are taken from it at once: asyncio takes so many
before it looks at one of them, or sees that there is no file for it."""
_UNSENT = 2**17
"""Bytes of an answer that the system takes before it can send them: with more (4 MB on Linux), a slow client
looks for half a minute like one that reads nothing."""
_LAST, _ROUNDS = 5.0, 8
"""Seconds in which a server that ends still takes the connections that wait for it, and the rounds of the
event loop from taking one to its request."""
_SWITCH = 0.0005
"""Seconds for which a search keeps the interpreter to itself, while the thread of HTTP waits."""


class HttpServer(uvicorn.Server):
    """When it ends, running requests have the time that they may take."""

    def __init__(self, app: ASGIApp, limits: RequestLimits):
        connection: Any = partial(Connection, limits, most_connections(limits.connections), {})
        config = uvicorn.Config(
            app,
            http=connection,
            ws="none",  # its connections would have no deadlines
            log_config=None,
            lifespan="on",  # an error at the start ends the server
            access_log=False,
            server_header=False,
            timeout_keep_alive=math.ceil(limits.header),
            timeout_graceful_shutdown=math.ceil(limits.seconds),
            backlog=_AT_ONCE,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_WAITING)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take the connections that wait, read what they have sent, and end once all are answered."""
        end = monotonic() + _LAST
        while select.select(sockets or (), (), (), 0)[0] and monotonic() < end:
            await asyncio.sleep(0)
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn would cancel the application, and log a traceback
            with suppress(TimeoutError):  # a search may run on
                await asyncio.wait_for(self.lifespan.shutdown(), _LAST)


def most_connections(wanted: int) -> int:
    """How many connections may be open: at most half of the files, whose limit is raised for it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < 2 * wanted:  # below 0: any number
        soft = 2 * wanted if hard < 0 else min(2 * wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft < 0 else max(1, min(wanted, soft // 2))


_TARGET = re.compile(rb"https?://([^/?#]*)([^#]*)", re.I)
"""A target in absolute form: the host, and the path with its query."""


class _Parser(h11.Connection):
    """Reads a target in absolute form as RFC 9112 says: its host takes the place of the header Host.

    It refuses requests whose body has two lengths: the next request would begin where a proxy sees none.
    """

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
            if whole := _TARGET.fullmatch(event.target):
                headers = [(b"host", whole[1]), *(pair for pair in event.headers if pair[0] != b"host")]
                path = whole[2] if whole[2].startswith(b"/") else b"/" + whole[2]
                return h11.Request(
                    method=event.method, headers=headers, target=path, http_version=event.http_version
                )
        return event


_UNREAD = 128 * 2**20
"""Bytes of answers that may wait for clients to read them."""


class Connection(H11Protocol):
    """A connection of a client; h11 bounds its headers (httptools would read them of any length).

    Whenever the client has to do something (send a header, send a body, read an answer), it has
    ``limits.header`` seconds for it, and ``limits.seconds`` for reading a whole answer. Of more than
    ``most`` connections, the one that has waited longest for its client is closed. ``waiting``: the
    connections that wait, the longest first, and the bytes unread.
    """

    def __init__(
        self, limits: RequestLimits, most: int, waiting: dict[Connection, int], **options: Any
    ) -> None:
        super().__init__(**options)
        self.conn = _Parser(h11.SERVER)
        self._limits, self._most, self._waiting = limits, most, waiting
        self._phase: object = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin; where too many are open, one that waits is closed, perhaps this one."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # writing pauses while anything is unread
        self._look()
        if len(self.connections) > self._most:
            next(iter(self._waiting)).abort()

    def data_received(self, data: bytes) -> None:
        """Read; a request whose client has hung up already is not begun."""
        if self.conn.their_state is h11.IDLE and _hung_up(self.transport):
            self.abort()
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Be ready for the next request, once the answer is read."""
        self.cycle.body = bytearray()  # of a request that was refused before its body was read
        if not self.flow.write_paused:
            super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Wait until the client has read what is written."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """Go on, with the next request if this one is answered."""
        super().resume_writing()
        if self.cycle is not None and self.cycle.response_complete:
            super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_wait()

    def abort(self) -> None:
        self._end_wait()
        self.transport.abort()

    def _look(self) -> None:
        """Start the client's time when it has something to do."""
        phase = self.conn.their_state
        if self.flow.write_paused:
            phase = "answer"
        elif phase not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            phase = None
        if phase is self._phase:
            return
        self._end_wait()
        self._phase = phase
        if phase is None:
            return
        seconds = self._limits.header
        if phase is h11.SEND_BODY:  # the application sends 408 before
            seconds *= 2
        self._deadline = self.loop.call_later(seconds, self._late)
        self._end = self.loop.time() + self._limits.seconds
        self._waiting[self] = self.transport.get_write_buffer_size()
        over = sum(self._waiting.values()) - _UNREAD
        for longest, unread in list(self._waiting.items()) if over > 0 else ():
            if over > 0 and unread and longest is not self:
                over -= unread
                longest.abort()

    def _late(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread < self._waiting[self] and self.loop.time() < self._end:
            self._waiting[self] = unread
            self._deadline = self.loop.call_later(self._limits.header, self._late)
        else:
            self.abort()

    def _end_wait(self) -> None:
        self._phase = None
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()


def _hung_up(transport: asyncio.Transport) -> bool:
    """Whether the client has closed the connection; False where the system cannot tell."""
    if not hasattr(select, "POLLRDHUP"):
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets at an address and port of this machine; port 0 is any free one."""
    try:
        bare = host.strip("[]") or None
        infos = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with ExitStack() as opened:
            sockets = []
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                sockets.append(opened.enter_context(socket.socket(family, kind, protocol)))
                if sys.platform != "win32":  # there it would take a port from another program
                    sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sockets[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # its connections have it from the listener
                    sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
                sockets[-1].bind(address)
                sockets[-1].listen(_WAITING)  # another program that binds it later is refused
            opened.pop_all()
        return sockets
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is taken by another program: end that one, or give another "
                f"{Option('port')} (0: any free one)."
            ) from error
        if error.errno == errno.EACCES:
            raise ConfigError(
                f"port {port} is for the administrator: give a {Option('port')} above 1023."
            ) from error
        raise ConfigError(
            f"{Option('host', host)} is no address of this machine ({error.strerror or error}): give another."
        ) from error
