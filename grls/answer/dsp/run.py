"""Queries answered by a program, many at once; each is on disk as soon as it is answered.

If the model fails for good, the query is recorded as failed, with its steps so far, and the other queries go
on; the next call of the run tries it again. A failure that every query would meet (a refused key, an unpaid
account, an unknown provider) ends the run instead. No answer is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from time import perf_counter
from typing import Any

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.patience import error_line
from grls.answer.dsp.retrieval import RetrievedPassage
from grls.answer.dsp.trace import recorded_calls
from grls.data.types import Hit
from grls.errors import ConfigError, DataError
from grls.io.resumable import GrowingFile
from grls.retrieve.fusion.fuse import interleave
from grls.retrieve.queries import check_counts


def settings(lm: Any, adapter: Any) -> Any:
    """DSPy's settings within a run: this model, and this adapter, which takes the history of each call."""
    return dspy.context(lm=lm, adapter=adapter, trace=None, disable_history=False, callbacks=[])


def answer_all(
    program: Any,
    asked: Mapping[str, Mapping[str, str]],
    lm: Any,
    adapter: Any,
    file: GrowingFile,
    threads: int = 8,
    decided: Callable[[int], object] | None = None,
) -> list[dict[str, Any]]:
    """Answer the queries that the file does not hold yet.

    Args:
        program: The program, called from several threads.
        asked: Query id -> inputs of the program.
        lm: The model.
        adapter: The adapter that asks the model; see :class:`~grls.answer.dsp.patience.Patience`.
        file: Holds the records; a query that failed before is tried again.
        threads: Queries answered at the same time.
        decided: Called with the number of queries done since the last call.

    Returns:
        The record of each query, in the order of ``asked``: ``query_id``, ``answer``, ``found`` and ``read``
        (pairs of passage id and score), ``trace``, ``cost``, ``seconds`` (since the record before it);
        ``failed`` says why a query has no answer, ``ended`` is false if the length limit cut the answer.

    Raises:
        ConfigError: ``threads`` is below 1, or the endpoint refuses every query.
    """
    check_counts(threads=threads)
    answered = {record["query_id"] for record in file.records if "failed" not in record}
    waiting = {name: inputs for name, inputs in asked.items() if name not in answered}
    if decided is not None:
        decided(len(asked) - len(waiting))
    kept: set[str] = set()
    clock = perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(answer_one, program, name, inputs, lm, adapter) for name, inputs in waiting.items()
        ]
        try:
            for future in as_completed(futures):
                now = perf_counter()
                record = future.result() | {"seconds": now - clock}  # since the last record, in any thread
                clock = now
                file.add([record])
                kept.add(record["query_id"])
                if decided is not None:
                    decided(1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            # Keep the answers that came while the run ended.
            done = [future for future in futures if future.done() and not future.cancelled()]
            records = [future.result() for future in done if future.exception() is None]
            file.add([record for record in records if record["query_id"] not in kept])
            raise
    last = {record["query_id"]: record for record in file.records}
    return [last[name] for name in asked]


def refuse_other(file: GrowingFile, asked: Collection[str]) -> None:
    """Refuse a file that answers a query twice, or a query that is not asked.

    Raises:
        DataError: The file has such a line.
    """
    waiting = set(asked)
    for line, record in enumerate(file.each(), 2):
        name = record.get("query_id")
        if name not in waiting:
            raise DataError(
                f"the query {name!r} is answered already, or is none of this split: another run wrote into "
                "this file. Remove this line, and run the command again.",
                file.path,
                line,
            )
        if "failed" not in record:
            waiting.remove(name)


def answer_one(program: Any, name: str, inputs: Mapping[str, str], lm: Any, adapter: Any) -> dict[str, Any]:
    """The record of one query, without the seconds; see :func:`answer_all`.

    Args:
        program: The program.
        name: The id of the query.
        inputs: Inputs of the program.
        lm: The model.
        adapter: The adapter that asks the model.

    Raises:
        ConfigError: The endpoint refuses every query.
    """
    with settings(lm, adapter), recorded_calls() as trace:
        record: dict[str, Any] = {"query_id": name, "answer": "", "found": [], "read": []}
        try:
            prediction = program(**inputs)
        except (dspy.LMAuthError, dspy.LMBillingError, dspy.LMConfigurationError, dspy.LMNotConfiguredError,
                dspy.LMUnsupportedModelError) as error:  # fmt: skip
            raise ConfigError(
                f"the language model cannot be asked at all ({error_line(error)}); mend that and call again."
            ) from None
        except dspy.DSPyError as error:
            why = trace.steps[-1].get("failed") if trace.steps else None  # this also says whether it was cut
            record |= {"failed": why or error_line(error), "found": _so_far(trace.steps)}
        else:
            answer = str(prediction.answer)
            # A file holds UTF-8, and models write lone surrogates, which become `?`.
            record |= {"answer": answer.strip().encode("utf-8", "replace").decode()}
            record |= {"found": _pairs(prediction.found), "read": _pairs(prediction.read)}
            # If several calls wrote the answer, it is cut if the length limit cut all of them.
            wrote = [s["calls"] for s in trace.steps if s.get("outputs", {}).get("answer") == answer]
            record |= {"ended": not wrote or not all("cut" in calls[-1] for calls in wrote if calls)}
        return record | {"trace": trace.steps, "cost": trace.cost()}


def _pairs(found: Sequence[RetrievedPassage]) -> list[list[Any]]:
    return [[one.id, one.score] for one in found]


def _so_far(steps: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """The ranking of a program's last run before it failed: the best passages of each hop in turn."""
    begins = [n for n, step in enumerate(steps) if step["kind"] == "branch"]
    hops = [step["found"] for step in steps[max(begins, default=0) :] if step["kind"] == "retrieval"]
    if len(hops) < 2:
        return list(hops[0]) if hops else []
    return [[hit.id, hit.score] for hit in interleave([[Hit(*pair) for pair in hop] for hop in hops])]
