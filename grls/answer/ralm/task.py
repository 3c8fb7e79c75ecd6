"""Opens the models, retriever and texts of a run of In-Context RALM by their names in the options."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.answer.opening import open_for_reading, retrieval_settings
from grls.answer.questions import model_settings
from grls.answer.ralm.choose import Oracle, ZeroShot
from grls.answer.ralm.options import RerankOptions
from grls.answer.ralm.reader import InContextRalm, refuse_long_window
from grls.answer.ralm.reranker import Reranker, Trained
from grls.answer.ralm.scoring import TextScorer
from grls.answer.ralm.strides import WindowOptions
from grls.data.codec import foreign_places, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.filters import Numbered
from grls.data.words import count
from grls.errors import ConfigError, DataError, Option, at_least
from grls.io.ending import quiet
from grls.io.files import named_lines, read_text, refuse_unwritable
from grls.io.progress import counted
from grls.models.load.language import LanguageModel, load_language_model, weights_fingerprint
from grls.retrieve.hops.options import HopOptions

log = logging.getLogger(__name__)


class TokenizedText(NamedTuple):
    """A text.

    Attributes:
        name: The name of its file.
        words: Number of words of its tokens.
        tokens: Its token ids.
    """

    name: str
    words: int
    tokens: list[int]


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
        ConfigError: An option needs a retriever, options do not fit each other, there are fewer candidates
            than documents, or the judge has another tokenizer.
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
    if rerank.by != "none" and rerank.candidates < window.documents:
        raise ConfigError(
            f"{counted(rerank.candidates, 'candidate')} for {counted(window.documents, 'document')}; raise "
            f"{Option('rerank.candidates')}."
        )
    judge: Any = None  # the model that orders documents
    if rerank.by == "oracle":
        reader.chooser = Oracle(reader.scorer, rerank.candidates)
    elif rerank.by == "zero-shot":
        scorer, name = reader.scorer, rerank.judge
        if name is not None:
            other, tokenizer = load_language_model(name, device)
            if tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(loaded.tokenizer):
                raise ConfigError(
                    f"the judge {name!r} has another tokenizer than the model; take one of its family."
                )
            refuse_long_window(other, window.window, f"the judge {name!r}")
            scorer = TextScorer(other, reader.documents.tokens, window, scorer.begin)  # over the same windows
        reader.chooser, judge = ZeroShot(scorer, rerank.judge_tokens, rerank.candidates), scorer.model
    elif rerank.by == "trained" and corpus is not None:
        reranker = Reranker.load(str(rerank.reranker), device=device, trained=True)
        reader.chooser = Trained(reranker, loaded.tokenizer, corpus, rerank.candidates)
        judge = reranker.model
    texts = read_texts(Path(text), loaded, limit)
    settings = {
        **model_settings(model, loaded.model, loaded.tokenizer), **asdict(window), "rerank": rerank.by,
        "judge": rerank.judge, "judge_tokens": rerank.judge_tokens if rerank.by == "zero-shot" else None,
        "reranker": rerank.reranker, "exclude": None if exclude is None else _digest(read_text(exclude)),
        "texts": [_digest(json.dumps(text.tokens)) for text in texts],
        **retrieval_settings(retriever, opened), "corpus": None if corpus is None else corpus.fingerprint,
        "candidates": reader.chooser.candidates,
    }  # fmt: skip
    if judge is not None:
        settings["judged_by"] = weights_fingerprint(judge)
    return RalmTask(reader, texts, settings)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_texts(path: Path, loaded: LanguageModel, limit: int | None) -> list[TokenizedText]:
    """The texts of a file or folder, cut to a limit; words behind the cut are not counted.

    Args:
        path: A text file, or a folder with .txt files.
        loaded: The language model, whose tokenizer is used.
        limit: Most tokens of a text; None: all.

    Raises:
        ConfigError: The limit is below 2.
        DataError: There is no text, or a text is empty.
    """
    at_least(2, limit=limit)
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DataError("no such text; expected a file, or a folder with .txt files.", path)
    texts = []
    for file in files:
        text = read_text(file)
        tokens, places = foreign_places(loaded.tokenizer, [text])[0]
        tokens = tokens[:limit]
        if not tokens:
            raise DataError("the text is empty; fill the file, or remove it.", file)
        end = places[len(tokens) - 1][1]
        texts.append(TokenizedText(file.name, count(text[:end]), tokens))
    return texts


# Passages to exclude from retrieval: those of the texts that are read, as in arXiv 2302.00083.
#
# A file names the passages, a title or a passage id a line. White space around titles is ignored, ids must
# match exactly. A warning lists lines that match nothing: they may be misspelled titles.


_SHOWN = 5
"""Most lines without a match that the warning lists."""


def without(corpus: Corpus, file: Path) -> Numbered:
    """All passages except those whose title or id stands in a file.

    A warning counts lines that are no title and no id, and lists the first few.

    Raises:
        DataError: The file is missing or no text, or none of its lines matches.
    """
    named = dict.fromkeys(line for _, line in named_lines(file, "a title or a passage id a line"))
    titled: dict[str, list[str]] = {}
    for line in named:
        titled.setdefault(line.strip(), []).append(line)
    kept, matched = [], set()
    for number, passage in enumerate(corpus):
        names = {*titled.get(passage.title.strip(), ()), *(named.keys() & {passage.id})}
        matched |= names
        if not names:
            kept.append(number)
    if not matched:
        raise DataError(f"no passage of {corpus.source} has a title or id that stands in this file.", file)
    missing = [name for name in named if name not in matched]
    if missing:
        listed = ", ".join(map(repr, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
        log.warning(
            "%s: %d of %d lines are no title and no id of a passage of %s, so they exclude nothing: %s",
            file, len(missing), len(named), corpus.source, listed,
        )  # fmt: skip
    return Numbered(np.array(kept, dtype=np.int64))
