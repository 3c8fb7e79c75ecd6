"""The transformer for PyTerrier, with pyterrier and without Java."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from failing import raises

from grls.api.searcher import Searcher
from grls.errors import ConfigError, DataError

pytest.importorskip("pyterrier", reason="the extra pyterrier is not installed")

import pyterrier as pt

from grls.adapters import PyTerrierRetriever

TOPICS = pd.DataFrame(
    {"qid": ["a", "b", "c"], "query": ["green ponds", "zebras", "stone"], "lang": ["en"] * 3}
)
QRELS = pd.DataFrame({"qid": ["a", "b", "c"], "docno": ["p1", "p1", "p4"], "label": [1, 1, 1]})


def test_results_are_the_hits_beside_the_columns_of_the_queries(searcher: Searcher) -> None:
    results = PyTerrierRetriever(searcher, k=2)(TOPICS)
    assert list(results.columns) == ["qid", "query", "lang", "docno", "score", "rank"]
    assert results[["qid", "docno", "rank"]].values.tolist() == [
        ["a", "p3", 0], ["a", "p1", 1], ["c", "p4", 0],
    ]  # fmt: skip
    assert results["query"].tolist() == ["green ponds", "green ponds", "stone"]
    first, third = searcher.search(["green ponds", "stone"], 2)
    assert results["score"].tolist() == [hit.score for hit in first + third]


def test_texts_and_filters(searcher: Searcher) -> None:
    results = PyTerrierRetriever(searcher, where="year<2000", texts=True).search("green ponds")
    assert results[["docno", "text", "title"]].values.tolist() == [["p1", "green frogs eat flies", ""]]


@pytest.mark.parametrize("topics", [TOPICS[:0], TOPICS[1:2]], ids=["no query", "no hit"])
def test_an_empty_result_has_the_columns_and_types(topics: pd.DataFrame, searcher: Searcher) -> None:
    full, empty = (PyTerrierRetriever(searcher)(frame) for frame in (TOPICS, topics))
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)
    assert empty[["score", "rank"]].dtypes.tolist() == full[["score", "rank"]].dtypes.tolist()


def test_an_experiment_measures_it_without_java(searcher: Searcher) -> None:
    everything, first = PyTerrierRetriever(searcher), PyTerrierRetriever(searcher, k=1)
    measures = ["recip_rank", "recall_1"]
    table = pt.Experiment([everything, first], TOPICS, QRELS, measures, ["all", "one"], validate="error")
    assert table.set_index("name").loc["all"].tolist() == pytest.approx([(1 / 2 + 0 + 1) / 3, 1 / 3])
    assert table.set_index("name").loc["one"].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert (everything % 1)(TOPICS)["docno"].tolist() == ["p3", "p4"]
    assert not pt.java.started()


def test_equal_scores_are_parted_as_in_a_run_file(tied: Searcher) -> None:
    """trec_eval parts equal scores by docno: the last one first."""
    qrels = pd.DataFrame({"qid": ["a"], "docno": ["b"], "label": [1]})
    table = pt.Experiment([PyTerrierRetriever(tied)], TOPICS[:1].assign(query="frogs"), qrels, ["recip_rank"])
    assert table["recip_rank"].tolist() == [1.0]


def test_it_composes_with_other_transformers(searcher: Searcher) -> None:
    retriever = PyTerrierRetriever(searcher, k=2)
    both = 0.5 * retriever + 0.5 * PyTerrierRetriever(searcher, k=2, where="year>=2000")
    scores = dict(both.search("green ponds")[["docno", "score"]].values.tolist())
    hits = {hit.id: hit.score for hit in searcher.search("green ponds", 3)}
    assert scores == pytest.approx({"p3": hits["p3"], "p1": hits["p1"] / 2, "p2": hits["p2"] / 2})


@pytest.mark.parametrize("text", [None, float("nan"), pd.NA, "", " \n"])
def test_a_topic_without_text_has_no_results_and_disturbs_no_other(searcher: Searcher, text: Any) -> None:
    topics = pd.DataFrame({"qid": ["a", "b", "c"], "query": ["green ponds", text, "stone"]}, index=[5, 5, 7])
    retriever = PyTerrierRetriever(searcher, k=1)
    assert retriever(topics)[["qid", "docno"]].values.tolist() == [["a", "p3"], ["c", "p4"]]
    assert retriever(topics[1:2]).empty
    assert list(retriever(topics[1:2]).columns) == list(retriever(topics).columns)


def test_bad_input_is_refused(searcher: Searcher) -> None:
    with pytest.raises(DataError, match=r"query 1 \('q2'\): its text must be a text, got 5"):
        PyTerrierRetriever(searcher)(pd.DataFrame({"qid": ["q1", "q2"], "query": ["stone", 5]}))
    with pytest.raises(ConfigError, match="PyTerrierRetriever: searcher must be a Searcher, got 'runs/mine'"):
        PyTerrierRetriever("runs/mine")
    assert PyTerrierRetriever(searcher, k=np.int64(1))(TOPICS).equals(
        PyTerrierRetriever(searcher, k=1)(TOPICS)
    )
    raises(ConfigError, "k must be at least 1", PyTerrierRetriever, searcher, k=0)
    with pytest.raises(pt.validate.InputValidationError):
        PyTerrierRetriever(searcher)(TOPICS.drop(columns="query"))


def test_a_chain_has_the_hop_of_each_result_and_a_passage_once(searcher: Searcher) -> None:
    for repeat in (False, True):
        hops = PyTerrierRetriever(searcher.hops(max=3, steps="fixed", repeat=repeat))
        results = hops(TOPICS)
        assert list(results.columns)[-1] == "hop"
        assert list(hops(TOPICS[:0]).columns) == list(results.columns)
        first = results[results["qid"] == "a"]
        assert len(first) == first["docno"].nunique()
        assert first["hop"].tolist() == sorted(first["hop"])
        assert first["score"].is_monotonic_decreasing
