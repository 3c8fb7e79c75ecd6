"""The prefix map in marisa-trie: the keys of ``flat`` in a succinct trie that can be stored.

A prefix is a string with one character a token. The trie numbers its keys, and arrays indexed by this number
hold the next tokens and the range of rows. A state is the number of a key. The empty prefix is no key and has
the number after the last.
"""

from __future__ import annotations

from typing import Self

import marisa_trie
import numpy as np

from grls.errors import IndexFormatError
from grls.index.array_files import REBUILD
from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows

_SURROGATES = 0xD800


class MarisaIndex(Segment):
    """Prefixes in a marisa trie.

    Args:
        rows: The sorted sequences of the corpus.
        trie: All non-empty prefixes of all rows.
        next_tokens: ``[A]`` next tokens of every prefix, by state.
        next_offsets: ``[states + 1]`` the start of each state in ``next_tokens``.
        spans: ``[states, 2]`` first row and end row of each state.
    """

    backend = "marisa"
    stored = ("trie", "next_tokens", "next_offsets", "spans")

    def __init__(
        self, rows: Rows, trie: marisa_trie.Trie, next_tokens: Array, next_offsets: Array, spans: Array
    ):
        super().__init__(rows)
        self._trie = trie
        self._next_tokens = next_tokens
        self._next_offsets = next_offsets
        self._spans = spans

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:  # noqa: D102
        texts = [_encode(rows.row(r)) for r in range(len(rows))]
        first = {"": 0}  # prefix -> its first row; in row order, parents before children
        for r, text in enumerate(texts):
            first.update({text[:n]: r for n in range(int(shared[r]) + 1, len(text) + 1)})
        trie = marisa_trie.Trie(key for key in first if key)
        number = {key: trie.key_id(key) if key else len(trie) for key in first}
        following: list[list[int]] = [[] for _ in number]
        spans = np.zeros((len(number), 2), dtype=np.uint32)
        spans[len(trie)] = 0, len(rows)
        for key, r in first.items():
            if key:
                following[number[key[:-1]]].append(_decode(key[-1]))
                spans[number[key], 0] = r
        for r, text in enumerate(texts):
            for n in range(1, len(text) + 1):
                spans[number[text[:n]], 1] = r + 1
        offsets = np.cumsum([0] + [len(tokens) for tokens in following]).astype(np.uint32)
        tokens = np.array([t for tokens in following for t in tokens], dtype=rows.tokens.dtype)
        return cls(rows, trie, tokens, offsets, spans)

    def start(self) -> int:  # noqa: D102
        return len(self._trie)

    def allowed(self, states: Ints) -> Allowed:  # noqa: D102
        tokens: list[int] = []
        children: list[int] = []
        offsets = [0]
        for state in states:
            prefix = "" if state == len(self._trie) else self._prefix(int(state))
            for token in self._next_tokens[self._next_offsets[state] : self._next_offsets[state + 1]]:
                tokens.append(int(token))
                children.append(self._state(prefix, int(token)))
            offsets.append(len(tokens))
        return Allowed(np.array(tokens, np.int64), np.array(children, np.int64), np.array(offsets, np.int64))

    def _prefix(self, state: int) -> str:
        try:
            return str(self._trie.restore_key(state))
        except UnicodeDecodeError:  # files with checksums that fit, but not of one index
            raise IndexFormatError(f"the trie holds keys that are no text; {REBUILD}") from None

    def _state(self, prefix: str, token: int) -> int:
        try:
            return int(self._trie.key_id(prefix + _encode_token(token)))
        except (KeyError, ValueError):  # files with checksums that fit, but not of one index
            raise IndexFormatError(f"the trie does not hold the next token {token}; {REBUILD}") from None

    def span(self, states: Ints) -> tuple[Ints, Ints]:  # noqa: D102
        spans = self._spans[states].astype(np.int64)
        return spans[:, 0], spans[:, 1]

    def arrays(self) -> dict[str, Array]:  # noqa: D102
        return {
            "trie": np.frombuffer(self._trie.tobytes(), dtype=np.uint8),
            "next_tokens": self._next_tokens,
            "next_offsets": self._next_offsets,
            "spans": self._spans,
        }

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:  # noqa: D102
        trie = marisa_trie.Trie().frombytes(arrays["trie"].tobytes())
        if len(trie) + 1 != len(arrays["spans"]):
            raise ValueError(f"{len(trie):,} prefixes, and {len(arrays['spans']):,} ranges of rows")
        return cls(rows, trie, arrays["next_tokens"], arrays["next_offsets"], arrays["spans"])


def _encode_token(token: int) -> str:
    """The character of a token: never NUL, and never a surrogate, which UTF-8 cannot encode."""
    code = token + 1
    return chr(code if code < _SURROGATES else code + 0x800)


def _encode(tokens: Ints) -> str:
    return "".join(_encode_token(int(token)) for token in tokens)


def _decode(character: str) -> int:
    code = ord(character)
    return (code if code < _SURROGATES else code - 0x800) - 1
