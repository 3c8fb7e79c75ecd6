"""The dense retriever against a full sort and against faiss; what does not belong together."""

import json
import random
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from small_data import scratch, small_retriever, tiny_bert, write_small

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.options import LimitOptions
from grls.models.biencoder import DONE_TEXT, BiEncoderModel
from grls.models.text_encoder import passage_text
from grls.retrieve import dense, encoded
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever, top_k
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, hop_by_hop
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import read_spec

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?"), Query("c", "calm")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("dense") / "data")


@pytest.fixture(scope="module")
def corpus(data: Path) -> Corpus:
    return Corpus.read(data)


@pytest.fixture(scope="module")
def biencoder(tmp_path_factory: pytest.TempPathFactory) -> BiEncoderModel:
    torch.manual_seed(0)
    folder = str(tiny_bert(tmp_path_factory.mktemp("bert")))
    return BiEncoderModel.load(folder, device="cpu", similarity="dot")


@pytest.fixture(scope="module")
def retriever(biencoder: BiEncoderModel, corpus: Corpus) -> DenseRetriever:
    return DenseRetriever.assemble(biencoder, corpus)


@pytest.fixture
def saved(retriever: DenseRetriever, tmp_path: Path) -> Path:
    retriever.save_pretrained(tmp_path / "retriever")
    return tmp_path / "retriever"


def other(biencoder: BiEncoderModel, folder: Path) -> BiEncoderModel:
    """The same network with one weight changed."""
    biencoder.save(folder)
    changed = BiEncoderModel.load(str(folder), device="cpu")
    with torch.no_grad():
        next(iter(changed.model.parameters())).view(-1)[5] += 0.5
    return changed


def full_sort(queries: np.ndarray, rows: np.ndarray, k: int) -> list[list[int]]:
    scores = queries.astype(np.float64) @ rows.astype(np.float64).T
    return [np.lexsort((np.arange(len(rows)), -s.round(12)))[:k].tolist() for s in scores]


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_the_search_is_exact_whatever_the_block(block: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 16)).astype(np.float32)
    queries = rng.normal(size=(5, 16)).astype(np.float32)
    index = faiss.IndexFlatIP(16)
    index.add(rows)
    for k in (1, 10, 200, 500):
        found = top_k(queries, rows, k, block)
        assert [near.numbers.tolist() for near in found] == full_sort(queries, rows, k)
        scores, numbers = index.search(queries, min(k, 200))
        assert [near.numbers.tolist() for near in found] == numbers.tolist()
        assert np.stack([near.scores for near in found]) == pytest.approx(scores, abs=1e-4)
        assert all((np.diff(near.scores) <= 0).all() for near in found)


@pytest.mark.parametrize("block", [5, 1000])
def test_ties_go_to_the_first_row_even_across_the_cut(block: int) -> None:
    """100 copies of each of 3 rows: which of the copies are found is no accident."""
    rng = np.random.default_rng(1)
    rows = np.tile(rng.normal(size=(3, 8)).astype(np.float32), (100, 1))
    queries = rng.normal(size=(25, 8)).astype(np.float32)
    for query, near in zip(queries, top_k(queries, rows, 130, block), strict=True):
        first, second, _ = np.argsort(-(rows[:3] @ query))
        assert near.numbers.tolist() == [*range(first, 300, 3), *list(range(second, 300, 3))[:30]]


def test_nothing_asked_is_nothing_found() -> None:
    rows = np.ones((3, 2), dtype=np.float32)
    assert top_k(np.empty((0, 2), dtype=np.float32), rows, 3) == []
    assert [len(near.numbers) for near in top_k(rows, rows[:0], 3)] == [0, 0, 0]


def test_hits_are_the_inner_products_in_order(retriever: DenseRetriever, corpus: Corpus) -> None:
    model = retriever.encoder.model
    texts = [passage_text(p) for p in corpus]
    scores = model.encode([q.text for q in QUERIES]) @ model.encode(texts).T
    for hits, row in zip(retriever.retrieve(QUERIES, 99), scores, strict=True):
        assert len(hits) == len(corpus) == 10
        by_id = dict(zip(corpus.ids(range(10)), row.tolist(), strict=True))
        assert {hit.id: hit.score for hit in hits} == pytest.approx(by_id, abs=1e-4)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert retriever.retrieve(QUERIES, 3) == [hits[:3] for hits in retriever.retrieve(QUERIES, 10)]
    assert retriever.retrieve([], 3) == []


def test_done_has_a_score_and_is_no_hit(retriever: DenseRetriever) -> None:
    model = retriever.encoder.model
    done = model.encode([DONE_TEXT])[0]
    vectors = model.encode([q.text for q in QUERIES])
    for step, vector in zip(retriever.retrieve_hop(QUERIES, [()] * 3, 99), vectors, strict=True):
        assert step.done == pytest.approx(float(vector @ done), abs=1e-4)
        assert "DONE" not in {hit.id for hit in step.hits}


def test_a_great_many_queries_that_are_cut_are_not_all_named(
    retriever: DenseRetriever, caplog: pytest.LogCaptureFixture
) -> None:
    long = " ".join(["otter"] * 500)
    asked = DenseRetriever(retriever.encoder, retriever.corpus, retriever.rows, truncate_queries=True)
    for part in range(5):
        asked.retrieve([Query(f"q{part}-{n}", long) for n in range(4)], 1)
    told = [record.getMessage() for record in caplog.records]
    assert [line.split("'")[1] for line in told[:-1]] == [f"q{n // 4}-{n % 4}" for n in range(10)]
    assert told[-1].startswith("more queries are longer than")


def test_evidence_joins_the_query(retriever: DenseRetriever, corpus: Corpus) -> None:
    evidence = corpus.passages([3, 8])
    (step,) = retriever.retrieve_hop(QUERIES[:1], [evidence], 4)
    text = retriever.encoder.query_text(QUERIES[0].text, evidence)
    assert text != QUERIES[0].text
    assert step.hits == retriever.retrieve([Query("x", text)], 4)[0]


def test_chains_are_those_of_the_retriever(retriever: DenseRetriever, corpus: Corpus) -> None:
    """Greedy, by hand: the best passage not yet in the chain, or DONE."""
    ((chain,),) = HopsRetriever(retriever, HopOptions("fixed", 3)).retrieve_chains(QUERIES[:1])
    found: list[Passage] = []
    for _ in range(3):
        (step,) = retriever.retrieve_hop(QUERIES[:1], [found], 10)
        best = next(hit for hit in step.hits if hit.id not in {p.id for p in found})
        found.append(corpus[int(corpus.numbers([best.id])[0] or 0)])
    assert [hit.id for hit in chain.hits] == [p.id for p in found]
    for bias, done in ((99.0, True), (-99.0, False)):
        search = HopsRetriever(retriever, HopOptions("dynamic", 3, done_bias=bias))
        for (ended,) in search.retrieve_chains(QUERIES):
            assert (ended.done, len(ended.hits)) == (done, 1 if done else 3)


def test_a_folder_holds_the_whole_retriever(retriever: DenseRetriever, saved: Path) -> None:
    opened = DenseRetriever.from_pretrained(saved, "cpu")
    assert opened.retrieve(QUERIES, 10) == retriever.retrieve(QUERIES, 10)
    assert isinstance(opened.rows.base, np.memmap)
    manifest = read_spec(saved)
    assert (manifest["kind"], manifest["dimension"], manifest["stages"]) == ("dense", 16, [])
    assert sorted(file.name for file in saved.iterdir()) == [
        "corpus.jsonl", DenseRetriever.file, "grls.json", "model",
    ]  # fmt: skip
    opened.save_pretrained(saved)  # over itself, memory-mapped
    assert DenseRetriever.from_pretrained(saved, "cpu").retrieve(QUERIES, 5) == opened.retrieve(QUERIES, 5)


def test_a_generator_as_a_biencoder_keeps_its_stages(data: Path, corpus: Corpus, tmp_path: Path) -> None:
    made = BiEncoderModel.from_generator(scratch(data).load(), 64, ["memorise"])
    DenseRetriever.assemble(made, corpus).save_pretrained(tmp_path / "r")
    opened = load_retriever(tmp_path / "r", Opening("cpu"))
    assert isinstance(opened, DenseRetriever)
    assert (opened.stages, opened.encoder.max_tokens) == (("memorise",), 64)
    assert opened.learned_done is False
    learned = BiEncoderModel(made.model, 64, ["biencoder"], learned_done=True)
    DenseRetriever.assemble(learned, corpus).save_pretrained(tmp_path / "r")
    assert DenseRetriever.from_pretrained(tmp_path / "r", "cpu").learned_done is True


def test_either_kind_is_opened_by_its_manifest(data: Path, saved: Path, tmp_path: Path) -> None:
    small_retriever(data).save_pretrained(tmp_path / "g")
    assert isinstance(load_retriever(tmp_path / "g", Opening("cpu")), GenerativeRetriever)
    assert isinstance(load_retriever(saved, Opening("cpu")), DenseRetriever)
    edit(saved, lambda manifest: manifest.update(kind="graph"))
    with pytest.raises(DataError, match="unknown kind of retriever 'graph'"):
        load_retriever(saved)
    with pytest.raises(DataError, match="no retriever here"):
        load_retriever(tmp_path)


def edit(folder: Path, change: Any) -> None:
    manifest = read_spec(folder)
    change(manifest)
    (folder / "grls.json").write_text(json.dumps(manifest))


def test_what_does_not_belong_together_is_refused(
    saved: Path, biencoder: BiEncoderModel, tmp_path: Path
) -> None:
    text = (saved / "corpus.jsonl").read_text()
    (saved / "corpus.jsonl").write_text(text.replace("otter is calm", "otter is sad"))
    with pytest.raises(MismatchError, match=r"made with another corpus.*grls index"):
        DenseRetriever.from_pretrained(saved)
    (saved / "corpus.jsonl").write_text(text)
    other(biencoder, tmp_path / "m").save(saved / "model")
    with pytest.raises(MismatchError, match=r"made with another model.*grls index"):
        DenseRetriever.from_pretrained(saved)
    DenseRetriever.from_pretrained(saved, verify=False)


def test_damaged_embeddings_are_refused(saved: Path) -> None:
    file = saved / DenseRetriever.file
    rows = np.load(file)
    rows[2, 3] += 1
    np.save(file, rows)
    with pytest.raises(MismatchError, match="not the embeddings of this retriever"):
        DenseRetriever.from_pretrained(saved)
    rows[2, 3] = np.nan
    np.save(file, rows)
    with pytest.raises(DataError, match="embedding in row 2 is not finite"):
        DenseRetriever.from_pretrained(saved, verify=False)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match="missing or truncated"):
        DenseRetriever.from_pretrained(saved)


@pytest.mark.parametrize("verify", [True, False])
def test_the_embeddings_are_read_through_no_more_than_needed(
    verify: bool, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checksum that fits does not say that the numbers are finite: the file may be a stranger's."""
    reads = []
    for module, name in ((encoded, "sha256"), (dense, "unusable_row")):
        inner = getattr(module, name)
        monkeypatch.setattr(module, name, lambda given, n=name, f=inner: (reads.append(n), f(given))[1])
    DenseRetriever.from_pretrained(saved, "cpu", verify=verify)
    assert reads == [*(["sha256"] if verify else []), "unusable_row"]


def test_a_malformed_manifest_is_refused(saved: Path) -> None:
    edit(saved, lambda manifest: manifest.update(embeddings={"bytes": 3}))
    with pytest.raises(DataError, match="'embeddings' is missing or malformed"):
        DenseRetriever.from_pretrained(saved)
    edit(saved, lambda manifest: manifest.update(max_tokens="many"))
    with pytest.raises(DataError, match="'max_tokens' is missing or malformed"):
        DenseRetriever.from_pretrained(saved)
    edit(saved, lambda manifest: manifest.update(format=99))
    with pytest.raises(DataError, match="expected a dense retriever of format 1"):
        DenseRetriever.from_pretrained(saved)


def test_embeddings_of_another_shape_are_refused(retriever: DenseRetriever, corpus: Corpus) -> None:
    with pytest.raises(MismatchError, match=r"\(11, 16\), got \(10, 16\)"):
        DenseRetriever(retriever.encoder, corpus, retriever.rows[:-1])


def test_a_model_trained_on_must_refresh(biencoder: BiEncoderModel, corpus: Corpus, tmp_path: Path) -> None:
    changed = other(biencoder, tmp_path / "m")
    retriever = DenseRetriever.assemble(changed, corpus, truncate_queries=True)
    before = retriever.retrieve(QUERIES, 10)
    with torch.no_grad():
        next(iter(changed.model.parameters())).mul_(-1.5)
    with pytest.raises(MismatchError, match="refresh the retriever"):
        retriever.save_pretrained(tmp_path / "r")
    fresh = retriever.refresh(changed)
    assert fresh.truncate_queries
    assert np.array_equal(fresh.rows, DenseRetriever.assemble(changed, corpus).rows)
    assert fresh.retrieve(QUERIES, 10) != before
    fresh.save_pretrained(tmp_path / "r")


def test_passages_that_are_cut_are_told_of_once(
    biencoder: BiEncoderModel, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Facts have 5 words, the two rules 9, and there are 2 special tokens; DONE does not count."""
    DenseRetriever.assemble(biencoder, Corpus.read(data))
    assert not caplog.records
    biencoder.save(tmp_path / "m")
    short = LimitOptions(input=8)
    build(str(tmp_path / "m"), str(data), Building(f"{tmp_path}/r", "dense", device="cpu", limits=short))
    DenseRetriever.assemble(BiEncoderModel.load(str(tmp_path / "m"), max_tokens=8), Corpus.read(data))
    for record in caplog.records:
        assert "2 of 10 passages are longer than 8 tokens" in record.getMessage()
        assert "raise input (of grls index)" in record.getMessage()
    assert len(caplog.records) == 2


def test_bad_queries_are_refused_or_cut(biencoder: BiEncoderModel, corpus: Corpus, tmp_path: Path) -> None:
    retriever = DenseRetriever.assemble(biencoder, corpus)
    long = [Query("x", "otter " * 70)]
    with pytest.raises(DataError, match="query 'x' has 72 tokens, the limit is 64"):
        retriever.retrieve(long, 3)
    retriever.truncate_queries = True
    assert retriever.retrieve(long, 3) == retriever.retrieve([Query("y", "otter " * 62)], 3)
    with pytest.raises(DataError, match="query 'x' is empty"):
        retriever.retrieve([Query("x", " ")], 3)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        retriever.retrieve(QUERIES, 0)
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        DenseRetriever.assemble(biencoder, corpus, batch_size=0)


def test_a_corpus_that_cannot_be_used_is_refused(biencoder: BiEncoderModel) -> None:
    with pytest.raises(DataError, match="the corpus is empty"):
        DenseRetriever.assemble(biencoder, Corpus.from_passages([]))
    with pytest.raises(DataError, match="'DONE' is reserved"):
        DenseRetriever.assemble(biencoder, Corpus.from_passages([Passage("DONE", "x")]))


@pytest.mark.parametrize("hops", [HopOptions("ranked", max=2), HopOptions("fixed", max=3, chains=3)])
def test_hops_over_equal_passages_do_not_depend_on_what_else_is_asked(
    biencoder: BiEncoderModel, corpus: Corpus, hops: HopOptions
) -> None:
    """Evidence of equal texts has one embedding; two rows of a batch differ by rounding."""
    copies = [Passage(f"{passage.id}-{n}", passage.text) for n in range(3) for passage in list(corpus)[:10]]
    retriever = hop_by_hop(DenseRetriever.assemble(biencoder, Corpus.from_passages(copies)), hops)
    drawn, words = random.Random(1), [word for passage in corpus for word in passage.text.split()]
    queries = [" ".join(drawn.choice(words) for _ in range(drawn.randint(2, 12))) for _ in range(30)]
    together = retriever.retrieve(queries, 10)
    alone = [retriever.retrieve([query], 10)[0] for query in queries]
    ids = [[[hit.id for hit in hits] for hits in rankings] for rankings in (together, alone)]
    assert ids[0] == ids[1]
