"""``GET /v1/retrievers``: what the server has, and how it may be asked."""

from __future__ import annotations

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from grls.explain.beams import no_beam
from grls.retrieve.base import WrapsSingleSteps, single_steps
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions
from grls.serve.bodies_retrievers import LimitsBody, OwnHopsBody, RetrieverBody, RetrieversBody
from grls.serve.examples import example_queries, fields_of
from grls.serve.served import Version
from grls.serve.serving import serving


async def show_retrievers(request: Request) -> RetrieversBody:
    """The retrievers of the server, and the limits of requests."""
    state = serving(request)
    versions = [one.version for one in state.retrievers.values()]
    described = await run_in_threadpool(lambda: [_described(version, state.examples) for version in versions])
    limits = state.limits
    sent = LimitsBody(
        k=limits.k,
        hops=limits.hops,
        queries=limits.queries,
        characters=limits.characters,
        seconds=limits.seconds,
    )
    answers = [] if state.answering is None else list(state.answering.options.methods)
    return RetrieversBody(limits=sent, answers=answers, retrievers=described)


def _described(version: Version, examples: tuple[str, ...]) -> RetrieverBody:
    retriever = version.searcher.retriever
    description = retriever.describe()
    hops: HopOptions = retriever.hops if isinstance(retriever, WrapsSingleSteps) else USUAL_HOPS
    wraps = isinstance(retriever, WrapsSingleSteps)
    most = hops.count if wraps and hops.steps != "single" else None
    steps = hops.steps if wraps else description.steps  # fused chains have hops that no option names
    return RetrieverBody(
        retriever=version.name,
        version=version.number,
        passages=len(retriever.corpus),
        kind=single_steps(retriever).kind,
        name=description.name,
        scores=description.score_mode,
        hops=OwnHopsBody(steps=steps, max=most),
        no_beam=no_beam(retriever),
        fields=fields_of(retriever.corpus),
        examples=list(examples or example_queries(version.searcher.folder)),
    )
