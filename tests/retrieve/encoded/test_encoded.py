"""Dense, sparse and multi-vector retrievers beside a full sort, faiss and the library; what is refused."""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from encoder_models import tiny_colbert, tiny_masked, tiny_splade
from failing import raises
from fixture_types import Patch
from scipy.sparse import csr_array
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from small_data import passages, tiny_bert, write_jsonl, write_small

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.options import LimitOptions
from grls.models.biencoder import DONE_TEXT, BiEncoderModel
from grls.models.text_encoder import passage_text
from grls.retrieve import sparse
from grls.retrieve.base import DecodesHops, FindsChains, HopHits, ScoresAll, ScoresDoneAfter
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever, top_k
from grls.retrieve.encoded import unusable_row
from grls.retrieve.hops.finders import found_after
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.multi_vector import LateTexts, MultiVectorRetriever, TokenVectors
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.sparse import SparseRetriever, SparseTexts
from grls.retrieve.spec import read_spec, update_spec

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?"), Query("c", "calm")]


@pytest.fixture(scope="module")
def retriever(biencoder: BiEncoderModel, corpus: Corpus) -> DenseRetriever:
    return DenseRetriever.assemble(biencoder, corpus)


@pytest.fixture
def saved(retriever: DenseRetriever, tmp_path: Path) -> Path:
    retriever.save_pretrained(tmp_path / "retriever")
    return tmp_path / "retriever"


def other(biencoder: BiEncoderModel, folder: Path) -> BiEncoderModel:
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
        assert [numbers.tolist() for numbers, _ in found] == full_sort(queries, rows, k)
        scores, numbers = index.search(queries, min(k, 200))
        assert [numbers.tolist() for numbers, _ in found] == numbers.tolist()
        assert np.stack([near for _, near in found]) == pytest.approx(scores, abs=1e-4)
        assert all((np.diff(near) <= 0).all() for _, near in found)


@pytest.mark.parametrize("block", [5, 1000])
def test_ties_go_to_the_first_row_even_across_the_cut(block: int) -> None:
    """100 copies of each of 3 rows: which of the copies are found is no accident."""
    rng = np.random.default_rng(1)
    rows = np.tile(rng.normal(size=(3, 8)).astype(np.float32), (100, 1))
    queries = rng.normal(size=(25, 8)).astype(np.float32)
    for query, (near, _) in zip(queries, top_k(queries, rows, 130, block), strict=True):
        first, second, _ = np.argsort(-(rows[:3] @ query))
        assert near.tolist() == [*range(first, 300, 3), *list(range(second, 300, 3))[:30]]


def test_done_has_a_score_and_is_no_hit(retriever: DenseRetriever) -> None:
    model = retriever.encoder.model
    done = model.encode([DONE_TEXT])[0]
    vectors = model.encode([q.text for q in QUERIES])
    for step, vector in zip(retriever.retrieve_hop(QUERIES, [()] * 3, 99), vectors, strict=True):
        assert step.done == pytest.approx(float(vector @ done), abs=1e-4)
        assert "DONE" not in {hit.id for hit in step.hits}


def test_evidence_joins_the_query(retriever: DenseRetriever, corpus: Corpus) -> None:
    evidence = corpus.passages([3, 8])
    (step,) = retriever.retrieve_hop(QUERIES[:1], [evidence], 4)
    text = retriever.encoder.query_text(QUERIES[0].text, evidence)
    assert text != QUERIES[0].text
    assert step.hits == retriever.retrieve([Query("x", text)], 4)[0]


def test_a_file_that_changes_how_the_model_encodes_is_refused(saved: Path) -> None:
    (saved / "model" / "special_tokens_map.json").write_text('{"cls_token": "[SEP]"}')
    opening = Opening(device="cpu")
    raises(MismatchError, "another model.*grls index", DenseRetriever.open, saved, read_spec(saved), opening)
    load_retriever(saved, Opening("cpu", verify=False))


def test_rows_of_other_forms_or_numbers_are_refused(retriever: DenseRetriever, corpus: Corpus) -> None:
    with pytest.raises(MismatchError, match=r"\(11, 16\), got \(10, 16\)"):
        DenseRetriever(retriever.encoder, corpus, retriever.rows[:-1])
    rows = retriever.rows.copy()
    rows[2, 3] = np.nan
    raises(DataError, "embedding in row 2 is not finite", DenseRetriever, retriever.encoder, corpus, rows)


def test_a_model_trained_on_encodes_again(biencoder: BiEncoderModel, corpus: Corpus, tmp_path: Path) -> None:
    changed = other(biencoder, tmp_path / "m")
    retriever = DenseRetriever.assemble(changed, corpus, truncate_queries=True)
    before = retriever.retrieve(QUERIES, 10)
    with torch.no_grad():
        next(iter(changed.model.parameters())).mul_(-1.5)
    raises(MismatchError, "assemble the retriever again", retriever.save_pretrained, tmp_path / "r")
    fresh = DenseRetriever.assemble(changed, corpus, truncate_queries=True)
    assert fresh.retrieve(QUERIES, 10) != before
    fresh.save_pretrained(tmp_path / "r")


def test_bad_queries_are_refused_or_cut(
    biencoder: BiEncoderModel, corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = DenseRetriever.assemble(biencoder, corpus)
    long = [Query("x", "otter " * 70)]
    why = (
        r"query 'x' \('otter otter .*\) has 72 tokens, the limit is 64: its end would be cut. Shorten "
        r"it, raise max_tokens where the retriever is made, or accept the cut with "
        r"grls.load\(FOLDER, truncate_queries=True\)"
    )
    raises(DataError, why, retriever.retrieve, long, 3)
    retriever.truncate_queries = True
    assert retriever.retrieve(long, 3) == retriever.retrieve([Query("y", "otter " * 62)], 3)
    assert "has 72 tokens, the limit is 64: its end is cut." in caplog.text
    raises(DataError, r"query 0 \('x'\): its text is empty", retriever.retrieve, [Query("x", " ")], 3)


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


MODELS: dict[str, Callable[..., Path]] = {"sparse": tiny_splade, "multi-vector": tiny_colbert}
LIBRARY: dict[str, Any] = {"sparse": SparseEncoder, "multi-vector": MultiVectorEncoder}
KINDS = sorted(MODELS)
CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data``, and for each kind a model and a folder."""
    place = tmp_path_factory.mktemp("encoded")
    write_small(place / "data")
    for kind, make in (MODELS | {"dense": tiny_bert}).items():
        made = build(
            str(make(place / "models" / kind)), str(place / "data"), Building(str(place / kind), kind)
        )
        assert made.startswith(f"{place / kind}: 10 passages")
    return place


def model_of(root: Path, kind: str) -> Path:
    return root / kind / "model"


def opened(folder: Path, **options: Any) -> Any:
    return load_retriever(folder, Opening("cpu", **options))


def truth(model: Any, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    scores = model.similarity(model.encode_query(list(queries)), model.encode_document(list(texts)))
    return np.asarray(scores.double().cpu().numpy())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("similarity", ["usual", "other"])
def test_scores_of_all_passages_are_the_librarys(
    kind: str, similarity: str, root: Path, tmp_path: Path
) -> None:
    folder = root / kind
    if similarity == "other":
        given = {"sparse": {"similarity_fn_name": "cosine"}, "multi-vector": {"similarity": "meanmaxsim"}}
        model = MODELS[kind](tmp_path, **given[kind])
        folder = tmp_path / "r"
        build(str(model), str(root / "data"), Building(str(folder), kind, batch_size=3))
    retriever = opened(folder)
    model = LIBRARY[kind](str(folder / "model"), device="cpu")
    expected = truth(model, [q.text for q in QUERIES], [passage_text(p) for p in passages()])
    asked = retriever.scores(QUERIES)
    assert asked(np.array([2, 0])) == pytest.approx(expected[[2, 0]], abs=1e-5)
    assert retriever.temperature == (0.05 if similarity == "other" else 1.0)
    modes = {"sparse": ("inner_product", "cosine"), "multi-vector": ("maxsim", "meanmaxsim")}
    assert retriever.describe().score_mode == modes[kind][similarity == "other"]
    assert retriever.describe().system == kind
    assert isinstance(retriever, ScoresAll)
    assert not isinstance(retriever, ScoresDoneAfter | DecodesHops | FindsChains)
    assert retriever.scores_done is False


def test_no_word_in_common_is_no_hit(root: Path) -> None:
    """As in an inverted index; the weights are written by hand."""
    retriever = opened(root / "sparse")
    weights = np.zeros((10, retriever.encoder.dimension), dtype=np.float32)
    query = retriever.encode([QUERIES[0].text]).toarray()[0]
    used, unused = int(np.argmax(query)), int(np.argmin(query))
    assert query[unused] == 0
    weights[3, used], weights[4, unused], weights[5, used] = 1.0, 5.0, -2.0
    made = SparseRetriever(retriever.encoder, retriever.corpus, csr_array(weights.T))
    (hits,) = made.retrieve(QUERIES[:1], 10)
    assert [hit.id for hit in hits] == [passages()[3].id]
    assert hits[0].score == pytest.approx(float(query[used]))
    assert (made.weights.toarray() == weights).all()


def test_a_passage_without_a_vector_is_no_hit(root: Path) -> None:
    retriever = opened(root / "multi-vector")
    vectors, bounds = retriever.rows
    kept = np.array([0, *np.repeat(bounds[1], 2), *(bounds[3:])])  # passages 0 and 1 share; 1 has none
    made = MultiVectorRetriever(retriever.encoder, retriever.corpus, TokenVectors(vectors, kept))
    found = made.retrieve(QUERIES[:1], 10)[0]
    assert len(found) == 9
    assert passages()[1].id not in [hit.id for hit in found]
    scores = made.scores(QUERIES[:1])(np.array([0]))[0]
    assert scores[1] == made.least_score == min(scores)


def test_passages_that_are_compared_in_blocks_score_as_all_at_once(root: Path, monkeypatch: Any) -> None:
    retriever = opened(root / "multi-vector")
    found = retriever.retrieve(QUERIES, 7), retriever.retrieve(QUERIES, 7, ["r0", "lynx-calm"])
    monkeypatch.setattr("grls.retrieve.multi_vector.BLOCK", 17)
    assert (retriever.retrieve(QUERIES, 7), retriever.retrieve(QUERIES, 7, ["r0", "lynx-calm"])) == found


@pytest.mark.parametrize("kind", [*KINDS, "dense"])
def test_a_folder_is_opened_saved_and_moved(kind: str, root: Path, tmp_path: Path) -> None:
    retriever = opened(root / kind)
    expected = retriever.retrieve(QUERIES, 5)
    retriever.save_pretrained(tmp_path / "a" / "r")
    shutil.move(tmp_path / "a" / "r", tmp_path / "b")
    again = opened(tmp_path / "b")
    again.save_pretrained(tmp_path / "b")  # over itself, memory-mapped
    for one in (again, opened(tmp_path / "b"), opened(tmp_path / "b", verify=False)):
        assert one.retrieve(QUERIES, 5) == expected
        assert one.fingerprint() == retriever.fingerprint()
    names = {"model", retriever.file, "corpus.jsonl", "grls.json"}
    assert {file.name for file in (tmp_path / "b").iterdir()} == names
    assert not [f for f in (tmp_path / "b").rglob("*") if f.suffix in (".bin", ".pt", ".pkl")]
    rows = [type(retriever).assemble(retriever.encoder, retriever.corpus, batch_size=n) for n in (1, 64)]
    assert rows[0].retrieve(QUERIES, 5)[1][0].id == rows[1].retrieve(QUERIES, 5)[1][0].id == expected[1][0].id


@pytest.mark.parametrize("kind", KINDS)
def test_other_models_are_refused(kind: str, root: Path, tmp_path: Path) -> None:
    """The library would make them into such a model by layers of random numbers."""
    encoders: dict[str, Any] = {"sparse": SparseTexts, "multi-vector": LateTexts}
    bert = tiny_bert(tmp_path / "bert")
    with pytest.raises(ConfigError, match=rf"not a {LIBRARY[kind].__name__}.*Give a folder"):
        encoders[kind].load(str(bert), "cpu")
    other = model_of(root, next(name for name in KINDS if name != kind))
    with pytest.raises(ConfigError, match=rf"it is a \w+Encoder, not a {LIBRARY[kind].__name__}"):
        encoders[kind].load(str(other), "cpu")
    with pytest.raises(ConfigError, match=rf"it is a {LIBRARY[kind].__name__}, not a SentenceTransformer"):
        BiEncoderModel.load(str(model_of(root, kind)), device="cpu")


def test_a_masked_language_model_is_read_as_splade(tmp_path: Path) -> None:
    encoder = SparseTexts.load(str(tiny_masked(tmp_path)), "cpu")
    found = encoder.encode(["the otter is calm ."], "query", 8).toarray()
    expected = (
        SparseEncoder(str(tmp_path), device="cpu").encode_query(["the otter is calm ."]).to_dense().numpy()
    )
    assert found == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ConfigError, match="compares by 'euclidean'"):
        SparseTexts(SparseEncoder(str(tmp_path), device="cpu", similarity_fn_name="euclidean"))


def test_markers_and_expansion_of_a_colbert(tmp_path: Path) -> None:
    folder = tiny_colbert(tmp_path, query_expansion={"strategy": "fixed", "attend": True, "length": 12})
    model = MultiVectorEncoder(str(folder), device="cpu")
    model.tokenizer.add_special_tokens({"additional_special_tokens": ["[Q]", "[D]"]})
    with torch.no_grad():
        model.transformers_model.resize_token_embeddings(len(model.tokenizer))
    model.prompts = {"query": "[Q] ", "document": "[D] "}
    expected = model.encode_query(["the otter"]), model.encode_document(["the otter"])
    encoder = LateTexts(model)
    query, passage = (encoder.encode(["the otter"], role, 4)[0] for role in ("query", "passage"))
    assert query == pytest.approx(expected[0][0].numpy(), abs=1e-6)
    assert passage == pytest.approx(expected[1][0].numpy(), abs=1e-6)
    marker = model.tokenizer.convert_tokens_to_ids("[Q]")
    for text in ("the otter", "the [Q] otter [SEP] [MASK]", "the [Q[Q]] otter"):
        ids = encoder.features([text], "query")["input_ids"][0].tolist()
        assert ids == encoder.features(["the otter"], "query")["input_ids"][0].tolist()
        assert (ids.count(marker), len(ids)) == (1, 12)
    assert encoder.tokens("the otter") == 5  # [CLS] [Q] the otter [SEP]
    assert (encoder.limit("query"), encoder.limit("passage")) == (12, 64)


def test_lengths_of_queries_and_passages_differ(root: Path, tmp_path: Path, caplog: Any) -> None:
    folder = tiny_colbert(tmp_path / "m", query_length=8, document_length=6)
    build(str(folder), str(root / "data"), Building(str(tmp_path / "r"), "multi-vector"))
    assert "10 of 10 passages are longer than 6 tokens" in caplog.text
    retriever = opened(tmp_path / "r")
    assert (retriever.encoder.limit("query"), retriever.encoder.limit("passage")) == (8, 6)
    assert max(np.diff(retriever.rows.bounds)) <= 6
    how = Building(str(tmp_path / "longer"), "multi-vector", limits=LimitOptions(input=40))
    build(str(folder), str(root / "data"), how)
    assert max(np.diff(opened(tmp_path / "longer").rows.bounds)) > 6


def test_what_a_first_retriever_proposes_is_ranked(root: Path, tmp_path: Path) -> None:
    every = opened(root / "multi-vector")
    shutil.copytree(root / "multi-vector", tmp_path / "r")
    shutil.copytree(root / "sparse", tmp_path / "sparse")
    update_spec(tmp_path / "r", {"retriever": "../sparse", "passages": 4})
    late, first = opened(tmp_path / "r"), opened(tmp_path / "sparse")
    proposed = [{hit.id for hit in hits} for hits in first.retrieve(QUERIES, 4)]
    expected = [
        [hit for hit in hits if hit.id in some]
        for hits, some in zip(every.retrieve(QUERIES, 10), proposed, strict=True)
    ]
    assert late.retrieve(QUERIES, 10) == expected
    assert late.retrieve(QUERIES, 2) == [hits[:2] for hits in expected]
    (few,) = late.retrieve(QUERIES[:1], 10, ("r0", "r1"))
    assert {hit.id for hit in few} == {"r0", "r1"}
    told = late.describe()
    assert (told.name, told.options["passages"]) == ("multi-vector over sparse", 4)
    assert late.fingerprint() != every.fingerprint()
    assert late.scores(QUERIES)(np.arange(3)).shape == (3, 10)
    late.save_pretrained(tmp_path / "deeper" / "r")
    assert json.loads((tmp_path / "deeper" / "r" / "grls.json").read_text())["retriever"] == "../../sparse"
    assert opened(tmp_path / "deeper" / "r").retrieve(QUERIES, 10) == expected


@pytest.mark.parametrize("kind", [*KINDS, "behind sparse"])
def test_a_hop_reads_the_newest_evidence_where_all_is_too_long(kind: str, root: Path, tmp_path: Path) -> None:
    """As a prior does: the query and the newest passage stay, whoever proposes the passages."""
    long, newest = Passage("old", "badger quick " * 40), Passage("new", "the heron is calm .")
    one = opened(root / kind.replace("behind sparse", "multi-vector"))
    if kind.startswith("behind"):
        one = one.behind(opened(root / "sparse"), 4)
    query, shorter = QUERIES[0], Query("a", f"{QUERIES[0].text} {newest.text}")
    (step,) = found_after(one, [query], [[long, newest]], 10)
    assert step == HopHits(one.retrieve([shorter], 10)[0], None)
    assert step.hits != one.retrieve([query], 10)[0]
    said = one.scores([query], [[long, newest]])(np.array([0]))[0]
    numbers = one.corpus.numbers([hit.id for hit in step.hits])
    assert said[numbers] == pytest.approx([hit.score for hit in step.hits], abs=1e-4)


def test_bm25_as_the_first_retriever_and_what_is_refused(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(root / "multi-vector", folder)
    update_spec(folder, {"retriever": "bm25", "passages": 3})
    found = opened(folder).retrieve(QUERIES, 10)
    bm25 = BM25Retriever(Corpus.read(root / "data")).retrieve(QUERIES, 3)
    assert [{h.id for h in hits} for hits in found] == [{h.id for h in hits} for hits in bm25]
    for count in (0, True, "3"):
        update_spec(folder, {"passages": count})
        raises(DataError, "passages: expected a count of at least 1", opened, folder)
    update_spec(folder, {"retriever": "../gone", "passages": 3})
    raises(DataError, r"retriever names \.\./gone, but there is no retriever", opened, folder)
    update_spec(folder, {"retriever": None})
    raises(DataError, "name it as retriever", opened, folder)
    other = BM25Retriever(Corpus.from_passages([Passage("x", "the otter")]))
    raises(MismatchError, "another corpus", opened(root / "multi-vector").behind, other, 3)
    named_nowhere = opened(root / "multi-vector").behind(BM25Retriever(Corpus.read(root / "data")), 3)
    raises(ConfigError, "no name to save", named_nowhere.save_pretrained, tmp_path / "s")


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_config_makes_a_folder(kind: str, root: Path, tmp_path: Path, capsys: Any) -> None:
    given = [
        f"--config={CONFIGS / kind}.yaml", str(model_of(root, kind)), f"--corpus={root / 'data'}",
    ]  # fmt: skip
    assert main(["index", *given, f"--output={tmp_path / 'r'}", "--device=cpu", "--batch_size=4"]) == 0
    assert f"{tmp_path / 'r'}: 10 passages, " in capsys.readouterr().out
    found = opened(tmp_path / "r")
    assert found.kind == kind
    assert found.fingerprint() == opened(root / kind).fingerprint()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("odd", [0.0, 1e15, 2e15, -2e15, np.nan, np.inf, -np.inf])
def test_a_row_that_cannot_be_searched_with_is_found(kind: type, odd: float) -> None:
    with np.errstate(over="ignore"):
        numbers = np.array([[1.0, -2.0], [0.5, odd]]).astype(kind)
    finite = bool(np.isfinite(numbers).all()) and np.abs(odd) <= 1e15
    assert unusable_row(numbers) == (None if finite else 1)
    assert unusable_row(numbers[:, 1]) == (None if finite else 1)
    assert unusable_row(numbers[:0]) is None


@pytest.mark.parametrize("together", [1, 7, 10**6])
def test_parts_on_disk_are_those_joined_in_memory(together: int, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sparse, "_TOGETHER", together)
    drawn = np.random.default_rng(1)
    rows = [drawn.random((count, 6), dtype=np.float32) for count in (3, 1, 5)]
    weights = [csr_array(np.where(part < 0.6, 0, part).T) for part in rows]
    vectors = [MultiVectorRetriever.rows_of([part[:2], part[2:2], part[2:]]) for part in rows]
    kinds: list[tuple[Any, list[Any], int]] = [
        (DenseRetriever, rows, 9), (SparseRetriever, weights, 9), (MultiVectorRetriever, vectors, 9),
    ]  # fmt: skip
    for kind, parts, count in kinds:
        joined, file = kind.concatenated(parts), tmp_path / f"{kind.kind}-{kind.file}"
        kind.write(lambda parts=parts: iter(parts), file)
        kind.check_rows(kind.read(file, count, 6), count, 6)
        for stored in (kind.read(file, count, 6), joined):
            expected = [row for part in parts for row in kind.each(part)]
            assert all(map(np.array_equal, kind.each(stored), expected))
            assert len(list(kind.each(stored))) == len(expected) == count
        kind.write(lambda joined=joined: [joined], again := tmp_path / f"again-{kind.kind}")
        pairs = zip(sorted(file.glob("*")) or [file], sorted(again.glob("*")) or [again], strict=True)
        assert all(one.read_bytes() == other.read_bytes() for one, other in pairs)


GONE = ["r0", "lynx-calm"]
NEW = {"_id": "new", "title": "", "text": "the otter is proud .", "metadata": {"year": 2001}}


@pytest.mark.parametrize("kind", [*KINDS, "dense"])
def test_only_added_passages_are_encoded(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    data = write_small(tmp_path / "data")
    model = (MODELS | {"dense": tiny_bert})[kind](tmp_path / "model")
    build(str(model), str(data), Building(str(tmp_path / "r"), kind, device="cpu"))
    records = [record for record in Corpus.read(data).records() if record["_id"] not in GONE] + [NEW]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", records)
    build(str(model), str(corpus), Building(str(tmp_path / "anew"), kind, device="cpu"))

    retriever = grls.load(tmp_path / "r", device="cpu")
    encoder: Any = BiEncoderModel if kind == "dense" else type(retriever.retriever.encoder)  # type: ignore[attr-defined]
    encode, asked = encoder.encode, list[str]()

    def noted(self: Any, texts: Any, *rest: Any) -> Any:
        asked.extend(texts)
        return encode(self, texts, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "encode", noted)
        retriever.updated([NEW], GONE, output=tmp_path / "made")
    assert asked == ["the otter is proud ."]
    files = [sorted((tmp_path / name).rglob("*.npy")) for name in ("made", "anew")]
    assert len(files[0]) == len(files[1])
    for file, other in zip(*files, strict=True):
        made, anew = np.load(file), np.load(other)
        assert (file.name, made.dtype) == (other.name, anew.dtype)
        assert np.allclose(made, anew, atol=1e-6)
    specs = [read_spec(tmp_path / name) for name in ("made", "anew")]
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
