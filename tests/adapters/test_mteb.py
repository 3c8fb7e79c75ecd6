"""MTEB's search protocol, with mteb and tasks that are made here."""

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import raises
from small_data import tiny_bert, write_small

import grls
from grls.api.searcher import Searcher
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Options, BM25Retriever
from grls.retrieve.dense import DenseRetriever

pytest.importorskip("mteb", reason="the extra mteb is not installed")

import mteb
from mteb.abstasks import AbsTaskRetrieval
from mteb_tasks import retrieval_task

from grls.adapters import MTEBSearch, MTEBTask

QUERIES = [{"id": "a", "text": "green ponds"}, {"id": "b", "text": "zebras"}, {"id": "c", "text": "stone"}]
QRELS = {"a": {"p1": 1}, "b": {"p1": 1}, "c": {"p4": 1}}


def rows(corpus: Corpus) -> list[dict[str, Any]]:
    """As MTEB's loader gives them: in another order, with a little more white space."""
    return [{"id": p.id, "title": p.title, "text": f"{p.text} "} for p in reversed(list(corpus))]


def task(passages: list[dict[str, Any]], **options: Any) -> AbsTaskRetrieval:
    return retrieval_task(passages, QUERIES, QRELS, **options)


MEASURES = ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")


def scores(search: MTEBSearch, *tasks: AbsTaskRetrieval, cache: Any = None) -> list[dict[str, float]]:
    result = mteb.evaluate(search, list(tasks), cache=cache, show_progress_bar=False)
    return [{name: one.scores["test"][0][name] for name in MEASURES} for one in result.task_results]


def test_a_searcher_is_scored_on_its_corpus(searcher: Searcher, corpus: Corpus) -> None:
    search = MTEBSearch(searcher)
    assert isinstance(search, mteb.SearchProtocol)
    assert not isinstance(search, mteb.EncoderProtocol)
    assert search.mteb_model_meta.name == "grls/bm25"
    (found,) = scores(search, task(rows(corpus)))
    assert found["mrr_at_10"] == pytest.approx((1 / 2 + 0 + 1) / 3, abs=1e-5)
    assert found["recall_at_1"] == pytest.approx(1 / 3, abs=1e-5)
    assert found["recall_at_10"] == pytest.approx(2 / 3, abs=1e-5)


def test_its_scores_are_those_of_the_searcher(searcher: Searcher, corpus: Corpus) -> None:
    search = MTEBSearch(searcher)
    search.index(rows(corpus))
    expected = {
        query["id"]: {hit.id: hit.score for hit in searcher.search(query["text"], 2)} for query in QUERIES
    }
    found = search.search(QUERIES, top_k=2)
    assert {name: list(hits.items()) for name, hits in found.items()} == {
        name: [(hit, pytest.approx(score, abs=1e-5)) for hit, score in hits.items()]
        for name, hits in expected.items()
    }
    assert expected["b"] == {}
    few = MTEBSearch(searcher, k=1)
    few.index(rows(corpus))
    assert list(few.search(QUERIES, top_k=1000)["a"]) == ["p3"]


def test_a_function_makes_a_retriever_of_every_corpus(corpus: Corpus, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    other = [row for row in rows(corpus) if row["id"] != "p3"]
    tasks = (task(rows(corpus)), task(other, name="Without"))
    for make in (BM25Retriever, lambda passages: DenseRetriever.assemble(model, passages)):
        for made, one in zip(
            scores(MTEBSearch(make, name="made"), *tasks), (rows(corpus), other), strict=True
        ):
            retriever = make(Corpus.from_passages([Passage(r["id"], r["text"], r["title"]) for r in one]))
            hits = retriever.retrieve([query["text"] for query in QUERIES], 1)
            right = [bool(top) and top[0].id in QRELS[q["id"]] for top, q in zip(hits, QUERIES, strict=True)]
            assert made["recall_at_1"] == pytest.approx(sum(right) / 3, abs=1e-5)


def test_a_searcher_that_a_function_makes_is_held_with_its_temporary_folder(corpus: Corpus) -> None:
    folders: list[Path] = []

    def make(passages: Corpus) -> Searcher:
        searcher = grls.BM25(passages).updated(remove=["p2"])  # which is written
        assert searcher.folder is not None
        folders.append(searcher.folder)
        return searcher

    search = MTEBSearch(make, name="made")
    search.index(rows(corpus))
    gc.collect()
    assert folders[0].is_dir()
    assert list(search.search(QUERIES, top_k=1)["c"]) == ["p4"]
    search.index(rows(corpus)[1:])
    gc.collect()
    assert [folder.is_dir() for folder in folders] == [False, True]


@pytest.mark.parametrize("steps", ["single", "fixed", "dynamic", "ranked"])
def test_the_runner_prints_the_figures_of_evaluate(steps: str, tmp_path: Path) -> None:
    """Of a data set and a folder of any hops; queries have two gold passages, and scores may be equal."""
    data, run = write_small(tmp_path / "animals"), tmp_path / "run"
    torch.manual_seed(0)
    model = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    DenseRetriever.assemble(model, Corpus.read(data)).save_pretrained(tmp_path / "dense")
    searcher = grls.load(tmp_path / "dense")
    searcher = searcher if steps == "single" else searcher.hops(2, steps, output=tmp_path / "hops")
    result = mteb.evaluate(MTEBSearch(searcher), MTEBTask(data, "train"), cache=None)
    (found,) = result.task_results[0].scores["train"]
    of_train = ["--data", str(data), "--split", "train", "--output"]
    assert main(["retrieve", str(searcher.folder), *of_train, str(run)]) in (None, 0)
    assert main(["evaluate", f"{run}.jsonl", *of_train, f"{run}.json"]) in (None, 0)
    report = json.loads(Path(f"{run}.json").read_text())
    expected = {"ndcg@10": report["measures"]["nDCG@10"], **report["complete_recall"]}
    expected |= {name.removeprefix("sequence_"): value for name, value in report["sequence_recall"].items()}
    printed = {name.replace("@", "_at_"): value for name, value in expected.items() if "@" in name}
    assert {name: found[name] for name in printed} == pytest.approx(printed, abs=1e-6)
    assert 0 < printed["recall_at_1"] < printed["recall_at_5"]
    raises(DataError, "no such file; there are", MTEBTask, data, "tests")


def test_a_task_has_the_language_of_its_data(tmp_path: Path) -> None:
    texts = [
        "Der Fischotter lebt am Fluss und frisst Fische.",
        "Die Eule jagt in der Nacht die Mäuse im Wald.",
    ]
    passages = [Passage(f"p{number}", text) for number, text in enumerate(texts)]
    write_dataset(tmp_path / "de", passages, [Query("q", "Wer jagt nachts?")], {"test": {"q": {"p1": 1}}})
    raises(
        ConfigError, r"de is not English \(by its words: de\): give language as", MTEBTask, tmp_path / "de"
    )
    for code in ("de", "deu", "deu-latn", "xyz-Latn"):
        expected = f"expected ISO 639-3 and script, as in eng-Latn or deu-Latn, got '{code}'"
        raises(ConfigError, expected, MTEBTask, tmp_path / "de", language=code)
    assert MTEBTask(tmp_path / "de", language="deu-Latn").metadata.languages == ["deu"]
    assert MTEBTask(write_small(tmp_path / "animals"), "train").metadata.languages == ["eng"]


def test_ranks_are_those_of_the_retriever_where_single_precision_has_no_difference(corpus: Corpus) -> None:
    """Of equal scores MTEB takes the higher id first."""
    hits = [Hit("p1", 1.0), Hit("p3", 1.0 - 1e-9), Hit("p4", 1.0 - 1e-9), Hit("p2", 0.5)]

    class Fixed(BM25Retriever):
        def retrieve(self, queries: Any, k: int, allow: Any = None) -> list[list[Hit]]:
            return [hits for _ in queries]

    search = MTEBSearch(Fixed, name="fixed")
    (found,) = scores(search, task(rows(corpus)))
    assert found["mrr_at_10"] == pytest.approx((1 + 1 + 1 / 3) / 3, abs=1e-5)
    assert search.search(QUERIES, top_k=4)["a"]["p2"] == 0.5


def test_reranking_finds_only_the_passages_of_a_query(searcher: Searcher, corpus: Corpus) -> None:
    ranked = {"a": ["p2", "p1"], "b": ["p3"], "c": ["p1", "p4"]}
    (found,) = scores(MTEBSearch(searcher), task(rows(corpus), top_ranked=ranked))
    assert found["mrr_at_10"] == pytest.approx((1 + 0 + 1) / 3, abs=1e-5)
    search = MTEBSearch(searcher)
    search.index(rows(corpus))
    found = search.search(QUERIES, top_k=10, top_ranked={"a": ["p2"]})
    assert {name: list(hits) for name, hits in found.items()} == {"a": ["p2"], "b": [], "c": []}


def test_instructions_follow_queries_and_empty_queries_find_nothing(
    searcher: Searcher, corpus: Corpus
) -> None:
    search = MTEBSearch(searcher, k=1)
    search.index(rows(corpus))
    queries = [{"id": "a", "text": "zebras", "instruction": "stone"}, {"id": "b", "text": " "}]
    found = search.search([*queries, {"id": "c", "text": "stone", "instruction": None}], top_k=9)
    assert {name: list(hits) for name, hits in found.items()} == {"a": ["p4"], "b": [], "c": ["p4"]}


def test_results_are_kept_for_one_retriever_alone(
    searcher: Searcher, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MTEB skips a task with results of the same name and revision; so another retriever has another one."""
    cache = mteb.ResultCache(tmp_path)
    changed = BM25Retriever(Corpus.from_passages(list(corpus)), BM25Options(k1=0.9))
    changed.save_pretrained(tmp_path / "changed")
    others = [
        MTEBSearch(Searcher(changed, tmp_path / "changed")), MTEBSearch(searcher, k=1),
        *(MTEBSearch(BM25Retriever, name="bm25") for _ in range(2)),
    ]  # fmt: skip
    first = scores(MTEBSearch(searcher), task(rows(corpus)), cache=cache)
    asked = []
    monkeypatch.setattr(
        MTEBSearch, "index", lambda self, *a, **o: asked.append(self) or _index(self, *a, **o)
    )
    assert scores(MTEBSearch(searcher), task(rows(corpus)), cache=cache) == first
    assert asked == []
    for other in others:
        scores(other, task(rows(corpus)), cache=cache)
    assert asked == others


_index = MTEBSearch.index


def test_another_corpus_is_refused(searcher: Searcher, corpus: Corpus) -> None:
    search, passages = MTEBSearch(searcher), rows(corpus)
    with pytest.raises(
        MismatchError, match=r"the searcher has 4 passages, the corpus of Frogs has 3: .*function"
    ):
        scores(search, task(passages[1:]))
    with pytest.raises(MismatchError, match="the passage 'q' of the corpus of the task is not in the corpus"):
        search.index([passages[0] | {"id": "q"}, *passages[1:]])
    with pytest.raises(MismatchError, match=r"the passage 'p1' .* has another text there"):
        search.index([row | {"text": "blue frogs"} if row["id"] == "p1" else row for row in passages])


def test_bad_input_is_refused(searcher: Searcher, corpus: Corpus) -> None:
    raises(ConfigError, "needs a name", MTEBSearch, BM25Retriever)
    raises(ConfigError, "k must be at least 1", MTEBSearch, searcher, k=0)
    search = MTEBSearch(searcher)
    raises(ConfigError, "call index", search.search, QUERIES, top_k=1)
    raises(ConfigError, "a passage has no text, only id, image", search.index, [{"id": "p", "image": None}])
    for nothing in (None, "bm25"):
        with pytest.raises(ConfigError, match=rf"^retriever: .* must return .*, got .?{nothing}"):
            MTEBSearch(lambda _, made=nothing: made, name="made").index(rows(corpus))
    search.index(rows(corpus))
    with pytest.raises(MismatchError):
        search.index(rows(corpus)[1:])
    with pytest.raises(ConfigError, match="call index"):  # and not the corpus before
        search.search(QUERIES, top_k=1)
    search.index(rows(corpus))
    with pytest.raises(ConfigError, match="query 'a' has no text"):
        search.search([{"id": "a", "text": [{"role": "user", "content": "stone"}]}], top_k=1)
    raises(ConfigError, "query 'a' has no text", search.search, [{"id": "a", "image": None}], top_k=1)
    blank = [{"id": "a", "text": ""}, {"id": "b", "text": None}, {"id": "c", "text": float("nan")}]
    assert search.search([*blank, {"id": "d", "text": "stone"}], top_k=1).keys() == {"a", "b", "c", "d"}
    assert search.search(blank, top_k=1) == {"a": {}, "b": {}, "c": {}}
    raises(DataError, "'p9'", search.search, QUERIES, top_k=1, top_ranked={"a": ["p9"]})


def test_equal_scores_are_parted_as_in_a_run_file(tied: Searcher) -> None:
    search = MTEBSearch(tied)
    search.index(rows(tied.corpus))
    scores = search.search([{"id": "q", "text": "frogs"}], top_k=3)["q"]
    assert sorted(scores, key=lambda name: scores[name], reverse=True) == list(scores) == ["b", "c", "a"]
    assert len({*map(np.float32, scores.values())}) == 3
