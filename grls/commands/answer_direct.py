"""``grls answer direct``: answers without retrieval, or from retrieved passages."""

from __future__ import annotations

from pathlib import Path

from grls.answer.options import USUAL_DIRECT, DirectOptions
from grls.errors import ConfigError
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions


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
    are answered; a run that was ended resumes when it is called again with the same options.
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
        split: Split of the queries.
        k: Number of passages to read for a question.
        reader: How the model reads and writes.
        limit: Number of first queries to answer; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: Name of the run in reports.
    """
    from grls.answer.direct import DirectReader
    from grls.answer.kept import read_all, save_readings, spent_options
    from grls.answer.opening import FinishedRun, open_for_reading, origin_of, retrieval_settings
    from grls.answer.questions import Questions, model_settings
    from grls.answer.writer import TextWriter
    from grls.io.ending import quiet
    from grls.io.files import sha256
    from grls.models.load.language import load_language_model
    from grls.retrieve.base import Retriever
    from grls.retrieve.queries import check_counts
    from grls.runs.save import refuse_own_output

    quiet()
    check_counts(**{"--k": k})
    if run is not None:
        if retriever is not None:
            raise ConfigError("give --retriever or --run, not both: a run is what a retriever has retrieved.")
        if hops.steps != "single":
            raise ConfigError("--hops.steps says how to retrieve, and a --run has retrieved: leave it out.")
        refuse_own_output(output, [run])
    questions = Questions.read(data, split, limit, output)
    opened = None if run is not None else open_for_reading(retriever, hops, device, questions.corpus)
    source: Retriever | FinishedRun | None = opened
    if run is not None:
        source = FinishedRun(run, questions.corpus, questions.asked, questions.split)
    loaded, tokenizer = load_language_model(model, device)
    writer = TextWriter(loaded, tokenizer, reader.max_new_tokens, reader.batch_size)
    reads = {} if source is None else {"k": k, "depth": reader.depth}
    how = {"method": "direct", **reads, "chat": reader.chat, "max_new_tokens": reader.max_new_tokens}
    settings = {
        **model_settings(model, loaded, tokenizer), **how, **retrieval_settings(retriever, opened),
        "run": None if run is None else sha256(run), **questions.fingerprints,
    }  # fmt: skip
    direct = DirectReader(writer, questions.corpus, reader.chat)
    readings, file = read_all(
        questions, output, settings, writer,
        lambda queries, decided: direct.retrieve_and_answer(queries, source, k, reader.depth, decided),
    )  # fmt: skip
    system, label, mode, recorded = origin_of(source)
    seconds, options = spent_options(readings, file, {"model": Path(model).name, **recorded, **how})
    named = name or ("closed-book" if source is None else f"direct, {label}, k={k}")
    save_readings(questions, output, readings, questions.info(system, named, mode, seconds, options))
