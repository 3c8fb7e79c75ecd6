"""Serves retrievers until a signal ends the server; what runs is finished."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import uvicorn

from grls.serve.access import read_admin_token
from grls.serve.answers.options import NO_ANSWERS, AnswerOptions
from grls.serve.app import create_app
from grls.serve.examples import queries_to_try
from grls.serve.hosts import accepted_hosts
from grls.serve.metrics import Metrics
from grls.serve.options import AccessOptions, RequestLimits
from grls.serve.request_log import JsonLines
from grls.serve.served import Opened, open_served
from grls.serve.serving import Serving

_LOGS = ("grls.serve", "uvicorn", "mcp")


def run_server(
    folders: Sequence[str],
    host: str,
    port: int,
    limits: RequestLimits,
    access: AccessOptions,
    device: str,
    precision: str,
    answer: AnswerOptions = NO_ANSWERS,
    examples: str | None = None,
    tools: bool = False,
) -> None:
    """Open retrievers and serve them.

    Args:
        folders: Folders, or ``name=folder``.
        host: The address to listen at.
        port: The port.
        limits: The limits of requests.
        access: Who may use the server.
        device: The device of models.
        precision: The precision of retrievers.
        answer: The language model.
        examples: File with queries to try.
        tools: Offer the tools of an agent at /mcp.

    Raises:
        ConfigError: A name or an option cannot be used.
        DataError: A folder is no retriever, or a file of keys or queries cannot be used.
        MismatchError: A folder is damaged.
    """
    admin = read_admin_token(access.admin)
    tried = () if examples is None else queries_to_try(examples)
    serving = _opened(folders, limits, device, precision, answer)
    serving.admin, serving.examples = admin, tried
    app = create_app(serving, access, accepted_hosts(host, access.allowed_hosts), tools)
    _log_lines()
    config = uvicorn.Config(
        app,
        host,
        port,
        log_config=None,
        lifespan="on",  # an error at the start ends the server
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(limits.seconds),
    )
    _serve(uvicorn.Server(config))


def run_stdio(folders: Sequence[str], limits: RequestLimits, device: str, precision: str) -> None:
    """Open retrievers and offer them as tools over standard input and output.

    Args:
        folders: Folders, or ``name=folder``.
        limits: The limits of calls.
        device: The device of models.
        precision: The precision of retrievers.

    Raises:
        ConfigError: A name or an option cannot be used.
        DataError: A folder is no retriever.
        MismatchError: A folder is damaged.
    """
    from grls.serve.tools.server import serve_stdio  # late: it needs an extra

    with redirect_stdout(sys.stderr):
        serving = _opened(folders, limits, device, precision, NO_ANSWERS)
    _log_lines()
    serve_stdio(serving)


def _opened(
    folders: Sequence[str], limits: RequestLimits, device: str, precision: str, answer: AnswerOptions
) -> Serving:
    metrics = Metrics()
    how, answering = Opened(device, precision, limits, metrics.batch, metrics.parts), None
    if answer.model is not None:
        from grls.serve.answers.answering import Answering  # late: it takes what no search needs

        answering = Answering(answer, device, metrics.answers)
        how = how._replace(prepare=answering.prepare)
    return Serving(open_served(folders, how), limits, metrics=metrics, answering=answering)


def _serve(server: Any) -> None:
    """Serve until a signal; a server that a signal ended has finished what ran, which is no error."""
    try:
        server.run()
    except (KeyboardInterrupt, SystemExit):
        if not (server.started and server.should_exit):
            raise


def _log_lines() -> None:
    """Write the log of the server as lines of JSON to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in _LOGS:
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.WARNING if name == "mcp" else logging.INFO)  # mcp writes what clients send
