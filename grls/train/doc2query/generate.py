"""Writes pseudo-queries for passages, by a trained query generator or an instructed language model.

Each query is drawn with its own seed: it does not depend on the other queries of a run (except for rounding
in padded batches).
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, get_args

from grls.answer.writer import Continuation, Sampling, TextWriter
from grls.data.codec import controls, tokenizer_fingerprint, wrapping
from grls.data.corpus import Corpus
from grls.data.spelling import encoded_texts
from grls.data.types import Passage, Query
from grls.data.words import plain_words
from grls.errors import ConfigError, DataError, Option
from grls.io.files import read_json
from grls.io.progress import Progress
from grls.io.work import Record
from grls.models.load.base_models import find_writer
from grls.models.load.language import load_language_model, model_fingerprint
from grls.models.option_names import Numbers
from grls.retrieve.base import Retriever
from grls.train.doc2query.options import Drawing, PassagesRead
from grls.train.doc2query.questions import (
    NEW_TOKENS,
    QUESTIONS,
    SHOWN,
    Endpoint,
    QuestionPrompt,
    linked_pairs,
    question_of,
)

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
    """A query to be written: number ``draw`` (from 0) of those of the passage with this number.

    ``second`` is the number of the passage that it leads to, of a question of two hops.
    """

    passage: int
    draw: int
    second: int | None = None


PORTION = 16
"""Batches of queries that are written together: in them, like lengths share a batch."""
_TOP_P = 0.95
"""Tokens are drawn from the likeliest ones with this total probability."""


class QueryWriter(NamedTuple):
    """Writes queries by a query generator, or by an instructed model: here, or at an address."""

    writer: TextWriter | Endpoint
    prompt: QueryPrompt | QuestionPrompt
    corpus: Corpus
    drawing: Drawing

    def write(
        self, batch: Sequence[Task], decided: Callable[[int], object] | None = None
    ) -> Iterator[Record]:
        """A record of each task: ``passage`` (its id), ``draw``, ``text``, ``ended`` (not cut off).

        A passage that the model cannot read has no text; its record has the reason under ``failed``. An
        address that fails has records of the first tasks alone, each as it comes.
        """
        asked = [self.corpus.passages([n for n in (task.passage, task.second) if n is not None])
                 for task in batch]  # fmt: skip
        draws: list[Sampling] = []
        for (passage, *_), task in zip(asked, batch, strict=True):
            key = repr((self.drawing.seed, passage.id, task.draw)).encode()
            seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
            draws.append(Sampling(self.drawing.temperature, seed, _TOP_P))
        for task, result in zip(batch, self._written(asked, draws, decided), strict=False):
            if isinstance(result, str):
                told: Record = {"text": "", "ended": False, "failed": result}
            else:
                plain = isinstance(self.prompt, QueryPrompt)
                text = " ".join(result.text.split()) if plain else question_of(result.text)
                told = {"text": text, "ended": result.ended}
            yield self.name(task) | told

    def _written(
        self,
        asked: Sequence[Sequence[Passage]],
        draws: Sequence[Sampling],
        decided: Callable[[int], object] | None,
    ) -> Iterable[Continuation | str]:
        if isinstance(self.writer, Endpoint):
            assert isinstance(self.prompt, QuestionPrompt)
            turns = [self.prompt.turns(passages) for passages in asked]
            return self.writer.write(turns, draws, NEW_TOKENS)
        names = [f"the passage {passages[0].id!r}" for passages in asked]
        if isinstance(self.prompt, QueryPrompt):
            rows = self.prompt.passages([passage for passages in asked for passage in passages])
            prompts, least = [self.prompt.source([row]) for row in rows], self.prompt.source([])
        else:
            prompts = self.prompt.inputs(self.writer.tokenizer, asked)
            least = self.prompt.inputs(self.writer.tokenizer, [[Passage("", "")]])[0]
        return self.writer.write_each(names, prompts, lambda: least, decided, draws)

    def name(self, task: Task) -> Record:
        ids = self.corpus.ids([n for n in (task.passage, task.second) if n is not None])
        return dict(zip(("passage", "second"), ids, strict=False)) | {"draw": task.draw}


_BYTES = 3.5  # of a token, about


def open_queries(
    data: str,
    model: str,
    draw: Drawing,
    limit: int | None,
    batch_size: int,
    device: str,
    precision: Numbers,
    endpoint: str | None = None,
) -> tuple[list[Task], QueryWriter, dict[str, Any]]:
    """The queries to write, their writer, and what they depend on.

    The arguments are the options of ``grls prepare pseudo-queries``.
    """
    asked = None if endpoint is None else Endpoint(endpoint, model).checked()
    corpus = Corpus.read(data)
    tasks = drawn_tasks(corpus, draw, limit)
    origin: dict[str, Any] = {"corpus": corpus.fingerprint, "limit": limit, **asdict(draw)}
    if asked is not None:
        told = {"model": model, "form": QUESTIONS, **origin}
        return tasks, QueryWriter(asked, QuestionPrompt(True), corpus, draw), told
    trained = (Path(model).expanduser() / FORM).is_file() or not find_writer(str(model)).causal
    if draw.hops == 2 and trained:
        raise ConfigError(
            f"{model} writes queries for single passages: {Option('draw.hops', 2)} needs an instructed "
            "language model."
        )
    loaded, tokenizer = load_language_model(model, device, precision)
    origin |= {"weights": model_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer)}
    if precision != "float32":
        origin["precision"] = precision
    if not trained:
        chat = QuestionPrompt(bool(getattr(tokenizer, "chat_template", None)))
        texts = TextWriter(loaded, tokenizer, NEW_TOKENS, batch_size)
        return tasks, QueryWriter(texts, chat, corpus, draw), {"form": QUESTIONS, **origin}
    form = QueryForm.read(model)
    prompt = QueryPrompt(tokenizer, not loaded.config.is_encoder_decoder, form)
    texts = TextWriter(loaded, tokenizer, form.query_tokens + 1, batch_size)
    return tasks, QueryWriter(texts, prompt, corpus, draw), {"form": form._asdict(), **origin}


def drawn_tasks(corpus: Corpus, draw: Drawing, limit: int | None) -> list[Task]:
    """Of so many passages, or links, as many queries as are drawn of each."""
    if draw.hops == 2:
        pairs = linked_pairs(corpus, len(corpus) if limit is None else limit, draw.seed)
        if not pairs:
            raise ConfigError(
                f"no passage of {corpus.source} names or links to another, so no question of two hops can be "
                f"written: leave {Option('draw.hops', 2)} out."
            )
        return [Task(first, number, second) for first, second in pairs for number in range(draw.queries)]
    numbers: Sequence[int] = range(len(corpus))
    if limit is not None and limit < len(corpus):
        numbers = sorted(random.Random(draw.seed).sample(numbers, limit))
    return [Task(number, number_of_draw) for number in numbers for number_of_draw in range(draw.queries)]


def estimated_tokens(prompt: QuestionPrompt, corpus: Corpus, tasks: Sequence[Task]) -> int:
    """About how many tokens an instructed model reads and writes for the tasks, by a sample of them."""
    sample, size = tasks[:: max(1, len(tasks) // 100)], 0
    for task in sample:
        passages = corpus.passages([n for n in (task.passage, task.second) if n is not None])
        size += sum(len(turn["content"].encode("utf-8", "replace")) for turn in prompt.turns(passages))
    return int(len(tasks) * (size / _BYTES / max(1, len(sample)) + NEW_TOKENS / 2))


EMPTY = "empty"
CUT = "cut off"
UNREAD = "not read by the model"
COPY = "copies a passage"
QUOTE = "quotes a passage"
SHOW = "copies the prompt"
NAME = "names the second passage"
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

    @property
    def reasons(self) -> str:
        return ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.dropped.items()))


def sift(
    records: Sequence[dict[str, Any]],
    corpus: Corpus,
    retrievers: Sequence[Retriever] = (),
    k: int = 10,
    asked: bool = False,
) -> Sifted:
    """Drop records without a usable query, then queries that do not lead back to their passages.

    Such a query is answered by another passage or by none, or is too vague to learn from. A query leads
    back if each retriever finds its passages, or copies with the same title and text, among its k best.
    Without a retriever every query leads back. ``asked``: of a question by an instructed model, which may
    quote, repeat its prompt, or name the passage that the first hop leads to.
    """
    dropped: Counter[str] = Counter()
    usable: list[Query] = []
    seen: set[tuple[str, ...]] = set()
    names = list(dict.fromkeys(name for record in records for name in _ids(record)))
    numbers = [number for number in corpus.numbers(names) if number is not None]
    passages = {passage.id: passage for passage in corpus.passages(numbers)}
    texts = {name: plain_words(passage.text) for name, passage in passages.items()}
    for record in records:
        text, ids = plain_words(record["text"]), _ids(record)
        faults = {
            UNREAD: "failed" in record,
            CUT: not record["ended"],
            EMPTY: not text,
            COPY: text == texts.get(ids[0]),
            TWICE: (*ids, text) in seen,
            SHOW: asked and text in SHOWN,
            QUOTE: asked and any(quotes(text, texts.get(name, "")) for name in ids),
            NAME: asked and len(ids) > 1 and _names(text, passages[ids[1]].title),
        }
        if any(faults.values()):
            dropped[next(fault for fault, there in faults.items() if there)] += 1
        else:
            kind = "pseudo" if len(ids) == 1 else "pseudo2"  # a passage has one that follows it
            usable.append(Query(f"{kind}-{ids[0]}-{record['draw']}", record["text"], ids))
            seen.add((*ids, text))
    if not retrievers:
        return Sifted(usable, dropped, 0)
    known: dict[tuple[str, str], int] = {}
    first = [known.setdefault((passage.title, passage.text), n) for n, passage in enumerate(corpus)]  # copies
    accepted: list[Query] = []
    with Progress(len(usable), "round trip", "queries", shown=None) as bar:
        for start in range(0, len(usable), _BATCH):
            batch = usable[start : start + _BATCH]
            back = batch
            for retriever in retrievers:
                rankings = dict(zip(back, retriever.retrieve(back, k), strict=True))
                every = list(
                    {hit.id for hits in rankings.values() for hit in hits}
                    | {name for query in back for name in query.evidence}
                )
                firsts = {  # DONE, which a generator may retrieve, has no number
                    name: first[number]
                    for name, number in zip(every, corpus.numbers(every), strict=True)
                    if number is not None
                }
                back = [
                    query
                    for query, hits in rankings.items()
                    if {firsts[name] for name in query.evidence} <= {firsts.get(hit.id) for hit in hits}
                ]
            accepted += back
            bar.update(len(batch))
    if len(accepted) < len(usable):
        dropped[ASTRAY] = len(usable) - len(accepted)
    return Sifted(accepted, dropped, len(usable))


def _ids(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The passages that a record is about, in order."""
    return (record["passage"], record["second"]) if "second" in record else (record["passage"],)


def quotes(question: str, text: str) -> bool:
    """Whether more than half of a question, and six words of it, stand in a text as they are."""
    words = question.split()
    size = max(6, len(words) // 2 + 1)
    runs = (" ".join(words[n : n + size]) for n in range(len(words) - size + 1))
    return any(f" {run} " in f" {text} " for run in runs)


def _names(question: str, title: str) -> bool:
    name = plain_words(re.sub(r"\([^()]*\)", " ", title))
    return bool(name) and f" {name} " in f" {question} "
