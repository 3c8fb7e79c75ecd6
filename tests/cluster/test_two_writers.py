"""Two runs that would write the same shards: the second one is refused, and the first one ends."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from encoder_models import tiny_splade
from failing import fails
from small_data import contents

from grls.cluster import shards
from grls.cluster.options import LOCAL, WorkerOptions, Workers
from grls.cluster.plan import held_shards, shards_folder
from grls.errors import WriteError
from grls.io import work
from grls.io.work import alone_in
from grls.retrieve.build import Building, build

REFUSED = r"\.shards is being written by another run: wait for it or end it"
SHARED = Workers(LOCAL, WorkerOptions(count=2))


@pytest.mark.parametrize("kind", ["dense", "generative"])
def test_a_second_run_that_builds_a_folder_is_refused(kinds: Path, tmp_path: Path, kind: str) -> None:
    model, workers = (kinds / "bert", None) if kind == "dense" else (kinds / "generative" / "model", SHARED)
    how = Building(f"{tmp_path}/out", kind, device="cpu", workers=workers)
    with held_shards(how.output), pytest.raises(WriteError, match=REFUSED):
        build(str(model), str(kinds / "data"), how)
    assert not (tmp_path / "out").exists()
    assert not shards_folder(how.output).exists()
    if workers is None:
        build(str(model), str(kinds / "data"), how)
        assert (tmp_path / "out" / "grls.json").is_file()
        assert not shards_folder(how.output).exists()


def test_the_first_run_ends_though_a_second_one_comes(
    kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run comes when the first one has encoded, and has not saved."""
    model, data = str(tiny_splade(tmp_path / "model")), str(kinds / "data")
    how = Building(f"{tmp_path}/out", "sparse", device="cpu")
    build(model, data, replace(how, output=f"{tmp_path}/alone"))
    real, refused = shards.done_by_workers, []

    def again(*work: Any) -> Any:
        monkeypatch.setattr(shards, "done_by_workers", real)
        done = real(*work)
        with pytest.raises(WriteError, match=REFUSED) as error:
            build(model, data, how)
        refused.append(error.value)
        return done

    monkeypatch.setattr(shards, "done_by_workers", again)
    build(model, data, how)
    assert len(refused) == 1
    assert contents(tmp_path / "alone") == contents(tmp_path / "out")
    assert not shards_folder(how.output).exists()


def test_a_second_run_that_retrieves_is_refused(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    command = ["retrieve", "bm25", f"--data={kinds / 'data'}", "--split=dev", f"--output={tmp_path}/out"]
    with held_shards(tmp_path / "out"):
        told = fails(capsys, *command, "--ray=local", "--device=cpu")
    assert "is being written by another run" in told
    assert not list(tmp_path.glob("out.trec")) + list(tmp_path.glob("out.jsonl"))


def test_a_folder_that_its_holder_removes_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder ends between the opening of its folder and the lock: a removed folder must not be held."""
    folder = tmp_path / "shards"
    real, ended = work._lock, []

    def lock(stream: int, path: Path) -> bool:
        if not ended:
            ended.append(folder.rmdir())
        return real(stream, path)

    monkeypatch.setattr(work, "_lock", lock)
    with alone_in(folder):
        assert folder.is_dir()
        with pytest.raises(WriteError, match="another run"), alone_in(folder):
            pass
    assert not folder.exists()
