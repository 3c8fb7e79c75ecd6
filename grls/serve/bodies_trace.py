"""The bodies of ``/v1/trace``. Fields that are not named here are refused. Logarithms are natural."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grls.serve.bodies import Body, HoppingBody, QueryText


class TraceBody(HoppingBody):
    """A search whose beam is shown: that for the next passage of a query."""

    query: QueryText
    evidence: list[str] = Field([], max_length=64, description="Ids of the passages of the hops before.")
    k: int | None = Field(None, ge=1, description="Passages to return; null: as many as a hop takes.")
    most: int = Field(24, ge=1, le=64, description="Candidates of a step that are listed.")


class TracedBeamBody(Body):
    """A prefix that a step continues."""

    parent: int | None = Field(description="Its place among the candidates of the step before; null: none.")
    allowed: int = Field(description="Number of tokens that the constraint allows after it.")
    mass: float | None = Field(description="Probability of all allowed tokens within the vocabulary.")


class TracedTokenBody(Body):
    """A token that may continue a prefix."""

    beam: int = Field(description="Place of the prefix among the beams of the step.")
    token: str = Field(description="The token as the tokenizer writes it.")
    full: float | None = Field(description="Log-probability within the vocabulary.")
    constrained: float | None = Field(description="Log-probability among the allowed tokens.")
    prior: float | None = Field(description="What priors add to the score; null: there are none.")
    score: float | None = Field(description="Score of the prefix with this token.")
    passages: int = Field(description="Different passages that begin so, and may be found.")
    fate: Literal["kept", "finished", "pruned", "beaten"] = Field(
        description="What the search does with it; beaten: k results score higher."
    )
    unique: bool = Field(description="One passage alone begins so: it is finished before its last token.")
    found: list[str] = Field(description="Ids of the passages that it finishes.")


class TracedStepBody(Body):
    """A step of the search."""

    beams: list[TracedBeamBody]
    tokens: list[TracedTokenBody] = Field(description="Candidates, best first.")
    candidates: int = Field(description="Number of all candidates, those that are not listed included.")


class TracedResultBody(Body):
    """A passage that the search returns; DONE: the chain ends."""

    id: str
    title: str
    text: str
    score: float | None


class TracedBody(Body):
    """What the beam of a search considers."""

    retriever: str
    version: int
    evidence: list[str]
    mode: str = Field(description="renormalized (among the allowed tokens) or full (the vocabulary).")
    beams: int = Field(description="Beam width.")
    k: int
    early_stop: bool = Field(description="A unique prefix ends a beam.")
    vocabulary: int = Field(description="Number of tokens of the model.")
    passages: int = Field(description="Number of different passages that may be found.")
    done_bias: float = Field(description="Bias on DONE, which hops add after the search.")
    rescored: int = Field(description="Number of results that are rescored after the search.")
    steps: list[TracedStepBody]
    cut: bool = Field(description="The search has further steps.")
    results: list[TracedResultBody]
