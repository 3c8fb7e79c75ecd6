"""``POST /admin/reload``: a new version of a retriever takes over, without a pause."""

from __future__ import annotations

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from grls.serve.access import check_admin
from grls.serve.bodies import ReloadBody, VersionBody
from grls.serve.routes.state import version_body
from grls.serve.serving import serving


async def reload_version(request: Request, body: ReloadBody) -> VersionBody:
    """Load the folder of a retriever again; a broken one is refused, and the old version goes on."""
    state = serving(request)
    check_admin(request, state.admin)
    served = state.find(body.retriever)
    return version_body(await run_in_threadpool(served.reload))
