"""A rival of the index: the prefixes of ``flat`` in a succinct trie, of marisa-trie."""

from __future__ import annotations

import marisa_trie
import numpy as np

from grls.index.base import Segment
from grls.index.flat import FlatIndex
from grls.index.rows import Ints, Rows

_SURROGATES = 0xD800


class MarisaIndex(FlatIndex):
    """The prefixes of ``flat`` in a succinct trie, of marisa-trie.

    A prefix is a string with one character a token. The trie numbers its keys, and arrays indexed by this
    number hold the next tokens and the range of rows. A state is the number of a key; the empty prefix is no
    key and has the number after the last.
    """

    backend = "marisa"

    def __init__(self, rows: Rows):
        Segment.__init__(self, rows)
        spans = {"": [0, len(rows)]}  # prefix -> first row and end row; parents before children
        for r in range(len(rows)):
            text = "".join(_encode_token(int(token)) for token in rows.row(r))
            for n in range(1, len(text) + 1):
                spans.setdefault(text[:n], [r, r])[1] = r + 1
        self._trie = marisa_trie.Trie(key for key in spans if key)
        number = {key: self._trie.key_id(key) if key else len(self._trie) for key in spans}
        following: list[list[int]] = [[] for _ in number]
        self._ranges = np.zeros((len(number), 2), dtype=np.uint32)
        for key, rows_of_key in spans.items():
            self._ranges[number[key]] = rows_of_key
            if key:
                code = ord(key[-1])  # the inverse of _encode_token
                token = (code if code < _SURROGATES else code - 0x800) - 1
                following[number[key[:-1]]].append(token)
        self._next_offsets = np.cumsum([0] + [len(tokens) for tokens in following])
        self._next_tokens = np.array([t for tokens in following for t in tokens], dtype=rows.tokens.dtype)

    def start(self) -> int:
        """The number after the last key."""
        return len(self._trie)

    def _following(self, state: int) -> list[tuple[int, int]]:
        prefix = "" if state == len(self._trie) else self._trie.restore_key(state)
        tokens = self._next_tokens[self._next_offsets[state] : self._next_offsets[state + 1]].tolist()
        return [(token, self._trie.key_id(prefix + _encode_token(token))) for token in tokens]

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        """First row and end row of each state."""
        spans = self._ranges[states].astype(np.int64)
        return spans[:, 0], spans[:, 1]


def _encode_token(token: int) -> str:
    """The character of a token: never NUL, and never a surrogate, which UTF-8 cannot encode."""
    code = token + 1
    return chr(code if code < _SURROGATES else code + 0x800)
