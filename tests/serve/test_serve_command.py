"""``grls serve`` as a process: it starts, answers, and ends with what runs finished; wrong options end it."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from failing import raises
from serve_helpers import hostile_folder
from serve_process import GRLS, started, until
from starlette.testclient import TestClient

from grls.cli import main
from grls.errors import ConfigError
from grls.serve.app import create_app
from grls.serve.options import AccessOptions, FileOptions, RequestLimits, ServerOptions, read_options
from grls.serve.run import bound
from grls.serve.serving import Serving
from grls.serve.start import address_of, say


def test_it_serves_until_a_signal_and_ends_well(tmp_path: Path) -> None:
    folder = hostile_folder(tmp_path / "one")
    with started(GRLS, "serve", f"named={folder}", "--port=0") as server:
        answer = httpx.post(f"{server.address}/v1/search", json={"query": "alert"}).json()
        assert answer["retriever"] == "named"
        answer = httpx.post(f"{server.address}/v1/search", json={"query": "alert", "allow": []}).json()
        assert answer["results"][0]["hits"] == []
        assert httpx.get(f"{server.address}/ready", headers={"Host": "evil.example"}).status_code == 400
        server.process.send_signal(signal.SIGTERM)
        lines, said = server.log.read().splitlines(), server.printed
        assert server.process.wait() == 0
    assert said[0] == f"Loading named={folder} for {server.address}"
    assert re.fullmatch(r"named: bm25, 5 passages, loaded in \d+\.\d s", said[1])
    assert said[2:] == [f"Ready: open {server.address}"]
    events = [json.loads(line) for line in lines]
    assert "the filter leaves no passage of the corpus, so there are no hits." in [e["event"] for e in events]
    assert {"route": "/v1/search", "status": 200}.items() <= next(e for e in events if "route" in e).items()


WAITING = f"""
import os
import time
from pathlib import Path
from grls.serve.serving import Serving
from grls.serve.worker import SearchJob
folder = Path(os.environ["WAITING"])
def waiting(name, function):
    def call(*arguments, **options):
        (folder / name).touch()
        while not (folder / f"{{name}}-goes-on").exists():
            time.sleep(0.01)
        return function(*arguments, **options)
    return call
Serving.load, SearchJob.work = waiting("load", Serving.load), waiting("search", SearchJob.work)
{GRLS}
"""
"""A server that loads, and searches, once there is a file."""


def test_a_signal_ends_it_once_what_runs_is_finished(tmp_path: Path) -> None:
    folder = hostile_folder(tmp_path / "one")
    (tmp_path / "load-goes-on").touch()
    with (
        started(WAITING, "serve", folder, "--port=0", WAITING=str(tmp_path)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(httpx.post, f"{server.address}/v1/search", json={"query": "alert"}, timeout=60)
        until((tmp_path / "search").exists)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not reached(server.address))  # nobody else is let in
        server.process.send_signal(signal.SIGHUP)  # a further signal cuts nothing short
        time.sleep(0.2)
        (tmp_path / "search-goes-on").touch()
        assert answer.result().json()["results"][0]["hits"]
        assert server.process.wait(30) == 0


def test_it_answers_while_it_loads_and_a_signal_ends_it_then(tmp_path: Path) -> None:
    folder = hostile_folder(tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", WAITING, "serve", f"named={folder}", f"--port={port}", "--device=cpu"]
    environment = {**os.environ, "WAITING": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        until((tmp_path / "load").exists)
        answer = httpx.get(f"http://127.0.0.1:{port}/ready", timeout=60)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["detail"] == "the server is loading named; try again once /ready answers 200."
        with socket.create_connection(("127.0.0.1", port)) as slow:  # its body never comes
            slow.sendall(b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            until(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
        assert "ended by SIGTERM" in log


def test_addresses_while_it_loads(hostile: Path) -> None:
    options = ServerOptions({"one": str(hostile)}, device="cpu", tools=False)
    serving = Serving(options)
    with TestClient(create_app(serving)) as client:
        health = {"status": "starting", "retrievers": []}
        assert (client.get("/health").status_code, client.get("/health").json()) == (200, health)
        loading = [
            client.get("/ready"), client.get("/v1/retrievers"), client.get("/v1/passages/a"),
            *(client.post(f"/v1/{name}", json={"query": "alert"}) for name in ("search", "stream", "answer")),
        ]  # fmt: skip
        assert {answer.status_code for answer in loading} == {503}
        assert all("the server is loading one;" in answer.text for answer in loading)
        assert client.get("/").status_code == client.get("/metrics").status_code == 200
        serving.load()
        assert client.get("/ready").json()["status"] == "ok"
        assert client.post("/v1/search", json={"query": "alert"}).json()["results"][0]["hits"]


def test_a_folder_that_cannot_be_loaded_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = hostile_folder(tmp_path / "one")
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "grls.json":
            file.write_bytes(file.read_bytes()[:7])
    assert main(["serve", str(folder), "--port=0"]) == 1
    said = capsys.readouterr()
    assert f"error: {folder}" in said.err
    assert "Ready" not in said.out
    assert "Traceback" not in said.err
    assert main(["serve", str(tmp_path / "none"), "--port=0"]) == 1
    said = capsys.readouterr()
    assert "no retriever here" in said.err
    assert not said.out, "it is refused before it listens"


def reached(address: str) -> bool:
    host, port = address.removeprefix("http://").split(":")
    with suppress(OSError):
        socket.create_connection((host, int(port)), 5).close()
        return True
    return False


def test_a_server_of_bm25_loads_nothing_that_takes_seconds(hostile: Path) -> None:
    """Most of the time until it answers would be the import of what it does not use."""
    program = """
import sys
from starlette.testclient import TestClient
from grls.serve.app import create_app
from grls.serve.options import ServerOptions
from grls.serve.serving import Serving
options = ServerOptions({"one": sys.argv[1]})
serving = Serving(options)
serving.load()
with TestClient(create_app(serving)) as client:
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
        ("[::1]", 81, "http://[::1]:81"),
        ("machine.org", 8080, "http://machine.org:8080"),
    ],
)
def test_the_address_to_open(host: str, port: int, address: str) -> None:
    assert address_of(host, port) == address


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
    ("options", "file", "said"),
    [
        ("--port 70000", "", "between 0 and 65,535"),
        ("--server nowhere.yaml", "", "--server nowhere.yaml: there is no such file"),
        ("--limits.queue 5", "", "there is no option --limits.queue"),
        ("--replicas 2", "", "--replicas 2: one process is one replica; add --ray local"),
        ("--replicas 0", "", "replicas must be at least 1"),
        ("--mcp stdio --ray local", "", "leave --ray out"),
        ("--mcp pigeon", "", "--mcp"),
        ("--mcp stdio --server server.yaml", "access: {admin: token}", "leave access out"),
        ("--mcp stdio --server server.yaml", "answer: {model: m}", "leave answer out"),
    ],
)
def test_wrong_options(
    tmp_path: Path,
    options: str,
    file: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.yaml").write_text(file)
    assert main(["serve", str(hostile_folder(tmp_path / "one")), *options.split()]) in (1, 2)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("answer: {dsp: {branch: 3}}", "answer.dsp.branch is no option; known are branches, calls"),
        ("limits: {queue: 0}", "limits: queue must be at least 1, got 0."),
        ("answer: {k: 4}", "answer: k needs a language model: give model."),
        ("answer: {model: m, methods: []}", "methods must name a method"),
        ("answer: {model: m, methods: [direct, direct]}", "twice"),
        ("answer: {model: 'api:openai/x'}", "programs alone"),
        ("answer: {model: nowhere/m}", "nowhere/m"),
        ('access: {origins: ["*"]}', "access: origins: expected an origin"),
        ("access: {keys: nowhere}", "nowhere: no such file"),
        ("limits: 3", "limits: expected an object, got 3."),
        ("limits: [", "cannot be read as options in YAML"),
        ("3", "holds no options"),
    ],
)
def test_a_wrong_file_of_options(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = hostile_folder(tmp_path / "one"), tmp_path / "server.yaml"
    file.write_text(text)
    assert main(["serve", str(folder), f"--server={file}", "--port=0"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "--" not in error
    if "nowhere" not in text:
        assert error.startswith(f"error: {file}")
        assert error.count("server.yaml") == 1


def test_a_file_of_options(tmp_path: Path) -> None:
    assert read_options(None) == FileOptions()
    file = tmp_path / "server.json"
    file.write_text('{"limits": {"queue": 3}, "access": {"origins": ["https://a.b"]}}')
    options = read_options(str(file))
    assert options == FileOptions(RequestLimits(queue=3), AccessOptions(origins=("https://a.b",)))
    file.write_text("answer: {model: m, methods: [riches, direct], dsp: {rounds: 3}}")
    answer = read_options(str(file)).answer
    assert (answer.methods, answer.dsp.rounds, answer.k) == (("riches", "direct"), 3, 3)


@pytest.mark.parametrize(
    ("package", "extra", "options"),
    [
        ("fastapi", "serve", []),
        ("mcp", "mcp", ["--mcp=stdio"]),
        ("ray", "ray", ["--ray=local", "--replicas=2"]),
    ],
)
def test_without_a_package_that_it_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    package: str,
    extra: str,
    options: list[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["serve", str(hostile_folder(tmp_path / "one")), *options]) == 1
    said = capsys.readouterr()
    assert (f'pip install "grls[{extra}]"' in said.err, said.out) == (True, "")


def test_a_port_that_is_taken_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hostile_folder(tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", str(folder), "--port", str(port)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"error: port {port} of 127.0.0.1 is taken by another program: end that one, or give another --port "
        "(0: any free one)."
    ]


def test_a_host_may_have_the_brackets_of_an_address() -> None:
    listeners = bound("[127.0.0.1]", 0)
    assert [listener.getsockname()[0] for listener in listeners] == ["127.0.0.1"]
    for listener in listeners:
        listener.close()


def test_a_host_of_another_machine_is_refused() -> None:
    raises(ConfigError, r"host=.192\.0\.2\.1. is no address of this machine", bound, "192.0.2.1", 0)
