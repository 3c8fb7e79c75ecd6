"""Runs of In-Context RALM: measure texts, or collect examples for a reranker.

A killed run goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.answer.ralm.options import ExampleOptions, RerankOptions, TaskOptions
from grls.answer.ralm.reader import (
    JUDGED,
    InContextRalm,
    Likelihood,
    ScoredStride,
    Stride,
    TextScorer,
    perplexity,
    refuse_long_window,
    strides,
)
from grls.answer.ralm.reranker import Reranker, RerankExample, Trained, prefixes_of
from grls.answer.retrievers import open_for_reading, retrieval_settings
from grls.answer.writer import model_settings
from grls.data.codec import foreign_places, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.filters import Numbered
from grls.data.words import count
from grls.errors import ConfigError, DataError, Option
from grls.io.ending import quiet
from grls.io.files import named_lines, read_text, refuse_unwritable, write_json
from grls.io.progress import counted
from grls.io.work import Record, all_done
from grls.models.load.build import Loaded
from grls.models.load.language import load_language_model, model_fingerprint

log = logging.getLogger(__name__)


class TokenizedText(NamedTuple):
    """The token ids of a text, the number of their words, and the name of its file."""

    name: str
    words: int
    tokens: list[int]


class RalmTask(NamedTuple):
    """A run of In-Context RALM; ``settings`` is everything that results depend on, as JSON values."""

    reader: InContextRalm
    texts: list[TokenizedText]
    settings: dict[str, Any]
    output: str


def task_of(asked: TaskOptions, rerank: RerankOptions) -> RalmTask:
    """Open a run."""
    retriever, window, device = asked.retriever, asked.reader, asked.device
    quiet()
    refuse_unwritable(asked.output)
    if retriever is None and rerank.by != "none":
        raise ConfigError(f"there is nothing to rerank without {Option('retriever', 'FOLDER')}, or bm25.")
    if retriever is None and asked.exclude is not None:
        raise ConfigError(f"there is nothing to exclude without {Option('retriever', 'FOLDER')}, or bm25.")
    corpus = None if asked.data is None or retriever is None else Corpus.read(asked.data)
    opened = open_for_reading(retriever, asked.hops, device, corpus, same=False)
    loaded = load_language_model(asked.model, device)
    window = window if opened is not None else replace(window, documents=0)
    corpus = None if opened is None else opened.corpus
    hidden = None if corpus is None or asked.exclude is None else without(corpus, Path(asked.exclude))
    reader = InContextRalm(loaded.model, loaded.tokenizer, window, opened, corpus, allow=hidden)
    if rerank.by != "none" and rerank.candidates < window.documents:
        raise ConfigError(
            f"{counted(rerank.candidates, 'candidate')} for {counted(window.documents, 'document')}; raise "
            f"{Option('rerank.candidates')}."
        )
    model: Any = None  # that of the judge
    if rerank.by == "oracle":
        reader.judge = Likelihood(reader.scorer)
    elif rerank.by == "zero-shot":
        scorer, name = reader.scorer, rerank.judge
        if name is not None:
            other, tokenizer = load_language_model(name, device)
            if tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(loaded.tokenizer):
                raise ConfigError(
                    f"the judge {name!r} has another tokenizer than the model; take one of its family."
                )
            refuse_long_window(other, window.window, f"the judge {name!r}")
            scorer = TextScorer(other, reader.document, window, scorer.begin)  # over the same windows
        reader.judge, model = Likelihood(scorer, JUDGED), scorer.model
    elif rerank.by == "trained" and corpus is not None:
        reranker = Reranker.load(str(rerank.reranker), device=device, trained=True)
        reader.judge, model = Trained(reranker, loaded.tokenizer, corpus), reranker.model
    reader.candidates = 0 if reader.judge is None else rerank.candidates
    texts = read_texts(Path(asked.text), loaded, asked.limit)
    settings = {
        **model_settings(asked.model, loaded.model, loaded.tokenizer), **asdict(window), "rerank": rerank.by,
        "judge": rerank.judge,
        "reranker": rerank.reranker,
        "exclude": None if asked.exclude is None else _digest(read_text(asked.exclude)),
        "texts": {text.name: _digest(json.dumps(text.tokens)) for text in texts},
        **retrieval_settings(retriever, opened), "corpus": None if corpus is None else corpus.fingerprint,
        "candidates": reader.candidates,
    }  # fmt: skip
    if model is not None:
        settings["judged_by"] = model_fingerprint(model)
    return RalmTask(reader, texts, settings, asked.output)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_texts(path: Path, loaded: Loaded, limit: int | None) -> list[TokenizedText]:
    """The texts of a file, or of the .txt files of a folder, cut to ``limit`` tokens.

    Words behind the cut are not counted.
    """
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DataError("no such text; expected a file, or a folder with .txt files.", path)
    texts = []
    for file in files:
        text = read_text(file)
        tokens, spans = foreign_places(loaded.tokenizer, [text])[0]
        tokens = tokens[:limit]
        if not tokens:
            raise DataError("the text is empty; fill the file, or remove it.", file)
        end = spans[len(tokens) - 1][1]
        texts.append(TokenizedText(file.name, count(text[:end]), tokens))
    return texts


_SHOWN = 5
"""Most lines without a match that the warning lists."""


def without(corpus: Corpus, file: Path) -> Numbered:
    """All passages except those whose title or id stands in a file, such as those of the texts read.

    Ids must match exactly. A warning counts lines that are no title and no id, and lists the first few: they
    may be misspelled.
    """
    named = dict.fromkeys(line for _, line in named_lines(file, "a title or a passage id a line"))
    titled: dict[str, list[str]] = {}
    for line in named:
        titled.setdefault(line.strip(), []).append(line)
    numbers, matched = [], set()
    for number, passage in enumerate(corpus):
        names = {*titled.get(passage.title.strip(), ()), *(named.keys() & {passage.id})}
        matched |= names
        if not names:
            numbers.append(number)
    if not matched:
        raise DataError(f"no passage of {corpus.source} has a title or id that stands in this file.", file)
    missing = [name for name in named if name not in matched]
    if missing:
        listed = ", ".join(map(repr, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
        log.warning(
            "%s: %d of %d lines are no title and no id of a passage of %s, so they exclude nothing: %s",
            file, len(missing), len(named), corpus.source, listed,
        )  # fmt: skip
    return Numbered(np.array(numbers, dtype=np.int64))


_TOKENS = 1024
"""Tokens of the strides that are retrieved for and scored together."""

Place = tuple[TokenizedText, Stride]


def _name(place: Place) -> Record:
    text, stride = place
    return {"text": text.name, "first": stride.first}


def _by_text(places: Sequence[Place]) -> Iterator[tuple[TokenizedText, list[Stride]]]:
    """The strides of each text."""
    for _, group in groupby(places, key=lambda place: place[0].name):
        texts, block = zip(*group, strict=True)
        yield texts[0], list(block)


def measure(task: RalmTask) -> None:
    """Measure all texts: a line a stride in OUTPUT.strides.jsonl, the perplexity in OUTPUT.json."""
    reader, texts, settings, output = task
    places = [(text, stride) for text in texts for stride in strides(len(text.tokens), reader.options)]

    def scored(group: Sequence[Place], _: Callable[[int], object]) -> list[Record]:
        return [row._asdict() for text, block in _by_text(group) for row in reader.score(text.tokens, block)]

    together = max(1, _TOKENS // reader.options.stride)
    with all_done(
        places, scored, f"{output}.strides.jsonl", settings, _name, together, "ralm", "strides",
        spent=lambda: {"computed": reader.scorer.computed},
    ) as file:  # fmt: skip
        rows = [
            ScoredStride(r["first"], r["last"], tuple(r["passages"]), r["log_probability"], r["tokens"])
            for r in file
        ]
        spent = file.spent()
    measured = perplexity(rows, sum(text.words for text in texts))
    write_json(f"{output}.json", {**measured._asdict(), **spent, "settings": settings})
    print(
        f"perplexity {measured.token:.3f} a token, {measured.word:.2f} a word "
        f"({counted(measured.tokens, 'token')}, {counted(measured.words, 'word')}, "
        f"{counted(measured.strides, 'stride')}, {measured.without:,} without a document; "
        f"{spent['seconds']:.0f} s)"
    )


_BLOCK = 64
"""Strides whose candidates are scored together."""


def collect_examples(task: RalmTask, options: ExampleOptions) -> None:
    """Collect examples for :mod:`grls.train.reranker`, a line a stride in OUTPUT.examples.jsonl.

    An example has as many candidates as the reader takes; it is empty if nothing was retrieved.
    """
    reader, texts, settings, output = task
    recorded = {"rerank": "none", "every": options.every}

    def collected(group: Sequence[Place], _: Callable[[int], object]) -> list[Record]:
        records = []
        for text, block in _by_text(group):
            candidates = reader.candidates_for(text.tokens, block)
            scores = Likelihood(reader.scorer).scores(text.tokens, block, candidates)
            prefixes = prefixes_of(reader.tokenizer, text.tokens, block)
            for prefix, numbers, values in zip(prefixes, candidates, scores, strict=True):
                example = RerankExample("", (), ())
                if numbers:
                    example = RerankExample(prefix, reader.ids(numbers), tuple(values.tolist()))
                records.append(example._asdict())
        return records

    taken = [(text, strides(len(text.tokens), reader.options)[1 :: options.every]) for text in texts]
    places = [(text, stride) for text, some in taken for stride in some]
    path = f"{output}.examples.jsonl"
    with all_done(
        places, collected, path, {**settings, **recorded}, _name, _BLOCK, "examples", "strides"
    ) as file:
        usable = sum(bool(record["passages"]) for record in file)
    print(f"{counted(usable, 'example')} in {path}")
