"""``grls serve`` as a process: it starts, answers, and ends with what runs finished; wrong options end it."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from serve_helpers import hostile_folder
from serve_process import GRLS, started

from grls.cli import main
from grls.errors import ConfigError
from grls.serve.listening import address_of, check_port, listening
from grls.serve.start import say


def test_it_serves_until_a_signal_and_ends_well(tmp_path: Path) -> None:
    folder = hostile_folder(tmp_path / "one")
    with started(GRLS, "serve", f"named={folder}", "--port=0") as server:
        answer = httpx.post(f"{server.address}/v1/search", json={"query": "alert"}).json()
        assert answer["retriever"] == "named"
        answer = httpx.post(f"{server.address}/v1/search", json={"query": "alert", "allow": []}).json()
        assert answer["results"][0]["hits"] == []
        server.process.send_signal(signal.SIGTERM)
        lines = [*server.lines, *server.log.read().splitlines()]
        said = server.printed.read().splitlines()
        assert server.process.wait() == 0
    assert said[0] == f"Loading named={folder} for http://127.0.0.1"
    assert re.fullmatch(r"named: bm25, 5 passages, loaded in \d+\.\d s", said[1])
    assert said[2:] == [f"Ready: open {server.address}"]
    events = [json.loads(line) for line in lines]
    assert "the filter leaves no passage of the corpus, so there are no hits." in [e["event"] for e in events]
    assert {"route": "/v1/search", "status": 200}.items() <= next(e for e in events if "route" in e).items()


def test_a_server_of_bm25_loads_nothing_that_takes_seconds(hostile: Path) -> None:
    """Most of the time until it answers would be the import of what it does not use."""
    program = """
import sys
from starlette.testclient import TestClient
from grls.serve.app import create_app
from grls.serve.options import USUAL_LIMITS
from grls.serve.serving import open_serving
with TestClient(create_app(open_serving([sys.argv[1]], USUAL_LIMITS, "cpu", "float32"))) as client:
    assert client.get("/v1/retrievers").json()
    assert client.post("/v1/search", json={"query": "alert"}).json()["results"]
loaded = {"torch", "transformers", "dspy", "sklearn", "sentence_transformers"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program, str(hostile)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("127.0.0.1", 8000, "http://127.0.0.1:8000"),
        ("0.0.0.0", 80, "http://127.0.0.1:80"),
        ("::", 80, "http://[::1]:80"),
        ("[::1]", 0, "http://[::1]"),
        ("machine.org", 8080, "http://machine.org:8080"),
    ],
)
def test_the_address_to_open(host: str, port: int, address: str) -> None:
    assert address_of(host, port) == address


def test_headers_are_read_by_the_parser_that_limits_them() -> None:
    async def app(*_: object) -> None: ...

    assert listening(app, "127.0.0.1", 0, 1.0).config.http == "h11"


def test_a_stream_that_cannot_write_a_line_stops_nothing() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    say("wüste \udce4", stream)
    assert raw.getvalue() == b"w\\xfcste \\udce4\n"
    stream.close()
    say("a", stream)
    reads, writes = os.pipe()
    os.close(reads)
    with suppress(BrokenPipeError), os.fdopen(writes, "w") as unread:
        say("a", unread)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "nowhere"),
        (["{one}", "{one}"], "write name=folder"),
        (["{one}", "--port", "70000"], "between 0 and 65,535"),
        (["{one}", "--limits.queue", "0"], "limits.queue must be above 0"),
        (["{one}", "--access.keys", "nowhere"], "no such file"),
        (["{one}", "--access.admin", "nowhere"], "no such file"),
        (["{one}", "--access.origins", '["*"]'], "expected an origin"),
    ],
)
def test_wrong_options(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hostile_folder(tmp_path / "one")
    assert main(["serve", *(option.format(one=folder) for option in options)]) in (1, 2)
    assert said in capsys.readouterr().err


def test_without_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", str(hostile_folder(tmp_path / "one"))]) == 1
    assert 'pip install "grls[serve]"' in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--worker.process", "true"]])
def test_a_port_that_is_taken_is_refused_before_anything_is_loaded(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hostile_folder(tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", str(folder), "--port", str(port), *more]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"error: port {port} of 127.0.0.1 is taken by another program: end that one, or give another --port "
        "(0: any free one)."
    ]


def test_a_host_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"host=.192\.0\.2\.1. is no address of this machine"):
        check_port("192.0.2.1", 0)
