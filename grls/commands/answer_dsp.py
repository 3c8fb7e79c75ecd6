"""``grls answer dsp``: the programs of demonstrate-search-predict, and their baselines."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grls.answer.dsp.options import API, USUAL_PROGRAM, ProgramName, ProgramOptions
from grls.commands.readings import Questions, write_readings
from grls.errors import ConfigError
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from grls.answer.direct import WrittenAnswer
    from grls.retrieve.base import Retriever

log = logging.getLogger(__name__)


class _Program(NamedTuple):
    """What answers: the program, its model, how that is asked, and all that answers depend on."""

    program: Any
    lm: Any
    adapter: Any
    settings: dict[str, Any]


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
    and every retrieval, and what it cost. A run that was ended goes on where it stopped when it is called
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
        split: Which queries.
        k: Passages that are read of a retrieval.
        dsp: How the program goes.
        limit: Only the first so many queries; null takes all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
    """
    from grls.io.logs import quiet

    quiet()
    _check(program, retriever, model, k, dsp)
    from grls.answer.dsp import build, run  # imported late: DSPy is an extra
    from grls.answer.opening import open_for_reading

    questions = Questions.read(data, split, limit, output)
    logging.getLogger("dspy").setLevel(logging.CRITICAL)  # failures stand in the trace
    opened = open_for_reading(retriever, hops, device, questions.corpus)
    made = _made(build, questions, program, opened, retriever, model, k, dsp, device)
    records, seconds = _records(run, questions, made, program, output, dsp)
    readings = [_reading(record) for record in records]
    told = None if opened is None else opened.describe()
    named = name or (program if told is None else f"{program}, {told.name}, k={k}")
    info = questions.info(
        "generator" if told is None else told.system,
        named,
        _score_mode(program, dsp.queries, opened),
        seconds,
        {**made.settings, "cost": _total(records)},
    )
    kept = ("failed", "cost")
    more: list[dict[str, Any]] = [{n: record[n] for n in kept if n in record} for record in records]
    write_readings(questions, output, readings, info, more)
    _tell(records)


def _check(program: ProgramName, retriever: str | None, model: str, k: int, dsp: ProgramOptions) -> None:
    from grls.retrieve.queries import check_counts

    check_counts(**{"--k": k})
    if program == "vanilla" and retriever is not None:
        raise ConfigError("the program vanilla retrieves nothing: leave out --retriever.")
    if program != "vanilla" and retriever is None:
        raise ConfigError(f"the program {program} retrieves: give --retriever FOLDER, or bm25.")
    if dsp.calls.endpoint is not None and model.startswith(API):
        raise ConfigError("an endpoint has models of its own: give --model the name it has there, no `api:`.")


def _made(
    build: Any, questions: Questions, program: ProgramName, opened: Retriever | None, retriever: str | None,
    model: str, k: int, dsp: ProgramOptions, device: str,
) -> _Program:  # fmt: skip
    """The program without demonstrations."""
    from grls.answer.dsp.retrieval import Retrieval, Scale
    from grls.answer.opening import is_probable, retrieval_settings

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
    settings = {
        "program": program, "model": model if calls.is_remote(model) else Path(model).name, **asked,
        **retrieval_settings(retriever, opened), "k": k, "rounds": dsp.rounds, "queries": dsp.queries,
        "branches": dsp.branches, "temperature": dsp.temperature,
        "demonstrations": asdict(dsp.demonstrations),
    }  # fmt: skip
    if named.weights is not None:
        settings["weights"] = named.weights
    built = build.program_named(program, retrieval, dsp.rounds, dsp.queries, dsp.temperature)
    return _Program(built, named.lm, build.adapter_named(template, calls.attempts, calls.wait), settings)


def _records(
    run: Any, questions: Questions, made: _Program, program: ProgramName, output: str, dsp: ProgramOptions
) -> tuple[list[dict[str, Any]], float]:
    """Answer what was not answered before: the record of each query, and the seconds that all took."""
    from grls.answer.dsp.branch import Branch
    from grls.answer.dsp.build import demonstrated
    from grls.answer.dsp.demonstrate import hushed, inputs_of
    from grls.io.progress import Progress
    from grls.io.resumable import GrowingFile
    from grls.runs.manifest import fingerprint_queries

    taught, shown = _examples(questions, program, dsp)
    settings = {**made.settings, **questions.fingerprints, "examples": fingerprint_queries(taught)}
    file = GrowingFile(f"{output}.trace.jsonl", settings)
    run.refuse_other(file, [query.id for query in questions.every])
    how, threads = dsp.demonstrations, dsp.calls.threads
    with run.settings(made.lm, made.adapter):
        ready = demonstrated(
            made.program, how.how, shown, how.count, threads, f"{output}.program.json", settings
        )
    branched = Branch(ready, dsp.branches, dsp.temperature)
    given = {query.id: inputs_of(query, program == "conversational") for query in questions.asked}
    quietly = hushed() if how.how == "nearest" else nullcontext()
    with Progress(len(given), program, "queries") as bar, quietly:
        records = run.answer_all(branched, given, made.lm, made.adapter, file, threads, bar.update)
    return records, run.seconds_of(file, given)


def _examples(questions: Questions, program: ProgramName, dsp: ProgramOptions) -> tuple[list[Any], list[Any]]:
    """The queries that demonstrations are made of, and the same as DSPy has them."""
    from grls.answer.dsp.demonstrate import dspy_examples
    from grls.data.dataset import read_split

    how = dsp.demonstrations
    if how.how == "none":
        return [], []
    every = read_split(questions.data, how.split, questions.corpus)[0]
    taught = [query for query in every if query.answers or query.evidence][: how.examples]
    return taught, dspy_examples(taught, program == "conversational")


def _score_mode(program: ProgramName, queries: int, opened: Retriever | None) -> str:
    """What the scores of the ranking are."""
    from grls.answer.opening import score_mode_of

    if program in ("multihop", "self-ask"):
        return "interleave"
    fused = (program == "openqa" and queries > 0) or (program == "conversational" and queries > 1)
    return "comb_sum" if fused else "none" if opened is None else score_mode_of(opened)


def _reading(record: dict[str, Any]) -> WrittenAnswer:
    from grls.answer.direct import WrittenAnswer
    from grls.data.types import Hit

    ranking = tuple(Hit(passage, score) for passage, score in record["found"])
    read = tuple(passage for passage, _ in record["read"])
    return WrittenAnswer(record["answer"], record.get("ended", True), read, ranking)


def _total(records: Sequence[dict[str, Any]]) -> dict[str, int]:
    costs = [record["cost"] for record in records]
    return {key: sum(cost[key] for cost in costs) for key in costs[0]} if costs else {}


def _tell(records: Sequence[dict[str, Any]]) -> None:
    """What the queries cost, which failed, and where nothing was found."""
    spent = _total(records).items()
    shares = (f"{total / len(records):,.1f} {what.replace('_', ' ')}" for what, total in spent)
    print(f"a query cost {', '.join(shares)}")
    failed = [record for record in records if "failed" in record]
    if failed:
        log.warning(
            "%d of %d queries failed, such as %r (%s); call again with the same options to try them anew.",
            len(failed), len(records), failed[0]["query_id"], failed[0]["failed"],
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
            "%d of %d outputs were cut at the length limit, %d answers among them; raise "
            "--dsp.calls.max_new_tokens.",
            cut, len(calls), ended,
        )  # fmt: skip
