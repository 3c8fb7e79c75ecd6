"""Fields of the wrong kind, in every request and every tool: refused, and the error names the field."""

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from serve_helpers import client_of, serving_of
from starlette.testclient import TestClient

from grls.serve.serving import Serving

VALUES: dict[str, list[Any]] = {
    "string": ["3", ""], "integer": [3], "boolean": [True], "null": [None], "array": [[], [None], [["a"]]],
    "object": [{}, {"a": 1}], "number": [3.0, 3.5, math.nan, math.inf, -math.inf],
}  # fmt: skip
"""Values of each type of JSON schema; -3 and 10 ** 40 are beyond all bounds."""
NEEDED = {"query": "alert", "gold": ["a/b?c#d%20e"], "id": "a/b?c#d%20e"}


def alternatives(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield document["components"]["schemas"][name]
    for one in schema.get("anyOf", [] if "$ref" in schema else [schema]):
        yield from [one] if "type" in one else alternatives(one, document)


def wrong(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of a field, and fields of a request of which this one has a wrong value."""
    yield "surprise", {"surprise": 1}
    yield "querry", {"querry": "a"}
    for name, field in schema["properties"].items():
        kinds = list(alternatives(field, document))
        types = {kind["type"] for kind in kinds}
        values = [value for kind in VALUES.keys() - types for value in VALUES[kind]]
        values += [-3, 10**40] if "integer" in types else []
        yield from ((name, {name: value}) for value in values)
        for kind in kinds:
            if kind["type"] == "object":
                yield from ((f"{name}.{inner}", {name: part}) for inner, part in wrong(kind, document))


@pytest.fixture(scope="module")
def serving(hostile: Path) -> Iterator[Serving]:
    opened = serving_of({"hostile": hostile})
    yield opened
    opened.close()


def test_every_request(serving: Serving) -> None:
    client = client_of(serving)
    document = client.get("/openapi.json").json()
    tried = 0
    for path, methods in document["paths"].items():
        for body in [methods["post"]["requestBody"]] if "post" in methods else []:
            reference = body["content"]["application/json"]["schema"]
            (schema,) = alternatives(reference, document)
            needed = {name: NEEDED[name] for name in schema.get("required", [])}
            for name, fields in wrong(schema, document):
                content = json.dumps(needed | fields)
                answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
                if path == "/admin/reload":  # the token comes first
                    assert answer.status_code == 403
                elif path == "/v1/answer" and "0" * 40 in content:  # without a language model: 404
                    assert answer.status_code in (404, 422)
                else:
                    assert (answer.status_code, name in answer.text) == (422, True), (path, content)
                tried += 1
    assert tried > 300


def test_every_tool(serving: Serving) -> None:
    pytest.importorskip("mcp", reason='needs the extra mcp: pip install "grls[mcp]"')
    from mcp import Client

    from grls.serve.tools.server import tool_server

    async def call() -> int:
        tried = 0
        async with Client(tool_server(serving)) as client:
            for tool in (await client.list_tools()).tools:
                needed = {name: NEEDED[name] for name in tool.input_schema.get("required", [])}
                for name, fields in wrong(tool.input_schema, tool.input_schema):
                    if any(isinstance(one, float) and not math.isfinite(one) for one in fields.values()):
                        continue  # this client would send null
                    result = await client.call_tool(tool.name, needed | fields)
                    assert result.is_error, (tool.name, fields)
                    assert name in result.content[0].text, (tool.name, fields)
                    tried += 1
                assert not (await client.call_tool(tool.name, needed)).is_error
        return tried

    assert asyncio.run(call()) > 100


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/v1/passages/two%0Alines?retreiver=hostile"),
        ("head", "/v1/passages/two%0Alines?retreiver=hostile"),
        ("get", "/v1/retrievers?retreiver=hostile"),
        ("post", "/v1/search?retreiver=hostile"),
    ],
)
def test_parameters_that_an_address_does_not_have(serving: Serving, method: str, path: str) -> None:
    answer = getattr(client_of(serving), method)(path)
    assert answer.status_code == 422
    if method != "head":
        assert [fault["field"] for fault in answer.json()["errors"]] == ["retreiver"]


def test_what_is_read_can_be_asked_for_without_its_body(serving: Serving) -> None:
    client: TestClient = client_of(serving)
    documented = [
        path for path, methods in client.get("/openapi.json").json()["paths"].items() if "get" in methods
    ]
    assert "/health" in documented
    for path in (*documented, "/", "/metrics", "/openapi.json", "/page/none", "/v1/passages/none"):
        address = path.format(passage="two%0Alines")
        whole, head = client.get(address), client.head(address)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
        if path != "/metrics":  # which counts the requests
            assert (
                head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))
            )
