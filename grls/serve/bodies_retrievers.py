"""The bodies of ``/v1/retrievers``."""

from __future__ import annotations

from pydantic import Field

from grls.retrieve.hops.options import HopSteps
from grls.serve.answers.options import AnswerMethod
from grls.serve.bodies import Body


class LimitsBody(Body):
    """The limits of requests."""

    k: int
    hops: int
    queries: int
    characters: int
    seconds: float


class OwnHopsBody(Body):
    """How a retriever retrieves where a request does not say it."""

    steps: HopSteps
    max: int | None = Field(description="Number of hops, or the largest number; null: not known.")


class RetrieverBody(Body):
    """A retriever of the server."""

    retriever: str
    version: int
    passages: int
    kind: str = Field(description="Its kind; of one that goes hop by hop, the kind within.")
    name: str = Field(description="How it retrieves, in a few words.")
    scores: str = Field(description="The meaning of its scores.")
    hops: OwnHopsBody
    no_beam: str | None = Field(description="Why /v1/trace shows no beam; null: it shows one.")
    fields: list[str] = Field(description="Fields of metadata that filters can name.")
    examples: list[str] = Field(description="Queries to try.")


class RetrieversBody(Body):
    """The retrievers, the limits, and the methods of the language model."""

    limits: LimitsBody
    answers: list[AnswerMethod] = Field(
        description="Methods of /v1/answer; empty: there is no language model."
    )
    retrievers: list[RetrieverBody]
