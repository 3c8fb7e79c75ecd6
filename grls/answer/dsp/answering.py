"""Questions of a data set answered by a program: open it by name, run it, report its costs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.direct import WrittenAnswer
from grls.answer.dsp import build, run
from grls.answer.dsp.build import dspy_examples, hushed, inputs_of
from grls.answer.dsp.options import ProgramName, ProgramOptions
from grls.answer.dsp.programs import Branch
from grls.answer.dsp.retrieval import Retrieval, Scale
from grls.answer.opening import is_probable, retrieval_settings, score_mode_of
from grls.answer.questions import Questions
from grls.data.dataset import read_split
from grls.data.types import Hit
from grls.errors import Option
from grls.io.progress import Progress, counted
from grls.io.resumable import GrowingFile
from grls.retrieve.base import Retriever
from grls.runs.manifest import fingerprint_queries

log = logging.getLogger(__name__)


class NamedProgram(NamedTuple):
    """A program with its model.

    Attributes:
        program: The program.
        lm: Its model, a ``dspy.LM``.
        adapter: The adapter that asks the model.
        settings: Everything that answers depend on except the questions, as JSON values.
    """

    program: Any
    lm: Any
    adapter: Any
    settings: dict[str, Any]


def named_program(
    questions: Questions, program: ProgramName, opened: Retriever | None, retriever: str | None,
    model: str, k: int, dsp: ProgramOptions, device: str,
) -> NamedProgram:  # fmt: skip
    """A program with its model, without demonstrations.

    Args:
        questions: The questions.
        program: The name of the program.
        opened: The program's retriever.
        retriever: The name of the retriever.
        model: The name of the language model.
        k: Passages of a retrieval.
        dsp: Options of the program.
        device: Device of a model in this process.

    Raises:
        ConfigError: The model cannot be opened, or the program needs a retriever.
    """
    calls = dsp.calls
    template, new_tokens = calls.filled(model)
    scale: Scale = "log" if opened is not None and is_probable(opened) else "softmax"
    retrieval = None if opened is None else Retrieval(opened, questions.corpus, k, scale)
    named = build.lm_named(model, calls, device)
    asked = {
        "endpoint": calls.endpoint,
        "template": template,
        "chat": calls.chat,
        "max_new_tokens": new_tokens,
    }
    options = {name: value for name, value in asdict(dsp).items() if name != "calls"}
    options["written_queries"] = options.pop("queries")  # `queries` is the fingerprint of the questions
    settings = {
        "program": program, "model": model if calls.is_remote(model) else Path(model).name, **asked,
        **retrieval_settings(retriever, opened), "k": k, **options,
    }  # fmt: skip
    if named.weights is not None:
        settings["weights"] = named.weights
    built = build.program_named(program, retrieval, dsp)
    return NamedProgram(built, named.lm, build.adapter_named(template, calls.attempts), settings)


def answer_questions(
    questions: Questions, made: NamedProgram, program: ProgramName, output: str, dsp: ProgramOptions
) -> tuple[list[dict[str, Any]], float]:
    """Answer the questions that OUTPUT.trace.jsonl does not hold yet.

    Returns:
        The record of each query, and the seconds of all together.
    """
    branched = Branch(made.program, dsp.branches, dsp.temperature, dsp.vote)  # refuses what cannot work
    how, threads = dsp.demonstrations, dsp.calls.threads
    taught, shown = [], []  # the queries to make demonstrations of, and the same as DSPy examples
    if how.how != "none":
        every = read_split(questions.data, how.split, questions.corpus)[0]
        taught = [query for query in every if query.answers or query.evidence][: how.examples]
        shown = dspy_examples(taught, program == "conversational")
    settings = {**made.settings, **questions.fingerprints, "examples": fingerprint_queries(taught)}
    file = GrowingFile(f"{output}.trace.jsonl", settings)
    run.refuse_other(file, [query.id for query in questions.every])
    with run.settings(made.lm, made.adapter):
        branched.program = build.demonstrated(
            made.program, how, shown, threads, f"{output}.program.json", settings
        )
    inputs = {query.id: inputs_of(query, program == "conversational") for query in questions.asked}
    quietly = hushed() if how.how == "nearest" else nullcontext()
    with Progress(len(inputs), program, "queries") as bar, quietly:
        records = run.answer_all(branched, inputs, made.lm, made.adapter, file, threads, bar.update)
    return records, run.seconds_of(file, inputs)


def fused_mode(program: ProgramName, dsp: ProgramOptions, opened: Retriever | None) -> str:
    """What the scores of the ranking mean."""
    if program in ("multihop", "self-ask"):
        return "interleave"
    queries = dsp.queries + (program == "openqa" or dsp.fuse_question)
    fused = program in ("openqa", "conversational") and queries > 1
    return "comb_sum" if fused else "none" if opened is None else score_mode_of(opened)


def reading_of(record: dict[str, Any]) -> WrittenAnswer:
    """The answer in a record."""
    ranking = tuple(Hit(passage, score) for passage, score in record["found"])
    read = tuple(passage for passage, _ in record["read"])
    return WrittenAnswer(record["answer"], record.get("ended", True), read, ranking)


def kept_of(record: dict[str, Any]) -> dict[str, Any]:
    """Further fields of an answer's line: its cost, and why it failed."""
    return {name: record[name] for name in ("failed", "cost") if name in record}


def total_cost(records: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The cost of all queries together."""
    costs = [record["cost"] for record in records]
    return {key: sum(cost[key] for cost in costs) for key in costs[0]} if costs else {}


def print_costs(records: Sequence[dict[str, Any]]) -> None:
    """Print the mean cost of a query; warn of failed queries, empty retrievals and cut outputs."""
    spent = total_cost(records).items()
    shares = (f"{total / len(records):,.1f} {what.replace('_', ' ')}" for what, total in spent)
    print(f"a query cost {', '.join(shares)}")
    failed = [record for record in records if "failed" in record]
    if failed:
        log.warning(
            "%d of %s failed, such as %r (%s); call again with the same options to try them again.",
            len(failed), counted(len(records), "query"), failed[0]["query_id"], failed[0]["failed"],
        )  # fmt: skip
    every = [step for record in records for step in record["trace"]]
    steps = [step for step in every if step["kind"] == "retrieval"]
    empty = sum(not step["found"] for step in steps)
    if empty:
        log.warning("nothing was found in %d of %d retrievals.", empty, len(steps))
    calls = [call for step in every for call in step.get("calls", ())]
    cut = sum("cut" in call for call in calls)
    if cut:
        ended = sum(not record.get("ended", True) for record in records)
        log.warning(
            "%d of %d outputs were cut at the length limit, %d answers among them; raise %s.",
            cut, len(calls), ended, Option("dsp.calls.max_new_tokens"),
        )  # fmt: skip
