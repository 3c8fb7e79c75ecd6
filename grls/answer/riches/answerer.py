"""RICHES: an answer with its evidence retrieved while it is written (arXiv 2407.00361).

A model writes thoughts, quotes keys of the corpus between markers, and answers, in one pass
(:mod:`grls.decode.interleave.search`). The passages of the quotes, in their order, are the ranking.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.kept import answer_questions
from grls.answer.prompts import ANSWER
from grls.answer.riches.keys import Keys, build_keys
from grls.answer.riches.options import USUAL_PROMPT, KeyOptions, PromptOptions
from grls.answer.riches.prompts import prompted, split_answer
from grls.answer.writer import Questions, common, model_settings, room_of, too_long
from grls.answer.written import Piece, Quote, Written
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.data.words import Analyzer
from grls.decode.interleave.markers import TextMarkers
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions
from grls.decode.interleave.search import Interlaced, Interleaver, Span
from grls.errors import MismatchError
from grls.io.files import sha256
from grls.io.locks import exclusive
from grls.models.causal.slots import plant_causal
from grls.models.load.language import end_tokens, load_language_model
from grls.models.load.opening import refuse_larger_tokenizer
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant
from grls.models.sessions.memory import SlotModel
from grls.runs.portions import RunInfo

log = logging.getLogger(__name__)


_ENGLISH = Analyzer("en")


_DIGITS = 9
"""Similarities are compared at this many digits, so that rounding errors do not matter."""


def by_similarity(texts: Sequence[str], query: str, analyzer: Analyzer = _ENGLISH) -> list[int]:
    """The order of texts by the cosine of their TF-IDF vectors with that of a query, best first.

    A title stands for several passages; TF-IDF ranks them, as in arXiv 2407.00361 ("retrieval keys"). Weights
    are ``(1 + ln tf) * (1 + ln((1 + n) / (1 + df)))`` over the n texts alone, of the words of an
    :class:`grls.data.words.Analyzer` without function words (scikit-learn's list of these has "fire" and
    "mill"). Equally similar texts keep their order.
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
        self._analyzer = Analyzer.guessed(self.corpus) if origin.kind == "title" else Analyzer("en")
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

        A query that is too long for the model has no answer; an error is logged. ``decided`` is called with
        the number of queries answered since, while no thread waits for the model: it may use the model.
        """
        causal = not self.model.config.is_encoder_decoder
        ask = partial(prompted, self.prompt, self.tokenizer, causal=causal)
        inputs = ask([query.text for query in queries])
        names = [f"the query {query.id!r}" for query in queries]
        new = self.options.max_new_tokens
        room = room_of(self.model, new)
        failed = too_long(names, inputs, room, new, lambda: ask([""])[0], decided)
        written = {index: Written("", False, failed=why) for index, why in failed.items()}
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
                written[index] = self._read(outputs[0], queries[index].text)
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
            if self.keys.origin.kind == "title":
                texts = [passage.text for passage in self.corpus.passages(numbers)]
                numbers = [numbers[row] for row in by_similarity(texts, before, self._analyzer)]
            keys = tuple(self.keys.texts[key] for key in span.keys)
            ids = tuple(self.corpus.ids(numbers))
            quotes.append(Quote(quoted, keys, ids, span.closed, span.score))
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
        # The log-probabilities of two quotes cannot be compared: a score is minus the rank.
        found = dict.fromkeys(passage for quote in quotes for passage in quote.passages)
        ranking = tuple(Hit(passage, float(-rank)) for rank, passage in enumerate(found, 1))
        return Written(answer, output.ended, tuple(pieces), tuple(quotes), ranking, output.score)


def _thought(text: str) -> list[Piece]:
    return [Piece("thought", text.strip())] if text.strip() else []


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
    """Answer questions with quotes; the arguments are the options of ``grls answer riches``."""
    corpus = questions.corpus
    loaded, tokenizer = load_language_model(model, device)
    corpus_keys = build_keys(corpus, tokenizer, keys, prompt.markers)
    program = Riches(loaded, tokenizer, corpus, corpus_keys, prompt, search)
    names = ("beams", "beam", "repeat", "max_new_tokens")
    options = {
        "keys": keys.kind, "anywhere": keys.anywhere, "prompt": prompt.kind, "keywords": prompt.keywords,
        "chat": prompt.chat, **{name: getattr(search, name) for name in names},
    }  # fmt: skip
    settings = {
        **model_settings(model, loaded, tokenizer), **questions.fingerprints,
        "markers": list(prompt.markers),
        "propositions": None if keys.propositions is None else sha256(keys.propositions),
        "mode": search.mode, **options,
    }  # fmt: skip

    def info(spent: Counter[str]) -> RunInfo:
        # No limit of passages: as many quotes as were written, nothing was cut off.
        recorded = {"model": Path(model).name, **options, "k": None}
        title = name or f"RICHES, {keys.kind}, {search.beam}"
        return questions.info("generator", title, search.mode, spent["seconds"], recorded)

    answer_questions(questions, output, settings, program.answer, search.batch_size, dict, info)
