"""The thread of a retriever: jobs wait in its queue, and jobs of one key are done as one batch.

The queue is bounded. A job that is withdrawn leaves it at once.

Clients that were answered together ask again together, but their requests come in one by one. So a batch
that holds up nobody waits a moment, until the queue is as long as before.

Where retrievals join a search (:mod:`grls.retrieve.base`), searches and streams of all retrievers that
share it are done together, with requests that come in meanwhile. Other searches are answered with those
of one retriever, k and filter; other streams make one hop a turn, so that requests come in between.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice, takewhile
from threading import Condition, RLock, Thread
from time import perf_counter
from typing import Any, NamedTuple, cast

from grls.api.streaming import StreamedHop, plan_hops, stream_hops
from grls.data.filters import Filter
from grls.data.types import Hit, Query
from grls.errors import GrlsError
from grls.io.progress import reporting
from grls.io.timing import Part, PartCounts, counting
from grls.retrieve.base import LetsJoin, Plan, Retriever, runner_of
from grls.retrieve.hits import plan_search, search_hits, with_texts

_SHARE, _MOST = 0.1, 0.02
"""A batch waits for jobs for this share of the seconds of the batch before, at most for so many seconds."""
_LONGEST = 60
"""Largest number of seconds after which a client is asked to come back."""


class RefusalError(GrlsError):
    """A request that is refused, with the status of the response, its detail, and further headers."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None):
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})


def busy(detail: str, seconds: int = 5) -> RefusalError:
    """The refusal of a request that may be sent again after some seconds."""
    return RefusalError(503, detail, {"Retry-After": str(seconds)})


class ClosedError(RefusalError):
    """The refusal of a worker that is being closed, or is closed."""

    def __init__(self) -> None:
        refusal = busy("the server is shutting down; send the request to another one, or later.")
        super().__init__(refusal.status, refusal.text, refusal.headers)


class GivenUpError(GrlsError):
    """The clients of a job have gone."""

    def __init__(self) -> None:
        super().__init__("nobody waits for this answer any more.")


class Job:
    """The work of a request.

    Attributes:
        size: The number of its queries.
        key: Jobs of one key form a batch; None: the job is a batch alone.
        future: Gets the result, or the error; cancelled when the client has gone.
        check: Called before texts are read, and before a result is delivered; an error takes its place.
    """

    check: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, size: int = 1, key: Hashable = None):
        self.size, self.key = size, key
        self.future: Future[Any] = Future()

    def deliver(self, result: object) -> None:
        """Set the result, unless the job is cancelled or has one."""
        if not self.future.done():
            self.check()
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set an error, unless the job is cancelled or has a result."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def work(self, batch: Sequence[Any], queue: Worker) -> bool:
        """Do a batch, in which this job is the first; whether the batch goes on at its next turn."""
        raise NotImplementedError

    def alone(self, queue: Worker) -> None:
        """Do this job of a batch that failed."""
        self.work((self,), queue)


class Worker:
    """A thread with a queue.

    Args:
        name: Name of the thread.
        most: Largest number of jobs that wait.
        batch: Largest number of queries of a batch; a job with more is a batch of its own.
        watch: Called after each batch with its number of queries and its seconds; when queries have joined,
            with the number of queries that are searched then.
        spend: Called with each part of a search, its seconds and its tokens.
        wait: Largest number of seconds that a job is expected to wait.
        check: Called before a job waits, before a batch, and as the check of jobs; an error refuses the jobs.
    """

    def __init__(
        self,
        name: str,
        most: int,
        batch: int,
        watch: Callable[..., object],
        spend: Callable[[Part, float, int], object] = lambda *_: None,
        wait: float = math.inf,
        check: Callable[[], object] = lambda: None,
    ):
        self._name, self._most, self._batch, self._watch = name, most, batch, watch
        self._wait, self._check = wait, check
        self._spend, self._joins = spend, False
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self.closing = False
        self._seconds = 0.0  # of a job, smoothed
        self._marked = 0.0  # the time at which jobs last began
        self._batch_jobs: list[Job] = []
        self._present, self._until = 0, 0.0  # jobs that a batch waits for, and its deadline
        self._thread: Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, job: Job) -> None:
        job.check = self._check
        self._check()
        with self._changed:
            if self.closing:
                raise ClosedError
            seconds = self._seconds * len(self._waiting)
            if len(self._waiting) >= self._most:
                again = min(_LONGEST, max(1, math.ceil(seconds)))
                raise busy(f"the queue is full; try again in {again} s.", again)
            if seconds > self._wait:
                again = min(_LONGEST, max(1, math.ceil(seconds - self._wait)))
                text = f"requests wait too long for this retriever; try again in {again} s."
                raise RefusalError(429, text, {"Retry-After": str(again)})
            self._waiting.append(job)
            begun = sum(not job.future.done() for job in self._batch_jobs)
            self._present = max(self._present, len(self._waiting) + begun)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def joining(self, key: Hashable) -> int:
        """How many queries may join the batch: those of the first jobs in the queue, all of this key."""
        with self._changed:
            return sum(job.size for job in takewhile(lambda job: job.key == key, self._waiting))

    def join(self, key: Hashable, queries: int) -> Sequence[Any]:
        """Jobs of a key that join the batch, with at least so many queries if the queue has them."""
        joined: list[Job] = []
        with self._changed:
            if all(job.future.done() for job in self._batch_jobs):  # nobody is held up
                self._expect()
                self._gather()
            while queries > 0 and self._waiting and self._waiting[0].key == key:
                joined.append(self._waiting.popleft())
                queries -= joined[-1].size
        if joined:  # a search may go on for hours, so finished jobs are dropped
            self._batch_jobs[:] = [job for job in self._batch_jobs if not job.future.done()] + joined
            self._mark(len(joined))
        return joined

    def began(self, queries: int) -> None:
        self._joins = True
        self._watch(queries)

    def withdraw(self, job: Job) -> None:
        job.future.cancel()
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self) -> None:
        """Accept no further job, do the waiting jobs, and end the thread."""
        with self._changed:
            self.closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while self._next():
            self._do()

    def _next(self) -> bool:
        """Take the next batch, the oldest job and jobs of its key; False: the worker is closed."""
        with self._changed:
            self._batch_jobs = []
            while not self._waiting:
                if self.closing:
                    return False
                self._changed.wait()
            self._gather()
            if not self._waiting:  # withdrawn meanwhile
                return True
            first = self._waiting.popleft()
            batch, size, others = self._batch_jobs, first.size, deque[Job]()
            batch.append(first)
            for job in self._waiting if first.key is not None else ():
                if job.key == first.key and size + job.size <= self._batch:
                    batch.append(job)
                    size += job.size
                else:
                    others.append(job)
            if first.key is not None:
                self._waiting = others
        return True

    def _expect(self) -> None:
        """Note that a batch is answered: its clients may ask again."""
        now = perf_counter()
        self._until = now + min(_MOST, _SHARE * (now - self._marked))

    def _gather(self) -> None:
        """Wait a moment for as many jobs as waited at once before; jobs that do not come are forgotten."""
        while len(self._waiting) < self._present and not self.closing:
            seconds = self._until - perf_counter()
            if seconds <= 0:
                break
            self._changed.wait(seconds)
        self._present = len(self._waiting)

    def _do(self) -> None:
        batch = self._batch_jobs = [job for job in self._batch_jobs if not job.future.cancelled()]
        if not batch:
            return
        size, begun = sum(job.size for job in batch), perf_counter()
        self._marked, self._joins = begun, False
        counts = _JobCounts(self._spend, batch)
        with counting(counts), reporting(counts.step):
            try:
                self._check()
                if batch[0].work(tuple(batch), self):
                    with self._changed:
                        self._waiting.extend(batch)
                else:
                    self._expect()
            except BaseException as error:  # belongs to the clients; the thread never ends by it
                final = isinstance(error, GivenUpError) or not isinstance(error, Exception)
                final |= len(batch) == 1 and not self._joins
                for job in batch:  # each alone, so that an error finds its request
                    if final:
                        job.fail(error)
                    elif not job.future.done():
                        try:
                            self._check()
                            job.alone(self)
                        except BaseException as own:
                            job.fail(own)
        self._mark(len(batch))
        if not self._joins:
            self._watch(size, perf_counter() - begun)

    def _mark(self, jobs: int) -> None:
        now = perf_counter()
        self._seconds = 0.8 * self._seconds + 0.2 * (now - self._marked) / max(1, jobs)
        self._marked = now


class _JobCounts(PartCounts):
    """Counts for a thread, and ends the work of its jobs once nobody waits for them."""

    def __init__(self, spend: Callable[[Part, float, int], object], jobs: Sequence[Job]):
        super().__init__()
        self._spend, self._jobs = spend, jobs

    def add(self, part: Part, seconds: float, tokens: int) -> None:
        self._spend(part, seconds, tokens)

    def step(self, *_: object) -> None:
        """End the work where the clients of all jobs have gone, or their time is up."""
        if all(job.future.done() for job in self._jobs):
            raise GivenUpError


class BatchKey(NamedTuple):
    """What all searches of a batch share; the retriever has the hops of the request.

    ``pooled``: the result is one ranking of all chains of a query, for readers of answers; else the best
    chain.
    """

    retriever: Retriever
    k: int
    allow: Filter | None
    pooled: bool = False


class SearchJob(Job):
    """A search of one request; its result is a list of hits for each query.

    Its key is the search that its retrievals join; of another search, retriever, k and filter.
    """

    future: Future[list[list[Hit]]]

    def __init__(self, queries: Sequence[str], batch_key: BatchKey):
        retriever, *rest = batch_key
        self._runner = runner_of(retriever)
        own = (id(retriever), *rest)
        super().__init__(len(queries), own if self._runner is None else id(self._runner))
        self.queries, self.batch_key = queries, batch_key

    def work(self, batch: Sequence[Any], queue: Worker) -> bool:
        if self._runner is not None:
            self._runner.run_plans(JoiningJobs(batch, queue))
            return False
        hits = iter(self.hits([query for job in batch for query in job.queries]))
        for job in batch:
            job.deliver(list(islice(hits, len(job.queries))))
        return False

    def alone(self, queue: Worker) -> None:
        self.deliver(self.hits(self.queries))

    def plans(self) -> list[Plan[list[Hit]]]:
        retriever, k, allow, pooled = self.batch_key
        lets = cast(LetsJoin, retriever)
        plan = lets.plan if pooled else partial(plan_search, lets)
        return [plan(Query(str(n), text), k, allow) for n, text in enumerate(self.queries)]

    def finish(self, results: list[list[Hit]]) -> None:
        self.check()  # texts are read from files, too
        self.deliver(with_texts(results, self.batch_key.retriever.corpus))

    def hits(self, queries: Sequence[str]) -> list[list[Hit]]:
        retriever, k, allow, pooled = self.batch_key
        find = retriever.retrieve if pooled else partial(search_hits, retriever)
        rankings = find(queries, k, allow)
        self.check()
        return with_texts(rankings, retriever.corpus)


class StreamJob(Job):
    """The hops of a query, given to ``emit`` in the thread of the retriever; the result is None."""

    def __init__(
        self, retriever: Retriever, query: str, allow: Filter | None, emit: Callable[[StreamedHop], object]
    ):
        self._runner = runner_of(retriever)
        super().__init__(key=None if self._runner is None else id(self._runner))
        self._retriever, self._query, self._allow, self._emit = retriever, query, allow, emit
        self._hops = stream_hops(retriever, query, allow, RLock(), lambda: self.check())
        self._sent = 0  # hops that are sent

    def work(self, batch: Sequence[JoiningJob], queue: Worker) -> bool:
        """Make a hop, or all hops in a search with other jobs; whether further hops may follow."""
        if self._runner is not None:
            self._runner.run_plans(JoiningJobs(batch, queue))
            return False
        hop = next(self._hops, None)
        if hop is not None:
            self._send(hop)
        if hop is None or hop.last:
            self.deliver(None)
        return not self.future.done()

    def plans(self) -> list[Plan[None]]:
        """The retrieval of its hops; hops that were sent are retrieved again, and not sent twice."""
        lets = cast(LetsJoin, self._retriever)
        return [plan_hops(lets, Query("0", self._query), self._allow, self._send, self.check)]

    def finish(self, results: list[None]) -> None:
        self.deliver(None)

    def alone(self, queue: Worker) -> None:
        for hop in self._hops:
            if self.future.done():
                return
            self._send(hop)
        self.deliver(None)

    def _send(self, hop: StreamedHop) -> None:
        if hop.number > self._sent:
            self.check()
            self._sent = hop.number
            self._emit(hop)


JoiningJob = SearchJob | StreamJob
"""A job whose retrievals can join a search."""


class _Owner(NamedTuple):
    job: JoiningJob
    number: int


class JoiningJobs:
    """The retrievals of requests that join a search while it runs; see :class:`PlanSource`.

    The requests of ``batch`` begin; further requests of their key come from ``queue``.
    """

    def __init__(self, batch: Sequence[JoiningJob], queue: Worker):
        self._queue, self._key = queue, batch[0].key
        self._plans: deque[tuple[Plan[Any], _Owner]] = deque()
        self._results: dict[JoiningJob, dict[int, Any]] = {}
        for job in batch:
            self._add(job)

    def waiting(self) -> int:
        return len(self._plans) + self._queue.joining(self._key)

    def take(self, most: int) -> list[tuple[Plan[Any], _Owner]]:
        for job in self._queue.join(self._key, most - len(self._plans)):
            self._add(job)
        plans = [self._plans.popleft() for _ in range(min(most, len(self._plans)))]
        for job in [job for job in self._results if job.future.done()]:  # cancelled, or failed
            del self._results[job]
        if plans:
            self._queue.began(
                sum(job.size - len(results) for job, results in self._results.items()) - len(self._plans)
            )
        return [pair for pair in plans if not self.gone(pair[1])]

    def gone(self, owner: _Owner) -> bool:
        return owner.job.future.done()

    def answer(self, owner: _Owner, result: Any) -> None:
        """The result of a retrieval; with the last one, its request is answered."""
        results = self._results.get(owner.job)
        if results is None:  # its request has failed
            return
        results[owner.number] = result
        if len(results) == owner.job.size:
            owner.job.finish([results[number] for number in range(owner.job.size)])
            del self._results[owner.job]

    def fail(self, owner: _Owner, error: Exception) -> None:
        owner.job.fail(error)

    def _add(self, job: JoiningJob) -> None:
        self._results[job] = {}
        self._plans += [(plan, _Owner(job, number)) for number, plan in enumerate(job.plans())]


class CallJob(Job):
    """A call that needs the retriever for itself; its result is that of the function."""

    def __init__(self, function: Callable[[], Any]):
        super().__init__()
        self._function = function

    def work(self, batch: Sequence[CallJob], queue: Worker) -> bool:
        self.deliver(self._function())
        return False
