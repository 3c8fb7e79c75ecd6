"""Whole folders: `grls check --index`, the faults that no checksum shows, and changed texts."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from fixture_types import Capsys

from grls.cli import main
from grls.data.corpus import Corpus
from grls.index.index_check import check_index
from grls.io.seal import seal
from grls.retrieve.folder_check import check_folder, format_folder_check
from grls.retrieve.spec import MANIFEST, read_spec

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from fault_folders import write_every_kind, write_indexes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kinds")
    write_every_kind(place)
    write_indexes(place)
    return place


@pytest.fixture
def index(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place / "index-array-whole", tmp_path / "index"))


def rewritten(folder: Path, name: str, change: object) -> None:
    """Change an array and all checksums, as whoever writes a folder wrongly would."""
    array = np.load(folder / f"{name}.npy").copy()
    change(array)  # type: ignore[operator]
    np.save(folder / f"{name}.npy", array)
    seal(folder / "index.json", json.loads((folder / "index.json").read_text()))


def test_every_kind_of_folder_is_whole(place: Path) -> None:
    names = sorted(file.parent.name for file in place.glob("*/grls.json"))
    assert {"bm25", "hybrid", "chains", "link", "sparse", "multi-vector"} <= set(names)
    for name in [*names, "index-marisa-whole", "index-array-prefixes"]:
        report = check_folder(place / name)
        assert report.faults == [], format_folder_check(report)
        assert len(report.parts) >= 2


def test_members_are_checked_once(place: Path) -> None:
    files = [str(part.file.resolve()) for part in check_folder(place / "chains").parts]
    assert len([file for file in files if file.endswith("generative/index/index.json")]) == 1


def swap(array: np.ndarray) -> None:
    array[[0, 1]] = array[[1, 0]]


def first_plus_one(array: np.ndarray) -> None:
    array[0] += 1


@pytest.mark.parametrize(("name", "change", "what"), [
    ("tokens", lambda array: array.__setitem__(0, 5), r"tokens\.npy: it is not what the rows make"),
    ("edge_tokens", first_plus_one, r"edge_tokens\.npy: it is not what the rows make"),
    ("edge_nodes", swap, "edge_nodes"),
    ("members", lambda array: array.__setitem__(0, array[1]), "not every passage has one row"),
    ("depths", lambda array: array.__setitem__(0, 1), r"depths\.npy"),
])  # fmt: skip
def test_an_index_that_was_written_wrongly_is_found(
    index: Path, name: str, change: object, what: str
) -> None:
    rewritten(index, name, change)
    faults = [part.fault for part in check_index(index) if part.fault]
    assert len(faults) == 1
    assert "grls index" in faults[0]
    assert re.search(what, faults[0])


def test_an_index_of_other_passages_is_found(place: Path, tmp_path: Path) -> None:
    """All checksums fit, but the index was built over another text."""
    shutil.copytree(place, tmp_path / "kinds")
    from grls.data.codec import Codec, Limits
    from grls.data.types import Passage
    from grls.index.build import build_index
    from grls.index.storage import save_index
    from grls.models.load.build import load_tokenizer

    folder = tmp_path / "kinds" / "generative"
    codec = Codec(load_tokenizer(str(folder / "model")), Limits())
    corpus = Corpus.read(folder)
    others = [Passage(p.id, p.text.replace("otter", "heron"), p.title) for p in corpus]
    index = build_index(Corpus.from_passages(others), codec)
    save_index(index, folder / "index", codec.fingerprint(), corpus.fingerprint)
    seal(folder / MANIFEST, read_spec(folder))
    faults = check_folder(tmp_path / "kinds" / "hops").faults
    assert len(faults) == 1
    assert "holds other tokens" in faults[0]


def test_the_command_reports_and_ends_with_1(place: Path, tmp_path: Path, capsys: Capsys) -> None:
    assert main(["check", f"--index={place / 'dense'}", f"--output={tmp_path / 'report.json'}"]) == 0
    assert "6 checks, none broken" in capsys.readouterr().out
    assert [part["fault"] for part in json.loads((tmp_path / "report.json").read_text())["parts"]] == [""] * 6
    broken = Path(shutil.copytree(place / "dense", tmp_path / "dense"))
    (broken / "embeddings.npy").write_bytes(b"")
    assert main(["check", "--index", str(broken)]) == 1
    out, err = capsys.readouterr()
    assert "BROKEN  opens" in out
    assert "embeddings.npy: it has changed (0 bytes, expected" in out
    assert err == f"error: {broken}: 2 of 4 checks are broken, see above.\n"
