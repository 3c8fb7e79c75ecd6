"""A folder that one training writes is refused to another, in another process and in the same one."""

import subprocess
import sys
from pathlib import Path

import pytest
from biencoder_helpers import options as biencoder_options
from failing import fails
from train_helpers import arguments

from grls.errors import WriteError
from grls.train.core.processes import only_training

HOLDS = """
import sys
from grls.io.work import alone_in
with alone_in(sys.argv[1]):
    print("holds", flush=True)
    sys.stdin.read()
"""


def line(kind: str, place: Path, output: Path) -> list[str]:
    if kind == "biencoder":
        return biencoder_options(place, output)
    if kind == "retrieve":
        return ["train", *arguments("retrieve", place / "data", output)]
    files = [f"--{name}={place / name}.jsonl" for name in ("train", "dev")]
    return ["train", "reranker", *files, f"--data={place / 'data'}", f"--output={output}"]


@pytest.mark.parametrize("kind", ["biencoder", "retrieve", "reranker"])
def test_a_second_training_is_refused(
    kind: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    with only_training(output):
        told = fails(capsys, *line(kind, place, output))
        assert f"{output} is being written by another run: wait for it or end it" in told
        assert not list(output.iterdir())


def test_the_lock_of_another_process_ends_with_it(tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        with pytest.raises(WriteError, match="written by another run"), only_training(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()
    with only_training(tmp_path):
        pass


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID"])
def test_the_first_process_of_a_training_holds_its_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with only_training(tmp_path):
        monkeypatch.setenv(name, "1")
        with only_training(tmp_path):
            pass
        monkeypatch.setenv(name, "0")
        with pytest.raises(WriteError, match="written by another run"), only_training(tmp_path):
            pass
