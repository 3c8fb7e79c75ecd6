"""The bodies of requests and responses. Fields that are not named here are refused."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from grls.retrieve.hops.options import HopSteps
from grls.serve.options import AnswerMethod

QueryText = Annotated[str, Field(min_length=1, description="What is asked.")]


def json_score(value: float | None) -> float | None:
    """A score; None where JSON has no number for it."""
    return None if value is None or not math.isfinite(value) else float(value)


Score = Annotated[float | None, BeforeValidator(json_score)]
"""A score; null where it is no finite number."""


class Body(BaseModel):
    """The rules of requests."""

    # Without a bound, pydantic takes half characters (lone surrogates) for text.
    model_config = ConfigDict(extra="forbid", strict=True, str_min_length=0)


class Reply(BaseModel):
    """A response; its values may be objects of the library."""

    model_config = ConfigDict(from_attributes=True)


class VersionReply(Reply):
    """What a version of a retriever answers."""

    retriever: str
    version: int


class HopsBody(Body):
    """Retrieval hop by hop."""

    steps: HopSteps | None = Field(
        None,
        description="single, fixed, dynamic (until DONE) or ranked; null: as the retriever's folder says, or "
        "fixed where it has single steps and max is given.",
    )
    max: int | None = Field(
        None,
        ge=1,
        description="Number of hops, or the largest number; null: as the folder says, or a default.",
    )


class OfRetriever(Body):
    """What names a retriever."""

    retriever: str | None = Field(None, description="Its name; null: the first one of the server.")


class Filtered(OfRetriever):
    """What calls of a retriever have in common."""

    where: str | None = Field(
        None, description="A filter over metadata, such as year>=2000; it holds in every hop."
    )
    allow: list[str] | None = Field(None, description="Ids of the passages that may be found; null: all.")


class HoppingBody(Filtered):
    """What requests to a retriever have in common."""

    hops: HopsBody | None = Field(None, description="How to retrieve; null: as the retriever's folder says.")


class SearchBody(HoppingBody):
    """A search for one query or several."""

    query: QueryText | list[QueryText] = Field(
        description="A query, or a list of queries.", examples=["what do otters eat?"]
    )
    k: int = Field(10, ge=1, description="Largest number of hits of a query.")
    metadata: bool = Field(False, description="Send the metadata of each passage, which filters compare.")

    def queries(self) -> list[str]:
        """The queries, as a list."""
        return [self.query] if isinstance(self.query, str) else self.query


class StreamBody(HoppingBody):
    """The hops of one query."""

    query: QueryText


class HitBody(Reply):
    """A passage that was found."""

    id: str
    score: Score = Field(description="Higher is better; null where it is no finite number.")
    title: str
    text: str


class LinkBody(Reply):
    """A name that led to a passage."""

    words: str = Field(description="The name, as the title of the passage writes it, or in small letters.")
    passage: str | None = Field(None, description="Id of the passage that holds it; null: the question.")


class FoundHitBody(HitBody):
    """A passage of a ranking, or of a chain."""

    hop: int | None = Field(
        None, description="The hop that found it, from 1 (fixed and dynamic hops); null: this is a ranking."
    )
    links: list[LinkBody] = Field([], description="The names that led to it (ranked hops).")
    metadata: dict[str, Any] | None = Field(
        None, description="Its metadata, which filters compare; null: the request does not ask for them."
    )


class ResultBody(Reply):
    """The hits of a query, best first; of fixed and dynamic hops the best chain, in the order of hops."""

    query: str
    hits: list[FoundHitBody]


class FoundBody(VersionReply):
    """The answer to a search."""

    results: list[ResultBody]


class HopBody(Reply):
    """A hop, with the best chain so far."""

    number: int = Field(description="The hop, from 1.")
    hit: HitBody | None = Field(description="The passage that it adds; null: none.")
    chain: list[str] = Field(description="Ids of the passages of the best chain so far.")
    scores: list[Score] = Field(description="The score of each of these passages in its hop.")
    links: list[list[LinkBody]] = Field(description="The names that led to each of them (ranked hops).")
    score: Score = Field(description="The score of that chain.")
    done: bool = Field(description="DONE ended the chain.")
    last: bool = Field(description="No further hop follows.")


class ExplainBody(OfRetriever):
    """Which passages of a query are explained."""

    query: QueryText
    gold: list[str] = Field(
        min_length=1, max_length=32, description="Ids of the passages to explain, in the order of hops."
    )
    depth: int = Field(
        100, ge=1, le=1000, description="Passages that are ranked to find them, where none are decoded."
    )


class PartBody(Reply):
    """A part of a report."""

    kind: Literal["facts", "text", "table"] = Field(
        description="facts: rows of a name and a value; text: rows of sentences; table: rows of cells, "
        "the header first."
    )
    rows: list[list[str]]
    marked: list[int] = Field(description="The rows that stand out, from 0.")


class StandingBody(Reply):
    """Where a passage stands, and why."""

    gold: str = Field(description="Id of the passage, as the request names it.")
    hop: int
    rank: int | None = Field(description="Its rank, from 1; null: it is not among the results.")
    score: Score
    above: list[str] = Field(description="Ids of the passages above it, best first.")
    report: str = Field(description="Why it was found, or why not.")
    parts: list[PartBody] = Field(description="The same in parts, for a page.")


class ExplainedBody(VersionReply):
    """The explanation of a query."""

    passages: list[StandingBody]


class PassageBody(Reply):
    """A passage of a corpus."""

    retriever: str
    id: str
    title: str
    text: str
    metadata: dict[str, Any] = Field(description="What filters compare.")


class ReloadBody(OfRetriever):
    """Which retriever is loaded again."""


class VersionBody(VersionReply):
    """The version of a retriever that answers."""

    passages: int


class HealthBody(Reply):
    """The state of the server."""

    status: Literal["ok", "ending", "starting"]
    retrievers: list[VersionBody]


class ProblemBody(Reply):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = Field(description="What was expected, and the remedy.")
    errors: list[dict[str, str]] = Field([], description="Each wrong field, and its problem.")


class TraceBody(HoppingBody):
    """A search whose beam is shown: the beam for the next passage of a query."""

    query: QueryText
    evidence: list[str] = Field([], max_length=64, description="Ids of the passages of the hops before.")
    k: int | None = Field(None, ge=1, description="Passages to return; null: as many as a hop takes.")
    most: int = Field(24, ge=1, le=64, description="Candidates of a step that are listed.")


class LimitsBody(Reply):
    """The limits of requests."""

    k: int
    hops: int
    queries: int
    characters: int
    seconds: float


class OwnHopsBody(Reply):
    """How a retriever retrieves where a request does not say it."""

    steps: HopSteps
    max: int | None = Field(description="Number of hops, or the largest number; null: not known.")


class FieldBody(Reply):
    """A field of metadata, as filters compare it."""

    name: str
    kind: Literal["number", "text", "boolean"]
    values: list[bool | int | float | str] = Field(
        description="In a sample of the passages: the smallest and the largest number, or the most frequent "
        "values."
    )
    where: str = Field(description="A filter that names the field.")


class RetrieverBody(VersionReply):
    """A retriever of the server."""

    passages: int
    kind: str = Field(description="Its kind; of one that goes hop by hop, the kind within.")
    name: str = Field(description="How it retrieves, in a few words.")
    scores: str = Field(description="The meaning of its scores.")
    hops: OwnHopsBody
    no_beam: str | None = Field(description="Why /v1/trace shows no beam; null: it shows one.")
    fields: list[FieldBody] = Field(description="Fields of metadata that filters can name.")
    examples: list[str] = Field(description="Queries to try.")


class RetrieversBody(Reply):
    """The retrievers, the limits, and the methods of the language model."""

    limits: LimitsBody
    answers: list[AnswerMethod] = Field(
        description="Methods of /v1/answer; empty: there is no language model."
    )
    retrievers: list[RetrieverBody]


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


class SourceBody(Reply):
    """A passage that holds a quote."""

    id: str
    title: str
    text: str


class QuoteBody(Reply):
    """A quote, or a passage that the model read."""

    text: str
    closed: bool = Field(description="False: the length limit cut it, and it names no passage.")
    sources: list[SourceBody] = Field(description="The passages that hold it.")
    further: int = Field(description="Number of further passages that hold it.")


class PieceBody(Reply):
    """A part of what was written."""

    kind: Literal["thought", "quote", "answer"]
    text: str
    quote: int | None = Field(description="Number of the quote, from 0; null: it is none.")


class AnsweredBody(VersionReply):
    """The answer to a question."""

    method: AnswerMethod
    query: str
    answer: str = Field(description="The answer; empty if none was written.")
    ended: bool = Field(description="False: the length limit cut it.")
    pieces: list[PieceBody] = Field(description="Thoughts, quotes and answer, in order.")
    quotes: list[QuoteBody]
