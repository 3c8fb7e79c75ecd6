"""The tools, and how they are offered: line by line, or at an address of the HTTP server.

``search`` and ``fetch`` keep to what OpenAI's clients expect of a server that can be searched: arguments
(``query``; ``id``), results, and the result both as structured content and as JSON in a text. The other tools
send it once, as text, since a language model that is shown both reads it twice.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import select
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from threading import Thread
from typing import Any

import anyio
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

import grls
from grls.data.types import hop_and_links
from grls.errors import GrlsError
from grls.io.ending import needing
from grls.retrieve.hits import returns_chain
from grls.serve.bodies import Body, Filtered, HopsBody, LinkBody, QueryText, Reply, Score
from grls.serve.guards import log_lines
from grls.serve.options import ServerOptions
from grls.serve.problems import faults_of, listed, problem_for
from grls.serve.routes import describe_retrievers, passage_of
from grls.serve.serving import Serving, check_limit, check_queries, outcome, retrieval_of
from grls.serve.tools.stdio import LineClient, aside, instructions
from grls.serve.worker import BatchKey, SearchJob

with needing("mcp", "the tools of an agent"):
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.message import ServerMessageMetadata, SessionMessage
    from mcp.types import (
        INVALID_REQUEST,
        PARSE_ERROR,
        CallToolResult,
        JSONRPCError,
        JSONRPCNotification,
        JSONRPCRequest,
        JSONRPCResponse,
        ListToolsResult,
        TextContent,
        Tool,
        ToolAnnotations,
    )


ADDRESS = "/mcp"
"""The address of the tools."""
_FIRST = 0.2
"""Seconds in which the tools are listed, before loading keeps the interpreter to itself for longer."""
_LOOK = 0.02
"""Seconds between two looks whether calls are answered, once no line is read meanwhile."""


def tool_server(serving: Serving) -> Any:
    """The tools of a server, as an ``mcp.server.lowlevel.Server``."""

    async def opened() -> Serving:
        return serving

    return _server(serving.options.folders, opened)


def serve_lines(options: ServerOptions, client: LineClient) -> None:
    """Answer all lines of a client at standard input and output; the retrievers are opened meanwhile."""

    def opened() -> Serving:
        try:
            serving = Serving(options)
            serving.load(say=aside)
        except Exception as error:  # the input may go on for long before the server ends with it
            aside(f"error: {error}")
            raise
        log_lines()
        aside("Ready: an agent may ask")
        return serving

    try:
        anyio.run(_serve_lines, client, opened, options)
    except BaseExceptionGroup as errors:
        end: BaseException | None = errors.subgroup(_ENDS)
        if end is None:
            raise
        while isinstance(end, BaseExceptionGroup):
            end = end.exceptions[0]
        raise end from None


_ENDS = (BrokenPipeError, SystemExit)
"""Nobody reads the answers, or a signal came, in whichever task ran then."""


def _unless_ended(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a task, unless it is an end that the command reports."""
    error = context.get("exception")
    ended = error.subgroup(_ENDS) if isinstance(error, BaseExceptionGroup) else isinstance(error, _ENDS)
    if not ended:
        loop.default_exception_handler(context)


async def _serve_lines(client: LineClient, opened: Callable[[], Serving], options: ServerOptions) -> None:
    most = min(options.limits.batch, options.limits.queue)  # calls without an answer: no further line is read
    unanswered, is_heard = 0, _is_heard(1)
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes](1)
    loop.set_exception_handler(_unless_ended)

    async def later() -> Serving:
        await asyncio.sleep(_FIRST)
        return await asyncio.to_thread(opened)

    def hear() -> None:
        line = client.first
        with suppress(RuntimeError, CancelledError):  # the server ends
            while line := line or client.lines.readline():
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
                line = b""
            asyncio.run_coroutine_threadsafe(lines.put(b""), loop).result()

    async def withdrawn() -> None:
        nonlocal unanswered
        unanswered -= 1

    async def read() -> None:
        nonlocal unanswered
        async with received:
            while line := await lines.get():
                message = message_of(line)
                if isinstance(message, JSONRPCError):
                    await sent.send(SessionMessage(message))
                elif message is not None:
                    unanswered += isinstance(message, JSONRPCRequest)
                    metadata = ServerMessageMetadata(on_request_unanswered=withdrawn)
                    await received.send(SessionMessage(message, metadata))
                while unanswered >= most:
                    await asyncio.sleep(_LOOK)
            while unanswered and is_heard():  # at the end, the package gives up what it has not answered
                await asyncio.sleep(_LOOK)

    async def write() -> None:
        nonlocal unanswered
        known = client.answer  # sent already; the package has answered the same request
        async with answers, sent:
            async for message in answers:
                if known is not None and getattr(message.message, "id", None) == known["id"]:
                    known = None
                else:
                    await sent.send(message)
                unanswered -= isinstance(message.message, JSONRPCResponse | JSONRPCError)

    serving = asyncio.create_task(later())
    server = _server(options.folders, lambda: asyncio.shield(serving))
    Thread(target=hear, name="grls-serve-lines", daemon=True).start()  # no signal waits for a line
    received, asked = anyio.create_memory_object_stream[Any]()
    answered, answers = anyio.create_memory_object_stream[Any]()
    try:
        # The package's own reader drops what it cannot read, and the client would wait for ever.
        unread = stdio_server(stdin=anyio.wrap_file(io.StringIO()))
        async with unread as (_, sent), anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            await server.run(asked, answered, server.create_initialization_options())
    finally:
        (await serving).close()


def _is_heard(stream: int) -> Callable[[], bool]:
    """Tells whether somebody may still read what is written to a file of the process."""
    if not hasattr(select, "poll"):  # Windows
        return lambda: True
    poll = select.poll()
    poll.register(os.dup(stream), 0)
    return lambda: not poll.poll(0)  # only that the reader has gone


def message_of(line: bytes) -> Any:
    """The message of a line, or the error that answers it; None for an answer, since nothing was asked.

    Half characters (lone surrogates) pass in arguments of tools alone, where an error names the argument.
    Elsewhere an answer might repeat them, and could not be written.
    """
    name = None
    try:
        content = json.loads(line)
        name = content.get("id") if isinstance(content, dict) else None
        if isinstance(content, dict) and "method" not in content and content.keys() & {"result", "error"}:
            return None  # an answer; nothing was asked
        kind = JSONRPCRequest if "id" in content else JSONRPCNotification
        message = kind.model_validate(content)
        rest = {field: value for field, value in (message.params or {}).items() if field != "arguments"}
        json.dumps(content | {"params": rest}, ensure_ascii=False).encode()
        return message
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        code, text = PARSE_ERROR, f"the message is no JSON ({error}): send one a line, in UTF-8."
    except (ValueError, TypeError):
        expected = 'jsonrpc "2.0", id (a whole number or a text), method, params (an object), all in Unicode'
        code, text = INVALID_REQUEST, f"expected a request of JSON-RPC: {expected}."
    said = {"jsonrpc": "2.0", "error": {"code": code, "message": text}}
    try:
        known = name if isinstance(name, int | str) else None
        return JSONRPCError.model_validate_json(json.dumps(said | {"id": known}))
    except ValidationError:  # this is no id
        return JSONRPCError.model_validate(said | {"id": None})


def tool_routes(server: Any) -> list[BaseRoute]:
    """The addresses of the tools in the HTTP server, which checks hosts and keys."""
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(
        streamable_http_path=ADDRESS, json_response=True, stateless_http=True, transport_security=unchecked
    )
    for route in app.routes:
        route.methods = {"POST"}  # a stream of GET would have no end, and nothing to send
        route.app = _named(route, route.app)
    routes: list[BaseRoute] = app.routes
    return routes


def _server(names: Iterable[str], opened: Callable[[], Awaitable[Serving]]) -> Any:
    """The tools of the retrievers of these names; ``opened`` waits until they are open."""
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        Tool(
            name=name,
            description=inspect.getdoc(call),
            input_schema=_schema(call),
            output_schema=_schema(CONTRACT[name]) if name in CONTRACT else None,
            annotations=reads,
        )
        for name, call in TOOLS.items()
    ]

    async def list_tools(context: object, params: object) -> Any:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> Any:
        text, failed = await _answer(opened, params.name, params.arguments or {}, context.request)
        structured = json.loads(text) if params.name in CONTRACT and not failed else None
        content = [TextContent(type="text", text=text)]
        return CallToolResult(content=content, structured_content=structured, is_error=failed)

    server = Server(
        "grls",
        version=grls.__version__,
        instructions=instructions(names),
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.middleware.clear()  # spans of its own, with names that clients give, around those of the job
    return server


async def _answer(
    opened: Callable[[], Awaitable[Serving]],
    name: str,
    arguments: dict[str, Any],
    request: Request | None,
) -> tuple[str, bool]:
    """The result of a call, or the error with its remedy; whether it is an error."""
    if name not in TOOLS:
        return f"there is no tool of this name; there are {', '.join(TOOLS)}.", True
    try:
        call = TOOLS[name].model_validate(arguments)
    except ValidationError as error:
        faults = faults_of(error.errors(), TOOLS[name].model_fields)
        return f"the call of {name} cannot be used: {listed(faults)}", True
    try:
        serving = await opened()
    except Exception as error:
        why = str(error) if isinstance(error, GrlsError) else "the log of the server says why."
        return f"the retrievers cannot be opened: {why}", True
    try:
        return (await answer_call(serving, call, request)).model_dump_json(exclude_none=True), False
    except Exception as error:
        response = problem_for(error, lambda field: field.removeprefix("hops."))  # as arguments of tools
        return str(json.loads(bytes(response.body))["detail"]), True


def _schema(body: type[Body | Reply]) -> dict[str, Any]:
    """The schema of the arguments or of the result of a tool, without the description of the whole."""
    schema = body.model_json_schema()
    del schema["description"], schema["title"]
    return schema


def _named(route: Any, app: ASGIApp) -> ASGIApp:
    """An application that names its address, as the log and the metrics read it."""

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = route
        await app(scope, receive, send)

    return named


_SHOWN = 300
"""Characters of a passage that search and hops show."""
_HOPS = 2
"""Hops of a folder of single steps, where a call names no number."""


class FoundPassage(Reply):
    """A passage that was found."""

    id: str
    title: str
    url: str = Field(description="Its address, to cite; empty: it has none.")
    text: str = Field(description="Its text, or the part nearest to the query.")
    score: Score = Field(None, description="Higher is better; missing where it is no finite number.")
    hop: int | None = Field(None, description="The hop that found it, from 1, in a chain.")
    links: list[LinkBody] | None = Field(None, description="The names that led to it, in ranked hops.")
    metadata: dict[str, Any] | None = None


class FoundPassages(Reply):
    """What search and hops find."""

    results: list[FoundPassage]


class WholePassage(Reply):
    """What fetch shows."""

    id: str
    title: str
    text: str
    url: str = Field(description="Its address, to cite; empty: it has none.")
    metadata: dict[str, Any]


CONTRACT: Mapping[str, type[Reply]] = {"search": FoundPassages, "fetch": WholePassage}
"""Name -> the result of each tool that clients know beforehand."""


async def answer_call(
    serving: Serving, call: SearchCall | FetchCall | ListingCall, request: Request | None
) -> Reply:
    """What a tool finds; ``request``: that of HTTP, whose client may go."""
    limits = serving.limits
    if isinstance(call, ListingCall):
        described = await describe_retrievers(serving)
        rows = [row.model_copy(update={"no_beam": None}) for row in described.retrievers]
        return described.model_copy(update={"retrievers": rows})
    if isinstance(call, FetchCall):
        serving.check_loaded()
        names = serving.retrievers if call.retriever is None else [call.retriever]
        passage = await passage_of([serving.find(name).version for name in names], call.id)
        url, title = _url(serving, passage.metadata), passage.title or passage.id
        return WholePassage(id=passage.id, title=title, text=passage.text, url=url, metadata=passage.metadata)
    check_queries([call.query], limits)
    check_limit("k", call.k, limits.k)
    hops = call if isinstance(call, HopsCall) else None
    version, retriever, allow = retrieval_of(serving, call, hops)
    if hops is not None and hops.steps is None and retriever.describe().steps == "single":
        version, retriever, allow = retrieval_of(
            serving, call, HopsBody(steps=None, max=min(_HOPS, limits.hops))
        )
    k = limits.k if hops is not None and returns_chain(retriever) else call.k  # a chain is shown whole
    job = SearchJob([call.query], BatchKey(retriever, k, allow))
    (hits,) = await outcome(request, version, job, limits.seconds)
    from grls.data.evidence import part_around  # late: NumPy

    results = [
        FoundPassage(
            id=hit.id,
            title=hit.title or hit.id,
            url=_url(serving, hit.metadata),
            text=part_around(call.query, hit.text, _SHOWN),
            score=hit.score,
            **hop_and_links(hit),
            metadata=dict(hit.metadata) if call.metadata else None,
        )
        for hit in hits
    ]
    return FoundPassages(results=results)


def _url(serving: Serving, metadata: Mapping[str, Any]) -> str:
    """The address of a passage that a reader can open; empty: it has none."""
    url = metadata.get(serving.options.url_field)
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else ""


# The arguments of the tools: bodies as those of HTTP, so that names, kinds and errors are the same.
#
# The text of each class is the description of its tool.


class SearchCall(Filtered):
    """Find the passages of the corpus that answer a query, best first, with the nearest part of each text."""

    query: QueryText
    k: int = Field(5, ge=1, description="Largest number of passages.")
    metadata: bool = Field(False, description="Show the metadata of each passage as well.")


class HopsCall(SearchCall, HopsBody):
    """Find a chain of passages for a question that needs several: each hop is found from those before.

    Where hops are ranked, by `steps` or by the folder (`retrievers` tells), the result is the ranking of
    search, without hops: passages by the probability that a chain holds them. There `steps` fixed gives a
    chain.
    """

    k: int = Field(5, ge=1, description="Largest number of passages of a ranking; a chain is shown whole.")


class FetchCall(Body):
    """Show a passage by its id: title, whole text, address, metadata."""

    id: str = Field(min_length=1, description="Id of a passage, as search and hops show it.")
    retriever: str | None = Field(
        None, description="Name of a retriever; null: the first one whose corpus has the id."
    )


class ListingCall(Body):
    """List the retrievers: their size, fields of metadata with filters for `where`, and queries to try."""


TOOLS: Mapping[str, type[SearchCall | FetchCall | ListingCall]] = {
    "search": SearchCall,
    "fetch": FetchCall,
    "hops": HopsCall,
    "retrievers": ListingCall,
}
"""Name -> the arguments of each tool."""
