"""A server that is killed: its folder is as it was, and nothing is left in the folder of temporary files."""

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import pytest
from serve_process import GRLS, started
from small_data import contents

pytest.importorskip("fastapi", reason="the extra serve is not installed")
import httpx

TOKEN = "the-token-of-the-admin"
KILLS = int(os.environ.get("GRLS_SERVER_KILLS", "1"))
"""Kills of the server; `make faults` tries more."""


@contextmanager
def server(folder: Path, scratch: Path) -> Iterator[tuple["Popen[str]", str]]:
    """The command as a process, and its address."""
    more = {"TMPDIR": str(scratch), "GRLS_ADMIN_TOKEN": TOKEN}
    with started(GRLS, "serve", folder, "--port=0", "--device=cpu", **more) as begun:
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


def test_a_server_that_is_killed_while_it_loads_a_folder_again(kinds: Path, tmp_path: Path) -> None:
    kind = "bm25" if KILLS == 1 else "generative"  # which takes seconds to import
    folder = Path(shutil.copytree(kinds / kind, tmp_path / "kinds" / kind))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before, rng = contents(folder), random.Random(0)
    expected = None
    for _ in range(KILLS):
        with server(folder, scratch) as (begun, address):
            expected = expected or answer(address)
            assert answer(address) == expected
            loading = threading.Thread(target=reload, args=(address,))
            loading.start()
            time.sleep(rng.uniform(0, 0.3))
            begun.kill()
            loading.join()
        assert contents(folder) == before
    with server(folder, scratch) as (begun, address):
        assert answer(address) == expected
        assert reload(address) == 200
        assert answer(address) == expected
        begun.send_signal(signal.SIGTERM)
        assert begun.wait(60) == 0
    assert list(scratch.iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "kinds").iterdir() if path.name.startswith(".")) == []
