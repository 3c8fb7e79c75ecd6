"""How a server listens, writes its log, and ends by a signal. The module does not know what is served."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from grls.serve.request_log import JsonLines

_LOGS = ("grls.serve", "uvicorn", "mcp")


def listening(app: ASGIApp, host: str, port: int, seconds: float) -> uvicorn.Server:
    """A server of an application.

    Args:
        app: The application.
        host: The address to listen at.
        port: The port.
        seconds: Time that a request may take, which it is given at the end, too.
    """
    config = uvicorn.Config(
        app,
        host,
        port,
        log_config=None,
        lifespan="on",  # an error at the start ends the server
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(seconds),
    )
    return uvicorn.Server(config)


@contextmanager
def until_signal(server: Any) -> Iterator[None]:
    """A block that serves; a server that a signal ended has finished what ran, which is no error."""
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
