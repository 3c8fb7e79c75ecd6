"""``grls answer dsp``: the programs of demonstrate-search-predict, and their baselines."""

from __future__ import annotations

import logging

from grls.answer.dsp.options import API, USUAL_PROGRAM, ProgramName, ProgramOptions
from grls.errors import ConfigError
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions


def answer_dsp(
    program: ProgramName,
    *,
    data: str,
    model: str,
    output: str,
    retriever: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    split: str = "test",
    k: int = 3,
    dsp: ProgramOptions = USUAL_PROGRAM,
    limit: int | None = None,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions with a program of demonstrate-search-predict (arXiv 2212.14024), on DSPy.

    Writes a line a query to OUTPUT.trace.jsonl as soon as it is answered: the answer, every call of the model
    and every retrieval, and what it cost. A run that was ended resumes when it is called
    again; a query whose model failed for good is recorded as failed, and tried anew then. At the end it
    writes the answers (OUTPUT.answers.jsonl) and the run of what was retrieved (OUTPUT.trec, OUTPUT.jsonl,
    OUTPUT.info.json); `grls evaluate` scores both.

    Args:
        program: openqa, multihop or conversational; or a baseline: vanilla, retrieve-then-read or self-ask.
        data: Data set folder.
        model: Folder, hub name or .gguf file of a language model; with an endpoint the name it has there; or
            api:PROVIDER/MODEL as DSPy names them (api:openai/gpt-4o-mini), with its key in the environment.
        output: Path of the results without ending.
        retriever: Retriever folder of any kind, or bm25 over the data set's corpus. How it searches says its
            folder.
        hops: How it retrieves hop by hop for each query of the program.
        split: Split of the queries.
        k: Number of passages to read for a retrieval.
        dsp: Options of the program.
        limit: Number of first queries to answer; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: Name of the run in reports.
    """
    from grls.io.ending import quiet
    from grls.retrieve.queries import check_counts

    quiet()
    check_counts(**{"--k": k})
    if program == "vanilla" and retriever is not None:
        raise ConfigError("the program vanilla retrieves nothing: leave out --retriever.")
    if program != "vanilla" and retriever is None:
        raise ConfigError(f"the program {program} retrieves: give --retriever FOLDER, or bm25.")
    if dsp.calls.endpoint is not None and model.startswith(API):
        raise ConfigError("an endpoint has models of its own: give --model the name it has there, no `api:`.")
    from grls.answer.dsp import answering  # imported late: DSPy is an extra
    from grls.answer.opening import open_for_reading
    from grls.answer.questions import Questions

    questions = Questions.read(data, split, limit, output)
    logging.getLogger("dspy").setLevel(logging.CRITICAL)  # failures stand in the trace
    opened = open_for_reading(retriever, hops, device, questions.corpus)
    answering.answer_with_program(questions, program, opened, retriever, model, k, dsp, device, output, name)
