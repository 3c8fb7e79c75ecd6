"""The tools: search, hops, passages. The module does not know how they are called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from pydantic import Field

from grls.io.extras import needing
from grls.serve.bodies import Body, HopBody, HopsBody, PassageBody, ResultBody, SearchBody, StreamBody
from grls.serve.fields import as_arguments
from grls.serve.jobs import BatchKey, SearchJob
from grls.serve.problems import RefusalError, problem_for
from grls.serve.routes.passages import passage_of
from grls.serve.routes.search import result_body
from grls.serve.routes.stream import HopStream, hop_body
from grls.serve.served import Version
from grls.serve.serving import Serving, asked, check_limit, check_queries
from grls.serve.waiting import outcome

with needing("mcp", "the tools of an agent"):
    from mcp.server.mcpserver.exceptions import ToolError

_LONGEST = 100
"""Characters of an unknown id that an error names."""
QueryField = Annotated[str, Field(min_length=1, description="What is asked, in natural language.")]
RetrieverField = Annotated[
    str | None, Field(description="The retriever; null: the first one. The instructions list them.")
]
WhereField = Annotated[
    str | None,
    Field(
        description="A filter over metadata, such as year>=2000, that holds in every hop; null: all passages."
    ),
]
KField = Annotated[int, Field(ge=1, description="Largest number of passages.")]
MetadataField = Annotated[bool, Field(description="Show the metadata of each passage as well.")]
StepsField = Annotated[
    Literal["fixed", "dynamic"] | None,
    Field(
        description="fixed: as many hops as max; dynamic: until it is done; null: as the retriever is set."
    ),
]
MaxField = Annotated[
    int | None,
    Field(ge=1, description="Largest number of hops; null: as the retriever is set, or a default."),
]
IdsField = Annotated[list[str], Field(min_length=1, description="Ids of passages, as search returns them.")]


class HopChainBody(Body):
    """The hops of a query, in order."""

    query: str
    hops: list[HopBody]


class PassagesBody(Body):
    """Passages, in the order of the ids."""

    passages: list[PassageBody]


class RetrievalTools:
    """The tools of a server.

    Args:
        serving: Its retrievers and limits.
    """

    def __init__(self, serving: Serving):
        self._serving = serving

    async def search(
        self,
        query: QueryField,
        k: KField = 5,
        where: WhereField = None,
        retriever: RetrieverField = None,
        metadata: MetadataField = False,
    ) -> ResultBody:
        """Find the passages of the corpus that answer a query, best first, with id, title, text and score."""
        state = self._serving
        with clear_errors():
            check_queries([query], state.limits)
            check_limit("k", k, state.limits.k)
            body = SearchBody(
                query=query, k=k, where=where, retriever=retriever, allow=None, hops=None, metadata=metadata
            )
            version, found, allow = asked(state, body)
            job = SearchJob([query], BatchKey(found, k, allow))
            (hits,) = await outcome(None, version, job, state.limits.seconds)
            return result_body(query, hits, body.metadata)

    async def hops(
        self,
        query: QueryField,
        steps: StepsField = None,
        max: MaxField = None,
        where: WhereField = None,
        retriever: RetrieverField = None,
    ) -> HopChainBody:
        """Find a chain of passages for a question that needs several: each hop is found from those before."""
        state = self._serving
        with clear_errors():
            check_queries([query], state.limits)
            how = None if steps is None else HopsBody(steps=steps, max=max)
            body = StreamBody(query=query, where=where, retriever=retriever, hops=how, allow=None)
            version, found, allow = asked(state, body)
            hops = HopStream(version, state.limits.seconds)
            hops.start(found, query, allow)
            return HopChainBody(query=query, hops=await _all(hops))

    async def passages(self, ids: IdsField, retriever: RetrieverField = None) -> PassagesBody:
        """Show passages by their ids, with title and whole text."""
        state = self._serving
        with clear_errors():
            check_limit("ids: the number of ids", len(ids), state.limits.k)
            version = state.find(retriever).version
            return PassagesBody(passages=[await _passage(version, passage) for passage in ids])


@contextmanager
def clear_errors() -> Iterator[None]:
    """A block whose errors reach the agent as the server words them; unexpected ones are logged.

    Raises:
        ToolError: The block failed.
    """
    try:
        yield
    except Exception as error:
        detail = json.loads(bytes(problem_for(error).body))["detail"]
        raise ToolError(as_arguments(detail)) from None


async def _passage(version: Version, passage: str) -> PassageBody:
    try:
        return await passage_of(version, passage)
    except RefusalError as error:
        raise RefusalError(error.status, f"{passage[:_LONGEST]!r}: {error}") from None


async def _all(hops: HopStream) -> list[HopBody]:
    bodies = []
    try:
        while (hop := await hops.next()) is not None:
            bodies.append(hop_body(hop))
            if hop.last:
                break
        return bodies
    finally:
        hops.stop()
