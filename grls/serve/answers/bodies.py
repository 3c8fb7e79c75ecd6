"""The bodies of questions and answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grls.serve.answers.options import AnswerMethod
from grls.serve.bodies import Body, HoppingBody, QueryText


class AnswerBody(HoppingBody):
    """A question."""

    query: QueryText
    method: AnswerMethod | None = Field(None, description="The method; null: the first one of the server.")
    k: int | None = Field(None, ge=1, description="Passages to read; null: as the server says.")
    max_new_tokens: int | None = Field(
        None, ge=1, description="Length limit of what the model writes at once; null: as the server says."
    )
    history: list[str] = Field(
        [], max_length=64, description="The turns before the question (method conversational), in order."
    )


class SourceBody(Body):
    """A passage that holds a quote."""

    id: str
    title: str
    text: str


class QuoteBody(Body):
    """A quote, or a passage that the model read."""

    text: str
    closed: bool = Field(description="False: the length limit cut it, and it names no passage.")
    sources: list[SourceBody] = Field(description="The passages that hold it.")
    further: int = Field(description="Number of further passages that hold it.")


class PieceBody(Body):
    """A part of what was written."""

    kind: Literal["thought", "quote", "answer"]
    text: str
    quote: int | None = Field(description="Number of the quote, from 0; null: it is none.")


class AnsweredBody(Body):
    """The answer to a question."""

    retriever: str
    version: int
    method: AnswerMethod
    query: str
    answer: str = Field(description="The answer; empty if none was written.")
    ended: bool = Field(description="False: the length limit cut it.")
    pieces: list[PieceBody] = Field(description="Thoughts, quotes and answer, in order.")
    quotes: list[QuoteBody]
