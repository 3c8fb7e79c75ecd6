"""The guide of the server: its commands parse, its requests are answered, and it names every metric."""

import json
import re
import shlex
from inspect import signature
from pathlib import Path

import pytest
from serve_helpers import client_of, serving_of
from small_data import small_retriever, write_small
from starlette.testclient import TestClient

from grls.cli import main
from grls.commands.serve import serve
from grls.serve import run
from grls.serve.options import AccessOptions, FileOptions, RequestLimits, read_options

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "serve.md").read_text()
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
COMMANDS = [
    line for page in PAGES for line in page.read_text().replace("\\\n", " ").splitlines()
    if line.startswith("grls serve ")
]  # fmt: skip


FILES = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", GUIDE, re.M | re.S)


def test_the_file_of_options_has_every_one_with_its_default(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(dict(FILES)["server.yaml"])
    assert read_options(str(file)) == FileOptions()
    assert len(signature(serve).parameters) <= 20, "further options belong into the file"
    for options in (RequestLimits(), AccessOptions()):
        assert all(re.search(rf"^  {name}: ", file.read_text(), re.M) for name in vars(options))


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[tuple[object, ...]] = []
    monkeypatch.chdir(tmp_path)
    for name, text in FILES:
        Path(name).write_text(text)
    monkeypatch.setattr(run, "run_server", lambda *options: began.append(options))
    if "--ray" in line:
        pytest.importorskip("ray.serve", reason="needs the extra ray")
        from grls.serve import replicas

        monkeypatch.setattr(replicas, "run_replicas", lambda *options: began.append(options))
    monkeypatch.setattr("grls.commands.serve.require", lambda *_: None, raising=False)
    if "--mcp" in line:
        pytest.importorskip("mcp", reason="needs the extra mcp")
        from grls.serve.tools import server, stdio

        monkeypatch.setattr(stdio, "connect", lambda _: None)
        monkeypatch.setattr(server, "serve_lines", lambda *options: began.append(options))
    assert main(shlex.split(line)[1:]) == 0
    assert len(began) == 1


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    place = tmp_path_factory.mktemp("guide")
    small_retriever(write_small(place / "data")).save_pretrained(place / "fitted")
    return client_of(serving_of({"fitted": place / "fitted"}))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        request
        for page in PAGES
        for request in re.findall(
            r"^curl (?:-N )?http://127\.0\.0\.1:8000(/v1/\S+)(?: --json '(.*)')?$", page.read_text(), re.M
        )
    ],
)
def test_requests(asked: TestClient, path: str, body: str) -> None:
    response = asked.post(path, json=json.loads(body)) if body else asked.get(path)
    if path == "/v1/answer":  # this server has no language model; see test_answer_route
        assert "answer.model" in response.json()["detail"]
    else:
        assert response.status_code == 200, response.text


def test_every_metric_is_named(asked: TestClient) -> None:
    families = re.findall(r"^# TYPE (grls_\S+) (?!gauge$)", asked.get("/metrics").text, re.M)
    families += ["grls_queue_requests", "grls_answer_queue_questions"]
    assert len(set(families)) >= 8
    for family in families:
        assert f"`{family}`" in GUIDE, family


def test_every_address_is_named(asked: TestClient) -> None:
    paths = asked.get("/openapi.json").json()["paths"]
    text = GUIDE + (ROOT / "docs" / "guides" / "page.md").read_text()
    for path in paths:
        assert path.partition("{")[0] in text, path
