"""RICHES: an answer with its evidence retrieved while it is written (arXiv 2407.00361).

A causal or encoder-decoder model writes thoughts, quotes keys of the corpus between markers, and answers, in
one pass (:mod:`grls.decode.interleave.search`). The quotes are the retrieval: the passages of the quotes, in
their order, are the ranking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.riches.keys import SHARED, Keys, letters
from grls.answer.riches.prompts import ANSWER, Prompt, common, open_ended, split_answer
from grls.answer.writer import room_of, too_long
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.data.words import Analyzer
from grls.decode.interleave.continuations import Span
from grls.decode.interleave.markers import TextMarkers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.interleave.search import Interlaced, Interleaver
from grls.errors import ConfigError, MismatchError
from grls.io.turns import turn
from grls.models.base import TreeGenerator
from grls.models.causal.slots import plant_causal
from grls.models.load.language import end_tokens
from grls.models.load.opening import refuse_larger_tokenizer
from grls.models.seq2seq.plain import Seq2SeqGenerator
from grls.models.seq2seq.slots import plant

log = logging.getLogger(__name__)


_CHECKED = 10
"""Most passages of a quoted key to check: a title may stand for thousands."""


class InventedError(RuntimeError):
    """A quote is not in the key or passage that it names: a fault of the decoder or of a stored index."""


class Quote(NamedTuple):
    """A quoted key.

    Attributes:
        text: The text as it was written.
        keys: The texts of the keys that hold it, as many as the options allow (see ``held``).
        passages: Ids of the passages of these keys, in the order of the corpus. Passages under a title or a
            header are ordered by similarity to the query and the text before the quote
            (:func:`by_similarity`); equal ones stay in the order of the corpus.
        score: Log-probability (nats) of the quote.
        closed: False if the length limit cut the quote: then it retrieves nothing.
        held: Number of keys that hold the quote; larger than ``len(keys)`` if the options limit the keys.
    """

    text: str
    keys: tuple[str, ...]
    passages: tuple[str, ...]
    score: float
    closed: bool
    held: int = 0


class Piece(NamedTuple):
    """A part of an output.

    Attributes:
        kind: ``thought``, ``quote`` or ``answer``.
        text: The text without markers.
        quote: Number of the quote; -1 for other kinds.
    """

    kind: Literal["thought", "quote", "answer"]
    text: str
    quote: int = -1


class Written(NamedTuple):
    """The output of a model for a query.

    Attributes:
        pieces: The parts of the output, in order.
        quotes: The quoted keys, in order.
        answer: The answer; empty if none was written.
        score: Log-probability (nats) of the whole output.
        ended: False if the length limit cut the output.
        failed: Why nothing was written for the query; empty if something was.
    """

    pieces: tuple[Piece, ...]
    quotes: tuple[Quote, ...]
    answer: str
    score: float
    ended: bool
    failed: str = ""

    def ranking(self) -> list[Hit]:
        """The passages of the quotes, in their order, each once; a score is minus the rank.

        (The log-probabilities of two quotes cannot be compared.)
        """
        passages = dict.fromkeys(passage for quote in self.quotes for passage in quote.passages)
        return [Hit(passage, float(-rank)) for rank, passage in enumerate(passages, 1)]


class Riches:
    """Answers questions with interlaced retrieval.

    Args:
        model: A transformers model, causal or encoder-decoder.
        tokenizer: Its tokenizer.
        corpus: The passages.
        keys: The keys of the corpus, made with this tokenizer.
        prompt: Makes the prompts.
        options: Options of the search.

    Raises:
        MismatchError: The keys were made with another tokenizer, for another corpus, or for other markers.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        corpus: Corpus,
        keys: Keys,
        prompt: Prompt | None = None,
        options: InterleaveOptions | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.corpus = corpus
        self.keys = keys
        self._analyzer = Analyzer.guessed(corpus) if keys.origin.kind in SHARED else Analyzer("en")
        self.prompt = prompt or Prompt()
        self.options = options or InterleaveOptions()
        belongs = (
            ("tokenizer", keys.origin.tokenizer, tokenizer_fingerprint(tokenizer)),
            ("corpus", keys.origin.corpus, corpus.fingerprint),
            ("markers", keys.origin.markers, tuple(self.prompt.markers)),
        )
        for what, made, expected in belongs:
            if made != expected:
                raise MismatchError(f"the keys were made with another {what}; make them again (build_keys).")
        self.markers = TextMarkers(tokenizer, *self.prompt.markers)

    def answer(
        self, queries: Sequence[Query], decided: Callable[[int], object] | None = None
    ) -> list[Written]:
        """Answer queries.

        A query has no answer if it is too long for the model, or if a quote is not in the key that it names
        (a stored index of other texts). Such a query is logged as an error; the others are answered.

        Args:
            queries: The queries.
            decided: Called with the number of queries answered since the last call, while no thread waits for
                the model: it may use the model, in this thread or in another.

        Raises:
            ConfigError: The model cannot be driven by trees of tokens, or has too few positions for any
                question.
        """
        inputs = self._inputs([query.text for query in queries])
        names = [f"the query {query.id!r}" for query in queries]
        new = self.options.max_new_tokens
        failed = too_long(names, inputs, room_of(self.model, new), new, lambda: self._inputs([""])[0])
        if decided is not None and failed:
            decided(len(failed))
        written = {place: Written((), (), "", 0.0, False, why) for place, why in failed.items()}
        asked = [place for place in range(len(inputs)) if place not in failed]
        rows = [inputs[place] for place in asked]
        if rows:
            with turn(self.model):
                refuse_larger_tokenizer(self.model, self.tokenizer)
                if self.model.config.is_encoder_decoder:
                    trees: TreeGenerator | None = plant(Seq2SeqGenerator(self.model))
                else:  # the prefix that all share is read once
                    shared = common(rows)
                    trees = plant_causal(self.model, rows[0][:shared])
                    rows = [tokens[shared:] for tokens in rows]
            if trees is None:
                raise ConfigError(
                    f"{type(self.model).__name__} cannot be driven by trees of tokens, which RICHES needs."
                )
            ends = end_tokens(self.model, self.tokenizer)
            writer = Interleaver(trees, self.keys.index, self.markers, ends, self.options, self._stops)
            for place, outputs in zip(asked, writer.write(rows, 1, decided), strict=True):
                try:
                    written[place] = self._read(outputs[0], queries[place].text)
                except InventedError as error:
                    name = queries[place].id
                    log.error("query %r has no answer: %s. Make the keys again (build_keys).", name, error)
                    written[place] = Written((), (), "", outputs[0].score, False, str(error))
        return [written[place] for place in range(len(inputs))]

    def _inputs(self, questions: Sequence[str]) -> list[list[int]]:
        """Token ids that the model reads for each question."""
        inputs = self.prompt.inputs(self.tokenizer, questions)
        return inputs if self.model.config.is_encoder_decoder else open_ended(self.tokenizer, inputs)

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
        """The free texts before, between and after the quotes, without markers."""
        texts, place = [], 0
        opening = self.prompt.markers[0]
        for span in spans:
            before = self.tokenizer.decode(tokens[place : span.first], skip_special_tokens=True)
            texts.append(before.rstrip().removesuffix(opening).rstrip(" "))
            place = span.last + (len(self.markers.closing) if span.closed else 0)
        unfinished = bool(spans) and not spans[-1].closed
        texts.append("" if unfinished else self.tokenizer.decode(tokens[place:], skip_special_tokens=True))
        return texts

    def _read(self, output: Interlaced, query: str = "") -> Written:
        """The output as texts."""
        self._refuse_invented(output)
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
                numbers = [numbers[place] for place in by_similarity(texts, before, self._analyzer)]
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

    def _refuse_invented(self, output: Interlaced) -> None:
        """Check that the quotes of an output are in the keys that they name, as tokens and as text.

        A key made from passages must be part of each of them, except for white space.

        Raises:
            InventedError: A quote is not, which is a fault of the decoder or of a stored index.
        """
        of_passages = self.keys.origin.kind in ("sentence", "paragraph", "titled", "title")
        for span in output.spans:
            quoted = list(output.tokens[span.first : span.last])
            written = letters(self.tokenizer.decode(quoted))
            for key in span.keys:
                tokens, text = self.keys.index.tokens(key).tolist(), self.keys.texts[key]
                stands = any(tokens[a : a + len(quoted)] == quoted for a in range(len(tokens)))
                if not stands or written not in letters(text):  # tokenizers may lose case, accents, signs
                    raise InventedError(f"a quote is not in the key it names: {text!r}")
                numbers = self.keys.passages[key][:_CHECKED]
                for passage in self.corpus.passages(numbers) if of_passages else ():
                    if text not in " ".join(f"{passage.title}: {passage.text}".split()):
                        raise InventedError(f"the key {text!r} is not in its passage {passage.id!r}")


def _thought(text: str) -> list[Piece]:
    return [Piece("thought", text.strip())] if text.strip() else []


# Ranks the passages under a title or a section header by similarity to the query.
#
# A title names an article and a header a section of it, so one key stands for several passages. TF-IDF ranks
# them, as in "From RAG to RICHES" (arXiv 2407.00361, "retrieval keys"). scikit-learn counts document
# frequencies over the passages under the key only: a word of all of them distinguishes none, and the rest of
# the corpus is not needed.


_ENGLISH = Analyzer("en")
_DIGITS = 9
"""Similarities are compared at this many digits, so that rounding errors do not matter."""


def by_similarity(texts: Sequence[str], wanted: str, analyzer: Analyzer = _ENGLISH) -> list[int]:
    """Places of texts by the cosine of their TF-IDF vectors with that of a text, best first.

    Weights are those of scikit-learn's ``TfidfVectorizer`` with ``sublinear_tf``: ``(1 + ln tf) *
    (1 + ln((1 + n) / (1 + df)))`` over the n texts, of words as an :class:`grls.data.words.Analyzer` splits
    them, function words left out (those that BM25 leaves out; scikit-learn's list has "fire" and "mill").

    Args:
        texts: The texts to order.
        wanted: The text to compare them with.
        analyzer: Splits texts into words.

    Returns:
        The places of the texts; equally similar texts (such as those without a shared word) keep their order.
    """
    if len(texts) < 2:
        return list(range(len(texts)))
    vectorizer = TfidfVectorizer(analyzer=analyzer.words, sublinear_tf=True)
    if not any(map(vectorizer.build_analyzer(), texts)):
        return list(range(len(texts)))
    rows = vectorizer.fit_transform(texts)
    similarity = (rows @ vectorizer.transform([wanted]).T).toarray()[:, 0]
    order: list[int] = np.argsort(-similarity.round(_DIGITS), kind="stable").tolist()
    return order
