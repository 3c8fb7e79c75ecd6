"""Offers the tools over standard input and output, or at an address of the HTTP server.

Over standard input and output, the client is answered before anything is loaded: importing what searches
takes seconds, loading a model longer, and clients give a server that says nothing up. So this module imports
little. Standard output carries messages of the protocol alone: the log goes to standard error.

A result is JSON in a text, and has no structured content: the protocol recommends to repeat structured
content as text, so each passage would be sent, and read by a language model, twice.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import anyio
from pydantic import Field, ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

import grls
from grls.errors import GrlsError
from grls.io.ending import needing
from grls.retrieve.spec import read_spec
from grls.serve.bodies import Body, Filtered, HopBody, HopsBody, PassageBody, QueryText
from grls.serve.guards import log_lines
from grls.serve.options import ServerOptions
from grls.serve.problems import RefusalError, listed, plain_faults, problem_for
from grls.serve.routes.search import HopStream, hop_body, no_passage, passages_of, result_body
from grls.serve.serving import Serving, check_limit, check_queries, retrieval_of
from grls.serve.start import loading, named_folders, say
from grls.serve.waiting import outcome
from grls.serve.worker import BatchKey, SearchJob

with needing("mcp", "the tools of an agent"):
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.message import SessionMessage
    from mcp.types import (
        INVALID_REQUEST,
        PARSE_ERROR,
        CallToolResult,
        JSONRPCError,
        JSONRPCNotification,
        JSONRPCRequest,
        ListToolsResult,
        TextContent,
        Tool,
        ToolAnnotations,
    )


ADDRESS = "/mcp"
"""The address of the tools."""
_FIRST = 0.2
"""Seconds in which the first message is answered: imports keep the interpreter to themselves for longer."""


def tool_server(serving: Serving) -> Any:
    """The tools of a server, as an ``mcp.server.lowlevel.Server``."""

    async def opened() -> Serving:
        return serving

    return _server(serving.loading or serving.retrievers, opened)


def run_stdio(options: ServerOptions) -> None:
    """Open retrievers, and offer them as tools over standard input and output until the input ends.

    Args:
        options: Folders, limits of calls, device and precision.

    Raises:
        ConfigError: A name or an option cannot be used.
        DataError: A folder is no retriever.
        MismatchError: A folder is damaged.
    """
    aside = partial(say, stream=sys.stderr)
    names = named_folders(options.folders)
    for folder in names.values():
        read_spec(folder)  # a folder that is none ends the server at once
    aside(loading(options.folders, "standard input and output"))

    def opened() -> Serving:
        serving = Serving({}, options.limits)
        try:
            serving.load(options, say=aside)
        except Exception as error:  # the input may go on for long before the server ends with it
            aside(f"error: {error}")
            raise
        log_lines()
        aside("Ready: an agent may ask")
        return serving

    anyio.run(_over_stdio, list(names), opened)


async def _over_stdio(names: Sequence[str], opened: Callable[[], Serving]) -> None:
    async def later() -> Serving:
        await asyncio.sleep(_FIRST)
        return await asyncio.to_thread(opened)

    async def read() -> None:
        async with received:
            async for line in anyio.wrap_file(lines):
                message = message_of(line)
                if message is None:
                    continue
                stream = answers if isinstance(message, JSONRPCError) else received
                await stream.send(SessionMessage(message))

    serving = asyncio.create_task(later())
    server = _server(names, lambda: asyncio.shield(serving))
    lines = os.fdopen(os.dup(0), "rb", closefd=False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nothing else reads what the client writes
    received, messages = anyio.create_memory_object_stream[Any]()
    try:
        # The package's own reader drops what it cannot read, and the client would wait for ever.
        unread = stdio_server(stdin=anyio.wrap_file(io.StringIO()))
        async with unread as (_, answers), anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await server.run(messages, answers, server.create_initialization_options())
    finally:
        (await serving).close()


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
        route.app = _named(route, route.app)
    routes: list[BaseRoute] = app.routes
    return routes


def _server(names: Iterable[str], opened: Callable[[], Awaitable[Serving]]) -> Any:
    """The tools of the retrievers of these names; ``opened`` waits until they are open."""
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        Tool(name=name, description=inspect.getdoc(call), input_schema=_schema(call), annotations=reads)
        for name, call in TOOLS.items()
    ]

    async def list_tools(context: object, params: object) -> Any:
        return ListToolsResult(tools=tools)

    async def call_tool(context: object, params: Any) -> Any:
        text, failed = await _answer(opened, params.name, params.arguments or {})
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    return Server(
        "grls",
        version=grls.__version__,
        instructions=f"Retrieval from a corpus. Retrievers: {', '.join(names)}. search finds passages for a "
        "query. hops finds a chain of passages for a question that needs several. passages shows passages by "
        "their ids.",
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answer(
    opened: Callable[[], Awaitable[Serving]], name: str, arguments: dict[str, Any]
) -> tuple[str, bool]:
    """The result of a call, or the error with its remedy; whether it is an error."""
    if name not in TOOLS:
        return f"there is no tool of this name; there are {', '.join(TOOLS)}.", True
    try:
        call = TOOLS[name].model_validate(arguments)
    except ValidationError as error:
        schema = _schema(TOOLS[name])
        return (
            f"the call of {name} cannot be used: {listed(plain_faults(error.errors(), schema, schema))}.",
            True,
        )
    try:
        serving = await opened()
    except Exception as error:
        why = str(error) if isinstance(error, GrlsError) else "the log of the server says why."
        return f"the retrievers cannot be opened: {why}", True
    try:
        return (await answer_call(serving, call)).model_dump_json(exclude_none=True), False
    except Exception as error:
        response = problem_for(error, lambda field: field.removeprefix("hops."))  # as arguments of tools
        return str(json.loads(bytes(response.body))["detail"]), True


def _schema(call: type[Body]) -> dict[str, Any]:
    """The schema of the arguments of a tool; its description is that of the tool."""
    schema = call.model_json_schema()
    del schema["description"], schema["title"]
    return schema


def _named(route: Any, app: ASGIApp) -> ASGIApp:
    """An application that names its address, as the log and the metrics read it."""

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = route
        await app(scope, receive, send)

    return named


# What the tools do: search, hops, passages. The module does not know how they are called.


_LONGEST = 100
"""Characters of an unknown id that an error names."""


class HopChainBody(Body):
    """The hops of a query, in order."""

    query: str
    hops: list[HopBody]


class PassagesBody(Body):
    """The passages of the ids, in order, and the ids of which the corpus has none."""

    passages: list[PassageBody]
    unknown: list[str] | None


async def answer_call(serving: Serving, call: SearchCall | HopsCall | PassagesCall) -> Body:
    """What a tool finds.

    Args:
        serving: The retrievers and limits.
        call: The arguments of the tool.

    Raises:
        GrlsError: It cannot be done.
    """
    limits = serving.limits
    if isinstance(call, PassagesCall):
        check_limit("ids: the number of ids", len(call.ids), limits.k)
        version = serving.find(call.retriever).version
        bodies = await passages_of(version, call.ids)
        unknown = [name[:_LONGEST] for name, body in zip(call.ids, bodies, strict=True) if body is None]
        passages = [body for body in bodies if body is not None]
        if not passages:
            refusal = no_passage(version)
            raise RefusalError(refusal.status, f"{', '.join(map(repr, unknown[:3]))}: {refusal}")
        return PassagesBody(passages=passages, unknown=unknown or None)
    check_queries([call.query], limits)
    if isinstance(call, SearchCall):
        check_limit("k", call.k, limits.k)
        version, retriever, allow = retrieval_of(serving, call, None)
        job = SearchJob([call.query], BatchKey(retriever, call.k, allow))
        (hits,) = await outcome(None, version, job, limits.seconds)
        return result_body(call.query, hits, call.metadata)
    version, retriever, allow = retrieval_of(serving, call, call)
    stream, hops = HopStream(version, retriever, call.query, allow, limits.seconds), list[HopBody]()
    try:
        while (hop := await stream.next()) is not None:
            hops.append(hop_body(hop))
            if hop.last:
                break
    finally:
        stream.stop()
    return HopChainBody(query=call.query, hops=hops)


# The arguments of the tools: bodies as those of HTTP, so that names, kinds and errors are the same.
#
# The text of each class is the description of its tool.


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


TOOLS: Mapping[str, type[SearchCall | HopsCall | PassagesCall]] = {
    "search": SearchCall,
    "hops": HopsCall,
    "passages": PassagesCall,
}
"""Name -> the arguments of each tool."""
