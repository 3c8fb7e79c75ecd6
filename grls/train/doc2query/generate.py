"""Writes pseudo-queries for passages with a trained query generator.

Each query is drawn with its own seed: it does not depend on the other queries of a run (except for rounding
in padded batches).
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from grls.answer.writer import Sampling, TextWriter, too_long
from grls.cluster.options import Workers
from grls.cluster.plan import (
    Shard,
    ShardPlan,
    Work,
    held_shards,
    refuse_other_reading,
    seen_elsewhere,
)
from grls.cluster.work import done_by_workers
from grls.data.codec import controls, tokenizer_fingerprint, wrapping
from grls.data.corpus import Corpus
from grls.data.spelling import encoded_texts
from grls.data.types import Passage, Query
from grls.data.words import plain_words
from grls.errors import ConfigError, DataError, at_least
from grls.io.files import read_json
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile
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
    """A query to be written: number ``draw`` (from 0) of those of the passage with this number."""

    passage: int
    draw: int


class QueryWriter(NamedTuple):
    writer: TextWriter
    prompt: QueryPrompt
    corpus: Corpus
    drawing: Drawing

    def write(
        self, batch: Sequence[Task], decided: Callable[[int], object] | None = None
    ) -> list[dict[str, Any]]:
        """A record of each task: ``passage`` (its id), ``draw``, ``text``, ``ended`` (not cut off).

        A passage that is too long for the model has no text; its record has the reason under ``failed``.
        """
        passages = self.corpus.passages([task.passage for task in batch])
        prompts = [self.prompt.source([row]) for row in self.prompt.passages(passages)]
        inputs = [f"the passage {passage.id!r}" for passage in passages]
        room, new = self.writer.room, self.writer.max_new_tokens
        failed = too_long(inputs, prompts, room, new, lambda: self.prompt.source([]), decided)
        rows = [row for row in range(len(batch)) if row not in failed]
        draws = []
        for row in rows:
            key = repr((self.drawing.seed, passages[row].id, batch[row].draw)).encode()
            seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
            draws.append(Sampling(self.drawing.temperature, seed, self.drawing.top_p))
        texts = iter(self.writer.write([prompts[row] for row in rows], decided, draws))
        records = []
        for row, (passage, task) in enumerate(zip(passages, batch, strict=True)):
            record: dict[str, Any] = {"passage": passage.id, "draw": task.draw, "text": "", "ended": False}
            if row in failed:
                record["failed"] = failed[row]
            else:
                written = next(texts)
                record |= {"text": " ".join(written.text.split()), "ended": written.ended}
            records.append(record)
        return records


# A query is drawn with its own seed, and a portion of queries is padded in the same batches wherever it is
# written. So workers write the bytes that one process writes, where their machines round alike.


PORTION = 16
"""Batches that are written before the file grows; within them, like lengths go together."""
SHARD = 4096
"""Queries of a shard, unless an option says otherwise."""
_WRITTEN = "written.jsonl"


class OpenedQueries(NamedTuple):
    """A run's query generator, corpus and tasks, of which ``portion`` are written together.

    ``origin``: the fingerprints and options that the queries depend on.
    """

    corpus: Corpus
    tasks: list[Task]
    writer: QueryWriter
    origin: dict[str, Any]
    portion: int

    def write(self, first: int, end: int, file: GrowingFile, report: Callable[[int], object] | None) -> None:
        for start in range(first, end, self.portion):
            file.add(self.writer.write(self.tasks[start : min(start + self.portion, end)], report))


@dataclass(frozen=True)
class QueryWork:
    """The options of `grls prepare pseudo-queries` that the queries depend on, by their names."""

    data: str
    model: str
    draw: Drawing
    limit: int | None
    batch_size: int
    device: str
    precision: Numbers

    def opened(self) -> OpenedQueries:
        corpus = Corpus.read(self.data)
        form = QueryForm.read(self.model)
        numbers: Sequence[int] = range(len(corpus))
        if self.limit is not None and self.limit < len(corpus):
            numbers = sorted(random.Random(self.draw.seed).sample(numbers, self.limit))
        tasks = [Task(number, draw) for number in numbers for draw in range(self.draw.queries)]
        loaded, tokenizer = load_language_model(self.model, self.device, self.precision)
        prompt = QueryPrompt(tokenizer, not loaded.config.is_encoder_decoder, form)
        origin = {
            "weights": model_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
            "form": form._asdict(), "corpus": corpus.fingerprint, "limit": self.limit, **asdict(self.draw),
        }  # fmt: skip
        if self.precision != "float32":
            origin["precision"] = self.precision
        texts = TextWriter(loaded, tokenizer, form.query_tokens + 1, self.batch_size)
        writer = QueryWriter(texts, prompt, corpus, self.draw)
        return OpenedQueries(corpus, tasks, writer, origin, self.batch_size * PORTION)

    def elsewhere(self) -> QueryWork:
        """The same with absolute paths: a worker runs in another folder."""
        return replace(self, data=seen_elsewhere(self.data), model=seen_elsewhere(self.model))


def query_shards(work: QueryWork, origin: dict[str, Any], first: int) -> Work:
    """What writes queries on a worker, which must read the query generator and corpus of ``origin``.

    ``first`` is the query that is item 0 of the shards.
    """
    opened = work.opened()
    sources = dict.fromkeys(("weights", "tokenizer", "form"), (work.model, "query generator"))
    sources["corpus"] = work.data, "corpus"
    refuse_other_reading(opened.origin, origin, sources)

    def write_shard(shard: Shard, folder: Path) -> dict[str, Any]:
        file = GrowingFile(folder / _WRITTEN, {}, keep=False)
        opened.write(first + shard.first, first + shard.end, file, None)
        file.close()
        return {}

    return write_shard


def write_by_workers(
    opened: OpenedQueries, work: QueryWork, file: GrowingFile, workers: Workers, output: str
) -> None:
    """Let workers write the queries that a file lacks, and add them in order.

    The file holds the first queries of the run; the shards stand beside ``output``.
    """
    settings = {"what": "pseudo-queries", "batch_size": work.batch_size, **opened.origin}
    size = workers.options.shard or SHARD
    with held_shards(output) as folder:
        plan = ShardPlan.of_rest(folder, settings, len(opened.tasks), file.count, size, opened.portion)
        if file.count < len(opened.tasks):
            first = plan.settings["first"]
            maker = partial(query_shards, work.elsewhere(), opened.origin, first)
            for share in done_by_workers(plan, maker, workers, "pseudo-queries", "queries"):
                written = GrowingFile(share.folder / _WRITTEN, {})
                known = max(file.count - first - share.shard.first, 0)
                file.add(written.records[known:])
                written.close()


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
    check_counts(k=k)
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
