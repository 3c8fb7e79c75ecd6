"""Two runs that change one folder in place: the second is refused, so that no change is lost."""

import shutil
from pathlib import Path

import pytest
from failing import fails
from small_data import write_jsonl

from grls.data.corpus import Corpus
from grls.io.work import alone_in


@pytest.fixture(scope="module")
def place(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Path(shutil.copytree(kinds, tmp_path_factory.mktemp("changes") / "kinds"))
    write_jsonl(made / "new.jsonl", [{"_id": "new", "text": "the otter is proud ."}])
    return made


@pytest.mark.parametrize("named", [False, True])
def test_passages_are_not_changed_twice_at_once(
    place: Path, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "generative"
    line = ["index", "update", f"{folder}", f"--add={place / 'new.jsonl'}"]
    with alone_in(folder):
        told = fails(capsys, *line, *([f"--output={folder}"] if named else []))
    assert f"{folder} is being written by another run: wait for it or end it" in told
    assert "new" not in {passage.id for passage in Corpus.read(folder)}


def test_a_folder_is_not_tuned_while_it_changes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = place / "fusion"
    before = (folder / "grls.json").read_bytes()
    with alone_in(folder):
        told = fails(capsys, "tune", f"{folder}", f"--data={place / 'data'}", "--device=cpu")
    assert f"{folder} is being written by another run" in told
    assert (folder / "grls.json").read_bytes() == before
