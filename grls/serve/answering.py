"""The language model of a server, with the thread that it answers in.

Its searches go through the queue of the retriever, where they share batches with other searches. An
answer whose client has gone is ended.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from grls.answer.direct import DirectReader
from grls.answer.dsp.answering import written_of
from grls.answer.dsp.lm import adapter_named, lm_named
from grls.answer.dsp.programs import answer_one, program_named
from grls.answer.dsp.retrieval import Retrieval, Scale
from grls.answer.iterative import IterativeReader
from grls.answer.riches.answerer import Riches
from grls.answer.riches.keys import build_keys
from grls.answer.writer import TextWriter
from grls.data.filters import Filter
from grls.data.types import Hit, Query
from grls.io.ending import require
from grls.models.load.build import Loaded
from grls.models.load.language import load_language_model, shared_models
from grls.retrieve.base import Retriever, has_log_probabilities
from grls.serve.guards import Metrics
from grls.serve.options import PROGRAMS, AnswerMethod, AnswerOptions
from grls.serve.served import Version
from grls.serve.worker import (
    BatchKey,
    ClosedError,
    GivenUpError,
    Job,
    SearchJob,
    Worker,
)


class Answering:
    """Answers questions, one batch at a time."""

    def __init__(self, options: AnswerOptions, device: str, metrics: Metrics):
        self.options = options
        self._loaded: Loaded | None = None
        self._riches: WeakKeyDictionary[Version, Riches] = WeakKeyDictionary()
        size = options.reader.batch_size
        self.worker = Worker("grls-serve-answers", options.queue, size, metrics.answers)
        metrics.questions.set_function(self.worker.__len__)
        assert options.model is not None
        with shared_models():
            if not options.is_remote:
                self._loaded = load_language_model(options.model, device)
            if set(options.methods) & set(PROGRAMS):
                require("dsp", "a program that answers")
                self._lm = lm_named(options.model, options.dsp.calls, device)[0]
                template, _ = options.dsp.calls.filled(options.model)
                self._adapter = adapter_named(template, options.dsp.calls.attempts)

    def prepare(self, version: Version) -> None:
        """Make the keys that answers from a version may quote."""
        if "riches" not in self.options.methods:
            return
        assert self._loaded is not None
        corpus = version.searcher.corpus
        for other in list(self._riches.values()):
            if other.corpus.fingerprint == corpus.fingerprint:
                self._riches[version] = other
                return
        model, tokenizer, keys, prompt = *self._loaded, self.options.keys, self.options.prompt
        quotable = build_keys(corpus, tokenizer, keys, prompt.markers)
        self._riches[version] = Riches(model, tokenizer, corpus, quotable, prompt, self.options.search)

    def answer(self, jobs: Sequence[AnswerJob]) -> list[Record]:
        """The records of questions of one key, as ``grls answer`` writes them; in the thread of the model."""

        def gone() -> bool:
            return all(job.future.done() for job in jobs)

        with ending_when(gone, None if self._loaded is None else self._loaded.model):
            answer_key, reader = jobs[0].answer_key, self.options.reader
            retriever = QueuedRetriever(answer_key.version, answer_key.retriever, answer_key.allow, gone)
            if answer_key.method in PROGRAMS:
                return self._by_program(jobs, retriever)
            assert self._loaded is not None
            queries, corpus, k = [job.query for job in jobs], answer_key.retriever.corpus, answer_key.k
            limit = answer_key.max_new_tokens
            if answer_key.method == "riches":
                program = self._riches[answer_key.version]
                if limit is not None:
                    program = copy.copy(program)
                    program.options = replace(program.options, max_new_tokens=limit)
                answer = program.answer
            else:
                model, tokenizer = self._loaded
                writer = TextWriter(model, tokenizer, limit or reader.max_new_tokens, reader.batch_size)
                answer = IterativeReader(writer, retriever, corpus, k, reader.questions, reader.chat).answer
                if answer_key.method == "direct":
                    answer = DirectReader(writer, retriever, corpus, k, chat=reader.chat).answer
            return [written.record(query) for query, written in zip(queries, answer(queries), strict=True)]

    def _by_program(self, jobs: Sequence[AnswerJob], retriever: QueuedRetriever) -> list[Record]:
        answer_key, dsp, corpus = jobs[0].answer_key, self.options.dsp, jobs[0].answer_key.retriever.corpus
        limit = answer_key.max_new_tokens
        lm = self._lm if limit is None else self._lm.copy(max_tokens=limit)
        scale: Scale = "log" if has_log_probabilities(answer_key.retriever) else "softmax"
        retrieval = Retrieval(retriever, corpus, answer_key.k, scale)
        program = program_named(answer_key.method, retrieval, dsp)

        def answer(job: AnswerJob) -> Record:
            inputs = {"question": job.query.text}
            if answer_key.method == "conversational":
                inputs["history"] = job.history
            record: Record = answer_one(program, job.query.id, inputs, lm, self._adapter)
            return written_of(record, corpus).record(job.query) | {"cost": record["cost"]}

        with ThreadPoolExecutor(dsp.calls.threads) as pool:
            return list(pool.map(answer, jobs))


logging.getLogger("dspy").setLevel(logging.CRITICAL)  # failures go to the log of the server

_LOOK = 0.2
"""Seconds between two looks whether a client waits for the answer."""
_ended = Lock()
"""One thread at a time searches versions whose own thread has ended."""


class QueuedRetriever:
    """Searches through the queue of a version, with the hops and the filter of a request.

    They end once ``gone`` says that the client has gone.
    """

    def __init__(
        self, version: Version, retriever: Retriever, allow: Filter | None, gone: Callable[[], bool]
    ):
        self.version, self.retriever, self._allow, self._gone = version, retriever, allow, gone

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        key = BatchKey(self.retriever, k, self._allow, pooled=True)
        job = SearchJob([query.text for query in queries], key)
        worker = self.version.worker
        try:
            worker.submit(job)
        except ClosedError:
            worker.close()  # a new version has taken over; this answer is still from the old version
            with _ended:
                job.check()
                job.alone(worker)
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
            worker.withdraw(job)


Record = dict[str, Any]
"""A line of the answers that ``grls answer`` writes."""


class AnswerKey(NamedTuple):
    """What all questions of a batch share; ``retriever`` has the hops of the request."""

    method: AnswerMethod
    version: Version
    retriever: Retriever
    allow: Filter | None
    k: int
    max_new_tokens: int | None


class AnswerJob(Job):
    """A question, with the conversation before it, a turn a line; its result is the record of its answer.

    Questions of one key are answered together, by ``answer``.
    """

    def __init__(
        self,
        query: Query,
        history: str,
        answer_key: AnswerKey,
        answer: Callable[[Sequence[AnswerJob]], list[Record]],
    ):
        method, version, retriever, *rest = answer_key
        super().__init__(key=(method, version, id(retriever), *rest))
        self.query, self.history, self.answer_key, self._answer = query, history, answer_key, answer

    def work(self, batch: Sequence[AnswerJob], queue: Worker) -> bool:
        for job, record in zip(batch, self._answer(batch), strict=True):
            job.deliver(record)
        return False


@contextmanager
def ending_when(gone: Callable[[], bool], model: Any) -> Iterator[None]:
    """A block in which each step of the model raises :class:`GivenUpError` once ``gone`` is true."""
    if model is None:
        yield
        return

    def check(*_: object) -> None:
        if gone():
            raise GivenUpError

    hook = model.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()
