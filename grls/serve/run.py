"""One process serves retrievers until a signal ends it; running requests are finished.

The server listens, in a thread of its own, before the retrievers are loaded: ``/ready`` says that they are
being loaded. The main thread loads them, so that a signal or an error ends the server then, too.
"""

from __future__ import annotations

import errno
import math
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import uvicorn
from starlette.types import ASGIApp

from grls.errors import ConfigError, GrlsError, Option
from grls.io.ending import SIGNALS
from grls.serve.app import create_app
from grls.serve.guards import accepted_hosts, log_lines
from grls.serve.options import ServerOptions
from grls.serve.serving import serving_to_load
from grls.serve.start import address_of, loading, say


def run_server(options: ServerOptions, host: str, port: int) -> None:
    """Listen, open retrievers and serve them.

    Raises:
        ConfigError: A name, an option or the port cannot be used.
        DataError: A folder is no retriever, or a file of keys or queries cannot be used.
        MismatchError: A folder is damaged.
    """
    serving = serving_to_load(options)  # refuses wrong options before the first line
    app = create_app(
        serving, options.access, accepted_hosts(host, options.access.allowed_hosts), options.tools
    )
    sockets = bound(host, port)
    server, address = (
        uvicorn_server(app, options.limits.seconds),
        address_of(host, sockets[0].getsockname()[1]),
    )
    say(loading(options.folders, address))
    log_lines()
    ended = Event()  # Thread.join, interrupted by a signal, takes the thread for an ended one (Python 3.11)

    def listen() -> None:
        try:
            server.run(sockets)
        finally:
            ended.set()

    Thread(target=listen, name="grls-serve-http", daemon=True).start()
    try:
        serving.load(options, say=say)
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


def uvicorn_server(app: ASGIApp, seconds: float) -> uvicorn.Server:
    """A server of an application, whose requests have so many seconds, also when the server ends."""
    config = uvicorn.Config(
        app,
        http="h11",  # httptools, if installed, would read headers of any length into memory
        log_config=None,
        lifespan="on",  # an error at the start ends the server
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(seconds),
    )
    return uvicorn.Server(config)


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets at an address and port of this machine; port 0 is any free one.

    Raises:
        ConfigError: The port is taken, or this machine does not have the address.
    """
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
                sockets[-1].bind(address)
                sockets[-1].listen(2048)  # another program that binds it later is refused
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
