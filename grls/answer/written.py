"""What a model wrote for a query, with its evidence: a line of ``NAME.answers.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from grls.answer.prompts import shown
from grls.data.types import Hit, Passage, Query

Record = dict[str, Any]


class Quote(NamedTuple):
    """A quoted key, or a passage that the model read.

    Attributes:
        text: The text as it was written or read.
        keys: The texts of the keys that hold it.
        passages: Ids of the passages of these keys, in their order.
        closed: False if the length limit cut the quote: then it retrieves nothing.
        score: Log-probability (nats) of a quote that was written.
    """

    text: str
    keys: tuple[str, ...]
    passages: tuple[str, ...]
    closed: bool = True
    score: float | None = None


class Piece(NamedTuple):
    """A part of what was written or read, without markers; ``quote`` is the number of a quote."""

    kind: Literal["thought", "quote", "answer"]
    text: str
    quote: int | None = None


class Written(NamedTuple):
    """The answer to a query.

    Attributes:
        answer: The answer; empty if none was written.
        ended: False if the length limit cut what was written.
        pieces: Its parts, in order.
        quotes: Its evidence, in order.
        ranking: The retrieved passages, best first.
        score: Log-probability (nats) of an output with quotes.
        failed: Why nothing was written for the query; empty if something was.
    """

    answer: str
    ended: bool
    pieces: tuple[Piece, ...] = ()
    quotes: tuple[Quote, ...] = ()
    ranking: tuple[Hit, ...] = ()
    score: float | None = None
    failed: str = ""

    def record(self, query: Query) -> Record:
        """The line; ``scores`` are those of the ranking."""
        return {
            "query_id": query.id,
            "text": query.text,
            "answer": self.answer,
            "ended": self.ended,
            "pieces": [piece._asdict() for piece in self.pieces],
            "quotes": [quote._asdict() for quote in self.quotes],
            "retrieved": [hit.id for hit in self.ranking],
            "scores": [hit.score for hit in self.ranking],
            **({} if self.score is None else {"score": self.score}),
            **({"failed": self.failed} if self.failed else {}),
        }


Steps = Sequence[tuple[str, Sequence[str]]]
"""Questions that passages were retrieved for, each with their ids; an empty one is the query itself."""


def written_from(
    steps: Steps, passages: Mapping[str, Passage], answer: str, ended: bool, ranking: Sequence[Hit]
) -> Written:
    """An answer that was written from passages, which take the place of quotes."""
    pieces: list[Piece] = []
    quotes: list[Quote] = []
    for question, ids in steps:
        pieces += [Piece("thought", question)] if question else []
        for name in ids:
            text = shown(passages[name])
            pieces.append(Piece("quote", text, len(quotes)))
            quotes.append(Quote(text, (text,), (name,)))
    pieces += [Piece("answer", answer)] if answer else []
    return Written(answer, ended, tuple(pieces), tuple(quotes), tuple(ranking))
