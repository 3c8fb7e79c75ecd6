"""``GET /v1/passages/{passage}``: a passage of a corpus."""

from __future__ import annotations

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from grls.serve.bodies import PassageBody
from grls.serve.problems import RefusalError
from grls.serve.served import Version
from grls.serve.serving import serving


async def show_passage(request: Request, passage: str, retriever: str | None = None) -> PassageBody:
    """A passage by its id."""
    return await passage_of(serving(request).find(retriever).version, passage)


async def passage_of(version: Version, passage: str) -> PassageBody:
    """A passage of a version by its id.

    Raises:
        RefusalError: There is none of this id.
    """
    corpus = version.searcher.corpus
    (number,) = await run_in_threadpool(corpus.numbers, [passage])
    if number is None:
        raise RefusalError(
            404, f"the corpus of {version.name} has no passage of this id; ids are those of hits."
        )
    (found,) = await run_in_threadpool(corpus.passages, [number])
    (metadata,) = await run_in_threadpool(corpus.metadata_of, [number])
    return PassageBody(
        retriever=version.name, id=found.id, title=found.title, text=found.text, metadata=metadata
    )
