"""The page of ``grls judge``: it asks what :class:`~grls.fitting.judging.Judging` asks, in a browser."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any, Literal

from fastapi import FastAPI, Request
from pydantic import Field
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response

from grls.errors import WriteError
from grls.fitting.judging import Judging, place_of
from grls.serve.app import show_page
from grls.serve.bodies import Body
from grls.serve.guards import Admission, HostCheck, accepted_hosts
from grls.serve.options import USUAL_LIMITS
from grls.serve.problems import add_handlers, problem
from grls.serve.run import HttpServer, bound
from grls.serve.start import address_of, say
from grls.serve.worker import RefusalError

_HOST = "127.0.0.1"


class JudgeBody(Body):
    """What the page sends: a question to ask, or what becomes of the question that it shows."""

    act: Literal["ask", "judge", "skip", "undo"]
    question: str | None = None
    judged: int = 0
    gold: list[str] = Field(default_factory=list)


def serve_judging(judging: Judging, port: int) -> None:
    """Ask on the page until Ctrl-C."""
    sockets = bound(_HOST, port)
    say(f"Ready: open {address_of(_HOST, sockets[0].getsockname()[1])} (Ctrl-C ends)")
    with suppress(KeyboardInterrupt):
        HttpServer(judge_app(judging), USUAL_LIMITS).run(sockets)


def judge_app(judging: Judging) -> FastAPI:
    hosts = accepted_hosts(_HOST, ())
    middleware = [Middleware(HostCheck, hosts=hosts), Middleware(Admission, limits=USUAL_LIMITS, most=1)]
    app = FastAPI(openapi_url=None, middleware=middleware)
    add_handlers(app)
    turn = Lock()

    def state() -> dict[str, Any]:
        with turn:
            return state_of(judging)

    def table() -> list[list[str]]:
        with turn:
            return judging.table()

    def act(request: Request, body: JudgeBody) -> dict[str, Any]:
        if request.headers.get("content-type") != "application/json":  # a page elsewhere can send any other
            raise RefusalError(415, "expected JSON (header content-type: application/json).")
        with turn:
            asked = judging.asked()
            if body.act == "ask":
                if not (question := (body.question or "").strip()):
                    raise RefusalError(422, "question: it is empty; ask something.")
                judging.ask(question)
            elif (asked and asked.query.text, len(judging.records)) != (body.question, body.judged):
                raise RefusalError(409, "it has answered or asked; below is what is asked now.")
            elif body.act == "undo":
                judging.undo()
            elif asked is not None and body.act == "skip":
                judging.skip()
            elif not asked or sorted({*body.gold} & {hit.id for hit in asked.hits}) != sorted(body.gold):
                raise RefusalError(422, "gold: expected ids of passages that are shown, each once.")
            else:
                judging.judge(body.gold)
            return state_of(judging)

    def unwritten(_: Request, error: Exception) -> Response:
        judging.close()  # half of a record may be written, which the next run drops
        return problem(507, str(error))

    app.add_exception_handler(WriteError, unwritten)
    app.add_api_route("/", lambda: RedirectResponse("/page/judge.html"))
    app.add_api_route("/page/{name}", show_page)
    app.add_api_route("/judge", state)
    app.add_api_route("/judge/table", table)
    app.add_api_route("/judge", act, methods=["POST"])
    return app


def state_of(judging: Judging) -> dict[str, Any]:
    """What the page shows; it names no candidate."""
    asked = judging.asked()
    hits = [] if asked is None else asked.hits
    return {
        "question": None if asked is None else asked.query.text,
        "hits": [{"id": h.id, "title": h.title, "text": h.text, "place": place_of(h)} for h in hits],
        "judged": len(judging.records),
        "gold": len(judging.gold),
        "left": len(judging.waiting),
        "told": judging.told(),
        "output": str(judging.output),
    }
