"""The prefix map in marisa-trie: the keys of ``flat`` in a succinct trie.

A prefix is a string with one character a token. The trie numbers its keys, and arrays indexed by this number
hold the next tokens and the range of rows. A state is the number of a key. The empty prefix is no key and has
the number after the last. It is not stored: loading builds it again from the rows, since the library compares
no place in a stored trie with its arrays.
"""

from __future__ import annotations

from typing import Self

import marisa_trie
import numpy as np

from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows

_SURROGATES = 0xD800


class MarisaIndex(Segment):
    """Prefixes in a marisa trie.

    Args:
        rows: The sorted sequences of the corpus.
    """

    backend = "marisa"

    def __init__(self, rows: Rows):
        super().__init__(rows)
        spans = {"": [0, len(rows)]}  # prefix -> first row and end row; parents before children
        for r in range(len(rows)):
            text = "".join(_encode_token(int(token)) for token in rows.row(r))
            for n in range(1, len(text) + 1):
                spans.setdefault(text[:n], [r, r])[1] = r + 1
        self._trie = marisa_trie.Trie(key for key in spans if key)
        number = {key: self._trie.key_id(key) if key else len(self._trie) for key in spans}
        following: list[list[int]] = [[] for _ in number]
        self._spans = np.zeros((len(number), 2), dtype=np.uint32)
        for key, rows_of_key in spans.items():
            self._spans[number[key]] = rows_of_key
            if key:
                following[number[key[:-1]]].append(_decode(key[-1]))
        self._next_offsets = np.cumsum([0] + [len(tokens) for tokens in following])
        self._next_tokens = np.array([t for tokens in following for t in tokens], dtype=rows.tokens.dtype)

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:  # noqa: D102
        return cls(rows)

    def start(self) -> int:  # noqa: D102
        return len(self._trie)

    def allowed(self, states: Ints) -> Allowed:  # noqa: D102
        tokens: list[int] = []
        children: list[int] = []
        offsets = [0]
        for state in states:
            prefix = "" if state == len(self._trie) else self._trie.restore_key(int(state))
            for token in self._next_tokens[self._next_offsets[state] : self._next_offsets[state + 1]]:
                tokens.append(int(token))
                children.append(self._trie.key_id(prefix + _encode_token(int(token))))
            offsets.append(len(tokens))
        return Allowed(np.array(tokens, np.int64), np.array(children, np.int64), np.array(offsets, np.int64))

    def span(self, states: Ints) -> tuple[Ints, Ints]:  # noqa: D102
        spans = self._spans[states].astype(np.int64)
        return spans[:, 0], spans[:, 1]

    def arrays(self) -> dict[str, Array]:  # noqa: D102
        return {}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:  # noqa: D102
        return cls(rows)


def _encode_token(token: int) -> str:
    """The character of a token: never NUL, and never a surrogate, which UTF-8 cannot encode."""
    code = token + 1
    return chr(code if code < _SURROGATES else code + 0x800)


def _decode(character: str) -> int:
    code = ord(character)
    return (code if code < _SURROGATES else code - 0x800) - 1
