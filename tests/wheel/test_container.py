"""The container: its files are sound, and its command answers its health check.

``make container-check`` does the steps of the Dockerfile with packages installed anew.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dockerfile import command_of, is_sent, steps
from installed_packages import FILES, PARTS, Environment

ROOT = Path(__file__).parents[2]
STEPS = list(steps((ROOT / "Dockerfile").read_text()))
IGNORED = (ROOT / ".dockerignore").read_text()


def texts(name: str, stage: str | None = None) -> list[str]:
    return [step.text for step in STEPS if step.name == name and stage in (None, step.stage)]


def test_nothing_runs_as_root_and_no_tool_of_the_build_stays() -> None:
    names = [step.name for step in STEPS if step.stage == "server"]
    assert texts("USER") == ["10001:10001"]
    assert "RUN" not in names[names.index("USER") :]
    assert texts("COPY", "server") == ["--from=packages /opt/grls /opt/grls"]


def test_packages_are_those_of_the_lock() -> None:
    installs = [text for text in texts("RUN") if "uv pip install" in text]
    assert len(installs) == 2
    assert "--constraint /build/requirements.hashes " in installs[1]
    assert 'requirements.$([ -n "$TORCH_INDEX" ] && echo lock || echo hashes) ' in installs[0]
    assert all("--no-cache" in text for text in texts("RUN") if " pip " in text)
    assert re.search(r"^torch==", (ROOT / "requirements.hashes").read_text(), re.MULTILINE)
    (made,) = re.findall(r"^UV := (uv==\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f" {made}" in "\n".join(texts("RUN"))


def test_what_is_copied_is_sent_and_nothing_else() -> None:
    sources = [word for text in texts("COPY") if "--from" not in text for word in shlex.split(text)[:-1]]
    assert set(sources) == {*FILES, *PARTS, "requirements.lock", "requirements.hashes"}
    for source in sources:
        assert (ROOT / source).exists()
        assert is_sent(source, IGNORED)
    for path in ("grls/cli.py", "configs/default/plan.yaml"):
        assert is_sent(path, IGNORED), path
    for path in (".git", ".git/config", "runs/mine", "data/nq/corpus.jsonl", ".venv", "tests", "keys.txt",
                 "grls/__pycache__/cli.cpython-312.pyc"):  # fmt: skip
        assert not is_sent(path, IGNORED), path


def test_compose() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert {name: one["profiles"] for name, one in services.items()} == {"cpu": ["cpu"], "gpu": ["gpu"]}
    for one in services.values():
        (volume,) = one["volumes"]
        assert (volume["target"], volume["read_only"]) == ("/retrievers/default", True)
        assert one["ports"] == ["127.0.0.1:${PORT:-8000}:8000"]
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert one["mem_limit"]
        assert one["pids_limit"]
        assert one["secrets"] == ["admin"]
        assert one["command"][0] == command_of(STEPS, "CMD")[0]
    (device,) = services["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def test_the_command_is_ready(wheel: Path, tmp_path: Path) -> None:
    """In an environment with the packages of the container; the folder of the retriever is read-only."""
    pytest.importorskip("fastapi", reason='needs the extra serve: pip install "grls[serve]"')
    made = Environment(tmp_path / "env")
    made.install(wheel, "serve")
    retriever = tmp_path / "retrievers" / "default"
    program = (
        "import grls, sys; from grls.data.types import Passage; from grls.data.corpus import Corpus; "
        "from grls.retrieve.bm25 import BM25Retriever as B; "
        "B(Corpus.from_passages([Passage('a', 'an otter')])).save_pretrained(sys.argv[1])"
    )
    done = made.run("-c", program, str(retriever), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    retriever.chmod(0o555)
    bin_ = made.folder / "bin"
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": "/nonexistent", "HF_HUB_OFFLINE": "1"}
    command = [*command_of(STEPS, "ENTRYPOINT"), *command_of(STEPS, "CMD")]
    command[0] = str(bin_ / command[0])
    command = [word.replace("8000", "0").replace("/retrievers", str(retriever.parent)) for word in command]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    assert server.stderr is not None
    try:
        address = None
        for line in server.stderr:
            if address := re.search(r"http://0\.0\.0\.0:(\d+)", line):
                break
        assert address, "the server did not start"
        check = [word.replace("8000", address[1]) for word in command_of(STEPS, "HEALTHCHECK")]
        check[0] = sys.executable
        assert subprocess.run(check, timeout=60).returncode == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert subprocess.run(check, timeout=60, stderr=subprocess.DEVNULL).returncode != 0
    finally:
        server.kill()
