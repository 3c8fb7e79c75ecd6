"""Retrievers for tests of the server: one that takes its time, one with hostile texts."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import serve_extra  # noqa: F401
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import DataError
from grls.retrieve.base import Description, SoFar
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.queries import queries_of
from grls.serve.app import create_app
from grls.serve.options import (
    NO_ANSWERS,
    OPEN_ACCESS,
    USUAL_LIMITS,
    AccessOptions,
    AnswerOptions,
    RequestLimits,
    ServerOptions,
)
from grls.serve.run import HttpServer, bound
from grls.serve.served import Served, Version
from grls.serve.serving import Serving
from grls.serve.start import address_of

LETTERS = Corpus.from_passages([Passage(name, f"text {name}") for name in "abcdef"], source="/place/letters")
HOSTILE = [
    Passage("<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\x1b[2J\r\n\r\ntitle"),
    Passage("../../etc/passwd", 'quote " and \\ and \u2028 line', "event: end\ndata: {}\n\n"),
    Passage("a/b?c#d%20e", "data: injected\n\nevent: hop", '{"level": "error"}'),
    Passage("two\nlines", "event: end", "x"),
    Passage("näme 𝄞 \u202e", "right to left \u202e and zero \u200b width", "💥"),
]


class Slow:
    """Finds the passage that a query names, after a while; any other query fails the whole batch.

    It works while its gate is set.
    """

    kind, corpus = "slow", LETTERS

    def __init__(self, seconds: float = 0.0):
        self.seconds, self.batches = seconds, []
        self.began, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def work(self) -> None:
        self.began.set()
        assert self.gate.wait(30)
        time.sleep(self.seconds)

    def describe(self) -> Description:
        return Description("slow", "none")

    def fingerprint(self) -> str:
        return "slow"

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        asked = [query.text for query in queries_of(queries)]
        self.batches.append((asked, k))
        self.work()
        if "boom" in asked:
            raise ZeroDivisionError("boom")
        if bad := [text for text in asked if text not in "abcdef"]:
            raise DataError(f"bad query {bad[0]!r} for {self.corpus.source}")
        return [[Hit(text, 1.0 if text != "f" else float("-inf"))] for text in asked]

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        (query,) = queries_of(queries)
        for hop, last in ((1, False), (2, False), (3, True)):
            self.batches.append((query.text, hop))
            self.work()
            if query.text == "boom":
                raise ZeroDivisionError("boom")
            if query.text == "late" and hop == 2:
                raise DataError("no second hop")
            hits = tuple(Hit(name, -1.0) for name in "abc"[:hop])
            chain = Chain(hits, -1.0 * hop, last)
            yield SoFar(hop, last, lambda chain=chain: [[chain]])

    def plan_walk(self, *_: object) -> NoReturn:
        raise AssertionError("nothing joins its search")


class Ready(Served):
    """A retriever of the server that is not read from a folder."""

    def __init__(self, name: str, retriever: Slow, serving: Serving):
        self.name, self.folder = name, Path("nowhere")
        searcher = Searcher(retriever, "nowhere")  # type: ignore[arg-type]
        self.version = Version(name, 1, searcher, serving.limits, serving.metrics)


def serving_of(
    retrievers: Mapping[str, Path | Slow],
    limits: RequestLimits = USUAL_LIMITS,
    admin: bytes | None = None,
    answer: AnswerOptions = NO_ANSWERS,
) -> Serving:
    folders = {name: str(one) for name, one in retrievers.items() if isinstance(one, Path)}
    slow = {name: one for name, one in retrievers.items() if isinstance(one, Slow)}
    serving = Serving(ServerOptions(folders, limits, device="cpu", answer=answer))
    serving.load()
    serving.admin = admin
    serving.retrievers |= {name: Ready(name, one, serving) for name, one in slow.items()}
    serving.options = serving.options._replace(folders=folders | dict.fromkeys(slow, "nowhere"))
    return serving


def hostile_folder(place: Path) -> Path:
    metadata = [{"year": 2000 + n} for n in range(len(HOSTILE))]
    BM25Retriever(Corpus.from_passages(HOSTILE, metadata=metadata)).save_pretrained(place)
    return place


def events(text: str) -> list[tuple[str, str]]:
    """The (name, data) of server-sent events, read by the rules of the format."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if fields:
            found.append((fields["event"], fields["data"]))
    return found


def client_of(serving: Serving, access: AccessOptions = OPEN_ACCESS) -> TestClient:
    serving.options = serving.options._replace(access=access)
    return TestClient(create_app(serving), raise_server_exceptions=False)


@contextmanager
def behind_socket(
    serving: Serving, access: AccessOptions = OPEN_ACCESS, tools: bool = False
) -> Iterator[str]:
    serving.options = serving.options._replace(access=access, tools=tools)
    with listening(create_app(serving), serving.limits) as (address, _):
        yield address


@contextmanager
def listening(app: ASGIApp, limits: RequestLimits = USUAL_LIMITS) -> Iterator[tuple[str, HttpServer]]:
    """The address of an application behind a socket, and its server, which a thread runs."""
    server, sockets = HttpServer(app, limits), bound("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=(sockets,))
    thread.start()
    address = address_of(*sockets[0].getsockname())
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield address, server
    finally:
        server.should_exit = True
        thread.join()
