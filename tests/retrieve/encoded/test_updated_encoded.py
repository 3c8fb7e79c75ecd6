"""Sparse and multi-vector folders after passages were added and removed: those of the new corpus."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_models import tiny_colbert, tiny_splade
from safetensors.numpy import load_file
from small_data import passages, write_jsonl, write_small

import grls
from grls.data.corpus import Corpus
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build
from grls.retrieve.spec import read_spec, update_spec

MODELS: dict[str, Callable[..., Path]] = {"sparse": tiny_splade, "multi-vector": tiny_colbert}
GONE = ["r0", "lynx-calm"]
NEW = {"_id": "new", "title": "", "text": "the otter is proud .", "metadata": {"year": 2001}}


@pytest.mark.parametrize("kind", sorted(MODELS))
@pytest.mark.parametrize("changes", ["both", "add", "remove"])
def test_only_added_passages_are_encoded(kind: str, changes: str, tmp_path: Path, monkeypatch: Any) -> None:
    data = write_small(tmp_path / "data")
    model = MODELS[kind](tmp_path / "model")
    build(str(model), str(data), Building(str(tmp_path / "r"), kind, device="cpu"))
    gone = [] if changes == "add" else GONE
    added = None if changes == "remove" else [NEW]
    records = [one for one in Corpus.read(data).records() if one["_id"] not in gone] + (added or [])
    corpus = write_jsonl(tmp_path / "corpus.jsonl", records)
    build(str(model), str(corpus), Building(str(tmp_path / "anew"), kind, device="cpu"))

    retriever = grls.load(tmp_path / "r", device="cpu")
    encoder = type(retriever.retriever.encoder)  # type: ignore[attr-defined]
    encode, asked = encoder.encode, list[str]()

    def noted(self: Any, texts: Any, role: str, batch_size: int) -> Any:
        asked.extend(texts)
        return encode(self, texts, role, batch_size)

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "encode", noted)
        retriever.updated(added, gone, output=tmp_path / "made")
    assert asked == (["the otter is proud ."] if added else [])
    made, anew = (load_file(tmp_path / name / "embeddings.safetensors") for name in ("made", "anew"))
    assert made.keys() == anew.keys()
    for name in made:
        assert np.allclose(made[name], anew[name], atol=1e-6)
        assert made[name].dtype == anew[name].dtype
    specs = [{**read_spec(tmp_path / name), "embeddings": None} for name in ("made", "anew")]
    assert specs[0] == specs[1]
    assert (tmp_path / "made" / "corpus.jsonl").read_bytes() == (tmp_path / "anew/corpus.jsonl").read_bytes()


def test_a_first_retriever_is_changed_as_well(tmp_path: Path) -> None:
    data = write_small(tmp_path / "data")
    build(str(tiny_colbert(tmp_path / "model")), str(data), Building(str(tmp_path / "r"), "multi-vector"))
    BM25Retriever(Corpus.read(data)).save_pretrained(tmp_path / "words")
    update_spec(tmp_path / "r", {"retriever": "../words", "passages": 4})
    old = grls.load(tmp_path / "r", device="cpu")
    new = old.updated([NEW], GONE)
    assert [len(one.corpus) for one in (old, new)] == [len(passages()), len(passages()) - 1]
    assert read_spec(new.folder)["retriever"] == "members/words"
    assert len(new.search("is the otter proud ?", 9)) == 4
    assert "new" in {hit.id for hit in new.search("proud", 9)}
