"""Writes pseudo-queries for passages with a trained query generator.

Each query is drawn with its own seed: it does not depend on the other queries of a run (except for rounding
in padded batches).
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from grls.answer.writer import Sampling, TextWriter
from grls.data.codec import controls, tokenizer_fingerprint, wrapping
from grls.data.corpus import Corpus
from grls.data.spelling import encoded_texts
from grls.data.types import Passage, Query
from grls.data.words import plain_words
from grls.errors import ConfigError, DataError
from grls.io.files import read_json
from grls.io.progress import Progress
from grls.io.work import Record
from grls.models.load.base_models import find_writer
from grls.models.load.language import load_language_model, model_fingerprint
from grls.models.option_names import Numbers
from grls.retrieve.base import Retriever
from grls.train.doc2query.options import Drawing as Drawing
from grls.train.doc2query.options import PassagesRead

FORM = "query-generator.json"
"""The file beside a trained query generator with the form of its input and output."""


class QueryForm(NamedTuple):
    """The form of a query generator's input and output.

    Attributes:
        passages: Gold passages that are read: ``one``, ``all`` of a query in their order, or ``some`` of
            them.
        passage_tokens: Longest passage in tokens; longer passages are cut.
        query_tokens: Longest query in tokens, without the end token.
        plain: Whether the passage alone is read, as other encoder-decoders do that write queries
            (doc2query, Nogueira et al. 2019, arXiv 1904.08375).
    """

    passages: PassagesRead = "one"
    passage_tokens: int = 128
    query_tokens: int = 64
    plain: bool = False

    @classmethod
    def read(cls, model: str | Path) -> QueryForm:
        """The form of a query generator that was trained here, or of another encoder-decoder."""
        file = Path(model).expanduser() / FORM
        if not file.is_file():
            if find_writer(str(model)).causal:
                raise ConfigError(
                    f"{model} is a language model that was not trained to write queries ({FORM} is missing): "
                    "train one with `grls train doc2query`, or give an encoder-decoder of doc2query."
                )
            return cls(passage_tokens=384, plain=True)
        content = read_json(file)
        try:
            form = cls(**content)
            if form.passages not in get_args(PassagesRead):
                raise ValueError(f"passages are {form.passages!r}")
            for tokens in (form.passage_tokens, form.query_tokens):
                if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
                    raise ValueError(f"a number of tokens is {tokens!r}")
        except (TypeError, ValueError) as error:
            raise DataError(
                f"expected the form of a query generator ({error}); train it again.", file
            ) from None
        return form


class QueryPrompt:
    """Token ids of a query generator's input and output, the same in training and generation.

    The input is a line ``passage: …`` for each passage, then ``query:``; the output is the query.
    """

    def __init__(self, tokenizer: Any, causal: bool, form: QueryForm):
        self.tokenizer = tokenizer
        self.form = form
        self._before, after = wrapping(tokenizer)
        self._after = [] if causal else after  # after an end token, a causal model would write nothing
        self._line, self._ask = self._ids(["\n", "query:"])

    def passages(self, passages: Sequence[Passage]) -> list[list[int]]:
        if self.form.plain:
            texts = [f"{p.title} {p.text}".strip() for p in passages]
        else:
            texts = [f"passage: {passage.titled}" for passage in passages]
        return [row[: self.form.passage_tokens] for row in self._ids(texts)]

    def source(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """The model input for rows of :meth:`passages`."""
        if self.form.plain:
            return [*self._before, *(token for row in rows for token in row), *self._after]
        body = [token for row in rows for token in (*row, *self._line)]
        return [*self._before, *body, *self._ask, *self._after]

    def targets(self, queries: Sequence[str]) -> list[list[int]]:
        """The output for each query, with the end token; nothing is cut."""
        end = self.tokenizer.eos_token_id
        return [[*row, end] for row in self._ids([" " + " ".join(text.split()) for text in queries])]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        rows = encoded_texts(self.tokenizer, texts)["input_ids"]
        barred = controls(self.tokenizer) | {self.tokenizer.eos_token_id}  # pieces of a Unigram vocabulary
        return [[token for token in row if token not in barred] for row in rows]


class Task(NamedTuple):
    """A query to be written: number ``draw`` (from 0) of those of the passage with this number."""

    passage: int
    draw: int


PORTION = 16
"""Batches of queries that are written together: in them, like lengths share a batch."""
_TOP_P = 0.95
"""Tokens are drawn from the likeliest ones with this total probability."""


class QueryWriter(NamedTuple):
    writer: TextWriter
    prompt: QueryPrompt
    corpus: Corpus
    drawing: Drawing

    def write(self, batch: Sequence[Task], decided: Callable[[int], object] | None = None) -> list[Record]:
        """A record of each task: ``passage`` (its id), ``draw``, ``text``, ``ended`` (not cut off).

        A passage that is too long for the model has no text; its record has the reason under ``failed``.
        """
        passages = self.corpus.passages([task.passage for task in batch])
        prompts = [self.prompt.source([row]) for row in self.prompt.passages(passages)]
        inputs = [f"the passage {passage.id!r}" for passage in passages]
        draws = []
        for passage, task in zip(passages, batch, strict=True):
            key = repr((self.drawing.seed, passage.id, task.draw)).encode()
            seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
            draws.append(Sampling(self.drawing.temperature, seed, _TOP_P))
        least = partial(self.prompt.source, [])
        written = self.writer.write_each(inputs, prompts, least, decided, draws)
        records = []
        for task, result in zip(batch, written, strict=True):
            if isinstance(result, str):
                told: Record = {"text": "", "ended": False, "failed": result}
            else:
                told = {"text": " ".join(result.text.split()), "ended": result.ended}
            records.append(self.name(task) | told)
        return records

    def name(self, task: Task) -> Record:
        return {"passage": self.corpus.ids([task.passage])[0], "draw": task.draw}


def open_queries(
    data: str, model: str, draw: Drawing, limit: int | None, batch_size: int, device: str, precision: Numbers
) -> tuple[list[Task], QueryWriter, dict[str, Any]]:  # fmt: skip
    """The queries to write, their writer, and what they depend on.

    The arguments are the options of ``grls prepare pseudo-queries``.
    """
    corpus = Corpus.read(data)
    form = QueryForm.read(model)
    numbers: Sequence[int] = range(len(corpus))
    if limit is not None and limit < len(corpus):
        numbers = sorted(random.Random(draw.seed).sample(numbers, limit))
    tasks = [Task(number, number_of_draw) for number in numbers for number_of_draw in range(draw.queries)]
    loaded, tokenizer = load_language_model(model, device, precision)
    prompt = QueryPrompt(tokenizer, not loaded.config.is_encoder_decoder, form)
    origin = {
        "weights": model_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
        "form": form._asdict(), "corpus": corpus.fingerprint, "limit": limit, **asdict(draw),
    }  # fmt: skip
    if precision != "float32":
        origin["precision"] = precision
    texts = TextWriter(loaded, tokenizer, form.query_tokens + 1, batch_size)
    return tasks, QueryWriter(texts, prompt, corpus, draw), origin


EMPTY = "empty"
CUT = "cut off"
LONG = "too long to be read"
COPY = "copies a passage"
TWICE = "written before"
ASTRAY = "not found again"

_BATCH = 256


class Sifted(NamedTuple):
    """Pseudo-queries that are left, in order, how many were dropped for which reason, and searched for."""

    queries: list[Query]
    dropped: Counter[str]
    searched: int

    @property
    def rate(self) -> float:
        """Share of the queries searched for that led back to their passage."""
        return 1 - self.dropped[ASTRAY] / self.searched if self.searched else 0.0


def sift(
    records: Sequence[dict[str, Any]],
    corpus: Corpus,
    retriever: Retriever | None,
    k: int = 10,
) -> Sifted:
    """Drop records without a usable query, then queries that do not lead back to their passage.

    Such a query is answered by another passage or by none, or is too vague to learn from. A query leads
    back if its passage, or a copy with the same title and text, is among its k best.
    Without a retriever every query leads back.
    """
    dropped: Counter[str] = Counter()
    usable: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    names = list(dict.fromkeys(record["passage"] for record in records))
    numbers = [number for number in corpus.numbers(names) if number is not None]
    texts = {passage.id: plain_words(passage.text) for passage in corpus.passages(numbers)}
    for record in records:
        text = plain_words(record["text"])
        key = (record["passage"], text)
        faults = {
            LONG: "failed" in record,
            EMPTY: not text,
            CUT: not record["ended"],
            COPY: text == texts.get(record["passage"]),
            TWICE: key in seen,
        }
        if any(faults.values()):
            dropped[next(fault for fault, there in faults.items() if there)] += 1
        else:
            usable.append(record)
            seen.add(key)
    queries = [
        Query(f"pseudo-{record['passage']}-{record['draw']}", record["text"], (record["passage"],))
        for record in usable
    ]
    if retriever is None:
        return Sifted(queries, dropped, 0)
    known: dict[tuple[str, str], int] = {}
    first = [known.setdefault((passage.title, passage.text), n) for n, passage in enumerate(corpus)]  # copies
    accepted: list[Query] = []
    with Progress(len(queries), "round trip", "queries", shown=None) as bar:
        for start in range(0, len(queries), _BATCH):
            batch = queries[start : start + _BATCH]
            rankings = retriever.retrieve(batch, k)
            ids = list({hit.id for hits in rankings for hit in hits} | {query.evidence[0] for query in batch})
            firsts = {  # DONE, which a generator may retrieve, has no number
                name: first[number]
                for name, number in zip(ids, corpus.numbers(ids), strict=True)
                if number is not None
            }
            accepted += [
                query
                for query, hits in zip(batch, rankings, strict=True)
                if firsts[query.evidence[0]] in [firsts.get(hit.id) for hit in hits]
            ]
            bar.update(len(batch))
    if len(accepted) < len(queries):
        dropped[ASTRAY] = len(queries) - len(accepted)
    return Sifted(accepted, dropped, len(queries))
