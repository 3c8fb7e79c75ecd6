"""The language model of a server, with the thread that it answers in."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from grls.answer.direct import DirectReader
from grls.answer.dsp import programs
from grls.answer.dsp.answering import kept_of, reading_of
from grls.answer.dsp.programs import Branch, answer_one
from grls.answer.dsp.retrieval import Retrieval, Scale
from grls.answer.iterative import IterativeReader
from grls.answer.kept import answer_record
from grls.answer.opening import is_probable
from grls.answer.riches.answerer import Riches, record_of
from grls.answer.riches.keys import build_keys, keys_in
from grls.answer.riches.prompts import Prompt
from grls.answer.writer import TextWriter
from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter
from grls.data.types import Hit, Query
from grls.errors import ConfigError, GrlsError
from grls.io.ending import require
from grls.models.load.build import Loaded, load_language_model, shared_models
from grls.retrieve.base import Description, Retriever
from grls.retrieve.queries import queries_of
from grls.serve.answers.options import PROGRAMS, AnswerMethod, AnswerOptions
from grls.serve.served import Version
from grls.serve.worker import BatchKey, SearchJob, ShutdownError, Worker, deliver, deliver_error


class Answering:
    """Answers questions, one batch at a time.

    Args:
        options: Model and options.
        device: The device of the model.
        watch: Called after each batch with its number of questions and its seconds.

    Raises:
        ConfigError: There is no such model, or an extra is missing.
    """

    def __init__(
        self, options: AnswerOptions, device: str, watch: Callable[[int, float], object] = lambda *_: None
    ):
        self.options = options
        self._loaded: Loaded | None = None
        self._programs: ServedPrograms | None = None
        self._riches: WeakKeyDictionary[Version, Riches] = WeakKeyDictionary()
        self.worker = Worker("grls-serve-answers", options.queue, options.reader.batch_size, watch)
        assert options.model is not None
        with shared_models():
            if not options.is_remote:
                self._loaded = load_language_model(options.model, device)
            if set(options.methods) & set(PROGRAMS):
                require("dsp", "a program that answers")
                self._programs = ServedPrograms(options, device)

    def prepare(self, version: Version) -> None:
        """Make what answers from a version need: the keys that may be quoted.

        Raises:
            ConfigError: The keys cannot be made in this way.
            DataError: There is nothing to quote.
            IndexFormatError: The keys of the folder are damaged.
            MismatchError: The keys of the folder belong to another corpus or model.
        """
        if "riches" not in self.options.methods:
            return
        assert self._loaded is not None
        corpus = version.searcher.corpus
        for other in list(self._riches.values()):
            if other.corpus.fingerprint == corpus.fingerprint:
                self._riches[version] = other
                return
        model, tokenizer, keys, prompt = *self._loaded, self.options.keys, self.options.prompt
        how: Any = (keys.kind, keys.anywhere, keys.propositions, prompt.markers)
        if keys.folder is None:
            quotable = build_keys(corpus, tokenizer, *how)
        else:
            quotable = keys_in(keys.folder, corpus, tokenizer, *how)
        written = Prompt(**asdict(prompt))
        self._riches[version] = Riches(model, tokenizer, corpus, quotable, written, self.options.search)

    def answer(self, jobs: Sequence[AnswerJob]) -> list[Record]:
        """The records of questions of one key, as ``grls answer`` writes them; in the thread of the model.

        Raises:
            GivenUpError: Nobody waits for any of them any more.
            GrlsError: They cannot be answered.
        """

        def gone() -> bool:
            return all(job.future.done() for job in jobs)

        with ending_when(gone, None if self._loaded is None else self._loaded.model):
            how, reader = jobs[0].how, self.options.reader
            found = QueuedRetriever(how.version, how.retriever, how.allow, gone)
            if how.method in PROGRAMS:
                assert self._programs is not None
                return self._programs.answer(jobs, found)
            assert self._loaded is not None
            queries, corpus, k = [job.query for job in jobs], found.corpus, how.k
            if how.method == "riches":
                program = self._riches[how.version]
                if how.max_new_tokens is not None:
                    program = copy.copy(program)
                    program.options = replace(program.options, max_new_tokens=how.max_new_tokens)
                return [record_of(*pair) for pair in zip(queries, program.answer(queries), strict=True)]
            length = how.max_new_tokens or reader.max_new_tokens
            writer = TextWriter(self._loaded.model, self._loaded.tokenizer, length, reader.batch_size)
            if how.method == "direct":
                direct = DirectReader(writer, corpus, reader.chat)
                readings = direct.retrieve_and_answer(queries, found, k, k)
            else:
                iterative = IterativeReader(writer, found, corpus, k, reader.questions, reader.chat)
                readings = iterative.answer(queries)
            return [answer_record(*pair, corpus) for pair in zip(queries, readings, strict=True)]


# Programs of demonstrate-search-predict as a method of the server; it needs the extra ``dsp``.


logging.getLogger("dspy").setLevel(logging.CRITICAL)  # failures go to the log of the server


class ServedPrograms:
    """Answers by programs.

    Args:
        options: Model and options.
        device: The device of a model in this process.

    Raises:
        ConfigError: The model cannot be opened.
    """

    def __init__(self, options: AnswerOptions, device: str):
        assert options.model is not None
        calls = options.dsp.calls
        self._options = options.dsp
        self._lm = programs.lm_named(options.model, calls, device).lm
        self._adapter = programs.adapter_named(calls.filled(options.model)[0], calls.attempts)

    def answer(self, jobs: Sequence[AnswerJob], found: QueuedRetriever) -> list[Record]:
        """The records of questions, which are answered at the same time."""
        how, dsp = jobs[0].how, self._options
        limit = how.max_new_tokens
        lm = self._lm if limit is None else self._lm.copy(max_tokens=limit)
        scale: Scale = "log" if is_probable(found.retriever) else "softmax"
        built = programs.program_named(how.method, Retrieval(found, found.corpus, how.k, scale), dsp)
        program = Branch(built, dsp.branches, dsp.temperature, dsp.vote)

        def answer(job: AnswerJob) -> Record:
            inputs = {"question": job.query.text}
            if how.method == "conversational":
                inputs["history"] = job.history
            record: Record = answer_one(program, job.query.id, inputs, lm, self._adapter)
            return answer_record(job.query, reading_of(record), found.corpus) | kept_of(record)

        with ThreadPoolExecutor(dsp.calls.threads) as pool:
            return list(pool.map(answer, jobs))


# A retriever behind its queue: what a language model looks for is searched together with other requests.


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


# A question as a job of the thread of the language model. The module does not know HTTP.


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

    def work(self, batch: Sequence[AnswerJob], queue: Worker) -> bool:
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


# A language model ends what nobody waits for: the step of the model raises an error.


class GivenUpError(GrlsError):
    """Nobody waits for an answer any more."""

    def __init__(self) -> None:
        super().__init__("nobody waits for this answer any more.")


@contextmanager
def ending_when(gone: Callable[[], bool], model: Any) -> Iterator[None]:
    """For the time of a block, each step of a model raises a :class:`GivenUpError` once nobody waits.

    Args:
        gone: Whether nobody waits any more.
        model: The model; None: it does not run in this process.
    """
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
