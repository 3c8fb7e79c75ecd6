"""Questions of a data set answered by a program: open it by name, run it, report its costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grls.answer.dsp import programs
from grls.answer.dsp.lm import adapter_named, lm_named
from grls.answer.dsp.options import ProgramName, ProgramOptions
from grls.answer.dsp.programs import dspy_examples, hushed, inputs_of
from grls.answer.dsp.retrieval import Retrieval, Scale
from grls.answer.kept import save_answers
from grls.answer.retrievers import description_of, retrieval_settings
from grls.answer.writer import Questions
from grls.answer.written import Written, written_from
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Hit, Query
from grls.errors import Option
from grls.io.progress import Progress, counted
from grls.io.work import GrowingFile
from grls.retrieve.base import Retriever, has_log_probabilities
from grls.runs.portions import fingerprint_queries
from grls.runs.results import find_passages

log = logging.getLogger(__name__)


def answer_with_program(
    questions: Questions, program: ProgramName, opened: Retriever | None, retriever: str | None,
    model: str, k: int, dsp: ProgramOptions, device: str, output: str, name: str | None,
) -> None:  # fmt: skip
    """Answer questions with a program; save the answers and the run, and print scores and costs.

    The arguments are the options of ``grls answer dsp``; ``opened`` is the retriever. The record of a
    query is in OUTPUT.trace.jsonl as soon as it is answered.
    """
    calls, demos = dsp.calls, dsp.demonstrations
    template, new_tokens = calls.filled(model)
    scale: Scale = "log" if opened is not None and has_log_probabilities(opened) else "softmax"
    retrieval = None if opened is None else Retrieval(opened, questions.corpus, k, scale)
    lm, weights = lm_named(model, calls, device)
    options = {key: value for key, value in asdict(dsp).items() if key != "calls"}
    options["passages_read"] = options.pop("passages")  # `passages` bounds the candidates of a retriever
    options["written_queries"] = options.pop("queries")  # `queries` is the fingerprint of the questions
    settings = {
        "program": program, "model": model if calls.is_remote(model) else Path(model).name,
        "endpoint": calls.endpoint, "template": template, "max_new_tokens": new_tokens,
        **retrieval_settings(retriever, opened), "k": k, **options,
    }  # fmt: skip
    if weights is not None:
        settings["weights"] = weights
    branched = programs.program_named(program, retrieval, dsp)
    adapter = adapter_named(template, calls.attempts)

    taught: list[Query] = []  # to make demonstrations of
    shown: list[Any] = []  # the same, as DSPy examples
    if demos.how != "none":
        examples = read_split(questions.data, demos.split, questions.corpus)[0]
        taught = [query for query in examples if query.answers or query.evidence][: demos.examples]
        shown = dspy_examples(taught, program == "conversational")
    everything = {**settings, **questions.fingerprints, "examples": fingerprint_queries(taught)}
    inputs = {query.id: inputs_of(query, program == "conversational") for query in questions.queries}
    quietly = hushed() if demos.how == "nearest" else nullcontext()
    with GrowingFile(f"{output}.trace.jsonl", everything) as file:
        programs.refuse_other(file, [query.id for query in questions.every])
        with programs.settings(lm, adapter):
            demonstrations = f"{output}.program.json"
            branched.program = programs.demonstrated(
                branched.program, demos, shown, calls.threads, demonstrations, everything
            )
        with Progress(len(inputs), program, "queries") as bar, quietly:

            def answer(these: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
                return programs.answer_all(branched, these, lm, adapter, file, calls.threads, bar.update)

            own = program == "conversational" and dsp.own_replies
            records = programs.answer_in_order(questions.queries, answer) if own else answer(inputs)
        tries = [record for record in file if record["query_id"] in inputs]  # those that failed, too

    queries = dsp.queries + (program == "openqa" or dsp.fuse_question)
    described = description_of(opened)
    mode = described.score_mode
    if program in ("multihop", "self-ask"):
        mode = "interleave"
    elif program in ("openqa", "conversational") and queries > 1:
        mode = "comb_sum"
    costs = [record["cost"] for record in records]
    spent = {key: sum(cost[key] for cost in costs) for key in costs[0]} if costs else {}
    info = questions.info(
        described.system,
        name or (program if opened is None else f"{program}, {described.name}, k={k}"),
        mode,
        float(sum(record.get("seconds", 0.0) for record in tries)),
        {**settings, "cost": spent},
    )
    lines = [
        written_of(record, questions.corpus).record(query) | {"cost": record["cost"]}
        for query, record in zip(questions.queries, records, strict=True)
    ]
    save_answers(questions, output, lambda: lines, info)
    shares = (f"{total / len(records):,.1f} {key.replace('_', ' ')}" for key, total in spent.items())
    print(f"a query cost {', '.join(shares)}")
    warn_of_faults(records)


def written_of(record: dict[str, Any], corpus: Corpus) -> Written:
    ranking = [Hit(passage, score) for passage, score in record["found"]]
    read = [passage for passage, _ in record["read"]]
    passages, ended = find_passages(corpus, read), record.get("ended", True)
    written = written_from([("", read)], passages, record["answer"], ended, ranking)
    return written._replace(failed=record.get("failed", ""))


def warn_of_faults(records: Sequence[dict[str, Any]]) -> None:
    failed = [record for record in records if "failed" in record]
    if failed:
        log.warning(
            "%d of %s failed, such as %r (%s); call again with the same options to try them again.",
            len(failed), counted(len(records), "query"), failed[0]["query_id"], failed[0]["failed"],
        )  # fmt: skip
    steps = [step for record in records for step in record["trace"]]
    retrievals = [step for step in steps if step["kind"] == "retrieval"]
    empty = sum(not step["found"] for step in retrievals)
    if empty:
        log.warning("nothing was found in %d of %d retrievals.", empty, len(retrievals))
    calls = [call for step in steps for call in step.get("calls", ())]
    cut = sum("cut" in call for call in calls)
    if cut:
        ended = sum(not record.get("ended", True) for record in records)
        log.warning(
            "%d of %d outputs were cut at the length limit, %d answers among them; raise %s.",
            cut, len(calls), ended, Option("dsp.calls.max_new_tokens"),
        )  # fmt: skip
