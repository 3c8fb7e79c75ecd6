"""The middleware of the server: log, host names, CORS, keys, bodies and places; and its counts."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import re
import sys
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from time import perf_counter, time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grls.errors import DataError, Option, in_shell
from grls.io.files import named_lines
from grls.io.timing import Part
from grls.serve.options import RequestLimits, ServerOptions
from grls.serve.problems import GONE, problem, problem_for
from grls.serve.worker import RefusalError, busy


def guards(
    options: ServerOptions, hosts: frozenset[str] | None, metrics: Metrics, admin: bytes | None
) -> list[Middleware]:
    """The middleware of a server, from the outside to the inside.

    ``hosts``: the host names that requests may have; None: any. ``admin``: the hash of the
    administrator's token.
    """
    access = options.access
    keys = None if access.keys is None else read_keys(access.keys)
    middleware = [Middleware(head_as_get), Middleware(RequestLog, metrics=metrics)]
    if hosts is not None:
        middleware.append(Middleware(HostCheck, hosts=hosts))
    if access.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
        middleware.append(cors)
    middleware.append(Middleware(Gate, keys=keys, admin=admin))
    middleware.append(Middleware(Admission, limits=options.limits, most=options.most_requests))
    return middleware


def head_as_get(app: ASGIApp) -> ASGIApp:
    """Answers HEAD as GET; the protocol leaves the body of the answer out."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)

    return answer


ANY = "*"
"""Stands for every host name."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{0,5})?")
"""A header ``Host``: the name, which may end in a dot, and the port."""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def accepted_hosts(host: str, allowed: tuple[str, ...]) -> frozenset[str] | None:
    """The host names of a server at an address, with further names; None: any.

    Beyond this machine any name is accepted, unless further names are given.
    """
    if ANY in allowed or not (allowed or is_loopback(host)):
        return None
    bound = f"[{host.strip('[]')}]" if ":" in host else host
    return _LOOPBACK | {bound.lower()} | {name.lower() for name in allowed}


class HostCheck:
    """Lets requests pass that name one of the hosts of the server (:func:`accepted_hosts`).

    A web page can let its own name lead to 127.0.0.1 and so reach a server of this machine from a browser
    (DNS rebinding). Its requests still carry its name in the header ``Host``.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]):
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            values = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
            # HTTP/1.0 may have none; browsers send it.
            hosts = [_HOST.fullmatch(value.strip()) for value in values]
            if any(h is None or h[1].removesuffix(".") not in self._hosts for h in hosts):
                text = (
                    "the header Host names none of the hosts of this server; use its address, or name it as "
                    f"access.allowed_hosts in the file of {in_shell('server', ())}."
                )
                await problem(400, text)(scope, receive, send)
                return
        await self._app(scope, receive, send)


_BODIES = 64
"""Bodies of the largest size for which there is memory while they are read, and again while requests run."""


class Admission:
    """Lets requests in once their bodies are there.

    A body has ``limits.header`` seconds and ``limits.body`` bytes, and is only read where the address
    takes one. Requests to ``/v1`` and ``/mcp`` take one of ``most`` places, and bodies take room.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits, most: int):
        self._app, self._limits = app, limits
        self._places, self._room = most, _BODIES * limits.body
        self._reading: dict[asyncio.Timeout, int] = {}  # deadline of a body -> its bytes, the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        places = int(scope["path"].startswith(("/v1", "/mcp")))
        try:
            body = await self._body(scope, receive)
            if body is None:  # the client has gone
                return
            if self._places < places or self._room < len(body):
                raise busy("the server has too many requests; try again.", 1)
        except RefusalError as refusal:
            await problem_for(refusal)(scope, receive, send)
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            """The body, and then the further messages of the connection."""
            return messages.pop() if messages else await receive()

        self._places -= places
        self._room -= len(body)
        try:
            await self._app(scope, receive_again, send)
        finally:
            self._places += places
            self._room += len(body)

    async def _body(self, scope: Scope, receive: Receive) -> bytearray | None:
        """The body of a request, empty where the address takes none; None: the client has gone."""
        most, seconds = self._limits.body, min(self._limits.header, self._limits.seconds)
        takes = (route.matches(scope)[0] is Match.FULL for route in scope["app"].routes)
        if scope["method"] in ("GET", "OPTIONS") or not any(takes):
            return bytearray()
        text = f"a body has at most {most:,} bytes; send fewer or shorter queries."
        too_long = RefusalError(413, text, {"Connection": "close"})
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and (len(value) > 20 or int(value) > most):
                raise too_long
        body, more, deadline = bytearray(), True, asyncio.timeout(seconds)
        self._reading[deadline] = 0
        try:
            async with deadline:
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_long
                    if deadline in self._reading:
                        self._reading[deadline] = len(body)
                    if sum(self._reading.values()) > _BODIES * most:  # the oldest one's time is up
                        longest = next(iter(self._reading))
                        del self._reading[longest]
                        longest.reschedule(0)
        except TimeoutError:
            text = f"the body was not there within {seconds:g} s; send it faster, or a shorter one."
            raise RefusalError(408, text, {"Connection": "close"}) from None
        finally:
            self._reading.pop(deadline, None)
        return body


# Keys are compared by their hashes, so that the time of a comparison says nothing about them. They are never
# logged.

ADMIN = "GRLS_ADMIN_TOKEN"
"""The environment variable with the token of the administrator; with _FILE behind it: with the file of it."""
SHORTEST = 16
"""Least number of characters of a key or token."""


def read_keys(file: str | Path) -> frozenset[bytes]:
    lines = named_lines(Path(file), "an API key a line")
    for line, key in lines:
        if len(key.strip()) < SHORTEST:
            raise DataError(f"a key has at least {SHORTEST} characters; make a longer one.", file, line)
    return frozenset(_hashed(key.strip()) for _, key in lines)


def read_admin_token(file: str | Path | None) -> bytes | None:
    """The hash of the administrator's token, from a file, else from the environment, if there is one."""
    if file := file or os.environ.get(f"{ADMIN}_FILE"):
        ((line, token), *more) = named_lines(Path(file), "the token of the administrator")
        if more or len(token.strip()) < SHORTEST:
            raise DataError(f"expected one line with a token of {SHORTEST} characters or more.", file, line)
        return _hashed(token.strip())
    token = os.environ.get(ADMIN, "")
    if token and len(token) < SHORTEST:
        raise DataError(f"the environment variable {ADMIN} has fewer than {SHORTEST} characters.")
    return _hashed(token) if token else None


class Gate:
    """Lets requests pass that have the key or token that they need.

    Requests to ``/v1`` and ``/mcp`` need a key, those to ``/admin`` the token of the administrator. Both
    are known by their hashes. Without ``keys`` none is needed; without a token there is no administrator.
    """

    def __init__(self, app: ASGIApp, keys: frozenset[bytes] | None, admin: bytes | None):
        self._app, self._keys, self._admin = app, keys, admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        app, needed = self._app, ""
        if path.startswith(("/v1", "/mcp")) and self._keys is not None and _sent(scope) not in self._keys:
            needed = "an API key is needed: send the header `Authorization: Bearer KEY` with yours."
        elif path.startswith("/admin") and self._admin is None:
            text = (
                f"this server has no administrator: set access.admin in the file of {Option('server')}, or "
                f"the environment variable {ADMIN}."
            )
            app = problem(403, text)
        elif path.startswith("/admin") and not hmac.compare_digest(_sent(scope), self._admin or b""):
            needed = "the administrator's token is needed: send the header `Authorization: Bearer TOKEN`."
        if needed:
            app = problem(401, needed, {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)


def _sent(scope: Scope) -> bytes:
    """The hash of the token in the header ``Authorization``, or of an empty text."""
    kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    return _hashed(token.strip() if kind.lower() == "bearer" else "")


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


log = logging.getLogger("grls.serve.requests")
UNKNOWN = "unknown"
"""The address of requests to other addresses than those of the server."""


class JsonLines(logging.Formatter):
    """Formats records as JSON, one a line; line breaks are escaped, so no text can begin another line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": round(record.created, 3), "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= getattr(record, "values", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


_LOGS = ("grls", "uvicorn", "asyncio", "mcp")


def log_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in _LOGS:
        named = logging.getLogger(name)
        named.handlers, named.propagate = [handler], False
        quiet = name not in ("grls", "uvicorn")  # mcp writes what clients send
        named.setLevel(logging.WARNING if quiet else logging.INFO)


class RequestLog:
    """Writes a line for each request, without texts of the client, and counts it.

    The line names the request by an id of the server, and by the template of its address.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        except Exception:
            status = 500
            raise
        finally:
            seconds = perf_counter() - begun
            route = getattr(scope.get("route"), "path", UNKNOWN)
            self._metrics.request(route, status, seconds)
            values = {"request": name, "route": route, "status": status, "seconds": round(seconds, 4)}
            log.info("request", extra={"values": values | {"ended": round(time(), 3)}})


CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counts of a server: requests, queues, batches, parts of searches. No label is a client's text."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        sizes = partial(Histogram, registry=registry, buckets=_SIZES)
        seconds = partial(Histogram, registry=registry, buckets=_SECONDS)
        named = ("retriever",)
        self._requests = counter("grls_requests", "Requests, by address and status.", ("route", "status"))
        self._took = seconds("grls_request_seconds", "Seconds of a request.", ("route",))
        self._sizes = sizes("grls_batch_queries", "Queries that are searched together.", named)
        self._batches = seconds("grls_batch_seconds", "Seconds of a batch that none joins.", named)
        self._questions = sizes("grls_answer_questions", "Questions of a batch.")
        self._answers = seconds("grls_answer_seconds", "Seconds of a batch of questions.")
        text, parts = "Seconds of the parts of searches: encoder, decoder, constraint.", (*named, "part")
        self._part_seconds = counter("grls_part_seconds", text, parts)
        text = "Tokens read (encoder), scored (decoder), allowed (constraint)."
        self._part_tokens = counter("grls_part_tokens", text, parts)
        self.queues = Gauge("grls_queue_requests", "Requests that wait.", named, registry=registry)
        self.questions = Gauge("grls_answer_queue_questions", "Questions that wait.", registry=registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._took.labels(route).observe(seconds)

    def batch(self, retriever: str, queries: int, seconds: float | None = None) -> None:
        """Count queries that are searched together; ``seconds``: those of a finished batch."""
        self._sizes.labels(retriever).observe(queries)
        if seconds is not None:
            self._batches.labels(retriever).observe(seconds)

    def part(self, retriever: str, part: Part, seconds: float, tokens: int) -> None:
        self._part_seconds.labels(retriever, part).inc(seconds)
        self._part_tokens.labels(retriever, part).inc(tokens)

    def answers(self, questions: int, seconds: float) -> None:
        self._questions.observe(questions)
        self._answers.observe(seconds)

    def text(self) -> bytes:
        return bytes(generate_latest(self._registry))
