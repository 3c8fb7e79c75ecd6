"""A server that listens, writes its log, and ends by a signal. It does not know the application."""

from __future__ import annotations

import errno
import logging
import math
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from grls.errors import ConfigError, Option
from grls.serve.guards import JsonLines
from grls.serve.start import say

_LOGS = ("grls", "uvicorn", "mcp")


class ListeningServer(uvicorn.Server):  # type: ignore[misc, unused-ignore]
    """A server that prints its address as soon as it listens."""

    async def startup(self, sockets: Any = None) -> None:
        """Listen.

        Raises:
            ConfigError: The port was taken since it was checked.
        """
        check_port(self.config.host, self.config.port)  # loading took its time
        await super().startup(sockets)
        if self.started and self.servers:
            port = self.servers[0].sockets[0].getsockname()[1]
            say(f"Ready: open {address_of(self.config.host, port)}")


def check_port(host: str, port: int) -> None:
    """Refuse a port that cannot be listened at, before anything is loaded; 0 is any free port.

    Raises:
        ConfigError: The port is taken, or this machine does not have the address.
    """
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            with socket.socket(family, kind, protocol) as probe:
                if sys.platform != "win32":  # there it would take a port from another program
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
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


def address_of(host: str, port: int) -> str:
    """The address of a server as a browser on this machine opens it; the port 0 is left out."""
    bare = host.strip("[]")
    name = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(bare, bare)
    return f"http://{f'[{name}]' if ':' in name else name}{f':{port}' if port else ''}"


def listening(app: ASGIApp, host: str, port: int, seconds: float) -> uvicorn.Server:
    """A server of an application, whose requests have so many seconds, also when the server ends."""
    config = uvicorn.Config(
        app,
        host,
        port,
        http="h11",  # httptools, if installed, would read headers of any length into memory
        log_config=None,
        lifespan="on",  # an error at the start ends the server
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(seconds),
    )
    return ListeningServer(config)


@contextmanager
def until_signal(server: Any) -> Iterator[None]:
    """A block that serves; the end of the server by a signal is no error."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if not (server.started and server.should_exit):
            raise


def log_lines() -> None:
    """Write the log of the server as lines of JSON to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in _LOGS:
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.WARNING if name == "mcp" else logging.INFO)  # mcp writes what clients send
