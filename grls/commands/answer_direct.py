"""``grls answer direct``: answers without retrieval, or from retrieved passages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grls.answer.options import USUAL_DIRECT, DirectOptions
from grls.commands.readings import Questions, model_settings, read_all, spent_options, write_readings
from grls.errors import ConfigError
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grls.answer.direct import WrittenAnswer
    from grls.answer.finished import FinishedRun
    from grls.data.types import Hit, Query
    from grls.retrieve.base import Retriever


def answer_direct(
    *,
    data: str,
    model: str,
    output: str,
    retriever: str | None = None,
    run: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    split: str = "test",
    k: int = 3,
    reader: DirectOptions = USUAL_DIRECT,
    limit: int | None = None,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions in one go: from what was retrieved for them, or closed-book.

    Without a retriever and a run nothing is retrieved. Writes a line a query to OUTPUT.readings.jsonl as they
    are answered; a run that was ended goes on where it stopped when it is called again with the same options.
    At the end it writes the answers (OUTPUT.answers.jsonl) and the run of what was retrieved (OUTPUT.trec,
    OUTPUT.jsonl, OUTPUT.info.json); `grls evaluate` scores both.

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        retriever: Retriever folder of any kind, or bm25 over the data set's corpus. How it searches says its
            folder.
        run: A finished run of these queries, .jsonl or .trec, instead of a retriever; its time is not
            counted.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        split: Which queries.
        k: Passages that are read of a question.
        reader: How the model reads and writes.
        limit: Only the first so many queries; null takes all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
    """
    from grls.answer.direct import DirectReader
    from grls.answer.writer import TextWriter
    from grls.io.logs import quiet
    from grls.models.load.language import load_language_model

    quiet()
    _check(retriever, run, hops, k, output)
    questions = Questions.read(data, split, limit, output)
    found = _opened(questions, retriever, run, hops, device)
    loaded, tokenizer = load_language_model(model, device)
    writer = TextWriter(loaded, tokenizer, reader.max_new_tokens, reader.batch_size)
    reads = {} if found is None else {"k": k, "depth": reader.depth}
    how = {"method": "direct", **reads, "chat": reader.chat, "max_new_tokens": reader.max_new_tokens}
    settings = {
        **model_settings(model, loaded, tokenizer), **how, **_settings(retriever, run, found),
        **questions.fingerprints,
    }  # fmt: skip
    direct_reader = DirectReader(writer, questions.corpus, reader.chat)

    def answer(some: Sequence[Query], decided: Callable[[int], object]) -> list[WrittenAnswer]:
        rankings: list[list[Hit]] = [[] for _ in some]
        if found is not None:
            rankings = found.retrieve(some, max(k, reader.depth))
        return direct_reader.answer(some, rankings, 0 if found is None else k, decided)

    readings, file = read_all(questions, output, settings, writer, answer)
    system, label, mode, own = _origin(found)
    seconds, options = spent_options(readings, file, {"model": Path(model).name, **own, **how})
    named = name or ("closed-book" if found is None else f"direct, {label}, k={k}")
    write_readings(questions, output, readings, questions.info(system, named, mode, seconds, options))


def _check(retriever: str | None, run: str | None, hops: HopOptions, k: int, output: str) -> None:
    from grls.commands.run_files import refuse_own_output
    from grls.retrieve.queries import check_counts

    check_counts(**{"--k": k})
    if run is None:
        return
    if retriever is not None:
        raise ConfigError("give --retriever or --run, not both: a run is what a retriever has found.")
    if hops.steps != "single":
        raise ConfigError("--hops.steps says how to retrieve, and a --run has retrieved: leave it out.")
    refuse_own_output(output, [run])


def _opened(
    questions: Questions, retriever: str | None, run: str | None, hops: HopOptions, device: str
) -> Retriever | FinishedRun | None:
    """What finds passages; None where nothing does."""
    from grls.answer.finished import FinishedRun
    from grls.answer.opening import open_for_reading

    if run is not None:
        return FinishedRun(run, questions.corpus, questions.every, questions.split)
    return open_for_reading(retriever, hops, device, questions.corpus)


def _settings(
    retriever: str | None, run: str | None, found: Retriever | FinishedRun | None
) -> dict[str, object]:
    from grls.answer.finished import FinishedRun
    from grls.answer.opening import retrieval_settings
    from grls.io.files import sha256

    opened = None if isinstance(found, FinishedRun) else found
    return {**retrieval_settings(retriever, opened), "run": None if run is None else sha256(run)}


def _origin(found: Retriever | FinishedRun | None) -> tuple[str, str, str, dict[str, Any]]:
    """System, label, score mode, and options of what retrieved."""
    from grls.answer.finished import FinishedRun
    from grls.answer.opening import score_mode_of

    if found is None:
        return "generator", "", "none", {}
    if isinstance(found, FinishedRun):
        label = "a finished run" if found.info is None else found.info.name
        return (
            "generator" if found.info is None else found.info.system,
            label,
            found.score_mode,
            {"run": label},
        )
    description = found.describe()
    return description.system, description.name, score_mode_of(found), description.options
