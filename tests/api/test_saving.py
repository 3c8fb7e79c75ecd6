"""Saved copies: of every kind, wherever they are moved, without a path that leads out of them."""

import json
import re
import shutil
from pathlib import Path

import pytest
from composite_specs import written
from encoder_models import tiny_colbert
from failing import raises

import grls
from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.retrieve.build import Building, build
from grls.retrieve.compose import write_retriever
from grls.retrieve.registry import KINDS as KINDS_KNOWN
from grls.retrieve.registry import class_of
from grls.retrieve.spec import read_spec, update_spec, write_link

KINDS = ("bm25", "dense", "generative", "hybrid", "hops", "ranked", "fusion", "chains", "rescored")
TEXTS = ["is the otter calm ?", "is the lynx quick ?", "is the heron proud ?"]


def load(place: Path) -> Searcher:
    return grls.load(place, device="cpu")


def paths(folder: Path) -> list[str]:
    """The texts that look like paths that leave the folder, in all of its specifications."""
    return [
        text
        for file in folder.rglob("grls.json")
        for text in re.findall(r'"([^"]*/[^"]+)"', file.read_text())
        if text.startswith("/") or not (file.parent / text).resolve().is_relative_to(folder.resolve())
    ]


@pytest.mark.parametrize("name", ["hybrid", "ranked", "chains", "rescored"])
def test_a_copy_of_every_kind_opens_where_it_is_moved(kinds: Path, tmp_path: Path, name: str) -> None:
    original = load(kinds / name)
    saved = original.save(tmp_path / "saved")
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(saved, moved)
    assert paths(moved) == []
    texts = [file.read_bytes() for file in moved.rglob("*") if file.suffix in (".json", ".md", ".txt")]
    assert not any(str(kinds).encode() in text for text in texts)
    opened = load(moved)
    assert opened.search(TEXTS, 4) == original.search(TEXTS, 4)
    again = load(opened.save(tmp_path / "again"))  # a copy of a copy
    assert again.search(TEXTS, 4) == original.search(TEXTS, 4)
    assert sorted(file.relative_to(again.folder) for file in again.folder.rglob("*")) == sorted(
        file.relative_to(moved) for file in moved.rglob("*")
    )


def test_a_shared_member_is_copied_once(kinds: Path, tmp_path: Path) -> None:
    load(kinds / "chains")  # a generator and a bi-encoder
    dense = load(kinds / "dense")
    both = grls.fuse([dense.hops(max=2), dense, load(kinds / "bm25")])
    saved = both.save(tmp_path / "saved")
    members = sorted(path.name for path in (saved / "members").iterdir())
    assert members == ["bm25", "dense", "hops"]
    assert read_spec(saved)["members"] == ["members/hops", "members/dense", "members/bm25"]
    assert read_spec(saved / "members" / "hops")["retriever"] == "../dense"
    assert load(saved).search(TEXTS, 4) == both.search(TEXTS, 4)


def test_members_of_one_name_get_different_places(kinds: Path, tmp_path: Path) -> None:
    shutil.copytree(kinds / "dense", tmp_path / "a" / "Same")
    shutil.copytree(kinds / "bm25", tmp_path / "b" / "same")
    both = grls.fuse([load(tmp_path / "a" / "Same"), load(tmp_path / "b" / "same")])
    saved = both.save(tmp_path / "saved")
    assert read_spec(saved)["members"] == ["members/Same", "members/same-2"]
    assert load(saved).search(TEXTS, 4) == both.search(TEXTS, 4)


def test_a_corpus_elsewhere_is_copied_alone(kinds: Path, tmp_path: Path) -> None:
    for named in (str(kinds / "data"), str(kinds / "data" / "corpus.jsonl")):
        bm25 = load(written(tmp_path / "bm25", {"kind": "bm25", "corpus": named}))
        saved = bm25.save(tmp_path / "saved")
        assert paths(saved) == []
        assert [path.name for path in (saved / "members").rglob("*") if path.is_file()] == ["corpus.jsonl"]
        assert load(saved).search(TEXTS, 4) == bm25.search(TEXTS, 4)


def test_bm25_in_memory_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_to: list[Path] = []
    write_corpus = Corpus.write
    monkeypatch.setattr(
        Corpus, "write", lambda corpus, path: (written_to.append(path), write_corpus(corpus, path))[1]
    )
    bm25 = grls.BM25(TEXTS)
    saved = bm25.save(tmp_path / "saved")
    assert len(written_to) == 1
    assert bm25.folder is None
    assert load(saved).search("otter", 4) == bm25.search("otter", 4)
    (tmp_path / "other" / "file").mkdir(parents=True)
    raises(ConfigError, "holds no grls.json", bm25.save, tmp_path / "other")


def test_a_link_is_packed_as_what_it_leads_to(kinds: Path, tmp_path: Path) -> None:
    write_link(tmp_path / "run", kinds / "fusion")
    saved = load(tmp_path / "run").save(tmp_path / "saved")
    assert read_spec(saved)["kind"] == "fusion"
    assert load(saved).search(TEXTS, 4) == load(kinds / "fusion").search(TEXTS, 4)


def test_options_and_checksums_stay(kinds: Path, tmp_path: Path) -> None:
    folder = tmp_path / "generative"
    shutil.copytree(kinds / "generative", folder)
    spec = read_spec(folder)
    spec["search"] = {"beams": 3}
    (folder / "grls.json").write_text(json.dumps(spec))
    saved = load(folder).save(tmp_path / "saved")
    assert read_spec(saved) == spec
    embeddings = load(kinds / "dense").save(tmp_path / "dense") / "embeddings.npy"
    embeddings.write_bytes(embeddings.read_bytes()[:-1] + b"x")
    raises(MismatchError, "embeddings.npy: it has changed", load, tmp_path / "dense")


def test_a_folder_may_be_replaced_by_its_own_copy(kinds: Path, tmp_path: Path) -> None:
    shutil.copytree(kinds / "dense", tmp_path / "dense")
    hops = load(tmp_path / "dense").hops(max=2, output=tmp_path / "hops")
    expected = hops.search(TEXTS, 4)
    hops.save(tmp_path / "hops")
    shutil.rmtree(tmp_path / "dense")
    assert load(tmp_path / "hops").search(TEXTS, 4) == expected
    load(tmp_path / "hops").save(tmp_path / "hops")  # with its members inside
    assert load(tmp_path / "hops").search(TEXTS, 4) == expected


def test_what_would_be_lost_is_refused(kinds: Path, tmp_path: Path) -> None:
    shutil.copytree(kinds / "dense", tmp_path / "dense")
    hops = load(tmp_path / "dense").hops(max=2, output=tmp_path / "hops")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    packed = load(hops.save(tmp_path / "packed") / "members" / "dense")
    for call, said in (
        (lambda: hops.save(tmp_path / "notes"), "exists and holds no grls.json"),
        (lambda: hops.save(tmp_path / "file"), "is a file"),
        (lambda: hops.save(tmp_path / "dense"), "a member of the retriever"),
        (lambda: packed.save(tmp_path / "packed"), "would be lost"),
        (lambda: packed.hops(2, output=tmp_path / "packed"), "a member of the retriever, which would be"),
        (lambda: packed.hops(2, output=packed.folder), "a member of the retriever, which would be lost"),
    ):
        before = sorted(tmp_path.rglob("*"))
        raises(GrlsError, said, call)
        assert sorted(tmp_path.rglob("*")) == before
    raises(DataError, "no retriever here", write_retriever, tmp_path / "notes", tmp_path / "made")
    with pytest.raises(ConfigError):
        write_retriever(tmp_path / "dense", tmp_path)


def test_what_a_multi_vector_retriever_reads_first_is_a_member(kinds: Path, tmp_path: Path) -> None:
    folder = tmp_path / "colbert"
    built = build(
        str(tiny_colbert(tmp_path / "model")), str(kinds / "data"),
        Building(str(folder), "auto", device="cpu"),
    )  # fmt: skip
    assert "10 passages" in built
    for first in (str(kinds / "dense"), "bm25"):
        update_spec(folder, {"retriever": first, "passages": 3})
        original = load(folder)
        saved = original.save(tmp_path / "saved")
        assert paths(saved) == []
        assert read_spec(saved)["retriever"] == ("bm25" if first == "bm25" else "members/dense")
        assert load(saved).search(TEXTS, 4) == original.search(TEXTS, 4)


def test_every_field_that_names_a_folder_is_known(kinds: Path) -> None:
    """A path that leaves the folder, in a folder of any kind, is one that packing follows."""
    for name in KINDS:
        spec = read_spec(kinds / name)
        texts = re.findall(r'"(\.\./[^"]*)"', json.dumps(spec))
        fields = class_of(spec["kind"]).folders if texts else ()  # type: ignore[attr-defined]
        assert bool(texts) <= bool(fields), name
    assert sorted(KINDS_KNOWN) == sorted(
        [*{read_spec(kinds / name)["kind"] for name in KINDS}, "sparse", "multi-vector", "link"]
    )
