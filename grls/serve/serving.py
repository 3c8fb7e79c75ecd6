"""The state that the addresses of a server share: its retrievers, which are loaded here, and its limits.

Below: find the retriever of a request, check its limits, and wait for its job until it is done, its time
is up, or the client is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fastapi import Request

from grls.api.searcher import filter_of
from grls.data.filters import Filter
from grls.errors import ConfigError, DataError, GrlsError, Option
from grls.io.progress import counted
from grls.retrieve.base import Retriever, WrapsSingleSteps
from grls.retrieve.hops.options import UNLABELLED, HopOptions
from grls.retrieve.spec import read_spec
from grls.serve.bodies import Filtered, HopsBody
from grls.serve.guards import Metrics, read_admin_token
from grls.serve.options import URL, RequestLimits, ServerOptions
from grls.serve.problems import GONE
from grls.serve.served import Served, Version, queries_to_try, sampled_metadata, set_loaded_aside
from grls.serve.worker import Job, RefusalError, Worker, busy

if TYPE_CHECKING:
    from grls.serve.answering import Answering


class Serving:
    """The state of a server.

    Attributes:
        options: What it serves, and how.
        retrievers: Name -> retriever, at least one once they are loaded.
        loading: The names of the retrievers while they are loaded, then empty.
        admin: The hash of the administrator's token; None: no administrator.
        examples: Queries to try, which the page offers; empty: those of the data set beside a retriever.
        answering: The language model, if there is one and it is loaded.
        ending: The server shuts down.
        reload: Loads a new version of a retriever.
    """

    def __init__(self, options: ServerOptions):
        for folder in options.folders.values():
            read_spec(folder)  # refuses one that is no retriever before anything is loaded
        self.options, self.metrics, self.ending = options, Metrics(), False
        self.retrievers: dict[str, Served] = {}
        self.loading = tuple(options.folders)
        self.admin = read_admin_token(options.access.admin)
        self.examples = () if options.examples is None else queries_to_try(options.examples)
        self.answering: Answering | None = None
        self.reload: Callable[[Served], Version] = Served.reload

    @property
    def limits(self) -> RequestLimits:
        return self.options.limits

    def load(
        self,
        numbers: Mapping[str, int] = MappingProxyType({}),
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Load the language model and the retrievers.

        ``numbers``: name -> number of its version, else 1. ``say`` is called with a line for each open
        folder.
        """
        options, metrics = self.options, self.metrics
        prepare = None
        if options.answer.model is not None:
            from grls.serve.answering import Answering  # late: a search does not need it

            self.answering = Answering(options.answer, options.device, metrics)
            prepare = self.answering.prepare
        retrievers: dict[str, Served] = {}
        for name, folder in options.folders.items():
            begun = perf_counter()
            retrievers[name] = Served(name, folder, options, metrics, prepare, numbers.get(name, 1))
            searcher, seconds = retrievers[name].version.searcher, perf_counter() - begun
            passages = counted(len(searcher.corpus), "passage")
            say(f"{name}: {searcher.retriever.kind}, {passages}, loaded in {seconds:.1f} s")
        set_loaded_aside()
        if options.url_field != URL:
            corpora = [served.version.searcher.corpus for served in retrievers.values()]
            fields = {name for corpus in corpora for record in sampled_metadata(corpus) for name in record}
            if options.url_field not in fields:
                raise ConfigError(
                    f"{Option('url_field', options.url_field)}: no passage has this field of metadata; there "
                    f"are {', '.join(sorted(fields)) or 'none'}."
                )
        self.retrievers, self.loading = retrievers, ()

    def check_loaded(self) -> None:
        if self.loading:
            text = f"the server is loading {', '.join(self.loading)}; try again once /ready answers 200."
            raise busy(text)

    def find(self, name: str | None) -> Served:
        """A retriever by its name; None: the first one."""
        self.check_loaded()
        known = next(iter(self.retrievers)) if name is None else name
        if known not in self.retrievers:
            text = f"there is no retriever of this name; there are {', '.join(self.retrievers)}."
            raise RefusalError(404, text)
        return self.retrievers[known]

    def close(self) -> None:
        """Do the waiting jobs, and accept no further job."""
        self.ending = True
        if self.answering is not None:  # first, since its jobs need the retrievers
            self.answering.worker.close()
        for served in self.retrievers.values():
            served.version.worker.close()


def serving(request: Request) -> Serving:
    return cast(Serving, request.app.state.serving)


def retrieval_of(
    state: Serving, body: Filtered, hops: HopsBody | None
) -> tuple[Version, Retriever, Filter | None]:
    """The version, its retriever with the hops of the request (None: of its folder), and the filter."""
    version = state.find(body.retriever).version
    options = None
    if hops is not None and (hops.steps, hops.max) != (None, None):
        retriever = version.retriever(None)
        stored = retriever.hops if isinstance(retriever, WrapsSingleSteps) else None
        options = hop_options(hops, state.limits, stored)
    retriever = version.retriever(options)
    taken = retriever.hops.count if isinstance(retriever, WrapsSingleSteps) else 0
    if options is not None and taken > state.limits.hops:
        retriever = version.retriever(replace(options, max=state.limits.hops))
    return version, retriever, filter_of(body.where, body.allow)


def hop_options(hops: HopsBody, limits: RequestLimits, stored: HopOptions | None) -> HopOptions:
    """The options of hops; a number in the request is within the limits.

    ``stored`` are those of the folder, which hold where the request has the same ``steps``; None: a
    folder of single steps.
    """
    steps = hops.steps or (stored.steps if stored is not None else "fixed")
    if steps == "single":
        if hops.max is not None:
            raise ConfigError(
                f"{Option('hops.max')}: a single step has no hops; leave max out, or choose other steps."
            )
        return HopOptions()
    options = HopOptions(steps=steps)
    if stored is not None and stored.steps == steps:
        options = stored
    elif stored is not None and steps == "fixed":  # a chain of as many hops as the folder makes
        options = replace(options, max=stored.count)
    if hops.max is None:
        return options
    check_limit(f"{Option('hops.max')}", hops.max, limits.hops)
    if options.onward == UNLABELLED:  # of hops without a number
        options = replace(options, onward=None)
    return replace(options, max=hops.max)


def check_queries(queries: list[str], limits: RequestLimits) -> None:
    if not queries:
        raise RefusalError(422, "query: expected at least one query, got an empty list.")
    check_limit("query: the number of queries", len(queries), limits.queries)
    check_limit("query: the number of characters", max(map(len, queries)), limits.characters)
    if not all(query.strip() for query in queries):
        raise RefusalError(422, "query: a query is empty; ask something.")


def check_limit(name: str, value: int, most: int) -> None:
    if value > most:
        raise RefusalError(422, f"{name} is at most {most:,} on this server, got {value:,}.")


_Result = TypeVar("_Result")


def late(seconds: float) -> RefusalError:
    text = f"the request took longer than the {seconds:g} s that one may take; ask for less, or try again."
    return busy(text)


async def outcome(
    request: Request | None, version: Version, job: Job, seconds: float, worker: Worker | None = None
) -> Any:
    """Let a job wait for its thread (None: that of the retriever), and return its result.

    If the client of ``request`` goes, the job is withdrawn; None: a job without an HTTP request.
    """
    worker = version.worker if worker is None else worker  # an idle one has the length 0
    worker.submit(job)
    try:
        return await while_there(request, asyncio.wrap_future(job.future), seconds)
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
    """The result of an awaitable, which is cancelled if the client goes or the time is up."""
    work = asyncio.ensure_future(awaited)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if request is not None:
        gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((work, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise RefusalError(GONE, "the client has gone.") if gone.done() else late(seconds)
    finally:
        work.cancel()
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
