"""Sparse and multi-vector retrievers: the library's own similarity is the truth; folders; what is refused."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoder_models import tiny_colbert, tiny_masked, tiny_splade
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from small_data import passages, tiny_bert, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.options import IndexOptions, LimitOptions
from grls.models.biencoder import BiEncoderModel
from grls.models.text_encoder import passage_text
from grls.retrieve import multi_vector, sparse
from grls.retrieve.base import FindsChains, HopHits, ScoresAll, TakesEvidence, WritesChains
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build, kind_of_model
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.encoded import top, unusable_row
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.finders import found_after
from grls.retrieve.multi_vector import (
    LateTexts,
    MaxSimSearch,
    MultiVectorRetriever,
    TokenVectors,
    maxsim,
)
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.sparse import SparseRetriever, SparseTexts
from grls.retrieve.spec import update_spec

QUERIES = [Query("a", "is the otter kind ?"), Query("b", "is the lynx quick ?"), Query("c", "calm")]
MODELS: dict[str, Callable[..., Path]] = {"sparse": tiny_splade, "multi-vector": tiny_colbert}
LIBRARY: dict[str, Any] = {"sparse": SparseEncoder, "multi-vector": MultiVectorEncoder}
KINDS = sorted(MODELS)
CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data``, and for each kind a model and a folder."""
    place = tmp_path_factory.mktemp("encoded")
    write_small(place / "data")
    for kind, make in MODELS.items():
        made = build(
            str(make(place / "models" / kind)), str(place / "data"), Building(str(place / kind), kind)
        )
        assert made.startswith(f"{place / kind}: 10 passages, ")
    return place


def model_of(root: Path, kind: str) -> Path:
    return root / kind / "model"


def opened(folder: Path, **options: Any) -> Any:
    return load_retriever(folder, Opening("cpu", **options))


def truth(model: Any, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """All pairs, as the library scores them."""
    scores = model.similarity(model.encode_query(list(queries)), model.encode_document(list(texts)))
    return np.asarray(scores.double().cpu().numpy())


def ranked(scores: np.ndarray, k: int) -> list[int]:
    return np.lexsort((np.arange(len(scores)), -scores.round(5)))[:k].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("similarity", ["usual", "other"])
def test_scores_are_the_librarys_of_all_pairs(kind: str, similarity: str, root: Path, tmp_path: Path) -> None:
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
    for k in (3, 100):
        for row, hits in zip(expected, retriever.retrieve(QUERIES, k), strict=True):
            numbers = retriever.corpus.numbers([hit.id for hit in hits])
            assert numbers == ranked(row, k)
            assert [hit.score for hit in hits] == pytest.approx(row[numbers], abs=1e-5)
    assert retriever.temperature == (0.05 if similarity == "other" else 1.0)
    modes = {"sparse": ("inner_product", "cosine"), "multi-vector": ("maxsim", "meanmaxsim")}
    assert retriever.describe().score_mode == modes[kind][similarity == "other"]
    assert retriever.describe().system == kind


@pytest.mark.parametrize("kind", KINDS)
def test_equal_passages_go_in_the_order_of_the_corpus(kind: str, root: Path, monkeypatch: Any) -> None:
    """Copies of five passages, found a few at a time and in blocks of any size."""
    retriever = opened(root / kind)
    texts = [f"the {animal} is calm ." for animal in ("otter", "heron", "badger", "lynx")]
    corpus = Corpus.from_passages([Passage(f"{n}", texts[n % 4]) for n in range(40)])
    made = type(retriever).assemble(retriever.encoder, corpus, batch_size=7)
    monkeypatch.setattr(multi_vector, "BLOCK", 17)
    found = made.retrieve(QUERIES, 25)
    for hits in found:
        scores = [hit.score for hit in hits]
        assert len(set(scores)) == 3  # ten of one text, ten of another, five of a third: no bit differs
        assert [int(hit.id) for hit in hits] == sorted(
            (int(hit.id) for hit in hits), key=lambda n: (scores.index(dict_of(hits)[n]), n)
        )
        for first in (0, 10, 20):
            group = [int(hit.id) for hit in hits[first : first + 10]]
            assert group == list(range(group[0] % 4, 40, 4))[: len(group)]
    monkeypatch.undo()
    assert made.retrieve(QUERIES, 25) == found
    assert made.retrieve(QUERIES, 7) == [hits[:7] for hits in found]


def dict_of(hits: Sequence[Any]) -> dict[int, float]:
    return {int(hit.id): hit.score for hit in hits}


@pytest.mark.parametrize("kind", KINDS)
def test_filters_leave_scores_and_order(kind: str, root: Path) -> None:
    retriever = opened(root / kind)
    rules, facts = ("r1", "r0"), tuple(p.id for p in passages() if p.id[0] != "r")
    every = retriever.retrieve(QUERIES, 10)
    found = retriever.retrieve(QUERIES, 10, [rules, None, facts])
    assert found[1] == every[1]
    for number, allowed in ((0, rules), (2, facts)):
        assert found[number] == [hit for hit in every[number] if hit.id in allowed]
        assert found[number]


@pytest.mark.parametrize("kind", KINDS)
def test_it_scores_all_and_knows_no_done(kind: str, root: Path) -> None:
    retriever = opened(root / kind)
    assert isinstance(retriever, ScoresAll)
    assert not isinstance(retriever, TakesEvidence | WritesChains | FindsChains)
    assert retriever.scores_done is False
    rule = passages()[-1]
    model = LIBRARY[kind](str(model_of(root, kind)), device="cpu")
    expected = truth(model, [f"{QUERIES[0].text} {rule.text}"], [p.text for p in passages()])
    found = retriever.scores(QUERIES[:1], [[rule]])(np.array([0]))
    assert found == pytest.approx(expected, abs=1e-5)


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


def test_single_precision_only_proposes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found does not depend on the last bits of the first pass, not even among equal passages."""
    retriever = opened(root / "multi-vector")
    texts = [passage_text(passage) for passage in passages()]
    corpus = Corpus.from_passages([Passage(f"{n}", texts[n % 3]) for n in range(30)])
    made = MultiVectorRetriever.assemble(retriever.encoder, corpus)
    expected = made.retrieve(QUERIES, 12)
    single, noise = MaxSimSearch.single, np.random.default_rng(0).normal(size=30) * 1e-6

    def rounded(self: Any, *given: Any) -> Any:
        scores, longest = single(self, *given)
        return scores + noise, longest

    monkeypatch.setattr(MaxSimSearch, "single", rounded)
    assert made.retrieve(QUERIES, 12) == expected


def test_maxsim_by_hand() -> None:
    query, passage = np.array([[1.0, 0], [0, 2]]), np.array([[3.0, 1], [-1, 4], [0, 0]])
    assert maxsim(query, passage) == 3 + 8


def test_the_best_of_some() -> None:
    scores, numbers = np.array([1.0, 3, 2, 3, 1]), np.array([2, 4, 6, 8, 9])
    assert [part.tolist() for part in top(scores, numbers, 3)] == [[4, 8, 6], [3, 3, 2]]
    assert top(scores, numbers, 9)[0].tolist() == [4, 8, 6, 2, 9]
    assert top(scores[:0], numbers[:0], 2)[0].tolist() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_opened_saved_and_moved(kind: str, root: Path, tmp_path: Path) -> None:
    retriever = opened(root / kind)
    expected = retriever.retrieve(QUERIES, 5)
    retriever.save_pretrained(tmp_path / "a" / "r")
    shutil.move(tmp_path / "a" / "r", tmp_path / "b")
    again = opened(tmp_path / "b")
    assert again.retrieve(QUERIES, 5) == expected
    assert again.fingerprint() == retriever.fingerprint()
    names = {"model", "embeddings.safetensors", "corpus.jsonl", "grls.json"}
    assert {file.name for file in (tmp_path / "b").iterdir()} == names
    assert not [f for f in (tmp_path / "b").rglob("*") if f.suffix in (".bin", ".pt", ".pkl")]
    assert opened(tmp_path / "b", verify=False).retrieve(QUERIES, 5) == expected
    arrays = load_file(tmp_path / "b" / "embeddings.safetensors")  # the library reads what we write
    assert len(arrays["bounds"]) == {"sparse": retriever.encoder.dimension, "multi-vector": 10}[kind] + 1
    rows = [type(retriever).assemble(retriever.encoder, retriever.corpus, batch_size=n) for n in (1, 64)]
    assert rows[0].retrieve(QUERIES, 5)[1][0].id == rows[1].retrieve(QUERIES, 5)[1][0].id == expected[1][0].id


@pytest.mark.parametrize("kind", KINDS)
def test_parts_that_do_not_belong_together_are_refused(kind: str, root: Path, tmp_path: Path) -> None:
    def changed(name: str) -> Path:
        shutil.copytree(root / kind, tmp_path / name)
        return tmp_path / name

    folder = changed("corpus")
    Corpus.from_passages([Passage("x", "the otter is calm .")]).write(folder / "corpus.jsonl")
    with pytest.raises(MismatchError, match="made with another corpus"):
        opened(folder)
    folder = changed("bytes")
    data = bytearray((folder / "embeddings.safetensors").read_bytes())
    data[-20] ^= 1
    (folder / "embeddings.safetensors").write_bytes(data)
    with pytest.raises(MismatchError, match="not the embeddings of this retriever"):
        opened(folder)
    (folder / "embeddings.safetensors").write_bytes(data[:-8])
    with pytest.raises(DataError, match="missing or truncated"):
        opened(folder)
    folder = changed("model")
    weights = load_file(folder / "model" / "model.safetensors")
    name = sorted(name for name in weights if name.endswith("LayerNorm.bias"))[0]
    weights[name] = weights[name] + 1
    save_file(weights, folder / "model" / "model.safetensors", {"format": "pt"})
    with pytest.raises(MismatchError, match="made with another model"):
        opened(folder)
    folder = changed("field")
    update_spec(folder, {"colour": "red"})
    with pytest.raises(DataError, match="unknown field 'colour'"):
        opened(folder)
    with pytest.raises(ConfigError, match="rescores nothing"):
        opened(root / kind, search=SearchOptions(rescore=3))


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_numbers_are_refused(kind: str, root: Path, tmp_path: Path) -> None:
    """Without checksums, too."""
    folder = tmp_path / "r"
    shutil.copytree(root / kind, folder)
    file, spec = folder / "embeddings.safetensors", json.loads((folder / "grls.json").read_text())
    arrays = load_file(file)
    broken: list[tuple[str, Any]] = []
    values = "data" if kind == "sparse" else "vectors"
    for value in (np.nan, np.inf):
        wrong = arrays[values].copy()
        wrong.reshape(-1)[3] = value
        broken.append((values, wrong))
    bounds = arrays["bounds"].copy()
    bounds[1] = bounds[-1] + 5
    broken.append(("bounds", bounds))
    for name, wrong in broken:
        save_file({**arrays, name: wrong}, file)
        update_spec(folder, {"embeddings": {**spec["embeddings"], "bytes": file.stat().st_size}})
        with pytest.raises((DataError, MismatchError), match=r"not finite|cannot be read|belong to another"):
            opened(folder, verify=False)
    save_file({values: arrays[values]}, file)
    update_spec(folder, {"embeddings": {**spec["embeddings"], "bytes": file.stat().st_size}})
    with pytest.raises(DataError, match="cannot be read"):
        opened(folder, verify=False)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_that_are_too_long_or_empty(kind: str, root: Path, caplog: Any) -> None:
    retriever = opened(root / kind)
    long = [Query("x", "calm " * 70)]
    with pytest.raises(DataError, match=r"query 'x' has 7\d tokens, the limit is 64.*truncate_queries=True"):
        retriever.retrieve(long, 1)
    with pytest.raises(DataError, match="query 'x' is empty"):
        retriever.retrieve([Query("x", " ")], 1)
    with pytest.raises(ConfigError, match="k must be at least 1"):
        retriever.retrieve(QUERIES, 0)
    retriever.truncate_queries = True
    assert len(retriever.retrieve(long, 2)[0]) == 2
    assert "query 'x' has 7" in caplog.text


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
    with pytest.raises(ConfigError, match=rf"it is a {LIBRARY[kind].__name__}, which gives no single vector"):
        BiEncoderModel.load(str(model_of(root, kind)), device="cpu")
    with pytest.raises(ConfigError, match="no such folder"):
        encoders[kind].load("./nosuch", "cpu")
    for lost, message in (("modules.json", "lacks modules.json"), ("model.safetensors", "no weights")):
        folder = tmp_path / lost
        shutil.copytree(model_of(root, kind), folder)
        (folder / lost).unlink()
        with pytest.raises(ConfigError, match=f"{encoders[kind].what} from.*{message}"):
            encoders[kind].load(str(folder), "cpu")
    shutil.copytree(model_of(root, kind), tmp_path / "code")
    config = json.loads((tmp_path / "code" / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "mine.Model"}
    (tmp_path / "code" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="brings its own code"):
        encoders[kind].load(str(tmp_path / "code"), "cpu")


def test_a_masked_language_model_is_read_as_splade(tmp_path: Path) -> None:
    encoder = SparseTexts.load(str(tiny_masked(tmp_path)), "cpu")
    found = encoder.encode(["the otter is calm ."], "query", 8).toarray()
    expected = (
        SparseEncoder(str(tmp_path), device="cpu").encode_query(["the otter is calm ."]).to_dense().numpy()
    )
    assert found == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ConfigError, match="compares by 'euclidean'"):
        SparseTexts(SparseEncoder(str(tmp_path), device="cpu", similarity_fn_name="euclidean"))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_spell_special_tokens(kind: str, root: Path) -> None:
    encoder = opened(root / kind).encoder
    tokenizer = encoder.tokenizer
    for role in ("query", "passage"):
        usual = encoder.features(["otter calm"], role)["input_ids"]
        (ids,) = encoder.features(["otter [SEP] calm [MASK]"], role)["input_ids"].tolist()
        assert ids.count(tokenizer.sep_token_id) == usual[0].tolist().count(tokenizer.sep_token_id) == 1
        assert tokenizer.mask_token_id not in ids


def test_markers_and_expansion_of_a_colbert(tmp_path: Path) -> None:
    """Prompts that are special tokens, and queries that are filled with ``[MASK]`` up to a length."""
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


def test_a_first_retriever_in_the_folder_is_not_lost(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "multi-vector", tmp_path / "r")
    shutil.copytree(root / "sparse", tmp_path / "r" / "first")
    update_spec(tmp_path / "r", {"retriever": "first"})
    late = opened(tmp_path / "r")
    with pytest.raises(ConfigError, match=r"its member .*first would be lost"):
        late.save_pretrained(tmp_path / "r")
    assert opened(tmp_path / "r").retrieve(QUERIES, 3) == late.retrieve(QUERIES, 3)


def test_bm25_as_the_first_retriever_and_what_is_refused(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(root / "multi-vector", folder)
    update_spec(folder, {"retriever": "bm25", "passages": 3})
    found = opened(folder).retrieve(QUERIES, 10)
    bm25 = BM25Retriever(Corpus.read(root / "data")).retrieve(QUERIES, 3)
    assert [{h.id for h in hits} for hits in found] == [{h.id for h in hits} for hits in bm25]
    for count in (0, True, "3"):
        update_spec(folder, {"passages": count})
        with pytest.raises(DataError, match="passages: expected a count of at least 1"):
            opened(folder)
    update_spec(folder, {"retriever": "../gone", "passages": 3})
    with pytest.raises(DataError, match=r"retriever names \.\./gone, but there is no retriever"):
        opened(folder)
    update_spec(folder, {"retriever": None})
    with pytest.raises(DataError, match="name it as retriever"):
        opened(folder)
    other = BM25Retriever(Corpus.from_passages([Passage("x", "the otter")]))
    with pytest.raises(MismatchError, match="another corpus"):
        opened(root / "multi-vector").behind(other, 3)
    named_nowhere = opened(root / "multi-vector").behind(BM25Retriever(Corpus.read(root / "data")), 3)
    with pytest.raises(ConfigError, match="no name to save"):
        named_nowhere.save_pretrained(tmp_path / "s")


def test_the_kind_of_a_model_is_what_its_folder_says(root: Path, tmp_path: Path) -> None:
    for kind in KINDS:
        assert kind_of_model(str(model_of(root, kind))) == kind
    assert kind_of_model(str(tiny_bert(tmp_path / "bert"))) == "generative"
    assert kind_of_model("all-MiniLM-L6-v2") == "dense"


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_config_makes_a_folder(kind: str, root: Path, tmp_path: Path, capsys: Any) -> None:
    given = [
        f"--config={CONFIGS / kind}.yaml",
        str(model_of(root, kind)),
        f"--corpus={root / 'data'}",
    ]
    assert main(["index", *given, f"--output={tmp_path / 'r'}", "--device=cpu", "--batch_size=4"]) == 0
    assert f"{tmp_path / 'r'}: 10 passages, " in capsys.readouterr().out
    found = opened(tmp_path / "r")
    assert found.kind == kind
    assert found.fingerprint() == opened(root / kind).fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_built_is_refused(kind: str, root: Path, tmp_path: Path) -> None:
    model, data = str(model_of(root, kind)), str(root / "data")
    for option, message in (
        ({"limits": LimitOptions(query=9)}, "no query; set input instead"),
        ({"index": IndexOptions(span_words=3)}, "no span_words; it reads whole passages"),
        ({"index": IndexOptions("flat")}, "no backend; leave it out"),
    ):
        with pytest.raises(ConfigError, match=message):
            build(model, data, Building(str(tmp_path / "r"), kind, **option))
    with pytest.raises(ConfigError, match=r"kind=.hybrid. is not built from a model; choose one of auto"):
        build(model, data, Building(str(tmp_path / "r"), "hybrid"))
    with pytest.raises(ConfigError, match=r"kind=.spares. is no kind of retriever"):
        build(model, data, Building(str(tmp_path / "r"), "spares"))
    assert not (tmp_path / "r").exists()


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
def test_parts_on_disk_are_those_joined_in_memory(
    together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the sizes of parts, and of the blocks that are written together."""
    monkeypatch.setattr(sparse, "_TOGETHER", together)
    drawn = np.random.default_rng(1)
    rows = [drawn.random((count, 6), dtype=np.float32) for count in (3, 1, 5)]
    weights = [csr_array(np.where(part < 0.6, 0, part).T) for part in rows]
    vectors = [MultiVectorRetriever.rows_of([part[:2], part[2:2], part[2:]]) for part in rows]
    kinds: list[tuple[Any, list[Any], int]] = [
        (DenseRetriever, rows, 9), (SparseRetriever, weights, 9), (MultiVectorRetriever, vectors, 9),
    ]  # fmt: skip
    for kind, parts, count in kinds:
        joined, file = kind.joined(parts), tmp_path / f"{kind.kind}-{kind.file}"
        kind.write(lambda parts=parts: iter(parts), file)
        kind.check_rows(kind.read(file, count, 6), count, 6)
        for stored in (kind.read(file, count, 6), joined):
            expected = [row for part in parts for row in kind.each(part)]
            assert all(map(np.array_equal, kind.each(stored), expected))
            assert len(list(kind.each(stored))) == len(expected) == count
        kind.write(lambda joined=joined: [joined], tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == file.read_bytes()
