"""Who may use the server: API keys, the token of the administrator, and rates.

Keys are compared by their hashes, so that the time of a comparison says nothing about them. They are never
logged.
"""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from hashlib import sha256
from math import ceil
from pathlib import Path
from time import monotonic

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from grls.errors import DataError, Option
from grls.io.files import named_lines
from grls.serve.problems import RefusalError, problem

ADMIN = "GRLS_ADMIN_TOKEN"
"""The environment variable with the token of the administrator."""
SHORTEST = 16
"""Least number of characters of a key or token."""
_CLIENTS = 10_000
"""Clients whose rates are known; the one that was seen longest ago is forgotten first."""


def read_keys(file: str | Path) -> frozenset[bytes]:
    """The hashes of the keys in a file, one a line.

    Raises:
        DataError: The file is missing or empty, or a key is too short.
    """
    lines = named_lines(Path(file), "an API key a line")
    for line, key in lines:
        if len(key.strip()) < SHORTEST:
            raise DataError(f"a key has at least {SHORTEST} characters; make a longer one.", file, line)
    return frozenset(_hashed(key.strip()) for _, key in lines)


def read_admin_token(file: str | Path | None) -> bytes | None:
    """The hash of the administrator's token: of a file, else of the environment; None: there is none.

    Raises:
        DataError: The file is missing, or the token is too short.
    """
    if file is not None:
        ((line, token), *more) = named_lines(Path(file), "the token of the administrator")
        if more or len(token.strip()) < SHORTEST:
            raise DataError(f"expected one line with a token of {SHORTEST} characters or more.", file, line)
        return _hashed(token.strip())
    token = os.environ.get(ADMIN, "")
    if token and len(token) < SHORTEST:
        raise DataError(f"the environment variable {ADMIN} has fewer than {SHORTEST} characters.")
    return _hashed(token) if token else None


class Rates:
    """Counts the requests of clients: each has a bucket that fills up within a minute.

    Args:
        rate: Requests a minute.
    """

    def __init__(self, rate: float):
        self._rate, self._burst = rate / 60, max(1.0, rate)
        self._left: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # client -> requests left, when

    def wait(self, client: bytes) -> float:
        """Count a request; the seconds until the client may send another one, 0 if it may now."""
        now = monotonic()
        left, when = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - when) * self._rate)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate


class Gate:
    """Lets requests to ``/v1`` and ``/mcp`` pass that have a key, if one is needed, and are within the rate.

    Args:
        app: The application behind it.
        keys: The hashes of the keys (:func:`read_keys`); None: no key is needed.
        rate: Requests a minute of a key or an address; None: any number.
    """

    def __init__(self, app: ASGIApp, keys: frozenset[bytes] | None, rate: float | None):
        self._app, self._keys = app, keys
        self._rates = None if rate is None else Rates(rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        limited = self._keys is not None or self._rates is not None
        if limited and scope["type"] == "http" and scope["path"].startswith(("/v1", "/mcp")):
            try:
                self._check(Request(scope))
            except RefusalError as refusal:
                await problem(refusal.status, str(refusal), refusal.headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        client = "" if request.client is None else request.client.host
        who = client.encode()
        if self._keys is not None:
            who = _hashed(token_of(request))
            if who not in self._keys:
                text = "an API key is needed: send the header `Authorization: Bearer KEY` with yours."
                raise RefusalError(401, text, {"WWW-Authenticate": "Bearer"})
        seconds = 0.0 if self._rates is None else self._rates.wait(who)
        if seconds > 0:
            text = f"too many requests; send the next one in {ceil(seconds)} s."
            raise RefusalError(429, text, {"Retry-After": str(ceil(seconds))})


def check_admin(request: Request, token: bytes | None) -> None:
    """Refuse a request without the token of the administrator.

    Raises:
        RefusalError: The token is missing or wrong, or the server has none.
    """
    if token is None:
        raise RefusalError(
            403,
            f"this server has no administrator: start it with {Option('access.admin', 'FILE')}, or with the "
            f"environment variable {ADMIN}.",
        )
    if not hmac.compare_digest(_hashed(token_of(request)), token):
        text = "the administrator's token is needed: send the header `Authorization: Bearer TOKEN`."
        raise RefusalError(401, text, {"WWW-Authenticate": "Bearer"})


def token_of(request: Request) -> str:
    """The token in the header ``Authorization``, or an empty text."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
