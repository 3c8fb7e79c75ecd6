"""The protocol of an index of keys for interlaced retrieval, and its implementation by a prefix index.

Legend: S states, A allowed tokens, w integers a state.

A key is a text that a model quotes to retrieve: a title, a sentence, a proposition, a paragraph
("retrieval keys" in arXiv 2407.00361). A span is a part of a key; a state, w integers kept with its beam,
stands for the span written so far. In :class:`PrefixKeys` a span begins where its key begins, in a
:class:`grls.index.substring.SubstringIndex` anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from grls.index.base import Segment
from grls.index.rows import Ints
from grls.index.storage import load_index, save_index

States = Ints
"""``[S, w]``."""


class Following(NamedTuple):
    """The tokens that may follow each of S spans, ragged; the end of a key is not among them.

    Attributes:
        tokens: ``[A]`` ascending within a state.
        states: ``[A, w]`` the state after each token.
        offsets: ``[S + 1]``; state s owns the entries ``offsets[s]:offsets[s + 1]``.
    """

    tokens: Ints
    states: States
    offsets: Ints


class KeyIndex(ABC):
    """The spans that may be quoted."""

    width: int
    """w, the number of integers of a state."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of keys."""

    @abstractmethod
    def start(self) -> Ints:
        """The state of the empty span, ``[w]``."""

    @abstractmethod
    def follow(self, states: States) -> Following:
        """The tokens that may follow each span, of states ``[S, w]``."""

    @abstractmethod
    def closes(self, states: States) -> npt.NDArray[np.bool_]:
        """Whether each span reaches the end of a key, ``[S]``; False for the empty span."""

    @abstractmethod
    def count(self, states: States) -> Ints:
        """How often each span occurs, ``[S]``; a key may hold a span several times."""

    @abstractmethod
    def keys(self, state: Ints, whole: bool = True, limit: int | None = None) -> Ints:
        """Numbers of the keys that hold a span (``state [w]``), ascending, each once.

        ``whole``: only keys that end with the span. At most ``limit`` occurrences are looked at.
        """

    @abstractmethod
    def tokens(self, key: int) -> Ints:
        """The tokens of a key, without an end token."""

    @abstractmethod
    def save(self, folder: str | Path, tokenizer: str = "", corpus: str = "") -> None:
        """Write the index to a folder, atomically, with the fingerprints of tokenizer and corpus."""

    @classmethod
    @abstractmethod
    def load(
        cls,
        folder: str | Path,
        tokenizer: str | None = None,
        corpus: str | None = None,
        verify: bool | None = None,
    ) -> Self:
        """Open an index that :meth:`save` wrote, memory-mapped; a fingerprint that is None accepts any."""


class PrefixKeys(KeyIndex):
    """Spans that begin where their key begins, of an index whose passages are the keys."""

    width = 1

    def __init__(self, index: Segment):
        self._index = index
        self._end = index.rows.end

    def __len__(self) -> int:
        return len(self._index)

    def start(self) -> Ints:
        return np.array([self._index.start()], dtype=np.int64)

    def follow(self, states: States) -> Following:
        allowed = self._index.allowed(states[:, 0])
        keep = allowed.tokens != self._end
        offsets = np.concatenate(([0], np.cumsum(keep)))[allowed.offsets]
        return Following(allowed.tokens[keep], allowed.states[keep][:, None], offsets)

    def closes(self, states: States) -> npt.NDArray[np.bool_]:
        return self._ends(states)[0]

    def count(self, states: States) -> Ints:
        return self._index.count(states[:, 0])

    def keys(self, state: Ints, whole: bool = True, limit: int | None = None) -> Ints:
        states = self._ends(state[None])[1] if whole else state
        members = self._index.passages(int(states[0])) if len(states) else np.empty(0, dtype=np.int64)
        return np.unique(members if limit is None else members[:limit])

    def tokens(self, key: int) -> Ints:
        return self._index.tokens(key)[:-1]

    def save(self, folder: str | Path, tokenizer: str = "", corpus: str = "") -> None:
        save_index(self._index, folder, tokenizer, corpus)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        tokenizer: str | None = None,
        corpus: str | None = None,
        verify: bool | None = None,
    ) -> Self:
        return cls(load_index(folder, tokenizer, corpus, verify))

    def _ends(self, states: States) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Whether the end token may follow each span, ``[S]``, and the states after it."""
        allowed = self._index.allowed(states[:, 0])
        ends = np.flatnonzero(allowed.tokens == self._end)
        owner = np.searchsorted(allowed.offsets, ends, side="right") - 1
        closed = np.zeros(len(states), dtype=bool)
        closed[owner] = True
        return closed, allowed.states[ends]
