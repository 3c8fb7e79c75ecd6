"""What a request passes before it is handled: log, host names, CORS, keys, rates, bound of the body."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from grls.serve.access import Gate, read_keys
from grls.serve.bodylimit import BodyLimit
from grls.serve.hosts import HostCheck
from grls.serve.metrics import RequestCounts
from grls.serve.options import AccessOptions, RequestLimits
from grls.serve.request_log import RequestLog


def guards(
    limits: RequestLimits, access: AccessOptions, hosts: frozenset[str] | None, counts: RequestCounts
) -> list[Middleware]:
    """The middleware of a server, from the outside to the inside.

    Args:
        limits: The limits of requests.
        access: Who may use the server.
        hosts: The host names that requests may have (:func:`grls.serve.hosts.accepted_hosts`); None: any.
        counts: Counts the requests.

    Raises:
        DataError: The file of keys cannot be used.
    """
    keys = None if access.keys is None else read_keys(access.keys)
    passed = [Middleware(RequestLog, counts=counts)]
    if hosts is not None:
        passed.append(Middleware(HostCheck, hosts=hosts))
    if access.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
        passed.append(cors)
    passed.append(Middleware(Gate, keys=keys, rate=access.rate))
    passed.append(Middleware(BodyLimit, most=limits.body, seconds=limits.seconds))
    return passed
