"""RICHES: an answer with its evidence retrieved while it is written (arXiv 2407.00361).

A model writes thoughts, quotes keys of the corpus between markers, and answers, in one pass
(:mod:`grls.decode.interleave.search`). The passages of the quotes, in their order, are the ranking.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.prompts import ANSWER
from grls.answer.riches.keys import SHARED, Keys, build_keys, letters
from grls.answer.riches.options import USUAL_PROMPT, KeyOptions, PromptOptions
from grls.answer.riches.prompts import prompted, split_answer
from grls.answer.writer import SHOWN, Questions, common, model_settings, room_of, too_long
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.data.words import Analyzer
from grls.decode.interleave.markers import TextMarkers
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions
from grls.decode.interleave.search import Interlaced, Interleaver, Span
from grls.errors import MismatchError, Option
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.io.files import atomic_file, sha256
from grls.io.html import framed
from grls.io.locks import exclusive
from grls.io.progress import counted, visible
from grls.io.work import GrowingFile, Record, all_done
from grls.models.causal.slots import plant_causal
from grls.models.load.language import end_tokens, load_language_model
from grls.models.load.opening import refuse_larger_tokenizer
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant
from grls.models.sessions.memory import SlotModel
from grls.runs.portions import KeptResults, save_retrieved
from grls.runs.results import Retrieved

log = logging.getLogger(__name__)


_CHECKED = 10
"""Most passages of a quoted key to check: a title may stand for thousands."""


class Quote(NamedTuple):
    """A quoted key.

    Attributes:
        text: The text as it was written.
        keys: The texts of the keys that hold it, as many as the options allow (see ``held``).
        passages: Ids of the passages of these keys, in the order of the corpus; passages under a title or a
            header by similarity to the query and the text before the quote (:func:`by_similarity`).
        score: Log-probability (nats) of the quote.
        closed: False if the length limit cut the quote: then it retrieves nothing.
        held: Number of keys that hold the quote, named or not.
    """

    text: str
    keys: tuple[str, ...]
    passages: tuple[str, ...]
    score: float
    closed: bool
    held: int = 0


class Piece(NamedTuple):
    """A part of an output, without markers; ``quote`` is the number of the quote, else -1."""

    kind: Literal["thought", "quote", "answer"]
    text: str
    quote: int = -1


class Written(NamedTuple):
    """The output of a model for a query: its parts, its quotes, and its answer (empty: none was written).

    ``score``: log-probability (nats) of the whole output. ``ended`` is false if the length limit cut it.
    ``failed`` says why nothing was written.
    """

    pieces: tuple[Piece, ...]
    quotes: tuple[Quote, ...]
    answer: str
    score: float
    ended: bool
    failed: str = ""

    def ranking(self) -> list[Hit]:
        """The passages of the quotes, in their order, each once.

        A score is minus the rank, since the log-probabilities of two quotes cannot be compared.
        """
        passages = dict.fromkeys(passage for quote in self.quotes for passage in quote.passages)
        return [Hit(passage, float(-rank)) for rank, passage in enumerate(passages, 1)]


_ENGLISH = Analyzer("en")


_DIGITS = 9
"""Similarities are compared at this many digits, so that rounding errors do not matter."""


def by_similarity(texts: Sequence[str], query: str, analyzer: Analyzer = _ENGLISH) -> list[int]:
    """The order of texts by the cosine of their TF-IDF vectors with that of a query, best first.

    A title names an article and a header a section of it, so one key stands for several passages; TF-IDF
    ranks them, as in arXiv 2407.00361 ("retrieval keys"). Weights are those of scikit-learn's
    ``TfidfVectorizer`` with ``sublinear_tf``: ``(1 + ln tf) * (1 + ln((1 + n) / (1 + df)))`` over the n
    texts alone, of words as an :class:`grls.data.words.Analyzer` splits them, without function words
    (scikit-learn's list of these has "fire" and "mill"). Equally similar texts keep their order.
    """
    if len(texts) < 2:
        return list(range(len(texts)))
    vectorizer = TfidfVectorizer(analyzer=analyzer.words, sublinear_tf=True)
    if not any(map(vectorizer.build_analyzer(), texts)):
        return list(range(len(texts)))
    rows = vectorizer.fit_transform(texts)
    similarity = (rows @ vectorizer.transform([query]).T).toarray()[:, 0]
    order: list[int] = np.argsort(-similarity.round(_DIGITS), kind="stable").tolist()
    return order


@dataclass(eq=False, repr=False)
class Riches:
    """Answers questions with interlaced retrieval; the keys are made with this tokenizer."""

    model: Any
    tokenizer: Any
    corpus: Corpus
    keys: Keys
    prompt: PromptOptions = USUAL_PROMPT
    options: InterleaveOptions = USUAL_INTERLEAVE

    def __post_init__(self) -> None:
        origin = self.keys.origin
        self._analyzer = Analyzer.guessed(self.corpus) if origin.kind in SHARED else Analyzer("en")
        belongs = (
            ("tokenizer", origin.tokenizer, tokenizer_fingerprint(self.tokenizer)),
            ("corpus", origin.corpus, self.corpus.fingerprint),
            ("markers", origin.markers, tuple(self.prompt.markers)),
        )
        for name, actual, expected in belongs:
            if actual != expected:
                raise MismatchError(f"the keys were made with another {name}; make them again (build_keys).")
        self.markers = TextMarkers(self.tokenizer, *self.prompt.markers)

    def answer(
        self, queries: Sequence[Query], decided: Callable[[int], object] | None = None
    ) -> list[Written]:
        """Answer queries.

        A query has no answer if it is too long for the model, or if a quote is not in the key that it
        names (a stored index of other texts): an error is logged. ``decided`` is called with the number
        of queries answered since, while no thread waits for the model: it may use the model.
        """
        causal = not self.model.config.is_encoder_decoder
        ask = partial(prompted, self.prompt, self.tokenizer, causal=causal)
        inputs = ask([query.text for query in queries])
        names = [f"the query {query.id!r}" for query in queries]
        new = self.options.max_new_tokens
        room = room_of(self.model, new)
        failed = too_long(names, inputs, room, new, lambda: ask([""])[0], decided)
        written = {index: Written((), (), "", 0.0, False, why) for index, why in failed.items()}
        answerable = [index for index in range(len(inputs)) if index not in failed]
        rows = [inputs[index] for index in answerable]
        if rows:
            with exclusive(self.model):
                refuse_larger_tokenizer(self.model, self.tokenizer)
                if causal:  # the prefix that all share is read once
                    shared = common(rows)
                    trees: SlotModel = plant_causal(self.model, rows[0][:shared])
                    rows = [tokens[shared:] for tokens in rows]
                else:
                    trees = plant(Seq2SeqGenerator(self.model))
            ends = end_tokens(self.model, self.tokenizer)
            writer = Interleaver(trees, self.keys.index, self.markers, ends, self.options, self._stops)
            for index, outputs in zip(answerable, writer.write(rows, 1, decided), strict=True):
                query, output = queries[index], outputs[0]
                fault = self._invented(output)
                if not fault:
                    written[index] = self._read(output, query.text)
                    continue
                log.error("query %r has no answer: %s. Make the keys again (build_keys).", query.id, fault)
                written[index] = Written((), (), "", output.score, False, fault)
        return [written[index] for index in range(len(inputs))]

    def _stops(self, tokens: Sequence[int], spans: Sequence[Span]) -> bool:
        """Whether the line of the answer is complete; a quote is no answer."""
        if "\n" not in self.tokenizer.decode(tokens[-1:]):
            return False
        for text in reversed(self._free(tokens, spans)):
            parts = split_answer(text)
            if parts is not None:
                return bool(parts[1]) and "\n" in text[text.lower().rfind(ANSWER) :]
        return False

    def _free(self, tokens: Sequence[int], spans: Sequence[Span]) -> list[str]:
        texts, end = [], 0
        opening = self.prompt.markers[0]
        for span in spans:
            before = self.tokenizer.decode(tokens[end : span.first], skip_special_tokens=True)
            texts.append(before.rstrip().removesuffix(opening).rstrip(" "))
            end = span.last + (len(self.markers.closing) if span.closed else 0)
        unfinished = bool(spans) and not spans[-1].closed
        texts.append("" if unfinished else self.tokenizer.decode(tokens[end:], skip_special_tokens=True))
        return texts

    def _read(self, output: Interlaced, query: str = "") -> Written:
        free = self._free(output.tokens, output.spans)
        quotes: list[Quote] = []
        before = query  # the query and the output before the quote
        for text, span in zip(free, output.spans, strict=False):
            before = f"{before} {text}"
            quoted = self.tokenizer.decode(output.tokens[span.first : span.last]).strip()
            if not span.closed:  # the length limit may have come within a character
                quoted = quoted.rstrip("\ufffd")
            numbers = sorted({p for key in span.keys for p in self.keys.passages[key]})
            if self.keys.origin.kind in SHARED:
                texts = [passage.text for passage in self.corpus.passages(numbers)]
                numbers = [numbers[row] for row in by_similarity(texts, before, self._analyzer)]
            keys = tuple(self.keys.texts[key] for key in span.keys)
            ids = tuple(self.corpus.ids(numbers))
            quotes.append(Quote(quoted, keys, ids, span.score, span.closed, span.held))
            before = f"{before} {quoted}"
        answers = [n for n, text in enumerate(free) if split_answer(text) is not None]
        pieces: list[Piece] = []
        answer = ""
        for n, text in enumerate(free):
            parts = split_answer(text) if n in answers[-1:] else None
            if parts is None:
                pieces += _thought(text)
            else:
                before, answer, rest = parts
                if not answer and not rest and n < len(quotes) and quotes[n].closed:  # "answer: « … »"
                    answer = quotes[n].text
                pieces += [*_thought(before), *([Piece("answer", answer)] if answer else []), *_thought(rest)]
            if n < len(quotes):
                pieces.append(Piece("quote", quotes[n].text, n))
        return Written(tuple(pieces), tuple(quotes), answer, output.score, output.ended)

    def _invented(self, output: Interlaced) -> str:
        """What says that a quote is not in the keys it names, as tokens and as text; empty if all are.

        A key made from passages must be part of each of them, except for white space. An invented quote
        is a fault of the decoder or of a stored index.
        """
        of_passages = self.keys.origin.kind in ("sentence", "paragraph", "titled", "title")
        for span in output.spans:
            quoted = list(output.tokens[span.first : span.last])
            written = letters(self.tokenizer.decode(quoted))
            for key in span.keys:
                tokens, text = self.keys.index.tokens(key).tolist(), self.keys.texts[key]
                stands = any(tokens[a : a + len(quoted)] == quoted for a in range(len(tokens)))
                if not stands or written not in letters(text):  # tokenizers may lose case, accents, signs
                    return f"a quote is not in the key it names: {text!r}"
                numbers = self.keys.passages[key][:_CHECKED]
                for passage in self.corpus.passages(numbers) if of_passages else ():
                    if text not in " ".join(f"{passage.title}: {passage.text}".split()):
                        return f"the key {text!r} is not in its passage {passage.id!r}"
        return ""


def _thought(text: str) -> list[Piece]:
    return [Piece("thought", text.strip())] if text.strip() else []


_PORTION = 8
"""Batches between two points where a run can go on."""


def run_riches(
    questions: Questions,
    model: str,
    keys: KeyOptions,
    prompt: PromptOptions,
    search: InterleaveOptions,
    device: str,
    output: str,
    name: str | None,
) -> None:
    """Answer questions with quotes; save the answers, their page and the run, and print the scores.

    A killed run goes on where it stopped. Answers are read from the file one at a time: all may not fit
    into memory. The arguments are the options of ``grls answer riches``.
    """
    corpus, queries = questions.corpus, questions.queries
    loaded, tokenizer = load_language_model(model, device)
    corpus_keys = build_keys(corpus, tokenizer, keys, prompt.markers)
    program = Riches(loaded, tokenizer, corpus, corpus_keys, prompt, search)
    names = ("beams", "beam", "mode", "whole", "repeat", "max_new_tokens", "max_keys")
    options = {
        "keys": keys.kind, "anywhere": keys.anywhere, "prompt": prompt.kind, "keywords": prompt.keywords,
        "chat": prompt.chat, **{name: getattr(search, name) for name in names},
    }  # fmt: skip
    settings = {
        **model_settings(model, loaded, tokenizer), **questions.fingerprints,
        "metadata": corpus.metadata_fingerprint, "markers": list(prompt.markers),
        "propositions": None if keys.propositions is None else sha256(keys.propositions),
        "max_key_tokens": search.max_key_tokens, **options,
    }  # fmt: skip

    def answered(batch: Sequence[Query], report: Callable[[int], object]) -> list[Record]:
        return [record_of(*pair) for pair in zip(batch, program.answer(batch, report), strict=True)]

    with all_done(
        queries, answered, f"{output}.written.jsonl", settings, lambda query: {"query_id": query.id},
        _PORTION * search.batch_size, "riches", "queries", questions.every, dict,
    ) as file:  # fmt: skip
        for query, written in islice(zip(queries, outputs(file, queries), strict=True), SHOWN):
            print(terminal(query, written, prompt.markers, sys.stdout.isatty()) + "\n")
        lines = (record_of(*pair) for pair in zip(queries, outputs(file, queries), strict=True))
        write_answers(f"{output}{ENDING}", lines)
        with atomic_file(f"{output}.html") as stream:
            page = quotes_page(name or "RICHES", queries, outputs(file, queries), corpus, prompt.markers)
            stream.writelines(page)

        seconds = file.spent()["seconds"]
        mode = options.pop("mode")
        # No limit of passages: as many quotes as were written, nothing was cut off.
        recorded = {"model": Path(model).name, **options, "k": None}
        title = name or f"RICHES, {keys.kind}, {search.beam}"
        info = questions.info("generator", title, mode, seconds, recorded)

        def retrieved(record: Record) -> Retrieved:
            return Retrieved.ranked(record["query_id"], written_of(record).ranking())

        print(save_retrieved(output, queries, corpus, KeptResults(file, queries, retrieved), info))
        scores = score_answers(read_answers(f"{output}{ENDING}", texts=False), queries, questions.qrels)
        print(summary(scores, seconds))
        quotes = (quote for written in outputs(file, queries) for quote in written.quotes)
        several = sum(quote.held > len(quote.keys) for quote in quotes)
        if file.count <= len(queries):  # else a run over more queries may resume from it
            file.remove()
        if several:
            count = counted(several, "quote is", "quotes are")
            print(f"{count} held by more keys than {Option('search.max_keys')!s} allows to name")


def outputs(file: GrowingFile, queries: Sequence[Query]) -> Iterator[Written]:
    return map(written_of, islice(file, len(queries)))


def written_of(record: dict[str, Any]) -> Written:
    quotes = [
        Quote(**{**quote, "keys": tuple(quote["keys"]), "passages": tuple(quote["passages"])})
        for quote in record["quotes"]
    ]
    pieces = tuple(Piece(**piece) for piece in record["pieces"])
    rest = record["answer"], record["score"], record["ended"], record.get("failed", "")
    return Written(pieces, tuple(quotes), *rest)


def record_of(query: Query, written: Written) -> dict[str, Any]:
    return {
        "query_id": query.id,
        "text": query.text,
        "answer": written.answer,
        "score": written.score,
        "ended": written.ended,
        "pieces": [piece._asdict() for piece in written.pieces],
        "quotes": [quote._asdict() for quote in written.quotes],
        **({"failed": written.failed} if written.failed else {}),
    }


_COLOURS = {"thought": "2", "quote": "36", "answer": "1;32"}
_STYLE = """\
article { border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1rem; margin: 1rem 0; }
article h2 { font-size: 1.05rem; margin: 0.2rem 0 0.6rem; }
.thought { color: var(--soft); }
.quote { color: var(--heat); text-decoration: none; }
.quote:hover { text-decoration: underline; }
.cut { color: var(--warn); }
.answer { color: var(--best); font-weight: 600; }
details { margin-top: 0.6rem; font-size: 0.9rem; }
dt { font-weight: 600; margin-top: 0.5rem; }
dd { margin: 0 0 0 1rem; }
"""


def terminal(query: Query, written: Written, markers: tuple[str, str], colour: bool = True) -> str:
    lines = [visible(f"{query.id}: {query.text}")]
    for piece in written.pieces:
        text = visible(f"  {_marked(piece, written, markers)}")
        lines.append(f"\x1b[{_COLOURS[piece.kind]}m{text}\x1b[0m" if colour else text)
        if piece.kind == "quote":
            quote = written.quotes[piece.quote]
            more = f" and {len(quote.passages) - 3} more" if len(quote.passages) > 3 else ""
            cut = f"; {_cut(quote)}" if _cut(quote) else ""
            source = f"{', '.join(quote.passages[:3])}{more}  ({quote.score:.2f}){cut}"
            if not quote.closed:
                source = "nothing: the length limit came before the end of the quote"
            lines.append(visible(f"    -> {source}"))
    return "\n".join(lines)


def quotes_page(
    title: str,
    queries: Sequence[Query],
    outputs: Iterable[Written],
    corpus: Corpus,
    markers: tuple[str, str],
) -> Iterator[str]:
    """A page of HTML, part by part: thoughts, quotes that link to their source below, answers."""

    def parts() -> Iterator[str]:
        yield f"<h1>{escape(title)}</h1>"
        for n, (query, written) in enumerate(zip(queries, outputs, strict=True)):
            yield f"<article><h2>{escape(query.text)}</h2>"
            for piece in written.pieces:
                text = escape(_marked(piece, written, markers))
                if piece.kind == "quote" and written.quotes[piece.quote].closed:
                    yield f'<p><a class="quote" href="#s{n}-{piece.quote}">{text}</a></p>'
                else:
                    kind = "cut" if piece.kind == "quote" else piece.kind
                    yield f'<p class="{kind}">{text}</p>'
            sources = []
            for q, quote in enumerate(written.quotes):
                if quote.closed:
                    numbers = [number for number in corpus.numbers(quote.passages) if number is not None]
                    sources.append(f'<dl id="s{n}-{q}">')
                    sources.append(f'<dt class="cut">{escape(_cut(quote))}</dt>' if _cut(quote) else "")
                    for p in corpus.passages(numbers):
                        sources.append(f"<dt>{escape(p.title or p.id)}</dt><dd>{escape(p.text)}</dd>")
                    sources.append("</dl>")
            if sources:
                yield f"<details open><summary>Sources</summary>{''.join(sources)}</details>"
            yield "</article>"

    return framed(title, _STYLE, parts())


def _marked(piece: Piece, written: Written, markers: tuple[str, str]) -> str:
    if piece.kind != "quote":
        return piece.text
    closed = written.quotes[piece.quote].closed
    return (
        f"{markers[0]} {piece.text} {markers[1]}" if closed else f"{markers[0]} {piece.text} … (not closed)"
    )


def _cut(quote: Quote) -> str:
    """A note if more keys hold a quote than are named; else empty."""
    named = len(quote.keys)
    return f"{named:,} of the {quote.held:,} keys that hold it are named" if quote.held > named else ""
