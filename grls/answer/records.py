"""Answers as lines of NAME.answers.jsonl, in the format of RICHES, and for the terminal."""

from __future__ import annotations

from typing import Any

from grls.answer.direct import WrittenAnswer
from grls.answer.prompts import shown
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.io.terminal import visible
from grls.runs.results import find_passages


def answer_record(query: Query, reading: WrittenAnswer, corpus: Corpus) -> dict[str, Any]:
    """A line of the answers: a passage that the model read takes the place of a quote of RICHES."""
    texts = find_passages(corpus, reading.read)
    quotes = [
        {"text": shown(texts[i]), "keys": [shown(texts[i])], "passages": [i], "closed": True}
        for i in reading.read
    ]
    return {
        "query_id": query.id,
        "text": query.text,
        "answer": reading.answer,
        "ended": reading.ended,
        "pieces": _pieces(reading, texts),
        "quotes": quotes,
        "retrieved": [hit.id for hit in reading.ranking],
        **({"failed": reading.failed} if reading.failed else {}),
    }


def _pieces(reading: WrittenAnswer, texts: dict[str, Passage]) -> list[dict[str, Any]]:
    """Follow-up questions, passages and answer, in order, as RICHES writes its pieces."""
    place = {passage: number for number, passage in enumerate(reading.read)}
    pieces: list[dict[str, Any]] = []
    groups = [(step.question, step.passages) for step in reading.steps] or [("", reading.read)]
    for question, passages in groups:
        pieces += [{"kind": "thought", "text": question, "quote": -1}] if question else []
        pieces += [{"kind": "quote", "text": shown(texts[i]), "quote": place[i]} for i in passages]
    answer = {"kind": "answer", "text": reading.answer, "quote": -1}
    return [*pieces, *([answer] if reading.answer else [])]


def shown_reading(query: Query, reading: WrittenAnswer, corpus: Corpus) -> str:
    """One query and its answer, for the terminal."""
    lines = [f"{query.id}: {query.text}"]
    for piece in _pieces(reading, find_passages(corpus, reading.read)):
        text = piece["text"]
        if piece["kind"] == "quote":
            text = f"  {text[:100]}{'…' * (len(text) > 100)} -> {reading.read[piece['quote']]}"
        lines.append(f"  {text}")
    return visible("\n".join(lines))
