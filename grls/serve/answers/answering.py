"""The language model of a server, with the thread that it answers in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from grls.answer.riches.answerer import Riches
from grls.io.extras import require
from grls.models.load.language import LanguageModel, load_language_model, shared_models
from grls.serve.answers.gone import ending_when
from grls.serve.answers.jobs import AnswerJob, Record
from grls.serve.answers.methods import (
    answer_by_follow_ups,
    answer_directly,
    answer_with_quotes,
    riches_over,
)
from grls.serve.answers.options import PROGRAMS, AnswerOptions
from grls.serve.answers.through import QueuedRetriever
from grls.serve.served import Version
from grls.serve.worker import Worker

if TYPE_CHECKING:
    from grls.serve.answers.programs import ServedPrograms


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
        self._loaded: LanguageModel | None = None
        self._programs: ServedPrograms | None = None
        self._riches: WeakKeyDictionary[Version, Riches] = WeakKeyDictionary()
        self.worker = Worker("grls-serve-answers", options.queue, options.reader.batch_size, watch)
        with shared_models():
            self._open(device)

    def prepare(self, version: Version) -> None:
        """Make what answers from a version need: the keys that may be quoted.

        Raises:
            GrlsError: The keys cannot be made, or those of the folder belong to another corpus.
        """
        if "riches" not in self.options.methods:
            return
        assert self._loaded is not None
        corpus = version.searcher.corpus
        for other in list(self._riches.values()):
            if other.corpus.fingerprint == corpus.fingerprint:
                self._riches[version] = other
                return
        self._riches[version] = riches_over(corpus, self._loaded, self.options)

    def answer(self, jobs: Sequence[AnswerJob]) -> list[Record]:
        """The records of questions of one key; in the thread of the model.

        Raises:
            GivenUpError: Nobody waits for any of them any more.
            GrlsError: They cannot be answered.
        """

        def gone() -> bool:
            return all(job.future.done() for job in jobs)

        with ending_when(gone, None if self._loaded is None else self._loaded.model):
            return self._answer(jobs, gone)

    def _open(self, device: str) -> None:
        options = self.options
        assert options.model is not None
        if not options.is_remote:
            self._loaded = load_language_model(options.model, device)
        if set(options.methods) & set(PROGRAMS):
            require("dsp", "a program that answers")
            from grls.serve.answers.programs import ServedPrograms

            self._programs = ServedPrograms(options, device)

    def _answer(self, jobs: Sequence[AnswerJob], gone: Callable[[], bool]) -> list[Record]:
        how, options = jobs[0].how, self.options
        found = QueuedRetriever(how.version, how.retriever, how.allow, gone)
        if how.method in PROGRAMS:
            assert self._programs is not None
            return self._programs.answer(jobs, found)
        assert self._loaded is not None
        if how.method == "riches":
            return answer_with_quotes(jobs, self._riches[how.version])
        answer = answer_directly if how.method == "direct" else answer_by_follow_ups
        return answer(jobs, found, self._loaded, options)
