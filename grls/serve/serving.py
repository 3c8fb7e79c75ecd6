"""The state that the addresses of a server share: its retrievers, which are opened here, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from fastapi import Request

from grls.api.searcher import filter_of
from grls.data.filters import Filter
from grls.errors import ConfigError, Option
from grls.retrieve.base import Retriever, WrapsSingleSteps
from grls.retrieve.hops.options import HopOptions
from grls.serve.answers.options import NO_ANSWERS, AnswerOptions
from grls.serve.bodies import Filtered, HopsBody
from grls.serve.guards import Metrics
from grls.serve.options import RequestLimits
from grls.serve.problems import RefusalError
from grls.serve.served import Opened, Served, Version, open_served

if TYPE_CHECKING:
    from grls.serve.answers.answering import Answering


@dataclass
class Serving:
    """The state of a server.

    Args:
        retrievers: Name -> retriever, at least one.
        limits: The limits of requests.
        admin: The hash of the administrator's token; None: no administrator.
        metrics: The counts.
        answering: Its language model; None: no language model.
        ending: The server shuts down.
        examples: Queries to try, which the page offers; empty: those of the data set beside a retriever.
    """

    retrievers: dict[str, Served]
    limits: RequestLimits
    admin: bytes | None = None
    metrics: Metrics = field(default_factory=Metrics)
    answering: Answering | None = None
    ending: bool = False
    examples: tuple[str, ...] = ()

    def find(self, name: str | None) -> Served:
        """A retriever by its name; None: the first one.

        Raises:
            RefusalError: There is no retriever of this name.
        """
        known = next(iter(self.retrievers)) if name is None else name
        if known not in self.retrievers:
            text = f"there is no retriever of this name; there are {', '.join(self.retrievers)}."
            raise RefusalError(404, text)
        return self.retrievers[known]

    @property
    def alive(self) -> bool:
        """Whether every thread runs."""
        workers = [served.version.worker for served in self.retrievers.values()]
        workers += [] if self.answering is None else [self.answering.worker]
        return all(worker.alive for worker in workers)

    def questions(self) -> int:
        """The number of questions that wait for the language model."""
        return 0 if self.answering is None else len(self.answering.worker)

    def queues(self) -> list[tuple[str, int]]:
        """The number of requests that wait for each retriever."""
        return [(name, len(served.version.worker)) for name, served in self.retrievers.items()]

    def close(self) -> None:
        """Do the waiting jobs, and accept no further job."""
        self.ending = True
        if self.answering is not None:  # first, since its jobs need the retrievers
            self.answering.worker.close()
        for served in self.retrievers.values():
            served.version.worker.close()


def open_serving(
    folders: Sequence[str],
    limits: RequestLimits,
    device: str,
    precision: str,
    answer: AnswerOptions = NO_ANSWERS,
    numbers: Mapping[str, int] = MappingProxyType({}),
    requests: bool = True,
    say: Callable[[str], object] = lambda _: None,
) -> Serving:
    """Open retrievers, to be served.

    Args:
        folders: Folders, or ``name=folder``.
        limits: The limits of requests.
        device: The device of models.
        precision: The precision of retrievers.
        answer: The language model.
        numbers: See :func:`~grls.serve.served.open_served`.
        requests: Report the counts of requests, too.
        say: Called with a line for each folder that is open.

    Raises:
        ConfigError: A name or an option cannot be used.
        DataError: A folder is no retriever.
        MismatchError: A folder is damaged.
    """
    metrics, answering = Metrics(requests), None
    options = Opened(device, precision, limits, metrics.batch, metrics.parts, say=say)
    if answer.model is not None:
        from grls.serve.answers.answering import Answering  # late: a search does not need it

        answering = Answering(answer, device, metrics.answers)
        options = options._replace(prepare=answering.prepare)
    return Serving(open_served(folders, options, numbers), limits, metrics=metrics, answering=answering)


def serving(request: Request) -> Serving:
    """The state of the server that got a request."""
    return cast(Serving, request.app.state.serving)


def asked(state: Serving, body: Filtered, hops: HopsBody | None) -> tuple[Version, Retriever, Filter | None]:
    """The version, its retriever with the hops (None: those of its folder), and the filter of a request.

    Raises:
        RefusalError: The retriever is unknown, or a limit is exceeded.
        ConfigError: The filter cannot be read, or the retriever cannot retrieve in this way.
    """
    version = state.find(body.retriever).version
    options = None
    if hops is not None and (hops.steps, hops.max) != (None, None):
        retriever = version.retriever(None)
        stored = retriever.hops if isinstance(retriever, WrapsSingleSteps) else None
        options = hop_options(hops, state.limits, stored)
    return version, version.retriever(options), filter_of(body.where, body.allow)


def hop_options(hops: HopsBody, limits: RequestLimits, stored: HopOptions | None) -> HopOptions:
    """The options of hops, within the limits.

    Args:
        hops: The hops of the request: ``steps``, ``max`` or both.
        limits: The limits of the server.
        stored: The options of the folder, which hold where the request has the same ``steps``; None: a folder
            of single steps.

    Raises:
        RefusalError: There are too many hops.
        ConfigError: A single step has no hops.
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
    most = hops.max or min(options.count, limits.hops)
    check_limit(f"{Option('hops.max')}", most, limits.hops)
    return replace(options, max=most)


def check_queries(queries: list[str], limits: RequestLimits) -> None:
    """Refuse queries that are too many, too long or empty.

    Raises:
        RefusalError: A limit is exceeded, or a query has no text.
    """
    if not queries:
        raise RefusalError(422, "query: expected at least one query, got an empty list.")
    check_limit("query: the number of queries", len(queries), limits.queries)
    check_limit("query: the number of characters", max(map(len, queries)), limits.characters)
    if not all(query.strip() for query in queries):
        raise RefusalError(422, "query: a query is empty; ask something.")


def check_limit(name: str, value: int, most: int) -> None:
    """Refuse (RefusalError) a value above a limit."""
    if value > most:
        raise RefusalError(422, f"{name} is at most {most:,} on this server, got {value:,}.")
