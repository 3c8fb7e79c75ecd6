"""What the thread of a retriever does: searches, hops of a stream, and other calls.

Where retrievals join a search (:mod:`grls.retrieve.joins`), searches and streams of all retrievers that share
it are done together, with those that come in meanwhile. Other searches are answered together with those of
one retriever, k and filter; other streams make one hop a turn, so that requests come in between. The module
does not know HTTP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from itertools import islice
from threading import RLock
from typing import Any, NamedTuple, Protocol, cast

from grls.api.streaming import StreamedHop, plan_hops, stream_hops
from grls.api.texts import with_texts
from grls.data.filters import Filter
from grls.data.types import Hit, Query
from grls.retrieve.base import Retriever
from grls.retrieve.hops.retriever import plan_search, search_hits
from grls.retrieve.joins import JoiningPlan, LetsJoin, Plan, RunsPlans, runner_of
from grls.serve.worker import Job, JobQueue, deliver, deliver_error


class BatchKey(NamedTuple):
    """What searches have in common that are answered together.

    Attributes:
        retriever: The retriever, of the hops that are asked for.
        k: Largest number of hits of a query.
        allow: The filter.
        pooled: The chains of a query are one ranking, as readers of answers get them; else the best one is
            the result.
    """

    retriever: Retriever
    k: int
    allow: Filter | None
    pooled: bool = False


class JoiningJob(Job, Protocol):
    """A job whose retrievals can join a search."""

    def plans(self) -> list[Plan[Any]]:
        """Its retrievals."""
        ...

    def finish(self, results: list[Any]) -> None:
        """Deliver the results of its retrievals."""
        ...

    def alone(self) -> None:
        """Do it without others, or fail."""
        ...


class SearchJob:
    """A search of one request; its result is a list of hits for each query.

    Args:
        queries: The queries, at least one.
        batch_key: How they are searched.
    """

    def __init__(self, queries: Sequence[str], batch_key: BatchKey):
        self.queries, self.batch_key, self.size = queries, batch_key, len(queries)
        self.future: Future[list[list[Hit]]] = Future()
        self.tries = 0

    @cached_property
    def key(self) -> Hashable:
        """Retrievals that join one search go together; other searches by retriever, k and filter."""
        retriever, *rest = self.batch_key
        runner = runner_of(retriever)
        return (id(retriever), *rest) if runner is None else id(runner)

    def work(self, batch: Sequence[JoiningJob], queue: JobQueue) -> bool:
        """Answer a batch; where it fails, each request alone, so that an error finds its request."""
        runner = runner_of(self.batch_key.retriever)
        if runner is None:
            self._together(cast("Sequence[SearchJob]", batch))
        else:
            self._join(runner, JoiningJobs(batch, queue))
        return False

    def plans(self) -> list[Plan[list[Hit]]]:
        """The retrievals of its queries."""
        retriever, k, allow, pooled = self.batch_key
        lets = cast(LetsJoin, retriever)
        plan = lets.plan if pooled else partial(plan_search, lets)
        return [plan(Query(str(n), text), k, allow) for n, text in enumerate(self.queries)]

    def finish(self, results: list[list[Hit]]) -> None:
        """Deliver the hits of its queries."""
        deliver(self, with_texts(results, self.batch_key.retriever.corpus))

    def alone(self) -> None:
        """Answer this request, or fail."""
        try:
            deliver(self, self._found(self.queries))
        except Exception as error:
            deliver_error(self, error)

    def _join(self, runner: RunsPlans, source: JoiningJobs) -> None:
        do_together(runner, source)

    def _together(self, batch: Sequence[SearchJob]) -> None:
        try:
            rankings = iter(self._found([query for job in batch for query in job.queries]))
            for job in batch:
                deliver(job, list(islice(rankings, job.size)))
        except Exception as error:
            if len(batch) == 1:
                deliver_error(self, error)
            for job in batch if len(batch) > 1 else ():
                job.alone()

    def _found(self, queries: Sequence[str]) -> list[list[Hit]]:
        retriever, k, allow, pooled = self.batch_key
        find = retriever.retrieve if pooled else partial(search_hits, retriever)
        return with_texts(find(queries, k, allow), retriever.corpus)


class StreamJob:
    """The hops of a query; its result is None, when the last hop is out.

    Args:
        retriever: The retriever.
        query: The query.
        allow: The filter of every hop.
        emit: Called with each hop, in the thread of the retriever.
    """

    def __init__(
        self, retriever: Retriever, query: str, allow: Filter | None, emit: Callable[[StreamedHop], object]
    ):
        self._retriever, self._query, self._allow, self._emit = retriever, query, allow, emit
        self.future: Future[None] = Future()
        self.size, self.tries = 1, 0
        self._sent = 0  # hops that are out

    @cached_property
    def key(self) -> Hashable:
        """A stream goes with those whose search it joins, or alone."""
        runner = runner_of(self._retriever)
        return None if runner is None else id(runner)

    @cached_property
    def _hops(self) -> Any:
        return stream_hops(self._retriever, self._query, self._allow, RLock())

    def work(self, batch: Sequence[JoiningJob], queue: JobQueue) -> bool:
        """Make a hop, or all hops with others; whether there may be more."""
        runner = runner_of(self._retriever)
        if runner is not None:
            do_together(runner, JoiningJobs(batch, queue))
            return False
        self.tries = 1  # a hop that is lost cannot be made again
        hop = next(self._hops, None)
        if hop is not None:
            self._send(hop)
        if hop is None or hop.last:
            deliver(self, None)
        return not self.future.done()

    def plans(self) -> list[Plan[None]]:
        """The retrieval of its hops; those that are out are made again, and not sent."""
        lets = cast(LetsJoin, self._retriever)
        return [plan_hops(lets, Query("0", self._query), self._allow, self._send)]

    def finish(self, results: list[None]) -> None:
        """Report that all hops are out."""
        deliver(self, None)

    def alone(self) -> None:
        """Make all hops, or fail."""
        try:
            for hop in stream_hops(self._retriever, self._query, self._allow, RLock()):
                if self.future.done():
                    return
                self._send(hop)
            deliver(self, None)
        except Exception as error:
            deliver_error(self, error)

    def _send(self, hop: StreamedHop) -> None:
        if hop.number > self._sent:
            self._sent = hop.number
            self._emit(hop)


def do_together(runner: RunsPlans, source: JoiningJobs) -> None:
    """Do jobs in one search; where it fails, each alone, so that an error finds its request."""
    try:
        runner.run_plans(source)
    except Exception:
        for job in source.jobs():
            if not job.future.done():
                job.alone()


class _Owner(NamedTuple):
    """A retrieval of a request."""

    job: JoiningJob
    place: int


class JoiningJobs:
    """The retrievals of requests that join a search while it runs; see :class:`PlanSource`.

    Args:
        batch: The requests that begin.
        queue: Where further requests of their key come from.
    """

    def __init__(self, batch: Sequence[JoiningJob], queue: JobQueue):
        self._queue, self._key = queue, batch[0].key
        self._plans: deque[JoiningPlan] = deque()
        self._found: dict[JoiningJob, dict[int, Any]] = {}
        for job in batch:
            self._add(job)

    def waiting(self) -> int:
        """The number of retrievals that may join now."""
        return len(self._plans) + self._queue.joining(self._key)

    def take(self, most: int) -> list[JoiningPlan]:
        """At most so many retrievals, which join now."""
        for job in self._queue.join(self._key, most - len(self._plans)):
            self._add(job)
        plans = [self._plans.popleft() for _ in range(min(most, len(self._plans)))]
        for job in [job for job in self._found if job.future.done()]:  # cancelled, or failed
            del self._found[job]
        if plans:
            self._queue.began(sum(job.size - len(got) for job, got in self._found.items()) - len(self._plans))
        return [plan for plan in plans if not self.gone(plan.owner)]

    def jobs(self) -> list[JoiningJob]:
        """The requests that are not answered."""
        return list(self._found)

    def gone(self, owner: _Owner) -> bool:
        """Whether nobody wants the result of a retrieval: its request is cancelled, or has failed."""
        return owner.job.future.done()

    def answer(self, owner: _Owner, result: Any) -> None:
        """The result of a retrieval; with the last one, its request is answered."""
        found = self._found.get(owner.job)
        if found is None:  # its request has failed
            return
        found[owner.place] = result
        if len(found) == owner.job.size:
            del self._found[owner.job]
            owner.job.finish([found[place] for place in range(owner.job.size)])

    def fail(self, owner: _Owner, error: Exception) -> None:
        """A retrieval cannot be done, and so its request fails."""
        deliver_error(owner.job, error)

    def _add(self, job: JoiningJob) -> None:
        self._found[job] = {}
        self._plans += [JoiningPlan(plan, _Owner(job, place)) for place, plan in enumerate(job.plans())]


class CallJob:
    """A call that needs the retriever for itself; its result is what the function returns.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[[], Any]):
        self._function, self.size = function, 1
        self.future: Future[Any] = Future()
        self.tries = 0

    @property
    def key(self) -> Hashable:
        """A call goes alone."""
        return None

    def work(self, batch: Sequence[CallJob], queue: JobQueue) -> bool:
        """Call the function."""
        deliver(self, self._function())
        return False
