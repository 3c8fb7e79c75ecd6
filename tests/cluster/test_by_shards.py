"""Work in shards, one after the other in this process: the results of one process, byte for byte."""

from pathlib import Path
from typing import Any

import pytest
from encoder_models import tiny_colbert, tiny_splade
from small_data import contents, of_spans, tiny_bert

from grls.cluster.options import WorkerOptions, Workers
from grls.cluster.plan import shards_folder
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, MismatchError
from grls.index.options import IndexOptions
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative import folder
from grls.retrieve.registry import Opening, class_of, load_retriever


@pytest.fixture(scope="module")
def model(kinds: Path) -> str:
    return str(kinds / "generative" / "model")


def here(shard: int) -> Workers:
    return Workers(None, WorkerOptions(shard=shard))


@pytest.mark.parametrize(
    ("form", "words", "shard"),
    [("whole", 0, 3), ("whole", 3, 100), ("prefixes", 3, 3), ("prefixes", 0, 100)],
)
def test_an_index_of_shards_has_the_bytes_of_one_process(
    data: Path, model: str, tmp_path: Path, form: str, words: int, shard: int
) -> None:
    options = IndexOptions(form=form)  # type: ignore[arg-type]
    if words:
        model = str(of_spans(Path(model), tmp_path / "model", words))
    build(model, str(data), Building(f"{tmp_path}/one", "generative", options))
    line = build(model, str(data), Building(f"{tmp_path}/two", "generative", options, workers=here(shard)))
    assert line.startswith(f"{tmp_path}/two: 10 passages")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert sorted(file.name for file in tmp_path.iterdir()) == [*["model"] * bool(words), "one", "two"]


def test_a_kill_costs_a_small_part_of_an_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Corpus.from_passages(Passage(f"p{n}", "a text") for n in range(600)).write(tmp_path / "corpus.jsonl")

    def dying(*rest: Any) -> Any:
        assert rest[3] == (0, 0, 512)
        raise KeyboardInterrupt

    monkeypatch.setattr(DenseRetriever, "encode_shard", dying)
    how = Building(f"{tmp_path}/r", "dense", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        build(str(tiny_bert(tmp_path / "bert")), str(tmp_path), how)


@pytest.mark.parametrize("kind", ["dense", "sparse", "multi-vector"])
def test_a_killed_encoding_goes_on_where_it_stopped(
    kind: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard at a time is on disk and in memory; the bytes do not depend on where the run was killed."""
    made_by: Any = class_of(kind)
    makers = {"dense": tiny_bert, "sparse": tiny_splade, "multi-vector": tiny_colbert}
    model = str(makers[kind](tmp_path / "model"))
    monkeypatch.setattr(made_by, "part", 4)
    real, asked = made_by.encode_shard, list[int]()

    def dying(*rest: Any) -> Any:
        asked.append(rest[3].number)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(*rest)

    how = Building(f"{tmp_path}/r", kind, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(made_by, "encode_shard", dying)
        with pytest.raises(KeyboardInterrupt):
            build(model, str(data), how)
        build(model, str(data), how)
    assert asked == [0, 1, 1, 2]
    line = build(model, str(data), Building(f"{tmp_path}/whole", kind, device="cpu"))
    assert "10 passages, " in line
    assert contents(tmp_path / "r") == contents(tmp_path / "whole")
    build(model, str(data), Building(f"{tmp_path}/rest", kind, device="cpu", batch_size=1, workers=here(100)))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "r", "rest", "whole"]
    one, other = (load_retriever(tmp_path / name, Opening("cpu")) for name in ("whole", "rest"))
    queries = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]
    for hits, same in zip(one.retrieve(queries, 5), other.retrieve(queries, 5), strict=True):
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in same], abs=1e-5)


def test_a_killed_build_keeps_its_shards(
    data: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = Building(f"{tmp_path}/r", "generative", workers=here(4))

    def killed(*rest: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folder, "index_of_shards", killed)
        with pytest.raises(KeyboardInterrupt):
            build(model, str(data), how)
    kept = shards_folder(tmp_path / "r")
    assert sorted(file.name for file in kept.iterdir()) == [
        "plan.json", "shard-00000", "shard-00001", "shard-00002",
    ]  # fmt: skip
    Corpus.read(data).select(range(9)).write(tmp_path / "other" / "corpus.jsonl")
    with pytest.raises(MismatchError, match=r"other settings \(corpus, items"):
        build(model, str(tmp_path / "other"), how)
    build(model, str(data), how)
    assert not kept.exists()


def test_what_no_workers_build_is_refused(data: Path, model: str, tmp_path: Path) -> None:
    flat = Building(f"{tmp_path}/r", "generative", IndexOptions(backend="flat"), workers=here(4))
    with pytest.raises(ConfigError, match="'array' only; got 'flat'"):
        build(model, str(data), flat)
    with pytest.raises(ConfigError, match="a retriever of kind 'rescored' has no ray; leave it out"):
        build(model, str(data), Building(f"{tmp_path}/r", "rescored", workers=here(4)))
