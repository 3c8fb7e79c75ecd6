"""``grls ralm``: a frozen language model that reads, or writes, with retrieved documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from grls.answer.ralm.options import (
    USUAL_EXAMPLES,
    USUAL_RERANK,
    ExampleOptions,
    RerankOptions,
)
from grls.answer.ralm.strides import USUAL_WINDOW, WindowOptions
from grls.errors import ConfigError
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

if TYPE_CHECKING:
    from grls.answer.ralm.reader import InContextRalm
    from grls.answer.ralm.texts import TokenizedText


class _Task(NamedTuple):
    """What is read: the reader, the texts, and all that results depend on."""

    reader: InContextRalm
    texts: list[TokenizedText]
    settings: dict[str, Any]


def ralm(
    *,
    model: str,
    text: str,
    output: str,
    data: str | None = None,
    retriever: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    reader: WindowOptions = USUAL_WINDOW,
    rerank: RerankOptions = USUAL_RERANK,
    exclude: str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """Measure how well a model predicts texts with retrieved documents (In-Context RALM, arXiv 2302.00083).

    Without a retriever nothing is retrieved. Writes OUTPUT.strides.jsonl (a line a stride) and OUTPUT.json. A
    killed run goes on where it stopped when it is called again with the same options. `grls ralm examples`
    collects what a reranker learns from, `grls ralm generate` writes on from the texts.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. How it searches says its folder.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: What the model sees.
        rerank: Which of the retrieved documents it is given.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is told of.
        limit: Only the first so many tokens of each text; null takes all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.answer.ralm.resumed import measure

    begun = perf_counter()
    task = _task(model, text, output, data, retriever, hops, reader, rerank, exclude, limit, device)
    measure(*task, output, begun)


def ralm_examples(
    *,
    model: str,
    text: str,
    output: str,
    data: str | None = None,
    retriever: str,
    hops: HopOptions = USUAL_HOPS,
    reader: WindowOptions = USUAL_WINDOW,
    examples: ExampleOptions = USUAL_EXAMPLES,
    exclude: str | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """Collect what a reranker of documents learns from.

    Writes OUTPUT.examples.jsonl, for `grls train reranker`: for each stride its candidates, and what each is
    worth to the model. A killed run goes on where it stopped when it is called again with the same options.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. How it searches says its folder.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: What the model sees.
        examples: Which examples.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is told of.
        limit: Only the first so many tokens of each text; null takes all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.answer.ralm.resumed import collect_examples

    oracle = RerankOptions("oracle", examples.candidates)
    task = _task(model, text, output, data, retriever, hops, reader, oracle, exclude, limit, device)
    own = {"every": examples.every, "prefix_tokens": examples.prefix_tokens}
    collect_examples(task.reader, task.texts, {**task.settings, "rerank": "none", **own}, output, **own)


def ralm_generate(
    *,
    model: str,
    text: str,
    output: str,
    data: str | None = None,
    retriever: str | None = None,
    hops: HopOptions = USUAL_HOPS,
    reader: WindowOptions = USUAL_WINDOW,
    rerank: RerankOptions = USUAL_RERANK,
    exclude: str | None = None,
    limit: int | None = None,
    max_new_tokens: int = 64,
    device: str = "auto",
) -> None:
    """Write on from texts with retrieved documents.

    Writes OUTPUT.texts.jsonl, a line a text. A killed run goes on where it stopped when it is called again
    with the same options.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        data: Corpus, or data set folder with one: what the retriever bm25 retrieves from.
        retriever: Retriever folder of any kind, or bm25. How it searches says its folder.
        hops: How it retrieves hop by hop; the passages of a query's chains are its ranking.
        reader: What the model sees.
        rerank: Which of the retrieved documents it is given.
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is told of.
        limit: Only the first so many tokens of each text; null takes all.
        max_new_tokens: Tokens to write.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.answer.ralm.resumed import write_on

    task = _task(model, text, output, data, retriever, hops, reader, rerank, exclude, limit, device)
    settings = {**task.settings, "max_new_tokens": max_new_tokens}
    write_on(task.reader, task.texts, settings, output, max_new_tokens)


def _task(
    model: str, text: str, output: str, data: str | None, retriever: str | None, hops: HopOptions,
    window: WindowOptions, rerank: RerankOptions, exclude: str | None, limit: int | None, device: str,
) -> _Task:  # fmt: skip
    """Open all that reads."""
    from grls.answer.opening import open_for_reading, retrieval_settings
    from grls.answer.ralm.choosers import chooser_of, judged_by
    from grls.answer.ralm.exclude import without
    from grls.answer.ralm.reader import InContextRalm
    from grls.answer.ralm.texts import read_texts
    from grls.data.corpus import Corpus
    from grls.io.files import refuse_unwritable
    from grls.io.logs import quiet
    from grls.models.load.language import load_language_model

    quiet()
    refuse_unwritable(output)
    _check(retriever, rerank, exclude)
    corpus = None if data is None or retriever is None else Corpus.read(data)
    opened = open_for_reading(retriever, hops, device, corpus, same=False)
    loaded = load_language_model(model, device)
    window = window if opened is not None else replace(window, documents=0)
    corpus = None if opened is None else opened.corpus
    hidden = None if corpus is None or exclude is None else without(corpus, Path(exclude))
    reader = InContextRalm(loaded.model, loaded.tokenizer, window, opened, corpus, None, hidden)
    reader.chooser = chooser_of(rerank, reader, device)
    texts = read_texts(Path(text), loaded, limit)
    settings = {
        **_settings(model, loaded.model, loaded.tokenizer, window, rerank, exclude, texts),
        **retrieval_settings(retriever, opened), "corpus": None if corpus is None else corpus.fingerprint,
        "candidates": reader.chooser.candidates,
    }  # fmt: skip
    if (judge := judged_by(reader.chooser)) is not None:
        settings["judged_by"] = judge
    return _Task(reader, texts, settings)


def _check(retriever: str | None, rerank: RerankOptions, exclude: str | None) -> None:
    if retriever is None and rerank.by != "none":
        raise ConfigError("there is nothing to rerank without --retriever FOLDER, or bm25.")
    if retriever is None and exclude is not None:
        raise ConfigError("there is nothing to exclude without --retriever FOLDER, or bm25.")


def _settings(
    model: str, weights: Any, tokenizer: Any, window: WindowOptions, rerank: RerankOptions,
    exclude: str | None, texts: Sequence[TokenizedText],
) -> dict[str, Any]:  # fmt: skip
    """What results depend on, but for the retriever."""
    from grls.commands.readings import model_settings
    from grls.io.files import read_text

    return {
        **model_settings(model, weights, tokenizer), **asdict(window), "rerank": rerank.by,
        "judge": rerank.judge, "judge_tokens": rerank.judge_tokens if rerank.by == "zero-shot" else None,
        "reranker": rerank.reranker, "exclude": None if exclude is None else _digest(read_text(exclude)),
        "texts": [_digest(json.dumps(text.tokens)) for text in texts],
    }  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
