"""The files of the page at ``/``, with the headers that they are sent with, and the page at ``/docs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from grls.io.html import document
from grls.io.progress import visible

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"
"""The file of ``/``."""

# Scripts and styles are files of this server alone, and no text can become an element (Trusted Types).
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""The Content-Security-Policy of the page."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
"""The headers of every file of the page. A browser asks again each time, and the tag tells a new file."""


class PageFile(NamedTuple):
    """A file of the page, with its media type and its entity tag."""

    content: bytes
    media: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Name -> file, of all files of the page; only these are sent."""
    pages = {}
    for file in files(__package__).iterdir():
        media = _TYPES.get("." + file.name.rpartition(".")[2])
        if media is not None:
            content = file.read_bytes()
            pages[file.name] = PageFile(content, media, f'"{sha256(content).hexdigest()[:32]}"')
    return pages


_STYLE = """
section { border-top: 1px solid var(--line); padding-top: 0.4rem; }
td { text-align: left; white-space: normal; vertical-align: top; }
th { text-align: left; }
code { font-size: 0.95em; }
"""


def docs_page(described: Mapping[str, Any]) -> str:
    """The page ``/docs``: the addresses of the server, from its OpenAPI description."""
    schemas = described["components"]["schemas"]
    parts = [
        f"<h1>{escaped(described['info']['title'])} {escaped(described['info']['version'])}</h1>",
        '<p>The same as OpenAPI: <a href="/openapi.json">/openapi.json</a>.</p>',
    ]
    for path, methods in described["paths"].items():
        for method, address in methods.items():
            parts.append(f"<section><h2><code>{escaped(method.upper())} {escaped(path)}</code></h2>")
            parts.append(f"<p>{escaped(address.get('description', ''))}</p>")
            for row in address.get("parameters", ()):
                parts.append(f"<p>Parameter <code>{escaped(row['name'])}</code> ({escaped(row['in'])})</p>")
            bodies = {"Request": address.get("requestBody", {})}
            bodies |= {f"Response {status}": answer for status, answer in address["responses"].items()}
            for heading, body in bodies.items():
                schema = body.get("content", {}).get("application/json", {}).get("schema", {})
                if "$ref" in schema:
                    parts += _fields(heading, schemas[schema["$ref"].rpartition("/")[2]])
            codes = ", ".join(code for code in address["responses"] if code != "200")
            parts.append(f"<p class=note>Errors: {escaped(codes) or 'none'}.</p></section>")
    return document("grls: addresses", _STYLE, "\n".join(parts))


def _fields(heading: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3>{escaped(heading)}</h3><div class=scroll tabindex=0><table>"
    yield "<tr><th scope=col>Field</th><th scope=col>Type</th><th scope=col>What</th></tr>"
    for field, rule in schema["properties"].items():
        optional = "" if field in schema.get("required", ()) else " (optional)"
        yield (
            f"<tr><td><code>{escaped(field)}</code>{optional}</td><td>{escaped(_type(rule))}</td>"
            f"<td>{escaped(rule.get('description', ''))}</td></tr>"
        )
    yield "</table></div>"


def _type(rule: Mapping[str, Any]) -> str:
    if "anyOf" in rule:
        return " or ".join(map(_type, rule["anyOf"]))
    if "$ref" in rule:
        return str(rule["$ref"].rpartition("/")[2])
    if "enum" in rule:
        return ", ".join(map(str, rule["enum"]))
    if rule.get("type") == "array":
        return f"list of {_type(rule['items'])}"
    bounds = [f"{word} {rule[key]}" for key, word in _BOUNDS.items() if key in rule]
    return " ".join([str(rule.get("type", "any")), *bounds])


_BOUNDS = {"minimum": "from", "maximum": "to", "maxLength": "of at most", "minLength": "of at least"}


def escaped(text: object) -> str:
    """A text for elements and quoted attributes, with visible control characters.

    Every text of a page goes through here; no text becomes part of a style, a script or an address.
    """
    return escape(visible(str(text)), quote=True)
