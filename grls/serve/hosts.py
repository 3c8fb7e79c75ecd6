"""Refuses requests for host names that are not those of the server.

A web page can let its own name lead to 127.0.0.1 and so reach a server of this machine from a browser (DNS
rebinding). Its requests still carry its name in the header ``Host``.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from grls.errors import in_shell
from grls.serve.problems import problem

ANY = "*"
"""Stands for every host name."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{0,5})?")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def accepted_hosts(host: str, allowed: tuple[str, ...]) -> frozenset[str] | None:
    """The host names of a server; None: any.

    Args:
        host: The address that it listens at.
        allowed: Further names. An address beyond this machine has any name, unless there are some here.
    """
    if ANY in allowed or not (allowed or is_loopback(host)):
        return None
    bound = f"[{host.strip('[]')}]" if ":" in host else host
    return _LOOPBACK | {bound.lower()} | {name.lower() for name in allowed}


class HostCheck:
    """Lets requests pass that name the server.

    Args:
        app: The application behind it.
        hosts: Its names (:func:`accepted_hosts`).
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]):
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not self._accepts(scope):
            text = (
                "the header Host names none of the hosts of this server; use its address, or start it with "
                f"{in_shell('access.allowed_hosts', ())}."
            )
            await problem(400, text)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _accepts(self, scope: Scope) -> bool:
        names = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        return bool(names) and all(host_of(name) in self._hosts for name in names)


def host_of(header: str) -> str | None:
    """The name in a header ``Host``, without port and final dot; None: it is no such header."""
    match = _HOST.fullmatch(header.strip())
    return None if match is None else match[1].removesuffix(".")
