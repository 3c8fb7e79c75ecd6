"""``grls answer follow-up``: answers with follow-up questions, each of which is retrieved for."""

from __future__ import annotations

from pathlib import Path

from grls.answer.options import USUAL_FOLLOW_UP, FollowUpOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions


def answer_follow_up(
    *,
    data: str,
    model: str,
    output: str,
    retriever: str,
    hops: HopOptions = USUAL_HOPS,
    split: str = "test",
    k: int = 1,
    reader: FollowUpOptions = USUAL_FOLLOW_UP,
    limit: int | None = None,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions by decomposition: the model asks follow-up questions, and each is retrieved for.

    Writes a line a query to OUTPUT.readings.jsonl as they are answered; a run that was ended resumes when it
    is called again with the same options. At the end it writes the answers (OUTPUT.answers.jsonl) and the run
    of what was retrieved (OUTPUT.trec, OUTPUT.jsonl, OUTPUT.info.json); `grls evaluate` scores both.

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        retriever: Retriever folder of any kind, or bm25 over the data set's corpus. How it searches says its
            folder.
        hops: How it retrieves hop by hop for each follow-up question.
        split: Split of the queries.
        k: Number of passages to read for a follow-up question.
        reader: How the model reads and writes.
        limit: Number of first queries to answer; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: Name of the run in reports.
    """
    from grls.answer.iterative import IterativeReader
    from grls.answer.kept import read_all, save_readings, spent_options
    from grls.answer.opening import open_for_reading, retrieval_settings
    from grls.answer.questions import Questions, model_settings
    from grls.answer.writer import TextWriter
    from grls.io.ending import quiet
    from grls.models.load.language import load_language_model
    from grls.retrieve.queries import check_counts

    quiet()
    check_counts(**{"--k": k})
    questions = Questions.read(data, split, limit, output)
    opened = open_for_reading(retriever, hops, device, questions.corpus)
    assert opened is not None
    loaded, tokenizer = load_language_model(model, device)
    writer = TextWriter(loaded, tokenizer, reader.max_new_tokens, reader.batch_size)
    asking = IterativeReader(writer, opened, questions.corpus, k, reader.questions, reader.chat)
    how = {
        "method": "follow-up", "k": k, "questions": reader.questions, "chat": reader.chat,
        "max_new_tokens": reader.max_new_tokens,
    }  # fmt: skip
    settings = {
        **model_settings(model, loaded, tokenizer), **how, **retrieval_settings(retriever, opened),
        **questions.fingerprints,
    }  # fmt: skip
    readings, file = read_all(questions, output, settings, writer, asking.answer)
    described = opened.describe()
    seconds, options = spent_options(readings, file, {"model": Path(model).name, **described.options, **how})
    named = name or f"follow-up, {described.name}, k={k}"
    save_readings(
        questions, output, readings, questions.info(described.system, named, "rank", seconds, options)
    )
