"""A front process in a thread of the test, whose worker process is that of ``serve_child``."""

import asyncio
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import serve_extra  # noqa: F401

from grls.serve.front.run import front_server, serve_front
from grls.serve.front.task import WorkerTask
from grls.serve.options import OPEN_ACCESS, USUAL_LIMITS, AccessOptions, RequestLimits, WorkerProcessOptions

CHILD = (sys.executable, "-P", str(Path(__file__).with_name("serve_child.py")))


class Running:
    """A front process in a thread, whose worker process is that of the tests."""

    def __init__(
        self,
        folder: Path,
        limits: RequestLimits = USUAL_LIMITS,
        access: AccessOptions = OPEN_ACCESS,
        starts: int = 1,
    ):
        self.folder = folder
        task, how = WorkerTask((str(folder),), limits, access), WorkerProcessOptions(True, starts)
        self.server, self.supervisor = front_server(task, "127.0.0.1", 0, how, CHILD)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        until(lambda: self.server.started or not self.thread.is_alive(), 120)
        self.address = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        self.client = httpx.Client(base_url=self.address, timeout=300)
        self.pool = ThreadPoolExecutor(32)

    def _run(self) -> None:
        asyncio.run(serve_front(self.server, self.supervisor))

    @property
    def process(self) -> int:
        """The worker process, once there is one."""
        until(lambda: self.supervisor.current is not None)
        assert self.supervisor.current is not None
        return self.supervisor.current.process.pid

    def kill(self) -> None:
        before = self.process
        os.kill(before, signal.SIGKILL)
        until(lambda: self.supervisor.current is None or self.process != before)

    def post(self, query: str, path: str = "/v1/search") -> httpx.Response:
        return self.client.post(path, json={"query": query})

    def ask(self, query: str, path: str = "/v1/search") -> "Future[httpx.Response]":
        return self.pool.submit(self.post, query, path)

    def stream(self, query: str) -> str:
        """A stream that dies once its first event is here."""
        self.mark("deadly")
        text = ""
        with self.client.stream("POST", "/v1/stream", json={"query": query}) as response:
            for part in response.iter_text():
                text += part
                self.mark("got")
        return text

    def mark(self, name: str) -> None:
        (self.folder / name).touch()

    def unmark(self, name: str) -> None:
        (self.folder / name).unlink()

    def until_searching(self) -> None:
        until((self.folder / "waiting").exists)

    def searched(self) -> list[str]:
        return (self.folder / "searched").read_text().split()

    def metric(self, name: str) -> float:
        (value,) = re.findall(rf"^{name} (\S+)$", self.client.get("/metrics").text, re.M)
        return float(value)

    def close(self) -> None:
        self.mark("go")
        self.server.should_exit = True
        self.thread.join()
        self.pool.shutdown()


def until(true: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def found(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [hit["id"] for hit in response.json()["results"][0]["hits"]]


def gone(process: int) -> bool:
    """Whether a process has ended; one that nobody waited for is no process any more."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
