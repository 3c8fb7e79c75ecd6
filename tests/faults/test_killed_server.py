"""A server that is killed: its folder is as it was, and nothing is left in the folder of temporary files."""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import pytest
from serve_process import GRLS, started

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import httpx

TOKEN = "the-token-of-the-admin"
KILLS = int(os.environ.get("GRLS_SERVER_KILLS", "1"))
"""Kills of each kind of server; `make faults` tries more."""
LONG = pytest.mark.skipif(KILLS == 1, reason="only in the long form: GRLS_SERVER_KILLS=2 or more")


@contextmanager
def server(folder: Path, scratch: Path, process: bool) -> Iterator[tuple["Popen[str]", str]]:
    """The command as a process, and its address."""
    options = ["--port=0", "--device=cpu", f"--worker.process={str(process).lower()}"]
    more = {"TMPDIR": str(scratch), "GRLS_ADMIN_TOKEN": TOKEN}
    with started(GRLS, "serve", folder, *options, **more) as begun:
        yield begun.process, begun.address


def answer(address: str) -> object:
    found = httpx.post(f"{address}/v1/search", json={"query": "calm otter", "k": 3}, timeout=60)
    assert found.status_code == 200, found.text
    return found.json()["results"]


def reload(address: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with suppress(httpx.HTTPError):  # the server is killed meanwhile
        return httpx.post(f"{address}/admin/reload", json={}, headers=headers, timeout=60).status_code
    return 0


def kill_all(begun: "Popen[str]") -> None:
    """Kill the server with its worker process in one go, as a lack of memory may."""
    children = Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()
    for process in (begun.pid, *map(int, children)):
        os.kill(process, signal.SIGKILL)
    begun.wait()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("process", [True, pytest.param(False, marks=LONG)])
def test_a_server_that_is_killed_while_it_loads_a_folder_again(
    kinds: Path, tmp_path: Path, process: bool
) -> None:
    kind = "bm25" if KILLS == 1 else "generative"  # which takes seconds to import
    folder = Path(shutil.copytree(kinds / kind, tmp_path / "kinds" / kind))
    with tempfile.TemporaryDirectory(prefix="gk-") as scratch:  # short, as the name of a socket must be
        _kill_and_ask(folder, Path(scratch), process)
    assert sorted(path.name for path in (tmp_path / "kinds").iterdir() if path.name.startswith(".")) == []


def _kill_and_ask(folder: Path, scratch: Path, process: bool) -> None:
    before, rng = files(folder), random.Random(0)
    expected = None
    for _ in range(KILLS):
        with server(folder, scratch, process) as (begun, address):
            expected = expected or answer(address)
            assert answer(address) == expected
            loading = threading.Thread(target=reload, args=(address,))
            loading.start()
            time.sleep(rng.uniform(0, 0.3))
            kill_all(begun)
            loading.join()
        assert files(folder) == before
    with server(folder, scratch, process) as (begun, address):
        assert answer(address) == expected
        assert reload(address) == 200
        assert answer(address) == expected
        begun.send_signal(signal.SIGTERM)
        assert begun.wait(60) == 0
    assert list(scratch.iterdir()) == []
