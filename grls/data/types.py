"""The plain values that cross the borders between layers.

They know nothing of tokens, tensors or files. A passage is its id: two passages may share a text,
and no text is ever decoded to find out which passage was meant.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

ScoreMode = Literal["renormalized", "full"]
"""Over the allowed tokens, or over the vocabulary (:mod:`grls.decode.scores`)."""

Steps = Literal["single", "fixed", "dynamic"]
"""A ranking; chains of a fixed number of hops; chains until DONE."""


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


class Query(NamedTuple):
    """One query.

    Attributes:
        id: Identifier, unique in the query file.
        text: What the user asks.
        evidence: Ids of the gold passages in retrieval order; empty where unknown.
        answers: Accepted short answers; empty where unknown.
        metadata: The ``metadata`` object of the file as JSON text (``{}`` where absent).
    """

    id: str
    text: str
    evidence: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    metadata: str = "{}"


class Hit(NamedTuple):
    """One retrieved passage.

    Attributes:
        id: Passage id.
        score: Higher is better; a log-probability (nats) where a generator retrieved it.
    """

    id: str
    score: float


class Chain(NamedTuple):
    """The hops of one query, in retrieval order.

    Attributes:
        hits: One hit a hop; ``Hit.score`` is the log-probability (nats) of that hop alone.
        score: Log-probability (nats) of the chain, DONE included where it was written.
        done: True where the model ended the chain with DONE, False where the hop limit did.
    """

    hits: tuple[Hit, ...]
    score: float
    done: bool
