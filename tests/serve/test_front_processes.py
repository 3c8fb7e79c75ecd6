"""Front and worker process as commands: they end together, and the whole application works through both."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
from serve_front import CHILD, found, gone, until
from serve_helpers import hostile_folder
from serve_process import GRLS, started

from grls.cli import main
from grls.errors import ConfigError
from grls.serve.options import WorkerProcessOptions

FRONT = """
import sys
from grls.io.ending import reported
from grls.serve.front.run import run_front
from grls.serve.front.task import WorkerTask
task = WorkerTask((sys.argv[1],))
sys.exit(reported(lambda: run_front(task, "127.0.0.1", 0, child=sys.argv[2:])))
"""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[tuple["Popen[str]", str, Path]]:
    """The front process as a process of its own: the process, its address, its folder."""
    folder = tmp_path / "deadly"
    folder.mkdir()
    with started(FRONT, folder, *CHILD) as server:
        yield server.process, server.address, folder
        (folder / "go").touch()


def worker_of(server: "Popen[str]") -> int:
    return int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_front_process_that_is_killed_takes_its_worker_process_along(command: Any) -> None:
    server, address, _ = command
    worker = worker_of(server)
    assert httpx.post(f"{address}/v1/search", json={"query": "a"}).status_code == 200
    server.kill()
    server.wait()
    until(lambda: gone(worker), 10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_signal_ends_both_once_what_runs_is_finished(command: Any) -> None:
    server, address, folder = command
    worker = worker_of(server)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(httpx.post, f"{address}/v1/search", json={"query": "wait"}, timeout=60)
        until((folder / "waiting").exists)
        os.kill(worker, signal.SIGTERM)  # as a service manager does that ends all processes
        server.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        os.kill(worker, signal.SIGKILL)  # and even now nothing is lost
        (folder / "go").touch()
        assert found(running.result()) == ["a"]
    assert server.wait(30) == 0
    assert gone(worker)


def test_the_whole_command_with_a_retriever_that_is_killed_and_loaded_again(tmp_path: Path) -> None:
    """The real application behind it: page, search, passages with any id, reload."""
    folder = hostile_folder(tmp_path / "one")
    token = {"GRLS_ADMIN_TOKEN": "the-token-of-the-admin"}
    with started(GRLS, "serve", folder, "--port=0", "--worker.process=true", **token) as server:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            _check_the_application(client)
            shutil.rmtree(folder)
            os.kill(worker_of(server.process), signal.SIGKILL)
            hostile_folder(folder)
            _check_the_application(client)
        server.process.send_signal(signal.SIGTERM)
        lines, printed = server.log.read().splitlines(), server.printed.read().splitlines()
        assert server.process.wait() == 0, lines
    address = server.address
    assert (printed[0], printed[2]) == (f"Loading {folder} for http://127.0.0.1", f"Ready: open {address}")
    assert all(line.startswith("one: bm25, 5 passages, loaded in ") for line in (printed[1], *printed[3:]))
    assert len(printed) == 4  # the folder is loaded once more by the second worker process
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert {line["route"] for line in said if line["event"] == "request"} >= {
        "/", "/v1/search", "/v1/passages/{passage:any_id}", "/admin/reload", "/openapi.json",
    }  # fmt: skip


def _check_the_application(client: httpx.Client) -> None:
    assert client.get("/").headers["content-type"].startswith("text/html")
    version = client.post("/v1/search", json={"query": "alert"}).json()["version"]
    passage = client.get("/v1/passages/two%0Alines")
    assert (passage.status_code, passage.json()["id"]) == (200, "two\nlines")
    token = {"Authorization": "Bearer the-token-of-the-admin"}
    answer = client.post("/admin/reload", json={}, headers=token).json()
    assert answer == {"retriever": "one", "version": version + 1, "passages": 5}
    assert "/v1/search" in client.get("/openapi.json").json()["paths"]
    head = client.head("/v1/passages/two%0Alines")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0


def test_over_standard_input_and_output_there_is_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mcp", reason="needs the extra mcp")
    folder = hostile_folder(tmp_path / "one")
    assert main(["serve", str(folder), "--mcp", "stdio", "--worker.process", "true"]) == 1
    assert "leave --worker out" in capsys.readouterr().err


def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path / "nowhere"), "--worker.process", "true"]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="starts must be at least 1"):
        WorkerProcessOptions(starts=0)
