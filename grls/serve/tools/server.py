"""Offers the tools over standard input and output, or at an address of the HTTP server.

Over standard input and output, standard output carries messages of the protocol alone: the log goes to
standard error.
"""

from __future__ import annotations

from typing import Any

import anyio
from pydantic import ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

import grls
from grls.io.counts import counted
from grls.io.extras import needing
from grls.serve.faults import listed, plain_faults
from grls.serve.serving import Serving
from grls.serve.tools.calls import RetrievalTools

with needing("mcp", "the tools of an agent"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.types import ToolAnnotations

ADDRESS = "/mcp"
"""The address of the tools."""


class PlainToolServer(MCPServer):  # type: ignore[misc, unused-ignore]
    """A server of tools that names wrong arguments in plain words."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool.

        Raises:
            ToolError: The tool is unknown, its arguments cannot be used, or it failed.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            (schema,) = [tool.input_schema for tool in await self.list_tools() if tool.name == name]
            faults = plain_faults(error.__cause__.errors(), schema, schema)
            raise ToolError(f"the call of {name} cannot be used: {listed(faults)}.") from None


def tool_server(serving: Serving) -> Any:
    """The tools of a server, as an ``MCPServer``."""
    server: Any = PlainToolServer(
        "grls", instructions=_instructions(serving), version=grls.__version__, log_level="WARNING"
    )
    tools = RetrievalTools(serving)
    for tool in (tools.search, tools.hops, tools.passages):
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        server.add_tool(tool, annotations=reads)
    return server


def serve_stdio(serving: Serving) -> None:
    """Offer the tools over standard input and output, until the input ends."""
    try:
        anyio.run(tool_server(serving).run_stdio_async)
    finally:
        serving.close()


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


def _named(route: Any, app: ASGIApp) -> ASGIApp:
    """An application that names its address, as the log and the metrics read it."""

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = route
        await app(scope, receive, send)

    return named


def _instructions(serving: Serving) -> str:
    sizes = (
        f"{name} ({counted(len(one.version.searcher.corpus), 'passage')})"
        for name, one in serving.retrievers.items()
    )
    return (
        f"Retrieval from a corpus. Retrievers: {', '.join(sizes)}. search finds passages for a query. hops "
        "finds a chain of passages for a question that needs several. passages shows passages by their ids."
    )
