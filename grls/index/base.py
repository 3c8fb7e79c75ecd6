"""The protocol of a constraint index: which tokens may follow a prefix, and which passages begin with it.

Legend: S states, A allowed tokens of all states together. A state is one 64-bit integer that identifies a
prefix. It is kept with its beam and gathered by beam index like the KV cache. Each backend defines what the
integer means.

Invariants, held by one property test over every backend against a naive set of sequences:

* the allowed tokens are exactly the next tokens of the passages under the prefix;
* every path ends in a passage, and only a state whose last token is the end token allows nothing;
* DONE is a passage like any other;
* all passages with equal tokens are found; a passage that is a prefix of another one is found, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from grls.index.rows import Array, Ints, Rows, SortedRows


class Allowed(NamedTuple):
    """The tokens that may follow each of S states, ragged.

    Attributes:
        tokens: ``[A]`` allowed tokens, ascending within a state.
        states: ``[A]`` the state after each token.
        offsets: ``[S + 1]``; state s owns the entries ``offsets[s]:offsets[s + 1]``.
    """

    tokens: Ints
    states: Ints
    offsets: Ints


class ConstraintIndex(ABC):
    """The tokens that may follow a prefix, for one corpus and one tokenizer.

    Args:
        rows: The sorted sequences of the corpus. A state stands for a range of these rows.
    """

    complete: Callable[[int], Ints] | None = None
    """Number -> tokens of the whole passage, for the form ``prefixes``; set by the owner of the corpus."""

    has_tensors = False
    """Whether a search on a device can use it (:mod:`grls.index.tensors`)."""

    def __init__(self, rows: SortedRows):
        self.rows = rows

    @abstractmethod
    def start(self) -> int:
        """The state of the empty prefix."""

    @abstractmethod
    def allowed(self, states: Ints) -> Allowed:
        """The tokens that may follow each state ``[S]``, and the states they lead to."""

    @abstractmethod
    def span(self, states: Ints) -> tuple[Ints, Ints]:
        """First row and end row (exclusive) of each state, two arrays ``[S]``.

        The ranges of the states that follow one state are adjacent: each ends where the next range begins.
        """

    def count(self, states: Ints) -> Ints:
        """Number of passages under each state, ``[S]``."""
        low, high = self.span(states)
        return self.rows.members_before(high) - self.rows.members_before(low)

    def unique(self, states: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """True if one sequence is left, so that every further token is forced, ``[S]``."""
        low, high = self.span(states)
        single: np.ndarray[tuple[int], np.dtype[np.bool_]] = high - low == 1
        return single

    def passages(self, state: int) -> Ints:
        """Numbers of all passages under a state, in row order."""
        low, high = self.span(np.array([state]))
        return self.rows.members_in(int(low[0]), int(high[0]))

    def tokens(self, passage: int) -> Ints:
        """The token sequence of a passage, end token included."""
        if self.rows.form == "prefixes" and self.complete is not None:
            return self.complete(passage)
        self.rows.refuse_prefixes("the token sequence of a passage")
        return self.rows.row(int(self.rows.row_of[passage]))

    def __len__(self) -> int:
        return len(self.rows.row_of)


class Segment(ConstraintIndex):
    """The base class of a backend: an index that is built from its rows at once and can be stored."""

    backend: str
    """The name of the backend."""
    stored: tuple[str, ...] = ()
    """The names of the arrays that :meth:`arrays` returns."""
    rows: Rows

    @classmethod
    @abstractmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:
        """Build from the results of :func:`grls.index.rows.sort_rows`."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """File name -> array, of all arrays that the backend stores beside the rows."""

    @classmethod
    @abstractmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:
        """The inverse of :meth:`arrays`."""

    def __len__(self) -> int:
        return len(self.rows.members)
