"""A retriever behind its queue: what a language model looks for is searched together with other requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter
from grls.data.types import Hit, Query
from grls.errors import ConfigError
from grls.retrieve.base import Description, Retriever
from grls.retrieve.queries import queries_of
from grls.serve.answers.gone import GivenUpError
from grls.serve.jobs import BatchKey, SearchJob
from grls.serve.served import Version
from grls.serve.worker import ShutdownError

_LOOK = 0.2
"""Seconds between two looks whether anybody waits for the answer."""
_ended = Lock()
"""One thread at a time searches versions whose own thread has ended."""


class QueuedRetriever:
    """Searches through the queue of a version.

    Args:
        version: The version.
        retriever: Its retriever, of the hops that are asked for.
        allow: The filter.
        gone: Whether nobody waits for the answer any more.
    """

    def __init__(
        self, version: Version, retriever: Retriever, allow: Filter | None, gone: Callable[[], bool]
    ):
        self.version, self.retriever, self._allow, self._gone = version, retriever, allow, gone

    @property
    def kind(self) -> str:
        """The kind of the retriever."""
        return self.retriever.kind

    @property
    def corpus(self) -> Corpus:
        """The corpus of the retriever."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """The description of the retriever."""
        return self.retriever.describe()

    def fingerprint(self) -> str:
        """The fingerprint of the retriever."""
        return self.retriever.fingerprint()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The hits of queries, under the filter of the request.

        Raises:
            ConfigError: There is another filter.
            GivenUpError: Nobody waits for the answer any more.
            QueueFullError: Too many requests wait.
        """
        if allow is not None:
            raise ConfigError("the filter of a question is that of its request.")
        key = BatchKey(self.retriever, k, self._allow, pooled=True)
        job = SearchJob([query.text for query in queries_of(queries)], key)
        try:
            self.version.worker.submit(job)
        except ShutdownError:  # a new version has taken over; this answer is still from the old one
            self.version.worker.close()
            with _ended:
                job.alone()
        return self._wait(job)

    def _wait(self, job: SearchJob) -> list[list[Hit]]:
        try:
            while not job.future.done():
                if self._gone():
                    raise GivenUpError
                try:
                    job.future.exception(_LOOK)
                except TimeoutError:
                    continue
            return job.future.result()
        finally:
            self.version.worker.withdraw(job)
