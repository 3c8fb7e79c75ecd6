"""What a retriever ranks, read by a cross-encoder: the library's numbers, folders, hops, refusals."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from composite_specs import create
from cross_encoders import cross_encoder
from failing import raises
from sentence_transformers import CrossEncoder
from small_data import passages, queries, small_retriever
from torch import nn

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.options import IndexOptions
from grls.models.cross_encoder import PairScorer
from grls.retrieve.base import Description, ScoresAll, ScoresDoneAfter
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.finders import usual_temperature
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, RankedHops
from grls.retrieve.hops.stop import stop_rule
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.rescored.options import Rereading
from grls.retrieve.rescored.retriever import RescoredRetriever, over, rank_again
from grls.retrieve.spec import read_spec, relative, update_spec

ASKED = queries()[::3]
ROOT = Path(__file__).parents[3]
CPU = Opening("cpu")


@pytest.fixture(scope="module")
def model(kinds: Path) -> Path:
    return kinds / "encoder"


@pytest.fixture(scope="module")
def scorer(model: Path) -> PairScorer:
    return PairScorer.load(str(model), "cpu")


@pytest.fixture(scope="module")
def dense(kinds: Path) -> Path:
    return kinds / "dense"


def logits(model: Path, query: str, hits: list[Hit]) -> dict[str, float]:
    texts = {passage.id: passage.text for passage in passages()}
    library = CrossEncoder(str(model), device="cpu", trust_remote_code=False)
    pairs = [(query, texts[hit.id]) for hit in hits]
    found = library.predict(pairs, activation_fn=nn.Identity(), show_progress_bar=False)
    return dict(zip([hit.id for hit in hits], found.tolist(), strict=True))


@pytest.mark.parametrize("weight", [None, 0.5, 2.0, 0.0])
def test_the_first_n_are_ranked_by_the_librarys_logits(
    data: Path, model: Path, scorer: PairScorer, weight: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = BM25Retriever(Corpus.read(data))
    found = over(first, scorer, Rereading(4, weight)).retrieve(ASKED, 10)
    for query, hits, before in zip(ASKED, found, first.retrieve(ASKED, 10), strict=True):
        own = logits(model, query.text, before[:4])
        expected = {
            hit.id: own[hit.id] if weight is None else hit.score + weight * own[hit.id] for hit in before[:4]
        }
        assert {hit.id: hit.score for hit in hits[:4]} == pytest.approx(expected, abs=1e-5)
        assert [hit.id for hit in hits[4:]] == [hit.id for hit in before[4:]]
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        gaps = [before[3].score - hit.score for hit in before[4:]]
        assert [scores[3] - score for score in scores[4:]] == pytest.approx(gaps)
    if weight == 0.0:
        monkeypatch.setattr(scorer, "logits", None)  # nothing is read
        found = over(first, scorer, Rereading(4, weight)).retrieve(ASKED, 10)
        assert [[h.id for h in hits] for hits in found] == [
            [h.id for h in f] for f in first.retrieve(ASKED, 10)
        ]


@pytest.mark.parametrize("weight", [None, 0.7])
def test_a_ranking_is_the_same_however_many_passages_are_asked_for(
    data: Path, scorer: PairScorer, weight: float | None
) -> None:
    made = over(BM25Retriever(Corpus.read(data)), scorer, Rereading(4, weight))
    whole = made.retrieve(ASKED, 10)
    for k in (1, 3, 4, 5, 8):
        assert [hits[:k] for hits in whole] == made.retrieve(ASKED, k)
    one_by_one = [made.retrieve([query], 10)[0] for query in ASKED]
    for alone, together in zip(one_by_one, whole, strict=True):
        assert [hit.id for hit in alone] == [hit.id for hit in together]


def test_equal_scores_go_in_the_first_retrievers_order() -> None:
    hits = [Hit(name, score) for name, score in zip("abcde", (5.0, 4.0, 3.0, 2.5, 1.0), strict=True)]
    assert [hit.id for hit in rank_again(hits, [1.0, 2.0, 1.0], None)] == ["b", "a", "c", "d", "e"]
    assert rank_again(hits, [0.0, 1.0, 2.0], 1.0)[:3] == [Hit("a", 5.0), Hit("b", 5.0), Hit("c", 5.0)]
    assert rank_again(hits, [9.0, -9.0, 0.0], None)[3:] == [Hit("d", -9.5), Hit("e", -11.0)]
    assert rank_again([], [], None) == []


def saved(
    data: Path, dense: Path, model: Path, folder: Path, weight: float | None = 0.5
) -> RescoredRetriever:
    spec = {"retriever": str(dense), "model": str(model), "passages": 4, "weight": weight}
    create(folder, "rescored", {name: value for name, value in spec.items() if value is not None}, CPU)
    shutil.copytree(model, folder / "model")
    update_spec(folder, {"model": "model"})
    opened = load_retriever(folder, CPU)
    assert isinstance(opened, RescoredRetriever)
    return opened


def test_the_model_may_be_named_and_the_first_retriever_embedded(
    data: Path, model: Path, scorer: PairScorer, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "models" / "m")
    made = RescoredRetriever(BM25Retriever(Corpus.read(data)), scorer, Rereading(3))
    spec = {"kind": "bm25", "corpus": str(data)}
    named = {"retriever": spec, "model": str(tmp_path / "models" / "m"), "passages": 3}
    create(tmp_path / "r", "rescored", named, CPU)
    stored = read_spec(tmp_path / "r")
    first = spec | {"corpus": relative(data, tmp_path / "r"), "analyzer": {"language": "en"}}
    assert (stored["model"], stored["retriever"]) == ("../models/m", first)
    assert "weight" not in stored
    opened = load_retriever(tmp_path / "r", CPU)
    assert opened.retrieve(ASKED, 5) == made.retrieve(ASKED, 5)
    assert opened.fingerprint() == made.fingerprint()
    update_spec(tmp_path / "r", {"weight": 2.0, "passages": 2})
    other = load_retriever(tmp_path / "r", CPU)
    assert other.describe().options["cross_encoder_weight"] == 2.0
    assert other.fingerprint() != made.fingerprint()
    assert other.describe().score_mode == "bm25 + cross_encoder"


def test_another_model_in_its_place_is_refused(data: Path, dense: Path, model: Path, tmp_path: Path) -> None:
    saved(data, dense, model, tmp_path / "r")
    shutil.rmtree(tmp_path / "r" / "model")
    cross_encoder(tmp_path / "r" / "model", seed=1)
    with pytest.raises(MismatchError, match=r"r/grls\.json: model is another cross-encoder"):
        load_retriever(tmp_path / "r", CPU)
    assert load_retriever(tmp_path / "r", Opening("cpu", verify=False)).kind == "rescored"
    update_spec(tmp_path / "r", {"fingerprint": None})
    assert load_retriever(tmp_path / "r", CPU).kind == "rescored"


def test_options_of_search_are_heeded(data: Path, dense: Path, model: Path, tmp_path: Path) -> None:
    saved(data, dense, model, tmp_path / "r")
    update_spec(tmp_path / "r", {"search": {"batch_size": 3, "truncate_queries": True}})
    opened = load_retriever(tmp_path / "r", CPU)
    assert isinstance(opened, RescoredRetriever)
    sizes: list[int] = []
    opened.encoder.model.register_forward_hook(lambda _, __, out: sizes.append(len(out["scores"])))
    opened.retrieve(ASKED, 5)
    assert max(sizes) == 3
    assert sum(sizes) == 4 * len(ASKED) + 3  # three of the trial whether padding counts
    short = load_retriever(tmp_path / "r", Opening("cpu", "bfloat16", SearchOptions()))
    assert isinstance(short, RescoredRetriever)
    assert short.encoder.model.dtype == torch.bfloat16
    assert short.fingerprint() == opened.fingerprint()


def test_a_query_that_would_be_cut_is_refused_by_name(data: Path, scorer: PairScorer) -> None:
    long = [Query("a", "otter"), Query("b", "otter is calm " * 20)]
    first = BM25Retriever(Corpus.read(data))
    with pytest.raises(
        DataError, match=r"query 'b' has 60 tokens, but the cross-encoder reads 64 .*truncate_queries"
    ):
        over(first, scorer, Rereading(4)).retrieve(long, 3)
    assert len(over(first, scorer, Rereading(4), truncate_queries=True).retrieve(long, 3)) == 2


def test_it_describes_itself(data: Path, dense: Path, scorer: PairScorer) -> None:
    bm25 = BM25Retriever(Corpus.read(data))
    alone = over(bm25, scorer, Rereading(4), name="m").describe()
    options = {"cross_encoder": "m", "cross_encoder_passages": 4, "cross_encoder_weight": None}
    assert alone == Description("rescored", "cross_encoder", options, "bm25, rescored")
    both = over(load_retriever(dense, CPU), scorer, Rereading(4, 1.0)).describe()
    assert both.score_mode == "cosine + cross_encoder"
    assert both.options["max_input_tokens"] == 64
    assert not isinstance(over(bm25, scorer, Rereading(4, 1.0)), ScoresAll | ScoresDoneAfter)


def test_in_hops_the_cross_encoder_reads_the_passages_found(
    data: Path, model: Path, scorer: PairScorer
) -> None:
    """BM25 takes the passages found as words of the query, and so does the cross-encoder."""
    words = BM25Retriever(Corpus.read(data))
    made = HopsRetriever(over(words, scorer, Rereading(10)), HopOptions("fixed", 2))
    texts = {passage.id: passage.text for passage in passages()}
    for query, chains in zip(ASKED, made.retrieve_chains(ASKED), strict=True):
        one, two = chains[0].hits
        first = logits(model, query.text, words.retrieve([query], 10)[0])
        assert (one.id, one.score) == (max(first, key=lambda name: first[name]), best(first))
        longer = f"{query.text} {texts[one.id]}"
        second = logits(model, longer, words.retrieve([longer], 10)[0])
        second.pop(one.id)
        assert (two.id, two.score) == (max(second, key=lambda name: second[name]), best(second))
    raises(ConfigError, "rescored never writes DONE", HopsRetriever, made.retriever, HopOptions("dynamic", 2))


def best(found: dict[str, float]) -> Any:
    return pytest.approx(max(found.values()), abs=1e-5)


def first_of(kind: str, data: Path, dense: Path) -> Any:
    return load_retriever(dense, CPU) if kind == "dense" else small_retriever(data, beams=20)


@pytest.mark.parametrize("kind", ["dense", "generative"])
def test_hops_until_done_with_a_retriever_that_takes_evidence(
    data: Path, dense: Path, model: Path, scorer: PairScorer, kind: str
) -> None:
    first = first_of(kind, data, dense)
    made = over(first, scorer, Rereading(3, 0.5))
    assert isinstance(made, ScoresDoneAfter)
    until_done = HopOptions("dynamic")
    assert stop_rule(made, until_done).biases == stop_rule(first, until_done).biases  # in one unit
    query, evidence = ASKED[0], passages()[2:3]
    alone = over(first, scorer, Rereading(3))
    assert not isinstance(alone, ScoresDoneAfter)
    assert alone.retrieve_hop([query], [evidence], 5)[0].done is None
    (step,) = made.retrieve_hop([query], [evidence], 5)
    if kind == "dense":
        (before,) = first.retrieve_hop([query], [evidence], 5)
        expected, done = before.hits, before.done
    else:
        tokens = first.codec.model_input(first.encode([query])[0], first.codec.passages(evidence))
        (raw,) = first.search([tokens], 6, [[2]])  # a passage of the chain does not come again
        expected = first.hits([some for some in raw if some.passage != first.done])[:5]
        done = next((some.score for some in raw if some.passage == first.done), None)
    assert step.done == done
    own = logits(model, f"{query.text} {evidence[0].text}", expected[:3])
    read = {hit.id: hit.score + 0.5 * own[hit.id] for hit in expected[:3]}
    assert {hit.id: hit.score for hit in step.hits[:3]} == pytest.approx(read, abs=1e-4)
    assert [hit.id for hit in step.hits[3:]] == [hit.id for hit in expected[3:]]
    never, at_once = (
        HopsRetriever(made, HopOptions("dynamic", 3, done_bias=bias)).retrieve_chains(ASKED[:2])
        for bias in (-1e3, 1e3)
    )
    assert [len(chains[0].hits) for chains in never] == [3, 3]
    assert [(len(chains[0].hits), chains[0].done) for chains in at_once] == [(1, True)] * 2


def test_ranked_hops_have_the_temperature_of_the_first_retriever(
    data: Path, dense: Path, scorer: PairScorer
) -> None:
    """The scores stay in its unit: cosines of a bi-encoder, log-probabilities of a generator."""
    first = load_retriever(dense, CPU)
    assert isinstance(first, DenseRetriever)
    for one in (first, small_retriever(data)):
        ranked = RankedHops(over(one, scorer, Rereading(3, 0.5)), HopOptions("ranked"))
        assert ranked.temperature == usual_temperature(one)
    first.rows = first.rows / np.linalg.norm(first.rows, axis=1, keepdims=True)
    assert usual_temperature(over(first, scorer, Rereading(3, 0.02))) == 0.05
    assert usual_temperature(over(first, scorer, Rereading(3))) is None  # hops read ranks


def test_the_shipped_folder_opens(data: Path, model: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs" / "rescored", tmp_path / "configs" / "rescored")
    shutil.copytree(data, tmp_path / "data" / "nq")
    update_spec(tmp_path / "configs" / "rescored", {"model": str(model)})  # the shipped one is on the hub
    opened = load_retriever(tmp_path / "configs" / "rescored", CPU)
    assert opened.describe().options["cross_encoder_passages"] == 100
    found = opened.retrieve(ASKED, 3)
    own = [logits(model, q.text, BM25Retriever(opened.corpus).retrieve([q], 20)[0]) for q in ASKED]
    best = [sorted(some.values(), reverse=True)[:3] for some in own]
    np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], best, atol=1e-5)


def test_the_saved_tokenizer_does_not_depend_on_what_was_read(model: Path, tmp_path: Path) -> None:
    saved = []
    for name in ("unread", "read"):
        made = PairScorer.load(str(model), "cpu")
        if name == "read":
            made.logits([("is the otter kind ?", "the otter is calm .")])
        (tmp_path / name).mkdir()
        made.write(tmp_path / name)
        saved.append((tmp_path / name / "tokenizer.json").read_bytes())
    assert saved[0] == saved[1]


def test_a_folder_is_built_over_bm25_by_the_index_command(data: Path, model: Path, tmp_path: Path) -> None:
    """The folder is whole: it holds the passages and the model, wherever it is moved."""
    asked = ["index", f"{model}", f"--corpus={data}", f"--output={tmp_path / 'r'}", "--device=cpu"]
    assert main(asked) == 0
    opened = load_retriever((tmp_path / "r").rename(tmp_path / "moved"), CPU)
    scorer = PairScorer.load(str(model), "cpu")
    expected = over(BM25Retriever(Corpus.read(data)), scorer, Rereading(100))
    assert opened.retrieve(ASKED, 5) == expected.retrieve(ASKED, 5)
    assert opened.fingerprint() == expected.fingerprint()
    with pytest.raises(ConfigError, match="a retriever of kind 'rescored' has no form"):
        build(str(model), str(data), Building(str(tmp_path / "x"), "rescored", IndexOptions(form="prefixes")))
