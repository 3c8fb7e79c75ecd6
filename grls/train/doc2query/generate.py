"""Writes pseudo-queries for passages, or chains of passages, with a trained query generator.

A chain begins with its passage and continues, hop by hop, with a neighbour of the last passage. So a
pseudo-query of several hops has evidence in the order of retrieval (as the authors of arXiv 2204.13596
later proposed). Each query is drawn with its own seed: it does not depend on the other queries of a run
(except for rounding in padded batches).
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from grls.answer.writer import Sampling, TextWriter
from grls.data.codec import controls, tokenizer_fingerprint, wrapping
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours, copies
from grls.data.spelling import encoded_texts
from grls.data.types import Passage, Query
from grls.data.words import plain_words
from grls.errors import ConfigError, DataError, at_least
from grls.io.files import read_json, sha256
from grls.io.progress import Progress, counted
from grls.io.work import Record
from grls.models.load.base_models import find_writer
from grls.models.load.language import load_language_model, model_fingerprint
from grls.models.option_names import Numbers
from grls.retrieve.base import Retriever
from grls.retrieve.queries import check_counts
from grls.train.doc2query.options import Drawing as Drawing

FORM = "query-generator.json"
"""The file beside a trained query generator with the form of its input and output."""

PassagesRead = Literal["one", "all", "some"]


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
        at_least(1, max_passage_tokens=form.passage_tokens, max_query_tokens=form.query_tokens)
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
    """A query to be written: the passages of its evidence, by number, in order.

    ``draw``: its number among the queries of the passage, from 0.
    """

    chain: tuple[int, ...]
    draw: int


def tasks(numbers: Sequence[int], links: Neighbours | None, drawing: Drawing) -> list[Task]:
    """The queries to write for passages, each with its own chain.

    A chain has no passage twice. A passage without a chain of the full length has no query.
    """
    if drawing.hops > 1 and links is None:
        raise ConfigError(
            "several hops need links between passages: make a file with `grls prepare neighbours`."
        )
    drawn = []
    for number, draw in product(numbers, range(drawing.queries)):
        chain = [number]
        rng = random.Random(f"{drawing.seed}-{number}-{draw}")
        while len(chain) < drawing.hops:
            assert links is not None
            further = [other for other in links.of(chain[-1]) if other not in chain]
            if not further:
                break
            chain.append(rng.choice(further))
        else:
            drawn.append(Task(tuple(chain), draw))
    if not drawn:
        raise ConfigError(
            f"no chain of {counted(drawing.hops, 'passage')} can be drawn: lower the number of hops, or link "
            "more passages."
        )
    return drawn


PORTION = 16
"""Batches of queries that are written together: in them, like lengths share a batch."""


class QueryWriter(NamedTuple):
    writer: TextWriter
    prompt: QueryPrompt
    corpus: Corpus
    drawing: Drawing

    def write(self, batch: Sequence[Task], decided: Callable[[int], object] | None = None) -> list[Record]:
        """A record of each task: ``chain`` (passage ids), ``draw``, ``text``, ``ended`` (not cut off).

        A chain that is too long for the model has no text; its record has the reason under ``failed``.
        """
        chains = [self.corpus.passages(task.chain) for task in batch]
        evidence = [chain[:1] if self.drawing.reads == "first" else chain for chain in chains]
        prompts = [self.prompt.source(self.prompt.passages(passages)) for passages in evidence]
        names = [[passage.id for passage in chain] for chain in chains]
        inputs = [f"the passages {', '.join(map(repr, ids))}" for ids in names]
        draws = []
        for ids, task in zip(names, batch, strict=True):
            key = repr((self.drawing.seed, *ids, task.draw)).encode()
            seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
            draws.append(Sampling(self.drawing.temperature, seed, self.drawing.top_p))
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
        return {"chain": self.corpus.ids(task.chain), "draw": task.draw}


def open_queries(
    data: str, model: str, draw: Drawing, links: str | None, limit: int | None, batch_size: int, device: str,
    precision: Numbers,
) -> tuple[list[Task], QueryWriter, dict[str, Any]]:  # fmt: skip
    """The queries to write, their writer, and what they depend on.

    The arguments are the options of ``grls prepare pseudo-queries``.
    """
    corpus = Corpus.read(data)
    form = QueryForm.read(model)
    drawing = replace(draw, reads=draw.reads or ("first" if form.passages == "one" else "all"))
    neighbours = None if links is None else Neighbours.read(links, corpus)
    numbers: Sequence[int] = range(len(corpus))
    if limit is not None and limit < len(corpus):
        numbers = sorted(random.Random(draw.seed).sample(numbers, limit))
    drawn = tasks(numbers, neighbours, drawing)
    loaded, tokenizer = load_language_model(model, device, precision)
    prompt = QueryPrompt(tokenizer, not loaded.config.is_encoder_decoder, form)
    origin = {
        "weights": model_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
        "form": form._asdict(), "corpus": corpus.fingerprint, "limit": limit,
        "links": None if links is None else sha256(links), **asdict(drawing),
    }  # fmt: skip
    if precision != "float32":
        origin["precision"] = precision
    texts = TextWriter(loaded, tokenizer, form.query_tokens + 1, batch_size)
    return drawn, QueryWriter(texts, prompt, corpus, drawing), origin


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
    back if the first passage of its chain, or a copy with the same title and text, is among its k best.
    Without a retriever every query leads back.
    """
    check_counts(k=k)
    dropped: Counter[str] = Counter()
    usable: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    names = list(dict.fromkeys(name for record in records for name in record["chain"]))
    numbers = [number for number in corpus.numbers(names) if number is not None]
    texts = {passage.id: plain_words(passage.text) for passage in corpus.passages(numbers)}
    for record in records:
        text = plain_words(record["text"])
        key = (record["chain"][0], text)
        faults = {
            LONG: "failed" in record,
            EMPTY: not text,
            CUT: not record["ended"],
            COPY: any(text == texts.get(name) for name in record["chain"]),
            TWICE: key in seen,
        }
        if any(faults.values()):
            dropped[next(fault for fault, there in faults.items() if there)] += 1
        else:
            usable.append(record)
            seen.add(key)
    queries = [
        Query(f"pseudo-{record['chain'][0]}-{record['draw']}", record["text"], tuple(record["chain"]))
        for record in usable
    ]
    if retriever is None:
        return Sifted(queries, dropped, 0)
    first = copies(corpus)
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
