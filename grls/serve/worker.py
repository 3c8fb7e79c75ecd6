"""The thread of a retriever: jobs wait in its queue, and those that go together are done as one batch.

The queue is bounded. A job that is withdrawn leaves it at once. A thread that dies is replaced, and its
jobs are done again. The module does not know what a job does.

Clients that were answered together ask again together, but their requests come in one by one. The first would
be done alone, while the others wait. So a batch that holds up nobody waits a moment, until there are as many
jobs as were there at once before: models read several queries together in less time.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import cached_property, partial
from itertools import islice, takewhile
from threading import Condition, RLock, Thread
from time import perf_counter
from typing import Any, NamedTuple, Protocol, cast

from grls.api.streaming import StreamedHop, plan_hops, stream_hops, with_texts
from grls.data.filters import Filter
from grls.data.types import Hit, Query
from grls.errors import GrlsError
from grls.io.files import PartCounts, counting
from grls.retrieve.base import JoiningPlan, LetsJoin, Plan, Retriever, RunsPlans, runner_of
from grls.retrieve.hops.retriever import plan_search, search_hits

log = logging.getLogger(__name__)


accepted: ContextVar[bool] = ContextVar("accepted", default=False)
"""Whether the request was accepted before, by a process that died; then no full queue refuses it."""

_TRIES = 2
"""How often a job is begun, if its thread dies."""
_SHARE, _MOST = 0.1, 0.02
"""How long a batch waits for others: a share of the time of the one before, and seconds at the most."""
_LONGEST = 60
"""Largest number of seconds after which a client is asked to come back."""


class QueueFullError(GrlsError):
    """As many requests wait as may wait.

    Args:
        seconds: When to try again.
    """

    def __init__(self, seconds: int):
        super().__init__(f"the queue is full; try again in {seconds} s.")
        self.seconds = seconds


class ShutdownError(GrlsError):
    """The server ends, and accepts nothing more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down; send the request to another one, or later.")


class Job(Protocol):
    """What a request asks of a retriever.

    Attributes:
        future: Gets the result, or the error; cancelled by those who do not want it any more.
        size: The number of its queries.
        tries: How often it was begun.
    """

    future: Future[Any]
    size: int
    tries: int

    @property
    def key(self) -> Hashable:
        """Jobs of one key go together; None: the job goes alone."""
        ...

    def work(self, batch: Sequence[Any], queue: Worker) -> bool:
        """Do a batch, in which this job is the first; whether the batch goes on at its next turn."""
        ...


class Worker:
    """A thread with a queue.

    Args:
        name: Name of the thread.
        most: Largest number of jobs that wait.
        batch: Largest number of queries of a batch; a job with more is a batch of its own.
        watch: Called after each batch that none joins, with its number of queries and its seconds.
        spent: The counts to which the thread adds.
        joined: Called when queries have joined, with the number of those that are searched then.
    """

    def __init__(
        self,
        name: str,
        most: int,
        batch: int,
        watch: Callable[[int, float], object],
        spent: PartCounts | None = None,
        joined: Callable[[int], object] = lambda _: None,
    ):
        self._name, self._most, self._batch, self._watch = name, most, batch, watch
        self._spent, self._joined, self._joins = spent or PartCounts(), joined, False
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._closing = False
        self._seconds = 0.0  # of a job, smoothed
        self._marked = 0.0  # when jobs last began
        self._now: list[Job] = []  # the batch that is done
        self._present, self._until = 0, 0.0  # the number of jobs that a batch waits for, and until when
        self._thread: Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether the thread runs, or has not been needed yet."""
        return self._thread is None or self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Let a job wait.

        Raises:
            QueueFullError: Too many jobs wait.
            ShutdownError: The worker is closed.
        """
        with self._changed:
            if self._closing:
                raise ShutdownError
            if len(self._waiting) >= self._most and not accepted.get():
                raise QueueFullError(min(_LONGEST, max(1, math.ceil(self._seconds * len(self._waiting)))))
            self._waiting.append(job)
            begun = sum(not job.future.done() for job in self._now)
            self._present = max(self._present, len(self._waiting) + begun)
            if self._thread is None:
                self._start()
            self._changed.notify()

    def joining(self, key: Hashable) -> int:
        """The number of queries of the jobs of a key that may join the batch: those before any other job."""
        with self._changed:
            return sum(job.size for job in takewhile(lambda job: job.key == key, self._waiting))

    def join(self, key: Hashable, queries: int) -> Sequence[Any]:
        """Jobs of this key that join the batch: as many as bring so many queries, or one job more."""
        joined: list[Job] = []
        with self._changed:
            if all(job.future.done() for job in self._now):  # nobody is held up
                self._expect()
                self._gather()
            while queries > 0 and self._waiting and self._waiting[0].key == key:
                joined.append(self._waiting.popleft())
                joined[-1].tries += 1
                queries -= joined[-1].size
        if joined:  # a search may go on for hours, so those that are done are forgotten
            self._now[:] = [job for job in self._now if not job.future.done()] + joined
            self._mark(len(joined))
        return joined

    def began(self, queries: int) -> None:
        """Report the number of queries that are searched, after others have joined."""
        self._joins = True
        self._joined(queries)

    def withdraw(self, job: Job) -> None:
        """Cancel a job; if it waits, its place is free at once."""
        job.future.cancel()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self) -> None:
        """Accept nothing more, do what waits, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self._next():
                self._do()
        except BaseException:
            log.exception("the thread %s ended; another one goes on", self._name)
            with self._changed:  # the jobs of its batch wait again, before all others
                for job in reversed(self._now):
                    if job.tries < _TRIES and not job.future.done():
                        self._waiting.appendleft(job)
                    else:
                        deliver_error(job, RuntimeError("the thread of the retriever ended"))
                self._start()

    def _next(self) -> bool:
        """Take the next batch: the oldest job and those of its key; whether there is one."""
        with self._changed:
            self._now = []
            while not self._waiting:
                if self._closing:
                    return False
                self._changed.wait()
            self._gather()
            if not self._waiting:  # withdrawn meanwhile
                return True
            first = self._waiting.popleft()
            batch, size, left = self._now, first.size, deque[Job]()
            batch.append(first)
            for job in self._waiting if first.key is not None else ():
                if job.key == first.key and size + job.size <= self._batch:
                    batch.append(job)
                    size += job.size
                else:
                    left.append(job)
            if first.key is not None:
                self._waiting = left
        return True

    def _expect(self) -> None:
        """Note that a batch is answered: its clients may ask again."""
        now = perf_counter()
        self._until = now + min(_MOST, _SHARE * (now - self._marked))

    def _gather(self) -> None:
        """Wait a moment for as many jobs as were there at once; those that do not come are forgotten."""
        while len(self._waiting) < self._present and not self._closing:
            left = self._until - perf_counter()
            if left <= 0:
                break
            self._changed.wait(left)
        self._present = len(self._waiting)

    def _do(self) -> None:
        batch = self._now = [job for job in self._now if not job.future.cancelled()]
        if not batch:
            return
        size, begun = sum(job.size for job in batch), perf_counter()
        self._marked, self._joins = begun, False
        for job in batch:
            job.tries += 1
        first = batch[0]
        try:
            with counting(self._spent):
                again = first.work(tuple(batch), self)
            if again:
                with self._changed:
                    self._waiting.extend(batch)
            else:
                self._expect()
        except Exception as error:  # it belongs to those who wait for the jobs
            for job in batch:
                deliver_error(job, error)
        self._mark(len(batch))
        if not self._joins:
            self._watch(size, perf_counter() - begun)

    def _mark(self, jobs: int) -> None:
        """Note the seconds of a job, from those since jobs last began."""
        now = perf_counter()
        self._seconds = 0.8 * self._seconds + 0.2 * (now - self._marked) / max(1, jobs)
        self._marked = now


def deliver(job: Job, result: object) -> None:
    """Give a job its result, unless it is cancelled or has one."""
    if not job.future.done() and job.future.set_running_or_notify_cancel():
        job.future.set_result(result)


def deliver_error(job: Job, error: BaseException) -> None:
    """Give a job its error, unless it is cancelled or has a result."""
    if not job.future.done() and job.future.set_running_or_notify_cancel():
        job.future.set_exception(error)


# What the thread of a retriever does: searches, hops of a stream, and other calls.
#
# Where retrievals join a search (:mod:`grls.retrieve.base`), searches and streams of all retrievers that
# share it are done together, with those that come in meanwhile. Other searches are answered together with
# those of one retriever, k and filter; other streams make one hop a turn, so that requests come in between.
# The module does not know HTTP.


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

    def work(self, batch: Sequence[JoiningJob], queue: Worker) -> bool:
        """Answer a batch; where it fails, each request alone, so that an error finds its request."""
        runner = runner_of(self.batch_key.retriever)
        if runner is not None:
            self._join(runner, JoiningJobs(batch, queue))
            return False
        searches = cast("Sequence[SearchJob]", batch)
        try:
            rankings = iter(self._found([query for job in searches for query in job.queries]))
            for job in searches:
                deliver(job, list(islice(rankings, job.size)))
        except Exception as error:
            if len(searches) == 1:
                deliver_error(self, error)
            for job in searches if len(searches) > 1 else ():
                job.alone()
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

    def work(self, batch: Sequence[JoiningJob], queue: Worker) -> bool:
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
        """The retrieval of its hops; hops that were sent are retrieved again, and not sent twice."""
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


JoiningJob = SearchJob | StreamJob
"""A job whose retrievals can join a search."""


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

    def __init__(self, batch: Sequence[JoiningJob], queue: Worker):
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

    def work(self, batch: Sequence[CallJob], queue: Worker) -> bool:
        """Call the function."""
        deliver(self, self._function())
        return False
