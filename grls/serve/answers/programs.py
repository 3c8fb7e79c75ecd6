"""Programs of demonstrate-search-predict as a method of the server; it needs the extra ``dsp``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from grls.answer.dsp import build
from grls.answer.dsp.answering import kept_of, reading_of
from grls.answer.dsp.programs import Branch
from grls.answer.dsp.retrieval import Retrieval, Scale
from grls.answer.dsp.run import answer_one
from grls.answer.opening import is_probable
from grls.answer.records import answer_record
from grls.serve.answers.jobs import AnswerJob, Record
from grls.serve.answers.options import AnswerOptions
from grls.serve.answers.through import QueuedRetriever

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
        self._lm = build.lm_named(options.model, calls, device).lm
        self._adapter = build.adapter_named(calls.filled(options.model)[0], calls.attempts)

    def answer(self, jobs: Sequence[AnswerJob], found: QueuedRetriever) -> list[Record]:
        """The records of questions, which are answered at the same time."""
        how = jobs[0].how
        limit = how.max_new_tokens
        lm = self._lm if limit is None else self._lm.copy(max_tokens=limit)
        program = self._program(how.method, found, how.k)

        def answer(job: AnswerJob) -> Record:
            record: Record = answer_one(program, job.query.id, _inputs(job), lm, self._adapter)
            return answer_record(job.query, reading_of(record), found.corpus) | kept_of(record)

        with ThreadPoolExecutor(self._options.calls.threads) as pool:
            return list(pool.map(answer, jobs))

    def _program(self, name: str, found: QueuedRetriever, k: int) -> Any:
        dsp = self._options
        scale: Scale = "log" if is_probable(found.retriever) else "softmax"
        retrieval = Retrieval(found, found.corpus, k, scale)
        built = build.program_named(name, retrieval, dsp)
        return Branch(built, dsp.branches, dsp.temperature, dsp.vote)


def _inputs(job: AnswerJob) -> dict[str, str]:
    history = {"history": job.history} if job.how.method == "conversational" else {}
    return {"question": job.query.text, **history}
