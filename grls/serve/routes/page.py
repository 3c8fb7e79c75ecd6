"""``GET /``: the page, and the files that it is made of."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from grls.serve.page.files import HEADERS, INDEX, page_files
from grls.serve.problems import RefusalError


async def show_page(request: Request) -> Response:
    """The page: a question, its hops, and the beam behind them."""
    return page_response(request, INDEX)


async def show_page_file(request: Request, name: str) -> Response:
    """A file of the page."""
    return page_response(request, name)


def page_response(request: Request, name: str) -> Response:
    """A file of the page, or that the browser has it already.

    Raises:
        RefusalError: There is no such file.
    """
    file = page_files().get(name)
    if file is None:
        raise RefusalError(404, "the page has no file of this name; the page is at /.")
    headers = HEADERS | {"ETag": file.tag}
    known = request.headers.get("if-none-match", "").split(",")
    if any(tag.strip().removeprefix("W/") in (file.tag, "*") for tag in known):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media)
