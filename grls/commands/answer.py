"""``grls answer``: answers to the questions of a data set, by a language model and a retriever."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grls.answer.dsp.options import API, USUAL_PROGRAM, ProgramName, ProgramOptions
from grls.answer.options import USUAL_DIRECT, USUAL_FOLLOW_UP, DirectOptions, FollowUpOptions
from grls.answer.riches.options import USUAL_KEYS, USUAL_PROMPT, KeyOptions, PromptOptions
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions
from grls.errors import ConfigError
from grls.io.arguments import Count, options
from grls.models.option_names import Device
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from grls.answer.kept import Answer
    from grls.answer.writer import Questions, TextWriter
    from grls.retrieve.base import Description
    from grls.runs.portions import RunInfo


@options(kw_only=True)
class QuestionOptions:
    """Who answers which questions.

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        split: Split of the queries.
        limit: Number of first queries to answer; null: all.
        name: Name of the run in reports.
    """

    data: str
    model: str
    output: str
    split: str = "test"
    limit: Count | None = None
    device: Device = "auto"
    name: str | None = None

    def questions(self) -> Questions:
        from grls.answer.writer import Questions

        return Questions.read(self.data, self.split, self.limit, self.output)


def answer_direct(
    *,
    retriever: str | None = None,
    run: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    k: Count = 3,
    reader: DirectOptions = USUAL_DIRECT,
    **options: Any,
) -> None:
    """Answer questions in one go: from what was retrieved for them, or closed-book.

    Without a retriever and a run nothing is retrieved. Writes a line a query to OUTPUT.written.jsonl as they
    are answered; a run that was ended resumes when it is called again with the same options.
    At the end it writes the answers (OUTPUT.answers.jsonl) and the run of what was retrieved (OUTPUT.trec,
    OUTPUT.jsonl, OUTPUT.info.json); `grls evaluate` scores both.

    Args:
        retriever: Retriever folder of any kind, or bm25 over the data set's corpus. Its folder stores the
            options of search.
        run: A finished run of these queries, .jsonl or .trec, instead of a retriever; its time is not
            counted.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        k: Number of passages to read for a question.
        reader: How the model reads and writes.
        options: See :class:`QuestionOptions`.
    """
    from grls.answer.direct import DirectReader
    from grls.answer.retrievers import FinishedRun, description_of, open_for_reading, retrieval_settings
    from grls.io.files import sha256
    from grls.retrieve.base import Retriever
    from grls.runs.portions import refuse_own_output

    asked = QuestionOptions(**options)
    if run is not None:
        if retriever is not None:
            raise ConfigError("give --retriever or --run, not both: a run is what a retriever has retrieved.")
        if hops.steps != "single":
            raise ConfigError("--hops.steps says how to retrieve, and a --run has retrieved: leave it out.")
        refuse_own_output(asked.output, [run])
    questions = asked.questions()
    opened = None if run is not None else open_for_reading(retriever, hops, asked.device, questions.corpus)
    source: Retriever | FinishedRun | None = opened
    if run is not None:
        source = FinishedRun(run, questions)
    described = description_of(source)
    reads = {} if source is None else {"k": k, "depth": reader.depth}
    _read(
        asked,
        questions,
        reader,
        lambda writer: DirectReader(writer, source, questions.corpus, k, reader.depth, reader.chat).answer,
        {"method": "direct", **reads},
        {**retrieval_settings(retriever, opened), "run": None if run is None else sha256(run)},
        described,
        "closed-book" if source is None else f"direct, {described.name}, k={k}",
    )


def _read(
    asked: QuestionOptions,
    questions: Questions,
    reader: DirectOptions | FollowUpOptions,
    answering: Callable[[TextWriter], Answer],
    method: dict[str, Any],
    retrieval: dict[str, Any],
    described: Description,
    usual_name: str,
) -> None:
    """Answer all questions with a language model."""
    from grls.answer.kept import answer_questions
    from grls.answer.writer import TextWriter, model_settings
    from grls.models.load.language import load_language_model

    loaded, tokenizer = load_language_model(asked.model, asked.device)
    writer = TextWriter(loaded, tokenizer, reader.max_new_tokens, reader.batch_size)
    method |= {"chat": reader.chat, "max_new_tokens": reader.max_new_tokens}
    settings = {
        **model_settings(asked.model, loaded, tokenizer), **method, **retrieval, **questions.fingerprints,
    }  # fmt: skip

    def info(spent: Counter[str]) -> RunInfo:
        costs = {name: int(spent[name]) for name in asdict(writer.spent)}
        recorded = {"model": Path(asked.model).name, **described.options, **method, **costs}
        name, mode = asked.name or usual_name, described.score_mode
        return questions.info(described.system, name, mode, spent["seconds"], recorded)

    answer_questions(
        questions,
        asked.output,
        settings,
        answering(writer),
        reader.batch_size,
        lambda: asdict(writer.spent),
        info,
    )


def answer_dsp(
    program: ProgramName,
    *,
    model: str,
    retriever: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    k: Count = 3,
    dsp: ProgramOptions = USUAL_PROGRAM,
    **options: Any,
) -> None:
    """Answer questions with a program of demonstrate-search-predict (arXiv 2212.14024), on DSPy.

    Writes a line a query to OUTPUT.trace.jsonl as soon as it is answered: the answer, every call of the model
    and every retrieval, and what it cost. A run that was ended resumes when it is called
    again; a query whose model failed for good is recorded as failed, and tried anew then. At the end it
    writes the answers (OUTPUT.answers.jsonl) and the run of what was retrieved (OUTPUT.trec, OUTPUT.jsonl,
    OUTPUT.info.json); `grls evaluate` scores both.

    Args:
        program: openqa, multihop or conversational; or a baseline: vanilla, retrieve-then-read or self-ask.
        model: Folder, hub name or .gguf file of a language model; with an endpoint the name it has there; or
            api:PROVIDER/MODEL as DSPy names them (api:openai/gpt-4o-mini), with its key in the environment.
        retriever: Retriever folder of any kind, or bm25 over the data set's corpus. Its folder stores the
            options of search.
        hops: How it retrieves hop by hop for each query of the program.
        k: Number of passages to read for a retrieval.
        dsp: Options of the program.
        options: See :class:`QuestionOptions`.
    """
    asked = QuestionOptions(model=model, **options)
    if program == "vanilla" and retriever is not None:
        raise ConfigError("the program vanilla retrieves nothing: leave out --retriever.")
    if program != "vanilla" and retriever is None:
        raise ConfigError(f"the program {program} retrieves: give --retriever FOLDER, or bm25.")
    if dsp.calls.endpoint is not None and model.startswith(API):
        raise ConfigError("an endpoint has models of its own: give --model the name it has there, no `api:`.")
    from grls.answer.dsp import answering  # imported late: DSPy is an extra
    from grls.answer.retrievers import open_for_reading

    questions = asked.questions()
    logging.getLogger("dspy").setLevel(logging.CRITICAL)  # failures stand in the trace
    opened = open_for_reading(retriever, hops, asked.device, questions.corpus)
    answering.answer_with_program(
        questions, program, opened, retriever, model, k, dsp, asked.device, asked.output, asked.name
    )


def answer_follow_up(
    *,
    retriever: str,
    hops: HopOptions = USUAL_HOPS,
    k: Count = 1,
    reader: FollowUpOptions = USUAL_FOLLOW_UP,
    **options: Any,
) -> None:
    """Answer questions by decomposition: the model asks follow-up questions, and each is retrieved for.

    Writes a line a query to OUTPUT.written.jsonl as they are answered; a run that was ended resumes when it
    is called again with the same options. At the end it writes the answers (OUTPUT.answers.jsonl) and the run
    of what was retrieved (OUTPUT.trec, OUTPUT.jsonl, OUTPUT.info.json); `grls evaluate` scores both.

    Args:
        retriever: Retriever folder of any kind, or bm25 over the data set's corpus. Its folder stores the
            options of search.
        hops: How it retrieves hop by hop for each follow-up question.
        k: Number of passages to read for a follow-up question.
        reader: How the model reads and writes.
        options: See :class:`QuestionOptions`.
    """
    from grls.answer.iterative import IterativeReader
    from grls.answer.retrievers import open_for_reading, retrieval_settings

    asked = QuestionOptions(**options)
    questions = asked.questions()
    opened = open_for_reading(retriever, hops, asked.device, questions.corpus)
    assert opened is not None
    described = opened.describe()
    _read(
        asked,
        questions,
        reader,
        lambda writer: (
            IterativeReader(writer, opened, questions.corpus, k, reader.questions, reader.chat).answer
        ),
        {"method": "follow-up", "k": k, "questions": reader.questions},
        retrieval_settings(retriever, opened),
        replace(described, score_mode="rank"),
        f"follow-up, {described.name}, k={k}",
    )


def answer_riches(
    *,
    keys: KeyOptions = USUAL_KEYS,
    prompt: PromptOptions = USUAL_PROMPT,
    search: InterleaveOptions = USUAL_INTERLEAVE,
    **options: Any,
) -> None:
    """Answer questions with interlaced retrieval (RICHES, arXiv 2407.00361).

    Writes the passages of the quotes, in their order, as a run (OUTPUT.trec, OUTPUT.jsonl, OUTPUT.info.json),
    thoughts, quotes and answer (OUTPUT.answers.jsonl); `grls evaluate` scores run and answers. A killed run
    resumes when it is called again with the same options (OUTPUT.written.jsonl).

    Args:
        keys: Options of the keys that may be quoted.
        prompt: Options of the prompt.
        search: How free text and quotes are decoded.
        options: See :class:`QuestionOptions`.
    """
    from grls.answer.riches.answerer import run_riches

    asked = QuestionOptions(**options)
    questions = asked.questions()
    run_riches(questions, asked.model, keys, prompt, search, asked.device, asked.output, asked.name)
