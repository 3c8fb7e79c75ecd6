"""Queries for a corpus without any: parts of its passages' sentences, or those of a query generator.

A query is a sentence of the passage that answers it, with some of its words left out (the inverse cloze task,
Lee et al. 2019, arXiv 1906.00300, keeps all of them): who searches knows some words of what there is. Such
queries are easier than real ones, above all for BM25. A query generator that the user names writes better
ones: a folder of ``grls train doc2query``, or any encoder-decoder that was trained to write a query from the
text of a passage (doc2query, Nogueira et al. 2019, arXiv 1904.08375); those are kept whose passage BM25 finds
again.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.fitting.models import find_writer
from grls.io.progress import Progress
from grls.train.doc2query.form import FORM, QueryForm, QueryPrompt

PSEUDO = 2000
"""Passages that pseudo-queries are written for, at most."""
_LEAST = 4
"""Words that a query keeps at least."""

_DROPPED = 0.3
"""Probability that a word is left out."""

_CUT, _WRITTEN = '{"pseudo": "sentence"}', '{"pseudo": "generator"}'
"""The metadata of pseudo-queries: parts of sentences, and those that a generator has written."""


def sentence_queries(corpus: Corpus, count: int, seed: int, taken: Collection[str]) -> list[Query]:
    """Write queries for passages that are drawn at random.

    Args:
        corpus: The passages.
        count: Number of passages to draw; a passage without a sentence gets no query.
        seed: Seed of all draws.
        taken: Ids that other queries have.
    """
    draw = random.Random(seed)
    numbers = sorted(draw.sample(range(len(corpus)), min(count, len(corpus))))
    ids = free_ids(taken)
    made = []
    for passage in corpus.passages(numbers):
        text = _query(passage, draw)
        if text:
            made.append(Query(next(ids), text, (passage.id,), metadata=_CUT))
    return made


def _query(passage: Passage, draw: random.Random) -> str:
    """A part of one of its sentences; empty if it has none."""
    parts = sentences(passage.text) or [passage.title]
    words = draw.choice(parts).split()
    if len(words) <= _LEAST:
        return " ".join(words)
    kept = [place for place in range(len(words)) if draw.random() >= _DROPPED]
    if len(kept) < _LEAST:
        kept = sorted(draw.sample(range(len(words)), _LEAST))
    return " ".join(words[place] for place in kept)


def free_ids(taken: Collection[str]) -> Iterator[str]:
    """Ids of pseudo-queries that no other query has."""
    number = 0
    while True:
        number += 1
        if (name := f"pseudo-{number}") not in taken:
            yield name


_PORTION = 32
"""Queries that are written between two looks at the time."""

_FOUND = 10
"""A query is kept if its passage is among so many that BM25 finds."""


class WrittenQueries(NamedTuple):
    """Queries of a query generator.

    Attributes:
        model: Its name.
        queries: The queries, with their passage as evidence.
    """

    model: str
    queries: list[Query]

    def record(self) -> list[list[str]]:
        """The queries as JSON values."""
        return [[query.id, query.text, query.evidence[0]] for query in self.queries]

    @classmethod
    def of_record(cls, model: str, record: Sequence[Sequence[str]]) -> WrittenQueries:
        """The queries of :meth:`record`."""
        return cls(
            model, [Query(name, text, (passage,), metadata=_WRITTEN) for name, text, passage in record]
        )


class _PassageAlone(QueryPrompt):
    """The prompt of an encoder-decoder that reads the text of a passage and nothing else."""

    def passages(self, passages: Sequence[Passage]) -> list[list[int]]:
        texts = [f"{one.title} {one.text}".strip() for one in passages]
        return [row[: self.form.passage_tokens] for row in self._ids(texts)]

    def source(self, rows: Sequence[Sequence[int]]) -> list[int]:
        return [*self._before, *(token for row in rows for token in row), *self._after]


def refuse_no_query_writer(name: str) -> None:
    """Refuse a model that writes no queries.

    Raises:
        ConfigError: There is no such model, or it is a language model that was not trained to write queries.
    """
    if (Path(name).expanduser() / FORM).is_file():
        return
    if find_writer(name).causal:
        raise ConfigError(
            f"pseudo_model: {name} is a language model that was not trained to write queries ({FORM} is "
            "missing): train one with `grls train doc2query`, or give an encoder-decoder of doc2query."
        )


def written_queries(
    name: str,
    corpus: Corpus,
    count: int,
    seed: int,
    taken: Collection[str],
    device: str = "auto",
    seconds: float | None = None,
) -> WrittenQueries:
    """Write a query for passages that are drawn at random.

    Args:
        name: The query generator.
        corpus: The passages.
        count: Number of passages to draw.
        seed: Seed of all draws.
        taken: Ids that other queries have.
        device: Where the generator works.
        seconds: The time for it: passages whose turn does not come have no query; None: no limit.
    """
    from grls.train.doc2query.generate import Task
    from grls.train.doc2query.round_trip import sift

    end = None if seconds is None else monotonic() + seconds
    writer = _writer(name, corpus, seed, device)
    numbers = random.Random(seed).sample(range(len(corpus)), min(count, len(corpus)))
    records: list[dict[str, Any]] = []
    with Progress(len(numbers), "write", "queries", shown=None) as bar:
        for first in range(0, len(numbers), _PORTION):
            if end is not None and records and monotonic() > end:
                break
            part = [Task((number,), 0) for number in numbers[first : first + _PORTION]]
            records += writer.write(part)
            bar.update(len(part))
    ids = free_ids(taken)
    kept = sift(records, corpus, _judge(corpus), _FOUND).kept
    return WrittenQueries(name, [one._replace(id=next(ids), metadata=_WRITTEN) for one in kept])


def _writer(name: str, corpus: Corpus, seed: int, device: str) -> Any:
    """What writes the queries."""
    from grls.answer.writer import TextWriter
    from grls.models.load.language import load_language_model
    from grls.train.doc2query.generate import QueryWriter
    from grls.train.doc2query.options import Drawing

    ours = (Path(name).expanduser() / FORM).is_file()
    form = QueryForm.read(Path(name).expanduser()) if ours else QueryForm(passage_tokens=384)
    model, tokenizer = load_language_model(name, device)
    kind = QueryPrompt if ours else _PassageAlone
    prompt = kind(tokenizer, not model.config.is_encoder_decoder, form)
    drawing = Drawing(queries=1, reads="first", seed=seed)
    writer = TextWriter(model, tokenizer, form.query_tokens + 1, batch_size=16)
    return QueryWriter(writer, prompt, corpus, drawing)


def _judge(corpus: Corpus) -> Any:
    from grls.retrieve.bm25 import BM25Retriever

    return BM25Retriever(corpus)
