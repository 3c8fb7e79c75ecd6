"""The readers and RICHES over the corpus of a version; they return records as ``grls answer`` writes them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from grls.answer.direct import DirectReader
from grls.answer.iterative import IterativeReader
from grls.answer.records import answer_record
from grls.answer.riches.answerer import Riches
from grls.answer.riches.keys import build_keys, keys_in
from grls.answer.riches.prompts import Prompt
from grls.answer.riches.written import record_of
from grls.answer.writer import TextWriter
from grls.data.corpus import Corpus
from grls.models.load.language import LanguageModel
from grls.serve.answers.jobs import AnswerJob, Record
from grls.serve.answers.options import AnswerOptions
from grls.serve.answers.through import QueuedRetriever


def answer_directly(
    jobs: Sequence[AnswerJob], found: QueuedRetriever, loaded: LanguageModel, options: AnswerOptions
) -> list[Record]:
    """Answers in one go, from the passages that are retrieved for each question."""
    corpus, k, queries = found.corpus, jobs[0].how.k, [job.query for job in jobs]
    reader = DirectReader(_writer(jobs[0], loaded, options), corpus, options.reader.chat)
    readings = reader.retrieve_and_answer(queries, found, k, k)
    return [answer_record(*pair, corpus) for pair in zip(queries, readings, strict=True)]


def answer_by_follow_ups(
    jobs: Sequence[AnswerJob], found: QueuedRetriever, loaded: LanguageModel, options: AnswerOptions
) -> list[Record]:
    """Answers with follow-up questions, each of which is retrieved for."""
    corpus, k, queries = found.corpus, jobs[0].how.k, [job.query for job in jobs]
    writer, how = _writer(jobs[0], loaded, options), options.reader
    readings = IterativeReader(writer, found, corpus, k, how.questions, how.chat).answer(queries)
    return [answer_record(*pair, corpus) for pair in zip(queries, readings, strict=True)]


def answer_with_quotes(jobs: Sequence[AnswerJob], program: Riches) -> list[Record]:
    """Answers with quotes that are retrieved while they are written."""
    limit = jobs[0].how.max_new_tokens
    if limit is not None:
        program = copy.copy(program)
        program.options = replace(program.options, max_new_tokens=limit)
    queries = [job.query for job in jobs]
    return [record_of(*pair) for pair in zip(queries, program.answer(queries), strict=True)]


def riches_over(corpus: Corpus, loaded: LanguageModel, options: AnswerOptions) -> Riches:
    """RICHES over a corpus: its keys are made, or read from their folder.

    Raises:
        ConfigError: The keys cannot be made in this way.
        DataError: There is nothing to quote.
        IndexFormatError: The keys of the folder are damaged.
        MismatchError: The keys of the folder belong to another corpus or model.
    """
    keys, prompt = options.keys, options.prompt
    how: Any = (keys.kind, keys.anywhere, keys.propositions, prompt.markers)
    made = (
        build_keys(corpus, loaded.tokenizer, *how)
        if keys.folder is None
        else keys_in(keys.folder, corpus, loaded.tokenizer, *how)
    )
    return Riches(loaded.model, loaded.tokenizer, corpus, made, Prompt(**asdict(prompt)), options.search)


def _writer(job: AnswerJob, loaded: LanguageModel, options: AnswerOptions) -> TextWriter:
    how = options.reader
    return TextWriter(
        loaded.model, loaded.tokenizer, job.how.max_new_tokens or how.max_new_tokens, how.batch_size
    )
