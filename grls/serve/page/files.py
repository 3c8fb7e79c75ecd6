"""The files of the page at ``/``, with the headers that they are sent with."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

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
