"""The arguments of the tools: bodies as those of HTTP, so that names, kinds and errors are the same.

The text of each class is the description of its tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from grls.serve.bodies import Body, Filtered, HopsBody, QueryText


class SearchCall(Filtered):
    """Find the passages of the corpus that answer a query, best first, with id, title, text and score."""

    query: QueryText
    k: int = Field(5, ge=1, description="Largest number of passages.")
    metadata: bool = Field(False, description="Show the metadata of each passage as well.")


class HopsCall(Filtered, HopsBody):
    """Find a chain of passages for a question that needs several: each hop is found from those before."""

    query: QueryText


class PassagesCall(Body):
    """Show passages by their ids, with title and whole text."""

    ids: Annotated[
        list[str], Field(min_length=1, description="Ids of passages, as search and hops return them.")
    ]
    retriever: str | None = Field(None, description="Its name; null: the first one of the server.")


TOOLS: Mapping[str, type[Body]] = {"search": SearchCall, "hops": HopsCall, "passages": PassagesCall}
"""Name -> the arguments of each tool."""
