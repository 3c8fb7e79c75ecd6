"""The plain values that pass between layers.

A passage is identified by its id, never by decoding a text: two passages may have the same text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

ScoreMode = Literal["renormalized", "full"]
"""Softmax over the allowed tokens, or over the whole vocabulary (:mod:`grls.decode.select`)."""

Steps = Literal["single", "ranked", "fixed", "dynamic"]
"""``single``: a ranking; ``ranked``: a ranking by the probability that a chain of hops holds a passage;
``fixed``: chains of a fixed number of hops; ``dynamic``: chains until DONE."""

IN_CHAINS = "probability in chains"
"""The score mode of ``ranked``."""

RANKINGS: tuple[Steps, ...] = ("single", "ranked")
"""The steps whose results are rankings, not chains."""


class Passage(NamedTuple):
    """One retrieval unit of a corpus.

    Attributes:
        id: Identifier, unique in the corpus.
        text: The text that is memorised and retrieved.
        title: Optional title, written before the text.
    """

    id: str
    text: str
    title: str = ""

    @property
    def titled(self) -> str:
        """The text after its title, for people."""
        return f"{self.title}: {self.text}" if self.title else self.text


class Query(NamedTuple):
    """One query.

    Attributes:
        id: Identifier, unique in the query file.
        text: What the user asks.
        evidence: Ids of the gold passages in retrieval order; empty if unknown.
        answers: Accepted short answers; empty if unknown.
        metadata: The ``metadata`` object of the file as JSON text (``{}`` if absent).
    """

    id: str
    text: str
    evidence: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    metadata: str = "{}"


class PassageMetadata(Mapping[str, Any]):
    """The metadata of a passage, a JSON object that is parsed at the first look-up; it equals a dict."""

    __slots__ = ("_text", "_values")

    def __init__(self, text: str = "{}"):
        self._text = text
        self._values: dict[str, Any] | None = None

    def _parsed(self) -> dict[str, Any]:
        if self._values is None:
            self._values = json.loads(self._text)
        return self._values

    def __getitem__(self, name: str) -> Any:
        return self._parsed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())

    def __hash__(self) -> int:
        return hash(frozenset(self._parsed()))

    def __repr__(self) -> str:
        return repr(self._parsed())

    def __reduce__(self) -> tuple[type[PassageMetadata], tuple[str]]:
        return PassageMetadata, (self._text,)


NO_METADATA = PassageMetadata()
"""The metadata of a passage that has none, or whose metadata are not of interest."""


class NameLink(NamedTuple):
    """A name that led ranked hops to a passage (:mod:`grls.data.links`).

    Attributes:
        words: The name, as the title of the passage writes it, or in small letters.
        passage: Id of the passage whose text holds the name; None: the question holds it.
    """

    words: str
    passage: str | None

    def __str__(self) -> str:
        return f'"{self.words}" in {"the question" if self.passage is None else self.passage}'


class Hit(NamedTuple):
    """One retrieved passage.

    Attributes:
        id: Passage id.
        score: Higher is better; a log-probability (nats) if a generator retrieved it.
        text: Text of the passage; empty where only ids are of interest, as inside the library.
        title: Title of the passage; filled in as ``text`` is.
    """

    id: str
    score: float
    text: str = ""
    title: str = ""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the passage, which filters compare; empty where ``text`` is, or where it has none."""
        metadata: Mapping[str, Any] = getattr(self, "_metadata", NO_METADATA)
        return metadata

    @property
    def hop(self) -> int | None:
        """The hop that found the passage, from 1, in a chain that a search returns; None in a ranking."""
        hop: int | None = getattr(self, "_hop", None)
        return hop

    @property
    def links(self) -> tuple[NameLink, ...]:
        """The names that led ranked hops to the passage, in the likeliest chain that ends with it."""
        links: tuple[NameLink, ...] = getattr(self, "_links", ())
        return links


def hop_and_links(hit: Hit) -> dict[str, Any]:
    """The ``hop`` and the ``links`` of a hit that has them, for JSON."""
    hop = {} if hit.hop is None else {"hop": hit.hop}
    return hop | ({"links": [link._asdict() for link in hit.links]} if hit.links else {})


class FullHit(Hit):
    """A hit with text, title and metadata, in a chain its hop, and the links to it: what users get.

    These are no fields of the tuple, so files of hits are the same with and without them.
    """

    _metadata: Mapping[str, Any]
    _hop: int | None
    _links: tuple[NameLink, ...]

    @classmethod
    def of(
        cls,
        hit: Hit,
        metadata: Mapping[str, Any] | None = None,
        hop: int | None = None,
        links: Sequence[NameLink] | None = None,
    ) -> FullHit:
        """A hit with what is known of it now; None changes nothing."""
        full = cls(*hit)
        full._metadata = hit.metadata if metadata is None else metadata
        full._hop = hit.hop if hop is None else hop
        full._links = hit.links if links is None else tuple(links)
        return full

    def _replace(self, **fields: Any) -> FullHit:
        return FullHit.of(super()._replace(**fields), self.metadata, self.hop, self.links)

    def __repr__(self) -> str:
        known = self._asdict() | ({} if self.hop is None else {"hop": self.hop})
        known |= {"links": self.links} if self.links else {}
        fields = [f"{name}={value!r}" for name, value in known.items()]
        return f"Hit({', '.join(fields)}, metadata={self.metadata!r})"


class Chain(NamedTuple):
    """The hops of one query, in retrieval order.

    Attributes:
        hits: One hit a hop; ``Hit.score`` is the log-probability (nats) of that hop alone.
        score: Log-probability (nats) of the chain, including DONE if it was written.
        done: True if the model ended the chain with DONE, False if the hop limit did.
    """

    hits: tuple[Hit, ...]
    score: float
    done: bool
