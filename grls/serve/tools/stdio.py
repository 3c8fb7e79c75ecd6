"""Standard input and output: the first answer to a client.

Clients give up a server that says nothing for some seconds, and importing takes that long on a slow
machine. So the request with which a client connects is answered before anything slow is imported.
Standard output carries messages of the protocol alone: the log goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

import grls
from grls.retrieve.spec import read_spec
from grls.serve.options import ServerOptions
from grls.serve.start import loading, say

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of the protocol in which a client connects by ``initialize``."""
STATELESS = "2026-07-28"
"""The version in which it asks by ``server/discover``, and each request names the version."""
_META = "io.modelcontextprotocol/"
_ENVELOPE = ("protocolVersion", "clientInfo", "clientCapabilities")
"""What the metadata of each such request names."""


class LineClient(NamedTuple):
    """A client at standard input and output: its first line, the answer sent to it, and further lines."""

    lines: BinaryIO
    first: bytes
    answer: Mapping[str, Any] | None


def connect(options: ServerOptions) -> LineClient:
    """Wait for the first line of a client, and answer it if it is the request by which one connects."""
    for folder in options.folders.values():
        read_spec(folder)  # one that is no retriever ends the server at once
    aside(loading(options.folders, "standard input and output"))
    lines = os.fdopen(os.dup(0), "rb", closefd=False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nothing else reads what the client writes
    first = lines.readline()
    answer = first_answer(first, options.folders)
    if answer is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return LineClient(lines, first, answer)


def aside(text: str) -> None:
    say(text, sys.stderr)


def instructions(names: Iterable[str]) -> str:
    """What a client tells its language model of the tools."""
    return (
        f"Retrieval from a corpus. Retrievers: {', '.join(names)}. search finds passages for a query, hops a "
        "chain of passages for a question that needs several (a ranking where a retriever's hops are "
        "ranked). Both show parts of texts: fetch shows a whole passage by its id. retrievers lists what can "
        "be searched, and the fields that `where` filters."
    )


def first_answer(line: bytes, names: Iterable[str]) -> dict[str, Any] | None:
    """What the package ``mcp`` answers to the request by which a client connects; None for other lines."""
    try:
        request = json.loads(line.decode())
        json.dumps(request, ensure_ascii=False).encode()  # half characters are refused
        params, server = request["params"], {"name": "grls", "version": grls.__version__}
        able_to = {"tools": {"listChanged": False}}
        result: dict[str, Any] = {"capabilities": able_to, "instructions": instructions(names)}
        if request["method"] == "initialize":
            version, client, able = params["protocolVersion"], params["clientInfo"], params["capabilities"]
            version_used = version if version in HANDSHAKES else HANDSHAKES[-1]
            result |= {"protocolVersion": version_used, "serverInfo": server}
        elif request["method"] == "server/discover":
            version, client, able = (params["_meta"][_META + key] for key in _ENVELOPE)
            if version != STATELESS:
                return None
            result |= {"supportedVersions": [STATELESS], "_meta": {f"{_META}serverInfo": server}}
            result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        else:
            return None
        texts = (version, client["name"], client["version"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    right = request.get("jsonrpc") == "2.0" and type(request.get("id")) in (int, str)
    if not right or not isinstance(able, dict) or not all(isinstance(text, str) for text in texts):
        return None
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}
