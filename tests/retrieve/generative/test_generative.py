"""A retriever on disk: the same after a round trip, refused where it is damaged or mixed up."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_data import passages, scratch, small_retriever, small_tokenizer, write_small

from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, GrlsError, IndexFormatError, MismatchError
from grls.models.precision import is_packed, packs
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.spec import read_spec

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?")]


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    return small_retriever(write_small(tmp_path_factory.mktemp("gen") / "data"))


@pytest.fixture(scope="module")
def original(retriever: GenerativeRetriever, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "retriever"
    retriever.save_pretrained(folder)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "retriever"))


def test_a_round_trip_changes_no_hit(retriever: GenerativeRetriever, saved: Path) -> None:
    back = GenerativeRetriever.from_pretrained(saved, device="cpu")
    assert back.retrieve(QUERIES, 5) == retriever.retrieve(QUERIES, 5)
    assert list(back.corpus) == passages()
    assert back.codec.limits == retriever.codec.limits
    assert sorted(f.name for f in saved.iterdir()) == ["corpus.jsonl", "grls.json", "index", "model"]
    assert not [f for f in saved.rglob("*") if f.suffix in (".bin", ".pkl", ".pt")], "no pickle"


@pytest.mark.parametrize("backend", ["flat", "marisa"])
def test_every_backend_survives_and_finds_the_same(
    retriever: GenerativeRetriever, tmp_path: Path, backend: str
) -> None:
    other = GenerativeRetriever.assemble(
        retriever.model, retriever.codec.tokenizer, retriever.corpus, Limits(), backend
    )
    other.save_pretrained(tmp_path / "r")
    back = GenerativeRetriever.from_pretrained(tmp_path / "r", device="cpu")
    assert back.index.backend == backend
    assert back.retrieve(QUERIES, 5) == retriever.retrieve(QUERIES, 5)


@pytest.mark.parametrize("precision", ["float16-weights", "int8", "auto"])
def test_every_precision_opens_and_finds(
    retriever: GenerativeRetriever, saved: Path, tmp_path: Path, precision: str
) -> None:
    if precision != "auto" and not packs(precision):
        pytest.skip(f"this build of PyTorch does not pack {precision}")
    opened = GenerativeRetriever.from_pretrained(saved, device="cpu", precision=precision)
    near = 0.3 if precision == "int8" else 0.03
    for found, expected in zip(opened.retrieve(QUERIES, 5), retriever.retrieve(QUERIES, 5), strict=True):
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=near)
    if is_packed(opened.model):
        with pytest.raises(ConfigError, match="open it in float32 to save it"):
            opened.save_pretrained(tmp_path / "again")
        assert not (tmp_path / "again").exists()


def test_compile_takes_the_search_for_gpus(
    retriever: GenerativeRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the model is; the compiler itself is tested in tests/decode/gpu/test_step.py."""
    compiled: list[str] = []

    def compile_nothing(work: Any, **how: Any) -> Any:
        compiled.append(work.__name__)
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)
    other = GenerativeRetriever(
        retriever.model, retriever.codec, retriever.corpus, retriever.index, SearchOptions(compile=True)
    )
    for _ in range(2):
        for found, expected in zip(other.retrieve(QUERIES, 5), retriever.retrieve(QUERIES, 5), strict=True):
            assert [hit.id for hit in found] == [hit.id for hit in expected]
            assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)
    assert compiled == ["write", "settle"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("flat", "another backend than 'array'"),
        ("added", "grls index update --merge true"),
        ("model", "a T5ForConditionalGeneration's decoder cannot be driven by slots"),
        ("spans", "the generator writes spans of passages"),
    ],
)
def test_compile_is_refused_where_it_cannot_be_heeded(
    retriever: GenerativeRetriever, case: str, message: str
) -> None:
    backend = "flat" if case == "flat" else "array"
    other = GenerativeRetriever.assemble(
        retriever.model, retriever.codec.tokenizer, retriever.corpus, Limits(), backend,
        SearchOptions(compile=True), span_words=3 if case == "spans" else None,
    )  # fmt: skip
    if case == "added":
        other.add([Passage("new", "the otter is proud .")])
    if case == "model":
        other.trees = None  # what is found for BART
    with pytest.raises(ConfigError, match=message):
        other.retrieve(QUERIES, 5)


def test_limits_are_kept(retriever: GenerativeRetriever, tmp_path: Path) -> None:
    limits = Limits(passage=3, query=20, input=40)
    short = GenerativeRetriever.assemble(retriever.model, retriever.codec.tokenizer, retriever.corpus, limits)
    short.save_pretrained(tmp_path / "r")
    assert GenerativeRetriever.from_pretrained(tmp_path / "r").codec.limits == limits


def test_done_is_never_a_hit(retriever: GenerativeRetriever) -> None:
    for hits in retriever.retrieve(QUERIES, 50):
        assert {hit.id for hit in hits} == {p.id for p in passages()}
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)


def test_bfloat16_loads(saved: Path) -> None:
    back = GenerativeRetriever.from_pretrained(saved, device="cpu", precision="bfloat16")
    assert len(back.retrieve(QUERIES, 3)[0]) == 3


def test_saving_replaces_the_earlier_retriever(retriever: GenerativeRetriever, saved: Path) -> None:
    (saved / "old.txt").write_text("old")
    retriever.save_pretrained(saved)
    assert not (saved / "old.txt").exists()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [(cut, "truncated"), (flip, "the checksum differs"), (Path.unlink, "the file is missing")],
)
@pytest.mark.parametrize("name", ["tokens", "offsets", "members"])
def test_a_damaged_index_is_refused(
    saved: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    damage(saved / "index" / f"{name}.npy")
    with pytest.raises(IndexFormatError, match=rf"{name}\.npy: .*{message}.*grls index"):
        GenerativeRetriever.from_pretrained(saved)


def test_another_version_of_the_index_is_refused(saved: Path) -> None:
    file = saved / "index" / "index.json"
    manifest = json.loads(file.read_text())
    for change, read in (({"format": 99}, "2: install a newer grls"), ({"backend": "btree"}, "array, ")):
        file.write_text(json.dumps(manifest | change))
        with pytest.raises(IndexFormatError, match=f"this version reads {read}"):
            GenerativeRetriever.from_pretrained(saved)
    file.unlink()
    with pytest.raises(IndexFormatError, match=r"index\.json is missing.*grls index"):
        GenerativeRetriever.from_pretrained(saved)


def test_another_corpus_is_refused(saved: Path) -> None:
    some = Corpus.from_passages(passages()[:-1])
    some.write(saved / "corpus.jsonl")
    with pytest.raises(MismatchError, match=r"another corpus.*grls index"):
        GenerativeRetriever.from_pretrained(saved)


def test_another_tokenizer_is_refused(saved: Path, tmp_path: Path) -> None:
    small_tokenizer(write_small(tmp_path / "data"), 60).save_pretrained(saved / "model")
    with pytest.raises(MismatchError, match=r"another tokenizer.*grls index"):
        GenerativeRetriever.from_pretrained(saved)


def test_another_passage_limit_is_refused(saved: Path) -> None:
    manifest = read_spec(saved)
    manifest["limits"]["passage"] = 2
    (saved / "grls.json").write_text(json.dumps(manifest))
    with pytest.raises(MismatchError, match="another tokenizer"):
        GenerativeRetriever.from_pretrained(saved)


def test_what_is_no_retriever_is_refused(saved: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match=r"no retriever here \(grls.json is missing\).*grls index"):
            GenerativeRetriever.from_pretrained(folder)
    (saved / "grls.json").write_text('{"kind": "generative", "format": 99}')
    with pytest.raises(DataError, match="format 99, and this version reads 4: install a newer grls"):
        GenerativeRetriever.from_pretrained(saved)


@pytest.mark.parametrize(
    "file", ["grls.json", "corpus.jsonl", "index/index.json", "model/model.safetensors", "model/config.json"]
)
@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_any_damaged_file_is_an_error_of_ours(saved: Path, file: str, damage: Callable[[Path], None]) -> None:
    damage(saved / file)
    with pytest.raises(GrlsError):
        GenerativeRetriever.from_pretrained(saved)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 1}', '{"format": 1, "limits": {"passages": 3}}'])
@pytest.mark.parametrize("file", ["grls.json", "index/index.json"])
def test_a_manifest_that_is_none_is_an_error_of_ours(saved: Path, file: str, text: str) -> None:
    (saved / file).write_text(text)
    with pytest.raises(GrlsError):
        GenerativeRetriever.from_pretrained(saved)


def test_an_empty_corpus_and_a_reserved_id_are_refused(retriever: GenerativeRetriever) -> None:
    model, tokenizer = retriever.model, retriever.codec.tokenizer
    with pytest.raises(DataError, match="the corpus is empty"):
        GenerativeRetriever.assemble(model, tokenizer, Corpus.from_passages([]))
    with pytest.raises(DataError, match="the passage id 'DONE' is reserved"):
        GenerativeRetriever.assemble(
            model, tokenizer, Corpus.from_passages([passages()[0]._replace(id="DONE")])
        )
    with pytest.raises(ConfigError, match="unknown index backend"):
        GenerativeRetriever.assemble(model, tokenizer, retriever.corpus, backend="btree")


def test_long_and_empty_queries_are_refused_or_cut(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "data")
    model, tokenizer = scratch(folder).load()
    corpus = Corpus.read(folder)
    strict = GenerativeRetriever.assemble(model, tokenizer, corpus, Limits(query=3))
    with pytest.raises(DataError, match=r"query 'a' has .* the limit is 3: its end .* would be cut"):
        strict.retrieve(QUERIES, 2)
    with pytest.raises(DataError, match="query 'e' is empty"):
        strict.retrieve([Query("e", " ")], 2)
    cutting = GenerativeRetriever.assemble(
        model, tokenizer, corpus, Limits(query=3), options=SearchOptions(truncate_queries=True)
    )
    assert [len(hits) for hits in cutting.retrieve(QUERIES, 2)] == [2, 2]


def _swap_weights(folder: Path, values: Callable[[torch.Tensor], torch.Tensor]) -> None:
    file = folder / "model" / "model.safetensors"
    weights = load_file(file)
    save_file({name: values(weight) for name, weight in weights.items()}, file, {"format": "pt"})


def test_other_weights_are_noticed_whole_or_by_one_value(saved: Path) -> None:
    """Another training's weights, and one value of the last weight beyond the first thousand."""
    before = (saved / "model" / "model.safetensors").read_bytes()
    _swap_weights(saved, lambda weight: weight * 1.01)
    with pytest.raises(MismatchError, match=r"model: the weights are others .* `grls index`"):
        GenerativeRetriever.from_pretrained(saved, device="cpu")
    (saved / "model" / "model.safetensors").write_bytes(before)

    def last(weight: torch.Tensor) -> torch.Tensor:
        changed = weight.clone()
        changed.view(-1)[-1] += 1.0
        return changed

    _swap_weights(saved, last)
    with pytest.raises(MismatchError, match="the weights are others"):
        GenerativeRetriever.from_pretrained(saved, device="cpu")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "corpus.jsonl",
            '"metadata": {}',
            '"metadata": {"year": 2001}',
            "corpus.jsonl has changed",
        ),
        ("index/index.json", '"longest": ', '"longest": 1', "index/index.json has changed"),
        ("grls.json", '"stages": []', '"stages": ["memorise"]', "has changed since it was written"),
        ("grls.json", '"query": ', '"query": 9', "has changed since it was written"),
    ],
)
def test_what_no_other_checksum_covers_is_noticed(
    saved: Path, file: str, old: str, new: str, message: str
) -> None:
    text = (saved / file).read_text()
    assert old in text
    (saved / file).write_text(text.replace(old, new, 1))
    with pytest.raises(GrlsError, match=message):
        GenerativeRetriever.from_pretrained(saved, device="cpu")


@pytest.mark.parametrize("key", ["kind", "weights", "settings", "metadata", "index_sha256", "sha256"])
def test_a_manifest_that_does_not_know_a_part_is_refused(saved: Path, key: str) -> None:
    manifest = read_spec(saved)
    del manifest[key]
    (saved / "grls.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=f"'{key}'.*make it again"):
        GenerativeRetriever.from_pretrained(saved, device="cpu")


@pytest.mark.parametrize(("file", "key"), [("grls.json", 3), ("index/index.json", 1)])
def test_a_folder_of_a_version_before_the_first_release_is_refused(saved: Path, file: str, key: int) -> None:
    manifest = json.loads((saved / file).read_text())
    (saved / file).write_text(json.dumps(manifest | {"format": key}))
    with pytest.raises(GrlsError, match=f"format {key}: it was made by a version before 0.2; build it again"):
        GenerativeRetriever.from_pretrained(saved, device="cpu")


def test_a_folder_of_another_kind_is_told_by_its_kind(saved: Path) -> None:
    manifest = read_spec(saved)
    (saved / "grls.json").write_text(json.dumps({**manifest, "kind": "dense"}))
    with pytest.raises(DataError, match="of the kind 'dense', and a generative one is wanted"):
        GenerativeRetriever.from_pretrained(saved, device="cpu")
    (saved / "grls.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="of the kind 'generative', and a dense retriever is wanted"):
        DenseRetriever.from_pretrained(saved, device="cpu")


def test_texts_are_queries_and_what_is_none_is_told(retriever: GenerativeRetriever) -> None:
    texts = [query.text for query in QUERIES]
    expected = retriever.retrieve(QUERIES, 3)
    assert retriever.retrieve(texts, 3) == expected
    words, chains = BM25Retriever(retriever.corpus), HopsRetriever(retriever, HopOptions("dynamic", 2))
    assert words.retrieve(texts, 3) == words.retrieve(QUERIES, 3)
    assert chains.retrieve_chains(texts) == chains.retrieve_chains(QUERIES)
    with pytest.raises(DataError, match=r"a list of queries, got the text 'is it \?'; write \['is it"):
        retriever.retrieve("is it ?", 3)
    with pytest.raises(DataError, match=r"query 1: expected a text, a Query, or .*, got 7"):
        retriever.retrieve([*QUERIES[:1], 7], 3)  # type: ignore[list-item]
