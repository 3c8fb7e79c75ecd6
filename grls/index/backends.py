"""The backends of the constraint index by name, and the function that adds a backend of yours.

A backend is a class of :class:`grls.index.base.Segment`. Here are two that are made of the rows alone: the
readable reference, and one in marisa-trie. Files: :mod:`grls.index.storage`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np

from grls.errors import ConfigError
from grls.index.array import ArrayIndex
from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows
from grls.io.arguments import checked
from grls.io.recipes import VARIABLE, load_plugins

Prefix = tuple[int, ...]


class _Rebuilt(Segment):
    """A backend that is made from its rows alone: it stores nothing, and loading builds it again."""

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:
        return cls(rows)

    def arrays(self) -> dict[str, Array]:
        return {}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:
        return cls(rows)

    @abstractmethod
    def _following(self, state: int) -> list[tuple[int, int]]:
        """The tokens that may follow a state, ascending, and the state after each."""

    def allowed(self, states: Ints) -> Allowed:
        following = [self._following(int(state)) for state in states]
        pairs = np.array([pair for tokens in following for pair in tokens], dtype=np.int64).reshape(-1, 2)
        offsets = np.cumsum([0, *map(len, following)], dtype=np.int64)
        return Allowed(pairs[:, 0], pairs[:, 1], offsets)


class FlatIndex(_Rebuilt):
    """A dictionary from prefix to next tokens; a state is the running number of its prefix.

    Algorithm 2 of "Generative Retrieval for Long Sequences" (arXiv 2204.13596): every prefix of every passage
    is a key, so a step takes one look-up. It is the readable reference of the other backends and takes
    hundreds of bytes a token.
    """

    backend = "flat"

    def __init__(self, rows: Rows):
        super().__init__(rows)
        self.following: dict[Prefix, list[int]] = {(): []}
        self._number: dict[Prefix, int] = {(): 0}
        self._prefixes: list[Prefix] = [()]
        self._spans: list[list[int]] = [[0, len(rows)]]
        for r in range(len(rows)):
            sequence = tuple(rows.row(r).tolist())
            for length, token in enumerate(sequence):
                prefix, longer = sequence[:length], sequence[: length + 1]
                if longer not in self._number:
                    self.following[prefix].append(token)
                    self.following[longer] = []
                    self._number[longer] = len(self._prefixes)
                    self._prefixes.append(longer)
                    self._spans.append([r, r])
                self._spans[self._number[longer]][1] = r + 1

    def start(self) -> int:
        return 0

    def _following(self, state: int) -> list[tuple[int, int]]:
        prefix = self._prefixes[state]
        return [(token, self._number[(*prefix, token)]) for token in self.following[prefix]]

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        spans = np.array([self._spans[s] for s in states], dtype=np.int64).reshape(-1, 2)
        return spans[:, 0], spans[:, 1]


_SURROGATES = 0xD800


class MarisaIndex(_Rebuilt):
    """The prefixes of ``flat`` in a succinct trie, of marisa-trie.

    A prefix is a string with one character a token. The trie numbers its keys, and arrays indexed by this
    number hold the next tokens and the range of rows. A state is the number of a key; the empty prefix is no
    key and has the number after the last. (It is not stored, since the library checks no number in a stored
    trie.)
    """

    backend = "marisa"

    def __init__(self, rows: Rows):
        super().__init__(rows)
        spans = {"": [0, len(rows)]}  # prefix -> first row and end row; parents before children
        for r in range(len(rows)):
            text = "".join(_encode_token(int(token)) for token in rows.row(r))
            for n in range(1, len(text) + 1):
                spans.setdefault(text[:n], [r, r])[1] = r + 1
        import marisa_trie  # of the extra models

        self._trie = marisa_trie.Trie(key for key in spans if key)
        number = {key: self._trie.key_id(key) if key else len(self._trie) for key in spans}
        following: list[list[int]] = [[] for _ in number]
        self._spans = np.zeros((len(number), 2), dtype=np.uint32)
        for key, rows_of_key in spans.items():
            self._spans[number[key]] = rows_of_key
            if key:
                code = ord(key[-1])  # the inverse of _encode_token
                token = (code if code < _SURROGATES else code - 0x800) - 1
                following[number[key[:-1]]].append(token)
        self._next_offsets = np.cumsum([0] + [len(tokens) for tokens in following])
        self._next_tokens = np.array([t for tokens in following for t in tokens], dtype=rows.tokens.dtype)

    def start(self) -> int:
        return len(self._trie)

    def _following(self, state: int) -> list[tuple[int, int]]:
        prefix = "" if state == len(self._trie) else self._trie.restore_key(state)
        tokens = self._next_tokens[self._next_offsets[state] : self._next_offsets[state + 1]].tolist()
        return [(token, self._trie.key_id(prefix + _encode_token(token))) for token in tokens]

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        spans = self._spans[states].astype(np.int64)
        return spans[:, 0], spans[:, 1]


def _encode_token(token: int) -> str:
    """The character of a token: never NUL, and never a surrogate, which UTF-8 cannot encode."""
    code = token + 1
    return chr(code if code < _SURROGATES else code + 0x800)


BACKENDS: dict[str, type[Segment]] = {b.backend: b for b in (ArrayIndex, MarisaIndex, FlatIndex)}
"""Name -> class."""

BUILT_IN = tuple(BACKENDS)
"""The backends of the package, whose arrays :mod:`grls.index.storage` knows."""

ROW_ARRAYS = ("tokens", "offsets", "within", "members", "member_offsets")
"""The arrays of the rows, which every index stores."""


@checked
def register_backend(backend: type[Segment]) -> None:
    """Add a backend.

    Args:
        backend: The class; its ``backend`` is the name, its ``stored`` the names of its arrays.

    Raises:
        ConfigError: The class lacks a method or its name, another class has the name, or an array has the
            name of one of the rows.
    """
    called, name = backend.__qualname__, getattr(backend, "backend", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f'{called} has no name: give it a class attribute backend = "…".')
    if lacking := sorted(getattr(backend, "__abstractmethods__", ())):
        raise ConfigError(f"the backend {name!r} ({called}) lacks {', '.join(lacking)}: write these methods.")
    if taken := sorted(set(backend.stored) & set(ROW_ARRAYS)):
        raise ConfigError(
            f"the backend {name!r} stores {taken[0]!r}, which is an array of the rows: rename it."
        )
    known = BACKENDS.get(name, backend)  # the same lines of a module that is read twice make another class
    if (known.__module__, known.__qualname__) != (backend.__module__, called):
        raise ConfigError(
            f"the backend {name!r} is {BACKENDS[name].__qualname__} already; choose another name."
        )
    BACKENDS[name] = backend


def check_backend(backend: str) -> None:
    """Refuse (ConfigError) the name of a backend that is neither of the package nor registered."""
    if backend not in BACKENDS:
        load_plugins()
    if backend not in BACKENDS:
        raise ConfigError(
            f"unknown index backend {backend!r}; expected one of {', '.join(BACKENDS)}, or one "
            f"that a module of {VARIABLE} registers."
        )
