"""Passages that are added and removed: as over a new corpus, for every kind, and nothing is lost."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from composite_specs import COMPOSITES, written
from failing import fails, raises
from llama_small import write_llama
from small_data import ANIMALS, passages, write_jsonl
from toy_kind import TARGET

import grls
from grls.api.searcher import Searcher
from grls.cli import main
from grls.commands.retrievers import refuse_other_corpus
from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, IndexFormatError, MismatchError
from grls.identifiers.spans import Spans
from grls.io import files, seal
from grls.models.biencoder import BiEncoderModel
from grls.models.load.generators import CausalLM, Pretrained
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.registry import KINDS, register
from grls.retrieve.spec import read_spec, update_spec
from grls.retrieve.update import Changes, update_folder

TEXTS = ["is the otter calm ?", "is the lynx quick ?", "is the heron proud ?"]
ADDED = [
    {"_id": "new", "text": "the otter is proud .", "metadata": {"year": 2001}},
    {"_id": "lynx-calm", "title": "lynx", "text": "the lynx is calm and proud .", "metadata": {}},
]
GONE = ["r0", "lynx-calm"]


def load(folder: Path) -> Searcher:
    return grls.load(folder, device="cpu")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_what_is_tuned_stays(kinds: Path, tmp_path: Path) -> None:
    options = {"search": {"beams": 7}, "hops": {"steps": "dynamic", "max": 3}}
    for kind in ("generative", "dense"):
        folder = shutil.copytree(kinds / kind, tmp_path / kind)
        stored = {"hops": options["hops"]} if kind == "dense" else options
        update_spec(folder, stored)
        assert main(["index", "update", f"{folder}", f"--remove={_ids(tmp_path)}"]) == 0
        spec = read_spec(folder)
        assert {name: spec[name] for name in stored} == stored
        assert load(folder).describe().steps == "dynamic"


def _ids(place: Path) -> Path:
    (place / "gone.txt").write_text("".join(f"{one}\n" for one in GONE))
    return place / "gone.txt"


@pytest.mark.parametrize("kind", ["bm25", "hybrid"])
def test_a_folder_is_changed_in_place_or_left_as_it_was(
    kind: str,
    kinds: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = load(kinds / kind).save(tmp_path / "r")
    before = files_of(folder)
    write_jsonl(tmp_path / "new.jsonl", ADDED)
    line = ["index", "update", f"{folder}", f"--add={tmp_path / 'new.jsonl'}"]
    refused = fails(capsys, *line)
    assert "'lynx-calm' is used already" in refused
    assert "To replace a passage, remove it in the same call" in refused
    assert files_of(folder) == before
    line.append(f"--remove={_ids(tmp_path)}")
    with monkeypatch.context() as patch:
        patch.setattr(files, "put", _no_space)
        assert "No space left" in fails(capsys, *line)
    assert files_of(folder) == before
    assert main(line) == 0
    assert f"{folder}: 10 passages, " in capsys.readouterr().out
    assert load(folder).corpus.ids([8, 9]) == ["new", "lynx-calm"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["gone.txt", "new.jsonl", "r"]


def _no_space(new: Path, final: Path) -> None:
    raise OSError(28, "No space left on device")


def test_members_stay_as_they_are(kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {kind: files_of(kinds / kind) for kind in ("generative", "dense", "hybrid")}
    line = [
        "index", "update", f"{kinds / 'hybrid'}", f"--remove={_ids(tmp_path)}",
        f"--output={tmp_path / 'h'}",
    ]  # fmt: skip
    assert main(line) == 0
    assert {kind: files_of(kinds / kind) for kind in before} == before
    assert sorted(one.name for one in (tmp_path / "h" / "members").iterdir()) == ["dense", "generative"]
    assert "which would be lost" in fails(capsys, *line[:-1], f"--output={kinds / 'dense'}")


def test_a_built_in_bm25_is_changed_with_the_folder_around_it(kinds: Path, tmp_path: Path) -> None:
    """A cross-encoder over BM25 holds the passages itself; a fusion may name those of a data set."""
    line = ["index", f"{kinds / 'encoder'}", "--kind=rescored", f"--corpus={kinds / 'data'}", "--device=cpu"]
    assert main([*line, f"--output={tmp_path / 'r'}"]) == 0
    shutil.copytree(kinds / "data", tmp_path / "data")
    members = [{"kind": "bm25", "corpus": "../data"}, {"kind": "bm25", "corpus": "../data", "b": 0.5}]
    written(tmp_path / "f", {"kind": "fusion", "members": members, "method": "rrf"})
    for name in ("r", "f"):
        new = load(tmp_path / name).updated(add={"new": "the otter is proud ."}, remove=GONE)
        assert len(new.corpus) == len(passages()) - 1
        assert "new" in {hit.id for hit in new.search("is the otter proud ?", 9)}
    assert len(Corpus.read(tmp_path / "data")) == len(passages())


def test_what_cannot_be_changed_is_said(kinds: Path, tmp_path: Path) -> None:
    dense = load(kinds / "dense")
    with pytest.raises(DataError, match="'zebra' is not in the corpus, so it cannot be removed"):
        dense.updated(remove=["zebra"])
    raises(ConfigError, "nothing to do: give passages to add, or ids", dense.updated)
    with pytest.raises(ConfigError, match="remove must be a list of texts or whole numbers, got 'r0'; write"):
        dense.updated(remove="r0")
    raises(ConfigError, "remove must be a list of texts or whole numbers, got 7", dense.updated, remove=7)
    raises(ConfigError, "nothing to do: give passages to add, or ids", dense.updated, remove=None)
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        load(kinds / "bm25").updated(remove=["r0"], batch_size=0)
    with pytest.raises(ConfigError, match="the last passage cannot be removed"):
        dense.updated(remove=[one.id for one in passages()])
    raises(DataError, "its text is empty", dense.updated, add=[""])
    register("toy", TARGET)
    try:
        corpus = Corpus.read(kinds / "data")
        corpus.write(tmp_path / "toy" / "corpus.jsonl")
        written(tmp_path / "toy", {"kind": "toy"})
        written(tmp_path / "two", {"kind": "fusion", "members": ["../toy", "../toy"], "method": "rrf"})
        for name in ("toy", "two"):
            with pytest.raises(ConfigError, match=f"{tmp_path / 'toy'}: passages of .* kind 'toy' cannot be"):
                grls.load(tmp_path / name).updated(remove=GONE)
    finally:
        del KINDS["toy"]


def test_a_damaged_folder_is_not_changed(kinds: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kinds / "dense", tmp_path / "dense")
    opened = load(folder)
    rows = np.load(folder / "embeddings.npy")
    rows[0] += 1
    np.save(folder / "embeddings.npy", rows)
    raises(MismatchError, "embeddings.npy: it has changed", opened.updated, remove=GONE)


@pytest.mark.parametrize("kind", ["bm25", "fusion", "rescored"])
def test_passages_that_have_changed_get_no_new_fingerprint(kind: str, kinds: Path, tmp_path: Path) -> None:
    for name in ("bm25", "dense", "fusion"):
        shutil.copytree(kinds / name, tmp_path / name)
    line = ["index", f"{kinds / 'encoder'}", "--kind=rescored", f"--corpus={kinds / 'data'}", "--device=cpu"]
    assert main([*line, f"--output={tmp_path / 'rescored'}"]) == 0
    file = tmp_path / ("rescored" if kind == "rescored" else "bm25") / "corpus.jsonl"
    file.write_text(file.read_text().replace("calm", "clam"))
    with pytest.raises(MismatchError, match=f"{file}: it has changed"):
        update_folder(tmp_path / kind, tmp_path / "new", Changes(remove=["lynx-calm"]))
    assert not (tmp_path / "new").exists()


def test_a_flipped_byte_of_a_large_index_gets_no_new_checksum(
    kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a search, blocks of it alone are compared."""
    retriever = GenerativeRetriever.from_pretrained(kinds / "generative", "cpu")
    monkeypatch.setattr(seal, "CHECKED_BYTES", 0)
    monkeypatch.setattr(seal, "_SAMPLE_BYTES", 1)
    retriever.save_pretrained(tmp_path / "r")
    (file,) = (tmp_path / "r").rglob("tokens.npy")
    content = bytearray(file.read_bytes())
    content[140] ^= 1
    file.write_bytes(content)
    assert load(tmp_path / "r").search(TEXTS, 2)
    with pytest.raises(IndexFormatError, match="the checksum differs"):
        load(tmp_path / "r").updated(remove=["lynx-calm"])


@pytest.mark.parametrize("kind", ["hybrid", "ranked"])
def test_an_updated_folder_names_the_corpus_that_it_is_measured_over(
    kind: str, kinds: Path, tmp_path: Path
) -> None:
    """The error said only how to make the retriever again, which undoes the update."""
    data, room = shutil.copytree(kinds / "data", tmp_path / "data"), tmp_path / "new"
    write_jsonl(tmp_path / "added.jsonl", ADDED[:1])
    assert (
        main(["index", "update", f"{kinds / kind}", f"--add={tmp_path / 'added.jsonl'}", f"--output={room}"])
        == 0
    )
    opened = load(room).retriever
    with pytest.raises(
        MismatchError, match=r"grls index. over it; if the retriever is .*copy its corpus"
    ) as told:
        refuse_other_corpus(opened, str(data), "dev")
    named = str(told.value).split("copy its corpus ")[1].split(" to ")[0]
    assert Path(named).is_relative_to(room)
    shutil.copyfile(named, data / "corpus.jsonl")
    refuse_other_corpus(opened, str(data), "dev")


def _generator(kind: str, kinds: Path, corpus: Corpus) -> GenerativeRetriever:
    model = kinds / "generative" / "model" if kind == "generative" else kinds / "llama"
    loaded = (Pretrained if kind == "generative" else CausalLM)(str(model)).load()
    parts = loaded.model.eval(), loaded.tokenizer, corpus, Limits()
    return GenerativeRetriever.assemble(
        *parts, options=SearchOptions(beams=200), kind=Spans(3) if kind == "spans" else None
    )


def _over(kind: str, kinds: Path, place: Path, corpus: Corpus) -> Path:
    """A folder of a kind over a corpus, made anew."""
    corpus.write(place / "data" / "corpus.jsonl")
    if not (kinds / "llama").is_dir():
        write_llama(kinds / "llama", kinds / "data")
    for name in ("generative", "llama", "spans") if kind in ("llama", "spans") else ("generative",):
        if name in (kind, "generative"):
            _generator(name, kinds, corpus).save_pretrained(place / name)
    if kind in COMPOSITES or kind == "dense":
        biencoder = BiEncoderModel.load(str(kinds / "dense" / "model"), device="cpu")
        DenseRetriever.assemble(biencoder, corpus).save_pretrained(place / "dense")
        (place / "encoder").symlink_to(kinds / "encoder")
    if kind in COMPOSITES or kind == "bm25":
        grls.BM25(corpus, output=place / "bm25")
    if kind in COMPOSITES:
        written(place / kind, COMPOSITES[kind])
    return place / kind


@pytest.mark.parametrize("kind", ["generative", "llama", "spans", "dense", "bm25", *COMPOSITES])
def test_any_changes_find_what_one_over_the_new_corpus_finds(kind: str, kinds: Path, tmp_path: Path) -> None:
    """Passages come and go, under their old ids too: by `grls index update` and `updated`."""
    rng = random.Random(f"changes of {kind}")
    live = {one.id: one for one in passages()}
    gone: list[str] = []
    folder = tmp_path / "changed"
    load(_over(kind, kinds, tmp_path / "first", Corpus.read(kinds / "data"))).save(folder)
    again = 0
    for step in range(4):
        removed = rng.sample(sorted(live), rng.randint(1, 2))
        fresh = [f"new{step}", *rng.sample(gone, min(len(gone), rng.randint(1, 2))), *removed[:1]]
        added = [
            Passage(name, f"the {rng.choice(ANIMALS)} is {rng.choice(['calm', 'quick'])} and proud .", name)
            for name in rng.sample(fresh, rng.randint(0, len(fresh)) if step else 1)
        ]
        again += len({one.id for one in added} & {*gone, *removed})
        live = {name: one for name, one in live.items() if name not in removed} | {p.id: p for p in added}
        gone = sorted({*gone, *removed} - set(live))
        corpus = Corpus.from_passages(added, "added") if added else None
        changes = Changes(corpus, removed)
        if step % 2:
            folder = Path(load(folder).updated(corpus, removed, output=tmp_path / f"{step}").folder)
        else:
            update_folder(folder, None, changes)
        anew = load(_over(kind, kinds, tmp_path / f"anew{step}", Corpus.from_passages(live.values())))
        changed = load(folder)
        for hits, expected in zip(changed.search(TEXTS, 6), anew.search(TEXTS, 6), strict=True):
            assert [hit.id for hit in hits] == [hit.id for hit in expected]
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)
        assert changed.corpus.fingerprint == anew.corpus.fingerprint
        for hits in changed.search(TEXTS, 20):
            assert {hit.id: hit.text for hit in hits}.items() <= {n: p.text for n, p in live.items()}.items()
    assert again


@pytest.mark.parametrize(("kind", "renamed"), [
    ("generative", True), ("spans", False), ("dense", True), ("hybrid", False), ("chains", True),
    ("rescored", False),
])  # fmt: skip
def test_all_passages_can_be_replaced_at_once(kind: str, renamed: bool, kinds: Path, tmp_path: Path) -> None:
    searcher = load(_over(kind, kinds, tmp_path, Corpus.read(kinds / "data")))
    ids = [one.id for one in passages()]
    new = {f"new {name}" if renamed else name: f"the owl is {name} ." for name in ids}
    replaced = searcher.updated(add=new, remove=ids)
    hits = replaced.search("the owl is calm", 20)
    assert hits
    assert {hit.id: hit.text for hit in hits}.items() <= new.items()
    raises(ConfigError, "the last passage cannot be removed", replaced.updated, remove=list(new))
