"""The page ``/docs``: the addresses of the server, from its OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grls.io.html import document
from grls.serve.page.text import escaped

_STYLE = """
section { border-top: 1px solid var(--line); padding-top: 0.4rem; }
td { text-align: left; white-space: normal; vertical-align: top; }
th { text-align: left; }
code { font-size: 0.95em; }
"""
_FIRST = '<p>The same as OpenAPI: <a href="/openapi.json">/openapi.json</a>.</p>'


def docs_page(described: Mapping[str, Any]) -> str:
    """The page.

    Args:
        described: The OpenAPI description.
    """
    schemas = described["components"]["schemas"]
    parts = [
        f"<h1>{escaped(described['info']['title'])} {escaped(described['info']['version'])}</h1>",
        _FIRST,
    ]
    for path, methods in described["paths"].items():
        for method, address in methods.items():
            parts += _address(method, path, address, schemas)
    return document("grls: addresses", _STYLE, "\n".join(parts))


def _address(method: str, path: str, address: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section><h2><code>{escaped(method.upper())} {escaped(path)}</code></h2>"
    yield f"<p>{escaped(address.get('description', ''))}</p>"
    for one in address.get("parameters", ()):
        yield f"<p>Parameter <code>{escaped(one['name'])}</code> ({escaped(one['in'])})</p>"
    body = address.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        yield from _fields("Request", body["$ref"].rpartition("/")[2], schemas)
    for status, answer in address["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
        if "$ref" in schema:
            yield from _fields(f"Response {status}", schema["$ref"].rpartition("/")[2], schemas)
    codes = ", ".join(code for code in address["responses"] if code != "200")
    yield f"<p class=note>Errors: {escaped(codes) or 'none'}.</p></section>"


def _fields(what: str, name: str, schemas: Mapping[str, Any]) -> Iterator[str]:
    schema = schemas[name]
    yield f"<h3>{escaped(what)}</h3><div class=scroll tabindex=0><table>"
    yield "<tr><th scope=col>Field</th><th scope=col>Type</th><th scope=col>What</th></tr>"
    for field, rule in schema["properties"].items():
        must = "" if field in schema.get("required", ()) else " (optional)"
        yield (
            f"<tr><td><code>{escaped(field)}</code>{must}</td><td>{escaped(_type(rule))}</td>"
            f"<td>{escaped(rule.get('description', ''))}</td></tr>"
        )
    yield "</table></div>"


def _type(rule: Mapping[str, Any]) -> str:
    if "anyOf" in rule:
        return " or ".join(_type(one) for one in rule["anyOf"])
    if "$ref" in rule:
        return str(rule["$ref"].rpartition("/")[2])
    if "enum" in rule:
        return ", ".join(map(str, rule["enum"]))
    if rule.get("type") == "array":
        return f"list of {_type(rule['items'])}"
    bounds = [f"{word} {rule[key]}" for key, word in _BOUNDS.items() if key in rule]
    return " ".join([str(rule.get("type", "any")), *bounds])


_BOUNDS = {"minimum": "from", "maximum": "to", "maxLength": "of at most", "minLength": "of at least"}
