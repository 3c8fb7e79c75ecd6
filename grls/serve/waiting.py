"""Waiting for a job: until it is done, its time is up, or the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request

from grls.errors import ConfigError, DataError, GrlsError
from grls.serve.problems import GONE, RefusalError
from grls.serve.served import Version
from grls.serve.worker import Job, Worker

_Result = TypeVar("_Result")


class ClientGoneError(RefusalError):
    """The client does not wait for the response any more."""

    def __init__(self) -> None:
        super().__init__(GONE, "the client has gone.")


def late(seconds: float) -> RefusalError:
    """The refusal of a request that takes too long."""
    text = f"the request took longer than the {seconds:g} s that one may take; ask for less, or try again."
    return RefusalError(503, text, {"Retry-After": "5"})


async def outcome(
    request: Request | None, version: Version, job: Job, seconds: float, worker: Worker | None = None
) -> Any:
    """Let a job wait for its thread, and return its result.

    Args:
        request: The request; if its client goes, the job is withdrawn; None: a job without an HTTP request.
        version: The retriever.
        job: The job.
        seconds: Time that it may take.
        worker: The thread; None: the thread of the retriever.

    Raises:
        RefusalError: The time is up, the client is gone, or the retriever refuses the request.
        QueueFullError: Too many requests wait.
    """
    worker = version.worker if worker is None else worker  # an idle one has the length 0
    worker.submit(job)
    try:
        return await while_there(request, asyncio.wrap_future(job.future), seconds)
    except RefusalError:
        raise
    except GrlsError as error:
        raise public_error(version, error) from error
    finally:
        worker.withdraw(job)


def public_error(version: Version, error: GrlsError) -> GrlsError:
    """The error of a retriever, without paths of this machine."""
    if type(error) not in (ConfigError, DataError):
        return error
    text = error.text.replace(version.searcher.corpus.source, f"the corpus of {version.name}")
    return type(error)(text.replace(str(version.searcher.folder), version.name))


async def while_there(request: Request | None, awaited: Awaitable[_Result], seconds: float) -> _Result:
    """The result of an awaitable, which is cancelled if the client goes or the time is up.

    None is a client that does not go.

    Raises:
        ClientGoneError: The client is gone.
        RefusalError: The time is up.
    """
    work = asyncio.ensure_future(awaited)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if request is not None:
        gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((work, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientGoneError if gone.done() else late(seconds)
    finally:
        work.cancel()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
