"""The addresses of a retriever: searches, hops as they are found, passages, beams, answers, new versions."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from grls.api.streaming import StreamedHop
from grls.data.filters import Filter
from grls.data.types import Hit, Query, hop_and_links
from grls.data.where import filter_word
from grls.errors import ConfigError, GrlsError, Option
from grls.retrieve.base import Retriever, WrapsSingleSteps, no_beam, single_steps
from grls.retrieve.hops.options import HopOptions
from grls.runs.results import find_passages
from grls.serve.bodies import (
    AnswerBody,
    AnsweredBody,
    ExplainBody,
    ExplainedBody,
    FieldBody,
    FoundBody,
    FoundHitBody,
    HopBody,
    LimitsBody,
    OwnHopsBody,
    PassageBody,
    ReloadBody,
    ResultBody,
    RetrieverBody,
    RetrieversBody,
    SearchBody,
    StreamBody,
    TraceBody,
    VersionBody,
)
from grls.serve.problems import only_known_parameters, problem_for, problems
from grls.serve.served import Version, example_queries, sampled_metadata
from grls.serve.serving import (
    Serving,
    check_limit,
    check_queries,
    late,
    outcome,
    public_error,
    retrieval_of,
    serving,
    while_there,
)
from grls.serve.worker import BatchKey, CallJob, RefusalError, SearchJob, StreamJob, busy

if TYPE_CHECKING:  # torch and dspy, which most servers do without
    from grls.api.explaining import ExplainedQuery
    from grls.serve.answering import Record

log = logging.getLogger(__name__)

router = APIRouter(
    dependencies=[Depends(only_known_parameters)],
    responses=problems(400, 401, 404, 408, 413, 422, 429, 503),
)


class _AnyId(PathConvertor):
    """The rest of an address, slashes and line breaks included."""

    regex = r"[\s\S]*"


register_url_convertor("any_id", _AnyId())


@router.post("/v1/search", response_model=FoundBody)
async def answer_search(request: Request, body: SearchBody) -> Response:
    """The best passages of a query, or of each of several."""
    state, queries = serving(request), body.queries()
    check_queries(queries, state.limits)
    check_limit("k", body.k, state.limits.k)
    version, retriever, allow = retrieval_of(state, body, body.hops)
    job = SearchJob(queries, BatchKey(retriever, body.k, allow))
    rankings = await outcome(request, version, job, state.limits.seconds)
    results = []
    for query, hits in zip(queries, rankings, strict=True):
        results.append(result_body(query, hits, body.metadata))
        await asyncio.sleep(0)  # other requests, such as for /health, come in between
    response = FoundBody(**version.named, results=results)
    # FastAPI would check a body again
    return Response(response.model_dump_json(), media_type="application/json")


def result_body(query: str, hits: Sequence[Hit], metadata: bool) -> ResultBody:
    """A ranking or chain, as it is sent; metadata are read only where the request asks for them."""
    bodies = [
        FoundHitBody(**hit._asdict(), **hop_and_links(hit), metadata=dict(hit.metadata) if metadata else None)
        for hit in hits
    ]
    return ResultBody(query=query, hits=bodies)


EVENTS = "text/event-stream"
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events hop, end and problem.", "content": {EVENTS: {}}}
}


@router.post("/v1/stream", response_class=StreamingResponse, responses=_EVENTS)
async def answer_stream(request: Request, body: StreamBody) -> StreamingResponse:
    """The hops of a query as server-sent events, each as soon as it is found.

    The events are ``hop`` (with the best chain so far) and ``end``. An error after the first hop is the event
    ``problem``. An error before it is a response with its status.
    """
    state = serving(request)
    check_queries([body.query], state.limits)
    version, retriever, allow = retrieval_of(state, body, body.hops)
    seconds = state.limits.seconds
    hops = hops_as_found(version, retriever, body.query, allow, seconds)
    first = await while_there(request, anext(hops, None), seconds)

    async def events() -> AsyncIterator[str]:
        hop = first
        try:
            while hop is not None:
                chain = {
                    "chain": [hit.id for hit in hop.chain],
                    "scores": [hit.score for hit in hop.chain],
                    "links": [hit.links for hit in hop.chain],
                }
                yield server_event("hop", HopBody.model_validate(hop._asdict() | chain).model_dump())
                hop = await anext(hops, None)
            yield server_event("end", version.named)
        except Exception as error:
            yield server_event("problem", json.loads(bytes(problem_for(error).body)))
        finally:
            await hops.aclose()

    return StreamingResponse(events(), media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def hops_as_found(
    version: Version, retriever: Retriever, query: str, allow: Filter | None, seconds: float
) -> AsyncGenerator[StreamedHop, None]:
    """The hops of a query as a thread finds them; its job is withdrawn with the generator."""
    end, loop = monotonic() + seconds, asyncio.get_running_loop()
    found: asyncio.Queue[StreamedHop | None] = asyncio.Queue()

    def put(hop: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(found.put_nowait, hop)  # type: ignore[arg-type]

    job = StreamJob(retriever, query, allow, put)
    job.future.add_done_callback(lambda _: put(None))
    version.worker.submit(job)
    try:
        hop: StreamedHop | None = None
        while hop is None or not hop.last:
            try:
                hop = await asyncio.wait_for(found.get(), max(0.0, end - monotonic()))
            except TimeoutError:
                raise late(seconds) from None
            if hop is None:  # no further hop, or an error
                try:
                    job.future.result()
                except GrlsError as error:
                    raise public_error(version, error) from error
                return
            yield hop
    finally:
        version.worker.withdraw(job)


def server_event(name: str, content: object) -> str:
    """A server-sent event; JSON has no line breaks of its own."""
    return f"event: {name}\ndata: {json.dumps(content)}\n\n"


@router.get("/v1/passages/{passage:any_id}")
async def show_passage(request: Request, passage: str, retriever: str | None = None) -> PassageBody:
    """A passage by its id."""
    return await passage_of([serving(request).find(retriever).version], passage)


async def passage_of(versions: Sequence[Version], passage: str) -> PassageBody:
    """A passage by its id, of the first version whose corpus has it."""

    def read() -> PassageBody | None:
        for version in versions:
            corpus = version.searcher.corpus
            (number,) = corpus.numbers([passage])
            if number is not None:
                (metadata,), fields = corpus.metadata_of([number]), corpus[number]._asdict()
                return PassageBody(retriever=version.name, metadata=metadata, **fields)
        return None

    body: PassageBody | None = await run_in_threadpool(read)
    if body is None:
        names = " and ".join(version.name for version in versions)
        raise RefusalError(404, f"the corpus of {names} has no passage of this id; ids are those of hits.")
    return body


@router.get("/v1/retrievers")
async def show_retrievers(request: Request) -> RetrieversBody:
    """The retrievers of the server, and the limits of requests."""
    return await describe_retrievers(serving(request))


async def describe_retrievers(state: Serving) -> RetrieversBody:
    state.check_loaded()
    versions = [served.version for served in state.retrievers.values()]
    described = await run_in_threadpool(lambda: [_described(version, state.examples) for version in versions])
    answers = [] if state.answering is None else list(state.answering.options.methods)
    return RetrieversBody(
        limits=LimitsBody.model_validate(state.limits), answers=answers, retrievers=described
    )


def _described(version: Version, examples: tuple[str, ...]) -> RetrieverBody:
    retriever = version.searcher.retriever
    description = retriever.describe()
    hops = OwnHopsBody(steps=description.steps, max=None)  # fused chains have hops that no option names
    if isinstance(retriever, WrapsSingleSteps):
        options: HopOptions = retriever.hops
        hops = OwnHopsBody(steps=options.steps, max=None if options.steps == "single" else options.count)
    return RetrieverBody(
        **version.named,
        passages=len(retriever.corpus),
        kind=single_steps(retriever).kind,
        name=description.name,
        scores=description.score_mode,
        hops=hops,
        no_beam=no_beam(retriever),
        fields=_fields(sampled_metadata(retriever.corpus)),
        examples=list(examples or example_queries(version.searcher.folder)),
    )


_VALUES, _LONGEST = 5, 60
"""Values of a field that are shown, and characters of one."""


def _fields(metadata: Sequence[Mapping[str, Any]]) -> list[FieldBody]:
    """The fields of metadata that filters compare, with their usual kind; a list counts by its elements."""
    entries: dict[str, list[Any]] = {}
    for record in metadata:
        for name, value in record.items():
            entries.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    fields = []
    for name, values in entries.items():
        kinds: dict[Any, list[Any]] = {
            "number": [v for v in values if type(v) in (int, float)],
            "text": [v for v in values if isinstance(v, str)],
            "boolean": [v for v in values if isinstance(v, bool)],
        }
        kind, values = max(kinds.items(), key=lambda entry: len(entry[1]))
        if not values:  # null, or objects
            continue
        if kind == "number":
            values = sorted({min(values), max(values)})
            rule = f">={json.dumps(values[-1])}"
        else:
            values = [value for value, _ in Counter(values).most_common() if len(str(value)) <= _LONGEST]
            values = values[:_VALUES]
            first = values[0] if values else ""
            rule = ("=" if values else "!=") + (filter_word(first) if kind == "text" else json.dumps(first))
        fields.append(FieldBody(name=name, kind=kind, values=values, where=filter_word(name) + rule))
    return fields


@router.post("/v1/trace")
async def answer_trace(request: Request, body: TraceBody) -> dict[str, Any]:
    """The beam at each token of the next passage, and the tokens that the constraint allows.

    The fields are those of :class:`grls.explain.beams.BeamTrace`; a score that is no finite number is null.
    """
    state = serving(request)
    check_queries([body.query], state.limits)
    check_limit("k", body.k or 1, state.limits.k)
    version, retriever, allow = retrieval_of(state, body, body.hops)
    evidence = list(dict.fromkeys(body.evidence))

    def traced() -> dict[str, Any]:
        from grls.explain.beams import trace_beam
        from grls.explain.text import plain_facts

        return plain_facts(trace_beam(retriever, body.query, evidence, allow, body.k, body.most))

    facts = await outcome(request, version, CallJob(traced), state.limits.seconds)
    return {**version.named, **facts}


@router.post("/v1/explain", response_model=ExplainedBody)
async def answer_explain(request: Request, body: ExplainBody) -> dict[str, Any]:
    """Why passages are found for a query, or why not."""
    state = serving(request)
    check_queries([body.query], state.limits)
    version = state.find(body.retriever).version

    def explain() -> ExplainedQuery:
        from grls.explain.options import TEXT_ALONE  # a text alone may be the id of a query

        query = Query(TEXT_ALONE, body.query, tuple(dict.fromkeys(body.gold)))
        return version.searcher.explain(query, depth=body.depth)

    explained: ExplainedQuery = await outcome(request, version, CallJob(explain), state.limits.seconds)
    names = ("gold", "hop", "rank", "score", "above", "parts")
    passages = [{n: getattr(passage, n) for n in names} | {"report": str(passage)} for passage in explained]
    return {**version.named, "passages": passages}


@router.post("/v1/answer", response_model=AnsweredBody)
async def answer_question(request: Request, body: AnswerBody) -> dict[str, Any]:
    """The answer of a language model, with the passages that it quotes or reads."""
    state = serving(request)
    state.check_loaded()
    answering, limits = state.answering, state.limits
    if answering is None:
        text = (
            "this server has no language model: set answer.model in the file of "
            f"{Option('server')}, or send searches."
        )
        raise RefusalError(404, text)
    known = answering.options.methods
    method = body.method or known[0]
    if method not in known:
        raise RefusalError(422, f"method: this server answers by {', '.join(known)}, got {method}.")
    if method == "riches":
        for name in ("where", "allow", "hops", "k"):
            if getattr(body, name) is not None:
                raise ConfigError(f"{name}: riches quotes from the whole corpus; leave {name} out.")
    if body.history and method != "conversational":
        raise ConfigError("history: only the method conversational reads it; leave it out.")
    check_queries([body.query], limits)
    check_limit("k", body.k or 1, limits.k)
    check_limit("max_new_tokens", body.max_new_tokens or 1, answering.options.tokens)
    check_limit("history: the number of characters", sum(map(len, body.history)), limits.characters)
    version, retriever, allow = retrieval_of(state, body, body.hops)
    from grls.serve.answering import AnswerJob, AnswerKey  # late: it takes what no search needs

    key = AnswerKey(method, version, retriever, allow, body.k or answering.options.k, body.max_new_tokens)
    job = AnswerJob(Query("question", body.query), "\n".join(body.history), key, answering.answer)
    record: Record = await outcome(request, version, job, limits.seconds, answering.worker)
    if failed := record.get("failed"):
        if "cost" not in record:  # a reader: the question is too long, or a stored key is of another text
            raise RefusalError(422, f"nothing was written for the question: {failed}.")
        cause = failed.partition(":")[0]  # the rest may quote the question
        log.error("the language model failed: %s", cause)
        raise busy(
            f"the language model failed at this question (method {method}); the log of the server says why."
        )
    quoted = [quote["passages"][: limits.k] for quote in record["quotes"]]
    ids = [passage for passages in quoted for passage in passages]
    texts = await run_in_threadpool(find_passages, version.searcher.corpus, ids)
    quotes = [
        quote | {"sources": [texts[p] for p in passages], "further": len(quote["passages"]) - len(passages)}
        for quote, passages in zip(record["quotes"], quoted, strict=True)
    ]
    answered = {"query": record["text"], "quotes": quotes}
    return record | answered | version.named | {"method": method}


@router.post("/admin/reload", responses=problems(403))
async def reload_version(request: Request, body: ReloadBody) -> VersionBody:
    """Load the folder of a retriever again; a broken folder is refused, and the old version goes on."""
    state = serving(request)
    return version_body(await run_in_threadpool(state.reload, state.find(body.retriever)))


def version_body(version: Version) -> VersionBody:
    return VersionBody(**version.named, passages=len(version.searcher.corpus))
