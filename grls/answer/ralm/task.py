"""Opens the models, retriever and texts of a run of In-Context RALM by their names in the options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.opening import open_for_reading, retrieval_settings
from grls.answer.questions import model_settings
from grls.answer.ralm.choosers import chooser_of, judged_by
from grls.answer.ralm.exclude import without
from grls.answer.ralm.options import RerankOptions
from grls.answer.ralm.reader import InContextRalm
from grls.answer.ralm.strides import WindowOptions
from grls.answer.ralm.texts import TokenizedText, read_texts
from grls.data.corpus import Corpus
from grls.errors import ConfigError, Option
from grls.io.files import read_text, refuse_unwritable
from grls.io.logs import quiet
from grls.models.load.language import load_language_model
from grls.retrieve.hops.options import HopOptions


class RalmTask(NamedTuple):
    """A run of In-Context RALM.

    Attributes:
        reader: The language model with its retriever.
        texts: The texts.
        settings: Everything that results depend on, as JSON values.
    """

    reader: InContextRalm
    texts: list[TokenizedText]
    settings: dict[str, Any]


def task_of(
    model: str, text: str, output: str, data: str | None, retriever: str | None, hops: HopOptions,
    window: WindowOptions, rerank: RerankOptions, exclude: str | None, limit: int | None, device: str,
) -> RalmTask:  # fmt: skip
    """Open a run; the arguments are the options of ``grls ralm``.

    Raises:
        ConfigError: An option needs a retriever, or options do not fit each other.
    """
    quiet()
    refuse_unwritable(output)
    if retriever is None and rerank.by != "none":
        raise ConfigError(f"there is nothing to rerank without {Option('retriever', 'FOLDER')}, or bm25.")
    if retriever is None and exclude is not None:
        raise ConfigError(f"there is nothing to exclude without {Option('retriever', 'FOLDER')}, or bm25.")
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
    return RalmTask(reader, texts, settings)


def _settings(
    model: str, weights: Any, tokenizer: Any, window: WindowOptions, rerank: RerankOptions,
    exclude: str | None, texts: Sequence[TokenizedText],
) -> dict[str, Any]:  # fmt: skip
    """Everything that results depend on, except the retriever."""
    return {
        **model_settings(model, weights, tokenizer), **asdict(window), "rerank": rerank.by,
        "judge": rerank.judge, "judge_tokens": rerank.judge_tokens if rerank.by == "zero-shot" else None,
        "reranker": rerank.reranker, "exclude": None if exclude is None else _digest(read_text(exclude)),
        "texts": [_digest(json.dumps(text.tokens)) for text in texts],
    }  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
