"""A folder that only names another retriever: it opens, is tuned and changed as that one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from composite_specs import written
from small_data import passages, queries, small_retriever, write_small

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.errors import DataError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.options import stored_options
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import followed, read_spec, write_link

CPU = Opening("cpu")
ASKED = queries()[:3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that names a fusion within it."""
    place = tmp_path / "run"
    words = BM25Retriever(Corpus.from_passages(passages()))
    for name in ("one", "other"):
        words.save_pretrained(place / "members" / name)
    members = ["../one", "../other"]
    written(place / "members" / "fused", {"kind": "fusion", "members": members, "method": "rrf"})
    (place / "notes.txt").write_text("kept")
    write_link(place, place / "members" / "fused")
    return place


def test_it_opens_as_the_retriever_that_it_names_wherever_it_is_moved(folder: Path, tmp_path: Path) -> None:
    before = load_retriever(folder / "members" / "fused", CPU)
    moved = Path(shutil.move(folder, tmp_path / "elsewhere"))
    opened = load_retriever(moved, CPU)
    assert opened.retrieve(ASKED, 4) == before.retrieve(ASKED, 4)
    assert (opened.describe(), opened.fingerprint()) == (before.describe(), before.fingerprint())
    assert [hit.id for hit in grls.load(moved).search(ASKED[0], 4)] == [
        hit.id for hit in before.retrieve(ASKED[:1], 4)[0]
    ]
    assert (moved / "notes.txt").read_text() == "kept"


def test_a_member_may_be_a_link_and_a_link_may_name_a_link(folder: Path) -> None:
    again = written(folder.parent / "again", {"kind": "link", "retriever": "../run"})
    around = written(
        folder.parent / "around", {"kind": "fusion", "members": ["../again", "../run/members/one"]}
    )
    assert followed(again) == again / "../run" / "members/fused"
    assert len(load_retriever(around, CPU).retrieve(ASKED, 3)) == 3
    embedded = {"kind": "fusion", "members": [{"kind": "link", "retriever": "../run"}, "../run"]}
    assert load_retriever(written(folder.parent / "embedded", embedded), CPU).retrieve(ASKED, 3)


def test_hops_of_the_retriever_are_applied_or_not_as_asked(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    made = small_retriever(data)
    made.save_pretrained(tmp_path / "generator")
    hops = {"steps": "ranked", "max": 2}
    made_of = {"kind": "hybrid", "generator": "../generator", "priors": [{"retriever": "bm25"}]}
    member = written(tmp_path / "hybrid", {**made_of, "hops": hops, "search": {"beams": 7}})
    write_link(tmp_path, member)
    assert load_retriever(tmp_path, CPU).kind == "hops"
    assert load_retriever(tmp_path, Opening("cpu", hop_by_hop=False)).kind == "hybrid"
    assert stored_options(tmp_path) == stored_options(member) == {"hops": hops, "search": {"beams": 7}}


def test_commands_tune_the_retriever_and_not_the_link(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_small(tmp_path / "data")
    link = (folder / "grls.json").read_text()
    assert main(["tune", str(folder), f"--data={data}", "--grid.k=2", "--device=cpu"]) == 0
    assert "recall@2" in capsys.readouterr().out
    assert (folder / "grls.json").read_text() == link
    assert len(read_spec(folder / "members" / "fused")["weights"]) == 2
    command = ["retrieve", str(folder), f"--data={data}", f"--output={tmp_path / 'test'}", "--device=cpu"]
    assert main(command) == 0
    assert json.loads((tmp_path / "test.info.json").read_text())["system"] == "ensemble"


def test_passages_are_removed_from_the_retriever_and_not_from_the_link(tmp_path: Path) -> None:
    small_retriever(write_small(tmp_path / "data")).save_pretrained(tmp_path / "generator")
    write_link(tmp_path, tmp_path / "generator")
    (tmp_path / "gone.txt").write_text(passages()[0].id)
    assert main(["index", "update", str(tmp_path), f"--remove={tmp_path / 'gone.txt'}"]) == 0
    assert read_spec(tmp_path)["kind"] == "link"
    assert (tmp_path / "generator" / "removed.json").is_file()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"retriever": "."}, "which leads back here: name another"),
    ({"retriever": "../gone"}, r"names \.\./gone, but there is no retriever at .*: move it back"),
    ({"retriever": 3}, "expected the path"),
    ({}, "field 'retriever' is missing"),
    ({"retriever": "members/one", "search": {"beams": 3}}, "a link has no search: write it into"),
    ({"retriever": "members/one", "weights": [1]}, "unknown field 'weights' of kind 'link'"),
    ({"retriever": "members/one", "format": 2}, "format 2 of a retriever of kind 'link'"),
]


@pytest.mark.parametrize(("spec", "error"), BAD)
def test_a_link_that_leads_nowhere_is_refused_by_its_file(
    folder: Path, spec: dict[str, Any], error: str
) -> None:
    written(folder, {"kind": "link"} | spec)
    with pytest.raises(DataError, match=rf"run/grls\.json: .*{error}"):
        load_retriever(folder, CPU)


def test_a_retriever_is_no_member_of_itself_through_a_link(folder: Path) -> None:
    written(folder / "members" / "fused", {"kind": "fusion", "members": ["../one", "../.."]})
    with pytest.raises(DataError, match="this retriever itself, or one that it is a member of"):
        load_retriever(folder, CPU)
