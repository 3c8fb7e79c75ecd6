"""A capability of retrievers: queries join a search that runs, and get what they get in one of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from grls.data.filters import Filter
from grls.data.types import Hit


class JoiningText(NamedTuple):
    """A text that joins a search.

    Attributes:
        query: The text.
        k: Largest number of hits.
        allow: Its filter.
        owner: What the source knows the text by.
    """

    query: str
    k: int
    allow: Filter | None
    owner: Any


class TextSource(Protocol):
    """Where texts come from while a search runs, and where their hits go."""

    def waiting(self) -> int:
        """The number of texts that may join now; 0 if none waits, or none shall join any more."""
        ...

    def take(self, most: int) -> Sequence[JoiningText]:
        """At most so many texts, which join now."""
        ...

    def gone(self, owner: Any) -> bool:
        """Whether nobody wants the hits of a text any more."""
        ...

    def answer(self, owner: Any, hits: list[Hit]) -> None:
        """The hits of a text, best first."""
        ...

    def fail(self, owner: Any, error: Exception) -> None:
        """A text cannot be searched."""
        ...


@runtime_checkable
class LetsJoin(Protocol):
    """A retriever of single steps whose search takes further texts while it runs."""

    @property
    def lets_join(self) -> bool:
        """Whether it does so with its options and its device."""
        ...

    @property
    def widest(self) -> int:
        """Number of passages that a search scores for any k: its beams."""
        ...

    def search_joined(self, source: TextSource, k: int, slots: int) -> None:
        """Search for the texts of a source until none is left.

        Args:
            source: Where texts come from, and where their hits go.
            k: The most hits of a text; texts of one beam width, max(k, :attr:`widest`), may join.
            slots: Texts in flight, at most.
        """
        ...
