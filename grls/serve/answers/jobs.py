"""A question as a job of the thread of the language model. The module does not know HTTP."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from grls.data.filters import Filter
from grls.data.types import Query
from grls.retrieve.base import Retriever
from grls.serve.answers.gone import GivenUpError
from grls.serve.answers.options import AnswerMethod
from grls.serve.served import Version
from grls.serve.worker import JobQueue, deliver, deliver_error

Record = dict[str, Any]
"""A line of the answers that ``grls answer`` writes."""


class AnswerKey(NamedTuple):
    """What questions have in common that are answered together.

    Attributes:
        method: The method.
        version: The version that they are answered from.
        retriever: Its retriever, of the hops that are asked for.
        allow: The filter.
        k: Passages to read.
        max_new_tokens: Length limit; None: that of the server.
    """

    method: AnswerMethod
    version: Version
    retriever: Retriever
    allow: Filter | None
    k: int
    max_new_tokens: int | None


class AnswerJob:
    """A question; its result is the record of its answer.

    Args:
        query: The question.
        history: The conversation before it, a turn a line.
        how: How it is answered.
        answer: Answers several jobs of one key.
    """

    def __init__(
        self,
        query: Query,
        history: str,
        how: AnswerKey,
        answer: Callable[[Sequence[AnswerJob]], list[Record]],
    ):
        self.query, self.history, self.how, self.size = query, history, how, 1
        self._answer = answer
        self.future: Future[Record] = Future()
        self.tries = 0

    @property
    def key(self) -> Hashable:
        """Questions of one method, retriever, filter, k and length limit go together."""
        method, version, retriever, *rest = self.how
        return method, version, id(retriever), *rest

    def work(self, batch: Sequence[AnswerJob], queue: JobQueue) -> bool:
        """Answer a batch; where it fails, each question alone, so that an error finds its request."""
        try:
            for job, record in zip(batch, self._answer(batch), strict=True):
                deliver(job, record)
        except GivenUpError as error:  # all are cancelled, or the thread of a retriever was lost
            for job in batch:
                deliver_error(job, error)
        except Exception as error:
            if len(batch) == 1:
                deliver_error(self, error)
            for job in batch if len(batch) > 1 else ():
                if not job.future.done():
                    job.work([job], queue)
        return False
