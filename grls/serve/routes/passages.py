"""``GET /v1/passages/{passage}``: a passage of a corpus."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from grls.serve.bodies import PassageBody
from grls.serve.problems import RefusalError
from grls.serve.served import Version
from grls.serve.serving import serving


async def show_passage(request: Request, passage: str, retriever: str | None = None) -> PassageBody:
    """A passage by its id."""
    version = serving(request).find(retriever).version
    (body,) = await passages_of(version, [passage])
    if body is None:
        raise no_passage(version)
    return body


def no_passage(version: Version) -> RefusalError:
    """The refusal of an id that the corpus of a version does not have."""
    return RefusalError(
        404, f"the corpus of {version.name} has no passage of this id; ids are those of hits."
    )


async def passages_of(version: Version, ids: Sequence[str]) -> list[PassageBody | None]:
    """The passages of a version by their ids, in order; None: there is none of this id."""
    corpus = version.searcher.corpus

    def read() -> list[PassageBody | None]:
        numbers = corpus.numbers(ids)
        known = [number for number in numbers if number is not None]
        parts = zip(corpus.passages(known), corpus.metadata_of(known), strict=True)
        bodies = (
            PassageBody(retriever=version.name, metadata=metadata, **passage._asdict())
            for passage, metadata in parts
        )
        return [None if number is None else next(bodies) for number in numbers]

    bodies: list[PassageBody | None] = await run_in_threadpool(read)
    return bodies
