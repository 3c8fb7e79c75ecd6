"""TREC runs and result files: what is written, what is refused, what comes back."""

import json
import random

import ir_measures
import pytest
from ir_measures import RR, R, SetF, SetP, SetR
from run_files import write_jsonl_run

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import DataError
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.evaluation.metrics.set_f1 import set_f1
from grls.runs.manifest import RunInfo
from grls.runs.results import find_passages, read_results
from grls.runs.run import Run
from grls.runs.trec import align, chain_ranking, read_run, without_done, write_run

CORPUS = Corpus.from_passages([Passage("a", "alpha", "First"), Passage("b", "beta"), Passage("c d", "gamma")])
INFO = RunInfo("generator", "mine", "dynamic", "", "", "", "test", "full")
QUERIES = [Query("q1", "one?"), Query("q2", "two?"), Query("q3", "three?")]


def test_a_run_is_six_columns_without_done(tmp_path):
    file = tmp_path / "run.trec"
    write_run(file, {"q1": [Hit("b", -0.5), Hit("DONE", -0.75), Hit("a", -1.5)], "q2": []}, tag="t5")
    assert file.read_text() == "q1 Q0 b 1 -0.5 t5\nq1 Q0 a 2 -1.5 t5\n"
    assert read_run(file) == {"q1": [Hit("b", -0.5), Hit("a", -1.5)]}


@pytest.mark.parametrize("score", [0.0, -1e-9, -20.0, 12345.678, -1e30, 2.0])
def test_tied_scores_are_written_strictly_falling_in_single_precision(tmp_path, score):
    ids = ["b", "z", "a", "m"]
    file = tmp_path / "run"
    write_run(file, {"q": [Hit(i, score) for i in ids]})
    read = read_run(file)["q"]
    assert [hit.id for hit in read] == ids
    ranked = [ir_measures.ScoredDoc("q", hit.id, hit.score) for hit in read]
    for place, passage_id in enumerate(ids, 1):  # trec_eval sees the same order
        found = ir_measures.calc_aggregate([RR], [ir_measures.Qrel("q", passage_id, 1)], ranked)
        assert found[RR] == pytest.approx(1 / place)


def test_a_lowered_score_lowers_those_it_would_pass(tmp_path):
    hits = [Hit("a", 0.0), Hit("b", 0.0), Hit("c", -1e-7), Hit("d", -1.0)]
    write_run(tmp_path / "run", {"q": hits})
    read = read_run(tmp_path / "run")["q"]
    assert [hit.id for hit in read] == ["a", "b", "c", "d"]
    assert [hit.score for hit in read] == pytest.approx([0, -1e-6, -2e-6, -1.0], abs=1e-9)


@pytest.mark.parametrize(
    ("rankings", "message"),
    [
        ({"q": [Hit("a b", 0.0)]}, "passage id 'a b' holds white space"),
        ({"q": [Hit("a\u00a0b", 0.0)]}, "holds white space"),
        ({"q 1": [Hit("a", 0.0)]}, "query id 'q 1' holds white space"),
        ({"": [Hit("a", 0.0)]}, "query id '' is empty"),
        ({"q": [Hit("a", 0.0), Hit("a", -1.0)]}, "lists a passage twice"),
        ({"q": [Hit("a", -1.0), Hit("b", 0.0)]}, "rises from -1.0 to 0.0 at passage 'b'"),
        ({"q": [Hit("a", float("-inf"))]}, "finite score, got -inf"),
        ({"q": [Hit("a", float("nan"))]}, "finite score, got nan"),
        ({"q": [Hit("a", 1e300)]}, r"finite score, got 1e\+300"),
    ],
)
def test_what_a_run_cannot_carry_is_refused_and_nothing_is_left(tmp_path, rankings, message):
    with pytest.raises(DataError, match=message):
        write_run(tmp_path / "run", {"ok": [Hit("a", 1.0)], **rankings})
    assert list(tmp_path.iterdir()) == []


def test_a_run_tag_with_white_space_is_refused(tmp_path):
    with pytest.raises(DataError, match="run tag 'my run'"):
        write_run(tmp_path / "run", {"q": [Hit("a", 0.0)]}, tag="my run")


@pytest.mark.parametrize(
    "bad", ["q Q0 a 1 0.5", "q Q0 a 1 high t", "q Q0 a 1 nan t", "q Q0 a b 1 0.5 t", "q Q0 first 1 0.25 t"]
)
def test_a_malformed_line_names_file_and_line(tmp_path, bad):
    file = tmp_path / "run"
    file.write_text(f"q Q0 first 1 0.5 t\n\n{bad}\n")
    with pytest.raises(DataError, match=r"run, line 3: ") as error:
        read_run(file)
    assert error.value.line == 3


def test_a_missing_run_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.trec: no such file"):
        read_run(tmp_path / "nowhere.trec")


def test_a_foreign_run_is_ordered_as_trec_eval_orders_it(tmp_path):
    file = tmp_path / "run"
    file.write_text("q\tQ0\tlow\t1\t1\tt\nq Q0 a 2 2 t\nq Q0 b 3 2.00000001 t\nq Q0 c 4 2 t\n")
    assert [hit.id for hit in read_run(file)["q"]] == ["c", "b", "a", "low"]


def test_a_chain_ranks_by_hop_with_cumulative_scores():
    chain = Chain(
        (Hit("b", -1.0), Hit("a", 0.0), Hit("b", -0.5), Hit("c", -2.0), Hit("DONE", -0.1)), -3.6, True
    )
    ranking = chain_ranking(chain)
    assert [hit.id for hit in ranking] == ["b", "a", "c"]
    assert [hit.score for hit in ranking] == pytest.approx([-1.0, -1.000001, -3.5], abs=1e-7)
    assert ranking[1].score < ranking[0].score


def test_a_chain_of_positive_scores_still_falls():
    ranking = chain_ranking(Chain((Hit("b", 3.0), Hit("a", 5.0), Hit("c", 1.0)), 9.0, False))
    assert [hit.id for hit in ranking] == ["b", "a", "c"]
    assert ranking[0].score == 3.0 > ranking[1].score > ranking[2].score > 2.9999


def test_results_hold_the_evidence_text_of_every_query(tmp_path):
    file = tmp_path / "results.jsonl"
    chain = Chain((Hit("c d", -1.0), Hit("a", -0.5), Hit("DONE", -0.25)), -1.75, True)
    rankings = {"q2": [Hit("b", -0.5), Hit("DONE", -0.6), Hit("a", -0.7)]}
    write_jsonl_run(file, QUERIES, CORPUS, "renormalized", rankings, {"q1": chain})
    first, second, third = [json.loads(line) for line in file.read_text().splitlines()]
    assert first == {
        "query_id": "q1",
        "text": "one?",
        "score_mode": "renormalized",
        "hits": [
            {"rank": 1, "id": "c d", "score": -1.0, "title": "", "text": "gamma"},
            {"rank": 2, "id": "a", "score": -1.5, "title": "First", "text": "alpha"},
        ],
        "chain": {
            "done": True,
            "score": -1.75,
            "hops": [
                {"id": "c d", "score": -1.0},
                {"id": "a", "score": -0.5},
                {"id": "DONE", "score": -0.25},
            ],
        },
    }
    assert [(hit["rank"], hit["id"]) for hit in second["hits"]] == [(1, "b"), (2, "a")]
    assert "chain" not in second
    assert third["hits"] == []
    assert Run.load(file) == Run(
        {"q1": [Hit("c d", -1.0), Hit("a", -1.5)], "q2": [Hit("b", -0.5), Hit("a", -0.7)], "q3": []},
        {"q1": chain},
        "renormalized",
    )


@pytest.mark.parametrize(
    ("rankings", "chains", "message"),
    [
        ({"q9": []}, {}, "query id 'q9' of the results is not in the queries given"),
        ({"q1": [Hit("zz", 0.0)]}, {}, "passage id 'zz' of the results is not in corpus"),
        ({"q1": [Hit("a", 0.0), Hit("a", 0.0)]}, {}, "lists a passage twice"),
        ({}, {"q1": Chain((Hit("a", 0.0),), float("nan"), False)}, "finite chain scores"),
    ],
)
def test_results_of_other_data_are_refused(tmp_path, rankings, chains, message):
    with pytest.raises(DataError, match=message):
        Run.of(rankings, chains, INFO).save(tmp_path / "r", QUERIES, CORPUS)
    assert list(tmp_path.iterdir()) == []


GOOD = {"query_id": "q", "text": "?", "score_mode": "full", "hits": []}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({**GOOD, "hits": None}, "list 'hits'"),
        ({**GOOD, "hits": ["a"]}, "non-empty string 'id'"),
        ({**GOOD, "hits": [{"id": "a", "score": "1"}]}, "'score' to be a number, got '1'"),
        ({**GOOD, "hits": [{"id": "a", "score": True}]}, "'score' to be a number"),
        ({**GOOD, "hits": [{"id": "a", "score": 10**400}]}, "expected a result line"),
        ({**GOOD, "query_id": ""}, "non-empty string 'query_id'"),
        ({**GOOD, "query_id": "first"}, "used twice"),
        ({**GOOD, "score_mode": "renormalized"}, "one file holds one mode"),
        ({**GOOD, "chain": "a"}, "list 'hops'"),
        ({**GOOD, "chain": {"hops": [], "score": 0}}, "'done' to be true or false"),
    ],
)
def test_a_malformed_result_names_file_and_line(tmp_path, bad, message):
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join(json.dumps(record) for record in ({**GOOD, "query_id": "first"}, bad)))
    with pytest.raises(DataError, match=rf"results\.jsonl, line 2: .*{message}"):
        list(read_results(file))


def test_find_passages_asks_for_nothing_where_nothing_is_wanted():
    assert find_passages(CORPUS, []) == {}
    assert find_passages(CORPUS, ["b", "b", "a"]) == {"a": CORPUS[0], "b": CORPUS[1]}


def test_an_unanswered_query_gets_an_empty_list_and_is_said(caplog):
    qrels = {"q2": {"a": 1}, "q1": {"b": 1}, "q4": {"a": 1}}
    rankings = {"q1": [Hit("b", 0.0)], "q3": [Hit("a", 0.0)], "q4": [Hit("DONE", 0.0)]}
    aligned, coverage = align(rankings, qrels, "bm25.trec")
    assert aligned == {"q2": [], "q1": [Hit("b", 0.0)], "q4": []}
    assert list(aligned) == ["q2", "q1", "q4"]
    assert coverage == (3, 2, 1)
    assert "bm25.trec: 2 of 3 judged queries have no hit; they score 0" in caplog.text
    assert "bm25.trec: 1 query is not judged" in caplog.text


def test_qrels_without_a_query_are_refused():
    with pytest.raises(DataError, match="judge no query"):
        align({"q3": []}, {})


@pytest.mark.parametrize("seed", range(5))
def test_metrics_agree_with_ir_measures_on_random_runs(tmp_path, seed):
    random_ = random.Random(seed)
    ids = [f"p{n}" for n in range(30)]
    qrels = {f"q{n}": {p: random_.randint(0, 2) for p in random_.sample(ids, 6)} for n in range(25)}
    rankings = {}
    for n in range(3, 28):  # q0-q2 are unanswered, q25-q27 are not judged
        scores = sorted((random_.choice([0.0, -0.5, -random_.random()]) for _ in range(12)), reverse=True)
        hits = [Hit(*pair) for pair in zip(random_.sample(ids, 12), scores, strict=True)]
        rankings[f"q{n}"] = [*hits[:4], Hit("DONE", hits[4].score), *hits[4:]]
    write_run(tmp_path / "run", rankings)
    theirs = ir_measures.calc_aggregate(
        [R @ 1, R @ 5, R @ 10, R @ 20, SetP, SetR, SetF],
        [ir_measures.Qrel(q, p, grade) for q, grades in qrels.items() for p, grade in grades.items()],
        ir_measures.read_trec_run(str(tmp_path / "run")),
    )
    aligned, _ = align(read_run(tmp_path / "run"), qrels)
    retrieved = [[hit.id for hit in hits] for hits in aligned.values()]
    assert retrieved == [[hit.id for hit in without_done(rankings.get(q, []))] for q in qrels]
    gold = [{p for p, grade in grades.items() if grade > 0} for grades in qrels.values()]
    recall, sets = sequence_recall(retrieved, gold), set_f1(retrieved, gold)
    assert recall == pytest.approx({f"recall@{k}": theirs[R @ k] for k in (1, 5, 10, 20)})
    assert sets == pytest.approx({"precision": theirs[SetP], "recall": theirs[SetR], "f1": theirs[SetF]})
