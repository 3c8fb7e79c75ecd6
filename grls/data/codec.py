"""How text becomes model input and model output.

A model reads ``<QUESTION> query <EVIDENCE> passage <EVIDENCE> passage …`` and writes one passage
(``title <TITLE> text`` if the passage has a title), or DONE when the chain is complete. A part ends at the
next marker or at the end of the sequence. The special tokens follow "Generative Retrieval for Long Sequences"
(arXiv 2204.13596), appendix A.3, which also closes each part: ``<QUESTION> query </QUESTION> <EVIDENCE>
passage </EVIDENCE> …``, with ``<TITLE> title </TITLE>`` before a text. A tokenizer that has the closing
markers (option ``closing_markers`` of a training) gives its texts this form; it is saved with the model.

A causal language model continues its input. So its input ends with the marker ``<EVIDENCE>``, which opens the
next passage, and the input of one hop is a prefix of the next hop's input.

Inputs are composed from token ids, never from strings. So a marker that is spelled in a text stays text, and
an evidence passage costs one look-up of its ids in the index.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grls.data.evidence import excerpt
from grls.data.spelling import encoded_texts, turn_markers
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, Option
from grls.io.locks import exclusive

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

CUT_QUERIES = Option("search.truncate_queries", True, python="grls.load(FOLDER, truncate_queries=True)")
"""The option that accepts that the ends of long queries are cut."""

QUESTION = "<QUESTION>"
EVIDENCE = "<EVIDENCE>"
TITLE = "<TITLE>"
DONE = "<DONE>"
SPECIAL_TOKENS = (QUESTION, EVIDENCE, TITLE, DONE)
CLOSING_MARKERS = ("</QUESTION>", "</EVIDENCE>", "</TITLE>")
"""The markers that end a query, an evidence passage and a title, in a tokenizer that has all of them."""

DONE_ID = "DONE"
"""The passage id of DONE in hits and runs; no passage of a corpus may have it."""

MAX_SEQUENCE = (1 << 16) - 1
"""The longest target sequence of an index, in tokens, the end token included."""

TokenIds = npt.NDArray[np.int64]


def add_special_tokens(tokenizer: PreTrainedTokenizerBase, markers: Sequence[str] = SPECIAL_TOKENS) -> int:
    """Returns how many markers were added."""
    known = tokenizer.get_vocab()
    missing = [token for token in markers if token not in known]
    return int(tokenizer.add_tokens(missing, special_tokens=True)) if missing else 0


class Limits(NamedTuple):
    """How many tokens a passage and a model input may have.

    Attributes:
        passage: Tokens of a passage without its end token; longer passages are cut.
        query: Tokens of a query without markers and evidence; longer ones are refused.
        input: Tokens of a whole model input; the oldest evidence is dropped first if it is too long.
        evidence: Words of each evidence passage's text in a model input (:func:`grls.data.evidence.excerpt`);
            0: the whole passage.
    """

    passage: int = 512
    query: int = 256
    input: int = 512
    evidence: int = 0

    def record(self) -> dict[str, int]:
        """``evidence`` only if passages are cut to excerpts."""
        return {name: value for name, value in self._asdict().items() if name != "evidence" or value}


LIMITS = "limits.json"
"""The file in the folder of a trained model that holds its length limits in training."""


def limits_of(value: Any, file: Path, remedy: str) -> Limits:
    """Length limits from a JSON object; ``file`` and ``remedy`` are for the error text."""
    names = Limits._fields
    if not isinstance(value, dict) or {*value} - {*names} or {*map(type, value.values())} - {int}:
        raise DataError(f"expected the limits {', '.join(names)}, got {value!r}; {remedy}.", file)
    return Limits(**value)


class Codec:
    """Turns passages, queries and evidence into token ids, for a tokenizer with the special tokens of this
    module.

    Attributes:
        cut_passages: How many passages so far were longer than the limit and were cut.
        closes: Whether each part also ends with a marker: the tokenizer has ``CLOSING_MARKERS``.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, limits: Limits | None = None, causal: bool = False
    ):
        self.tokenizer = tokenizer
        self.causal = causal
        self.cut_passages = 0
        self.limits = limits or Limits()
        if not 1 <= self.limits.passage < MAX_SEQUENCE or min(self.limits[:3]) < 1:
            raise ConfigError(
                f"length limits must be at least 1 token, and the limit of passages below {MAX_SEQUENCE:,}; "
                f"got passage {self.limits.passage}, query {self.limits.query}, input {self.limits.input}."
            )
        if self.limits.evidence < 0:
            raise ConfigError(f"evidence must have at least 0 words, got {self.limits.evidence}.")
        vocabulary = tokenizer.get_vocab()
        missing = [token for token in SPECIAL_TOKENS if token not in vocabulary]
        if missing:
            raise ConfigError(
                f"the tokenizer lacks the special tokens {', '.join(missing)}; load the model "
                "through grls (train, index), which adds them."
            )
        self.question, self.evidence, self.title, self.done = (
            int(vocabulary[token]) for token in SPECIAL_TOKENS
        )
        ends = [token for token in (tokenizer.eos_token_id, tokenizer.sep_token_id) if token is not None]
        if not ends:
            raise ConfigError("the tokenizer has neither an EOS nor a SEP token; set eos_token in it.")
        self.end = int(ends[0])  # EOS, or SEP for BERT's tokenizers
        closing = [int(vocabulary[token]) for token in CLOSING_MARKERS if token in vocabulary]
        self.closes = len(closing) == len(CLOSING_MARKERS)
        self._query_end, self._evidence_end, self._title_end = (
            ([token] for token in closing) if self.closes else ([], [], [])
        )
        self._markers = {self.question, self.evidence, self.title, self.done, *closing}
        self._barred = controls(tokenizer) | {self.end} | self._markers
        self._unwritten = {*tokenizer.all_special_ids}
        self._before, self._after = wrapping(tokenizer)
        if causal:
            self._after = [self.evidence]
        around = 1 + len(self._before) + len(self._query_end) + len(self._after)
        self._longest_query = min(self.limits.query, self.limits.input - around)
        if self._longest_query < 1:
            raise ConfigError(
                f"a model input of {self.limits.input} tokens has no room for a query beside {around} "
                "markers: raise max_input_tokens."
            )

    def texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of plain texts, without special tokens (:func:`foreign_ids`)."""
        return _ids(self.tokenizer, texts, self._barred)

    def passages(self, passages: Sequence[Passage]) -> list[TokenIds]:
        """One target sequence per passage: at most ``limits.passage`` tokens, then the end token."""
        bodies = self.texts([passage.text for passage in passages])
        titled = [i for i, passage in enumerate(passages) if passage.title]
        titles = dict(zip(titled, self.texts([passages[i].title for i in titled]), strict=True))
        rows = []
        for i, body in enumerate(bodies):
            ids = self.titled(titles[i], body) if i in titles else body
            self.cut_passages += len(ids) > self.limits.passage
            rows.append(np.array([*ids[: self.limits.passage], self.end], dtype=np.int64))
        return rows

    def titled(self, title: Sequence[int], body: Sequence[int]) -> list[int]:
        if self.closes:
            return [self.title, *title, *self._title_end, *body]
        return [*title, self.title, *body]

    def named(self, names: Sequence[str]) -> TokenIds:
        """A target sequence of rows of the vocabulary (of a code), with the end token."""
        rows: Any = self.tokenizer.convert_tokens_to_ids([*names])
        return np.array([*rows, self.end], dtype=np.int64)

    def excerpts(self, question: str, passages: Sequence[Passage]) -> list[TokenIds]:
        """Token sequences of evidence passages: excerpts of ``limits.evidence`` words, or whole passages."""
        words = self.limits.evidence
        return self.passages([excerpt(question, passage, words) for passage in passages])

    @property
    def done_sequence(self) -> TokenIds:
        return np.array([self.done, self.end], dtype=np.int64)

    def queries(self, ids: Sequence[str], texts: Sequence[str], truncate: bool = False) -> list[list[int]]:
        """Token ids of query texts, without markers; ``ids`` name the queries in errors.

        ``truncate``: cut a query that is too long, with a warning, instead of refusing it.
        """
        limit = self._longest_query
        result = self.texts(texts)
        for n, tokens in enumerate(result):
            if not texts[n].strip() or not tokens:
                raise DataError(f"query {ids[n]!r} is empty; give it a text or remove it.")
            if len(tokens) <= limit:
                continue
            cut = str(self.tokenizer.decode(tokens[limit:]))
            length = f"query {ids[n]!r} has {len(tokens)} tokens, the limit is {limit}: "
            if not truncate:
                raise DataError(
                    f"{length}its end {_shorten(cut)!r} would be cut. Shorten the query, raise "
                    f"{Option('limits.query')} where the index is made ({Option('data.max_query_tokens')} in "
                    f"training), or accept the cut with {CUT_QUERIES} "
                    f"({Option('data.truncate_queries')} in training)."
                )
            log.warning("%sits end %r is cut.", length, _shorten(cut))
            result[n] = tokens[:limit]
        return result

    def model_input(self, query: Sequence[int], evidence: Sequence[npt.ArrayLike] = ()) -> list[int]:
        """One encoder input: ``<QUESTION> query <EVIDENCE> passage …``, or closed as the module says.

        ``evidence``: the token sequences of the passages so far (:meth:`excerpts`), whose end is dropped.
        """
        head = [*self._before, self.question, *query, *self._query_end]
        room = self.limits.input - len(head) - len(self._after)
        parts: list[list[int]] = []
        for row in reversed(evidence):
            passage = (int(t) for t in np.asarray(row) if t != self.end)
            tokens = [self.evidence, *passage, *self._evidence_end]
            if len(tokens) > room:
                break
            room -= len(tokens)
            parts.append(tokens)
        body = [token for part in reversed(parts) for token in part]
        return [*head, *body, *self._after]

    def plain_input(self, tokens: Sequence[int]) -> list[int]:
        """An encoder input without markers, for memorisation."""
        room = self.limits.input - len(self._before) - len(self._after)
        return [*self._before, *tokens[:room], *self._after]

    def text(self, tokens: Sequence[int]) -> str:
        """A space takes the place of each marker; rows that identifiers are made of have their names."""
        parts: list[list[int]] = [[]]
        for token in tokens:
            if token in self._markers:
                parts.append([])
            elif token not in self._unwritten:
                parts[-1].append(token)
        texts = [str(self.tokenizer.decode(part)).strip() for part in parts]
        return " ".join(text for text in texts if text)

    def fingerprint(self) -> str:
        """It changes if the tokenizer or the way from passage to tokens changes."""
        parts: list[Any] = ["text-1", self.limits.passage, tokenizer_fingerprint(self.tokenizer)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """SHA-256 of the settings by which a tokenizer splits a text, without padding and truncation."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(tokenizer, "get_added_vocab") and backend in (None, tokenizer):
        state = {"vocab": tokenizer.get_vocab(), "added": sorted(tokenizer.get_added_vocab())}
    elif not hasattr(backend, "to_str"):  # words at white space, of sentence-transformers
        options = {name: vars(tokenizer).get(name) for name in ("do_lower_case", "ngram_separator")}
        stop_words = sorted(vars(tokenizer).get("stop_words", ()))
        state = {"vocab": list(tokenizer.get_vocab()), "stop_words": stop_words, **options}
    else:
        state = json.loads(backend.to_str())
        for volatile in ("padding", "truncation"):
            state.pop(volatile, None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def reset_tokenizer(tokenizer: Any) -> None:
    """Undo the padding and truncation of earlier calls, so that a saved tokenizer does not depend on them."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        with exclusive(tokenizer):
            backend.no_padding()
            backend.no_truncation()


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The special tokens of a tokenizer except the unknown token: these tokens stand for no text."""
    added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return (added | set(tokenizer.all_special_ids)) - {tokenizer.unk_token_id}


def controls(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that a text must not hold: special tokens, and the turn markers of a chat."""
    return special_ids(tokenizer) | set(turn_markers(tokenizer))


def foreign_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], wrapped: bool = False
) -> list[list[int]]:
    """Token ids of texts from users or a corpus, without special tokens and without turn markers of a chat.

    A special token or turn marker (:mod:`grls.data.spelling`) that is spelled in a text is split into
    ordinary tokens. Special tokens that remain are removed: a Unigram vocabulary may hold ``</s>`` and
    ``<pad>`` as ordinary pieces. ``wrapped``: with the tokenizer's special tokens around each text.
    """
    before, behind = wrapping(tokenizer) if wrapped and texts else ([], [])
    return [[*before, *row, *behind] for row in _ids(tokenizer, texts, controls(tokenizer))]


def _ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], barred: Set[int]) -> list[list[int]]:
    rows = encoded_texts(tokenizer, texts)["input_ids"] if texts else []
    return [[int(token) for token in row if token not in barred] for row in rows]


def foreign_places(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Like :func:`foreign_ids`, with the first character of each token and its end (exclusive)."""
    encoded = encoded_texts(tokenizer, texts, return_offsets_mapping=True)
    barred = controls(tokenizer)
    rows = []
    for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        tokens = [n for n, token in enumerate(ids) if token not in barred]
        rows.append(([int(ids[n]) for n in tokens], [tuple(offsets[n]) for n in tokens]))
    return rows


def wrapping(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Special tokens that the tokenizer puts before and after an encoder input."""
    with exclusive(tokenizer):
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a")["input_ids"]
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return list(full[:start]), list(full[start + len(bare) :])
    return [], []


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
