"""Replicas on Ray Serve: they answer as one process does; one that dies is replaced, and so is a version."""

import asyncio
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serve_process import GRLS, Process, started, until

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever

TOKEN = "the-token-of-the-admin"
SECONDS = 300.0
"""The longest wait for a replica, whose process takes a minute to start on a machine that is busy."""


def write(folder: Path, *more: str) -> Path:
    texts = [f"the {name} is {trait}" for name in ("otter", "heron", "lynx") for trait in ("calm", "quick")]
    passages = [Passage(text.replace(" ", "-"), text) for text in (*texts, *more)]
    BM25Retriever(Corpus.from_passages(passages)).save_pretrained(folder)
    return folder


def ends(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    assert main(["serve", str(folder), *options]) == 1
    return capsys.readouterr().err


def test_wrong_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray.serve", reason="needs the extra ray")
    folder = write(tmp_path / "one")
    assert "expected the address of a Ray cluster" in ends(capsys, folder, "--ray=somewhere", "--replicas=2")
    with socket.socket() as free:  # bound, but nobody listens
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        error = ends(capsys, folder, f"--ray={address}", "--replicas=2", "--port=0")
    assert f"there is no Ray cluster at {address}" in error
    assert "ray start --head" in error
    two = ("--ray=local", "--replicas=2", "--port=0")
    assert "nowhere" in ends(capsys, tmp_path / "nowhere", *two)
    assert "use --device cuda" in ends(capsys, folder, *two, "--device=cuda:1")
    keys = tmp_path / "server.yaml"
    keys.write_text(f"answer: {{model: gpt2, keys: {{folder: {tmp_path}}}}}")
    assert "start this server once without --ray" in ends(capsys, folder, *two, f"--server={keys}")
    assert "--replicas 1: --ray needs at least 2" in ends(capsys, folder, "--ray=local")


def test_replicas_that_are_gone_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Ray says of the application, or where it does not answer; a replica that runs is enough."""
    serve = pytest.importorskip("ray.serve", reason="needs the extra ray")
    from ray.serve.schema import ApplicationStatusOverview, DeploymentStatusOverview, ServeStatus

    from grls.serve.replicas import ReplicaError, watch_replicas

    clock = count(0.0, 5.0)  # five seconds pass between two looks
    fake = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None)
    monkeypatch.setattr("grls.serve.replicas.time", fake)

    def status(application: str, **states: int) -> ServeStatus:
        deployment = DeploymentStatusOverview("HEALTHY", "", states, "it\nfailed")
        return ServeStatus(
            applications={"grls": ApplicationStatusOverview(application, "tried", 0.0, {"grls": deployment})}
        )

    def ended(*said: ServeStatus | None) -> str:
        """The error once Ray Serve has said this, and then the last of it again and again."""
        left = list(said)

        def answer() -> ServeStatus:
            if (last := left.pop(0) if len(left) > 1 else left[0]) is None:
                monkeypatch.setattr("grls.serve.replicas._PATIENCE", 0.05)
                time.sleep(1)
            return last or ServeStatus()

        monkeypatch.setattr(serve, "status", answer)
        with pytest.raises(ReplicaError) as error:
            watch_replicas(60.0)
        return str(error.value)

    runs = [status("DEPLOY_FAILED", RUNNING=1)] * 30  # of a reload: the others go on
    for none in ("DEPLOYING", "RUNNING", "DEPLOY_FAILED"):
        assert "no replica has run for 60 s: failed" in ended(*runs, status(none, STARTING=2))
    assert "`serve shutdown`" in ended(*runs, ServeStatus())
    assert "Ray does not answer (within 0.05 s)" in ended(*runs, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("replicas") / "one")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Process]:
    """Two replicas on a cluster of this machine, which all tests share, since it takes seconds to start."""
    pytest.importorskip("ray.serve", reason="needs the extra ray")
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    options = ["--ray=local", "--replicas=2", "--port=0", "--device=cpu"]
    with ExitStack() as stack:
        try:
            begun = stack.enter_context(started(GRLS, "serve", folder, *options, GRLS_ADMIN_TOKEN=TOKEN))
        except AssertionError as error:  # its proxy has some seconds to start, which Ray fixes
            if not re.search("cannot run the replicas: .*(ProxyActor|[Pp]roxies not available)", str(error)):
                raise
            pytest.skip(f"the machine is too slow for the proxy of Ray Serve: {error}")
        yield begun


def post(server: Process, path: str = "/v1/search", **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.post(f"{server.address}{path}", json=body, headers=headers, timeout=120)


def test_the_application_is_whole(server: Process) -> None:
    assert httpx.get(server.address).headers["content-type"].startswith("text/html")
    assert httpx.get(f"{server.address}/ready").json()["status"] == "ok"
    wrong = post(server, query="otter", top_k=3)
    assert (wrong.status_code, "top_k" in wrong.text) == (422, True)
    assert httpx.get(server.address, headers={"Host": "evil.example"}).status_code == 400


def test_a_new_version_takes_the_place_of_all_replicas(server: Process, folder: Path) -> None:
    kept = Path(shutil.copytree(folder, folder.with_name("kept")))
    (folder / "grls.json").write_text("{")
    broken = post(server, "/admin/reload")
    assert (broken.status_code, "version 1 goes on" in broken.text) == (422, True), broken.text
    shutil.rmtree(folder)
    kept.rename(folder)
    write(folder, "the badger is calm")
    until(lambda: accepted_reload(server) == [2], SECONDS)
    versions: list[int] = []

    def replaced() -> bool:
        answer = post(server, query="badger")
        assert answer.status_code == 200, answer.text
        versions.append(answer.json()["version"])
        return len(versions) > 20 and set(versions[-20:]) == {2}

    until(replaced, SECONDS)
    assert set(versions) <= {1, 2}


def accepted_reload(server: Process) -> list[int]:
    """The versions of reloads that are not refused, of four at once: at most one."""
    time.sleep(1)  # so that they do not take the processor from what is being replaced
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: post(server, "/admin/reload"), range(4)))
    assert {answer.status_code for answer in answers} <= {200, 503}, [answer.text for answer in answers]
    return [answer.json()["version"] for answer in answers if answer.status_code == 200]


def test_answers_are_those_of_one_process_though_a_replica_is_killed(server: Process, folder: Path) -> None:
    from benchmarks.soak import Soak, replicas_of, samples_of

    samples = samples_of(grls.load(folder))
    run = Soak(server.address, server.process.pid, samples, 2, requests=300, clients=4, kills=1)
    asyncio.run(run.run())
    assert (run.counts["kills"], run.counts["wrong"], run.counts["failed reloads"]) == (1, 0, 0)
    assert run.counts["failed"] + run.counts["lost"] < 30, run.counts  # until Ray has seen the death
    assert run.counts["right"] > 200
    until(lambda: len(replicas_of(server.process.pid)) == 2, SECONDS)


def test_a_signal_ends_it_and_its_cluster(server: Process) -> None:
    from benchmarks.soak import family

    processes = family(server.process.pid)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(SECONDS) == 0, server.log.read()
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in processes), 60)
