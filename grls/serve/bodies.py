"""The bodies of requests and responses. Fields that are not named here are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from grls.retrieve.hops.options import HopSteps

QueryText = Annotated[str, Field(min_length=1, description="What is asked.")]


class Body(BaseModel):
    """The rules of every body."""

    model_config = ConfigDict(extra="forbid", strict=True)


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


class Filtered(Body):
    """What calls of a retriever have in common."""

    retriever: str | None = Field(None, description="Its name; null: the first one of the server.")
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


class HitBody(Body):
    """A passage that was found."""

    id: str
    score: float | None = Field(description="Higher is better; null where it is no finite number.")
    title: str
    text: str


class FoundHitBody(HitBody):
    """A passage of a ranking, or of a chain."""

    hop: int | None = Field(
        None, description="The hop that found it, from 1 (fixed and dynamic hops); null: this is a ranking."
    )
    metadata: dict[str, Any] | None = Field(
        None, description="Its metadata, which filters compare; null: the request does not ask for them."
    )


class ResultBody(Body):
    """The hits of a query, best first; of fixed and dynamic hops the best chain, in the order of hops."""

    query: str
    hits: list[FoundHitBody]


class FoundBody(Body):
    """The answer to a search."""

    retriever: str
    version: int
    results: list[ResultBody]


class HopBody(Body):
    """A hop, with the best chain so far."""

    number: int = Field(description="The hop, from 1.")
    hit: HitBody | None = Field(description="The passage that it adds; null: none.")
    chain: list[str] = Field(description="Ids of the passages of the best chain so far.")
    scores: list[float | None] = Field(description="The score of each of these passages in its hop.")
    score: float | None = Field(description="The score of that chain.")
    done: bool = Field(description="DONE ended the chain.")
    last: bool = Field(description="No further hop follows.")


class ExplainBody(Body):
    """Which passages of a query are explained."""

    retriever: str | None = Field(None, description="Its name; null: the first one of the server.")
    query: QueryText
    gold: list[str] = Field(
        min_length=1, max_length=32, description="Ids of the passages to explain, in the order of hops."
    )
    depth: int = Field(
        100, ge=1, le=1000, description="Passages that are ranked to find them, where none are decoded."
    )


class PartBody(Body):
    """A part of a report."""

    kind: Literal["facts", "text", "table"] = Field(
        description="facts: rows of a name and a value; text: rows of sentences; table: rows of cells, "
        "the header first."
    )
    rows: list[list[str]]
    marked: list[int] = Field(description="The rows that stand out, from 0.")


class StandingBody(Body):
    """Where a passage stands, and why."""

    gold: str = Field(description="Id of the passage, as the request names it.")
    hop: int
    rank: int | None = Field(description="Its rank, from 1; null: it is not among the results.")
    score: float | None
    above: list[str] = Field(description="Ids of the passages above it, best first.")
    report: str = Field(description="Why it was found, or why not.")
    parts: list[PartBody] = Field(description="The same in parts, for a page.")


class ExplainedBody(Body):
    """The explanation of a query."""

    retriever: str
    version: int
    passages: list[StandingBody]


class PassageBody(Body):
    """A passage of a corpus."""

    retriever: str
    id: str
    title: str
    text: str
    metadata: dict[str, Any] = Field(description="What filters compare.")


class ReloadBody(Body):
    """Which retriever is loaded again."""

    retriever: str | None = Field(None, description="Its name; null: the first one of the server.")


class VersionBody(Body):
    """The version of a retriever that answers."""

    retriever: str
    version: int
    passages: int


class HealthBody(Body):
    """The state of the server."""

    status: Literal["ok", "ending", "starting"]
    retrievers: list[VersionBody]


class FaultBody(Body):
    """A field of a request that cannot be used."""

    field: str
    problem: str


class ProblemBody(Body):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = Field(description="What was expected, and the remedy.")
    errors: list[FaultBody] = []
