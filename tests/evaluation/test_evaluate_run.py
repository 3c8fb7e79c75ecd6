"""A run and a data set in, the whole report out: scores, examples, hops, types and the price of DONE."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log2
from pathlib import Path

import pytest
from failing import raises
from run_files import write_jsonl_run

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Chain, Hit, Passage, Query, Steps
from grls.errors import ConfigError, DataError, MismatchError
from grls.evaluation.evaluate import (
    Judged,
    evaluate_run,
    format_report,
    judged_runs,
    measure_label,
    score_run,
    types_of,
)
from grls.evaluation.examples import format_examples
from grls.evaluation.measures import measure_names
from grls.evaluation.metrics import Accepted
from grls.evaluation.misses import KINDS, miss_kinds
from grls.evaluation.significance import compare_runs
from grls.runs.comparable import load_runs
from grls.runs.portions import RunInfo, fingerprint_queries, info_file, write_info
from grls.runs.run import Run
from grls.runs.trec import write_run

PASSAGES = [
    Passage("f1", "anna is kind ."), Passage("f2", "bob is calm ."),
    Passage("r1", "if someone is kind then they are big ."),
    Passage("r2", "if someone is calm then they are big ."),
]  # fmt: skip
PLAIN = [
    Query("t1", "train"), Query("q1", "one", answers=("kind",)), Query("q2", "two"),
    Query("q3", "three", answers=("cold", "big")),
]  # fmt: skip
PROBLEMS = [
    Query("t1", "train"),
    Query("q1", "one", metadata=json.dumps({"start": ["f1"], "goal": "anna is big ."})),
    Query("q2", "two", metadata=json.dumps({"start": ["f2"], "goal": "bob is big ."})),
    Query("q3", "three", metadata=json.dumps({"start": ["f2"], "goal": "bob is big ."})),
]
QRELS = {
    "train": {"t1": {"f1": 1}},
    "test": {"q1": {"f1": 1, "r1": 1}, "q2": {"f2": 1, "r2": 1, "r1": 0}, "q3": {"f1": 1}},
}


def dataset(folder, queries=PLAIN):
    write_dataset(folder, PASSAGES, queries, QRELS)
    return folder


def compared(one, other, data, measures):
    return compare_runs(*judged_runs(load_runs([str(one), str(other)]), data), [1], measures)


def examples(run, data, count, corpus=None):
    loaded = run if isinstance(run, Run) else Run.load(run)
    return format_examples(*judged_runs([loaded], data, "test", corpus), count)


def test_a_trec_run_gets_the_metrics_that_apply(tmp_path):
    run = tmp_path / "run.trec"
    hits = {
        "q1": [Hit("f1", -1.0), Hit("r2", -2.0), Hit("r1", -3.0), Hit("f2", -4.0)],  # the whole corpus
        "q2": [Hit("r1", -1.0), Hit("f2", -2.0)],
    }
    write_run(run, {**hits, "t1": [Hit("f1", 0.0)]})
    report = evaluate_run(run, dataset(tmp_path / "data"), ks=(1, 2, 5))
    assert report == {
        "split": "test",
        "score_mode": "unknown",
        "depth": None,
        "queries": {"judged": 3, "unanswered": 1, "unjudged": 1},
        "sequence_recall": pytest.approx({"recall@1": 0.5 / 3, "recall@2": 1 / 3, "recall@5": 1.5 / 3}),
        "measures": pytest.approx(
            {
                # q1: f1 at 1 and r1 at 3 of two; q2: f2 at 2 of two; q3: nothing
                "nDCG@10": ((1 + 1 / 2) / (1 + 1 / log2(3)) + 1 / log2(3) / (1 + 1 / log2(3))) / 3,
                "RR": (1 + 1 / 2) / 3,
                "AP": ((1 + 2 / 3) / 2 + 1 / 2 / 2) / 3,
                "P@5": (2 / 5 + 1 / 5) / 3,
                "Judged@10": (2 / 4 + 1) / 3,  # r2 and f2 of q1 are not judged
            }
        ),
        "complete_recall": pytest.approx(
            {"complete_recall@1": 0.0, "complete_recall@2": 0.0, "complete_recall@5": 1 / 3}
        ),
        "set": {"f1_known_number": pytest.approx((1 / 2 + 1 / 2 + 0) / 3)},
        "answer_recall": {
            "answer_recall@1": 0.5,
            "answer_recall@2": 0.5,
            "answer_recall@5": 0.5,
            "queries": 2,
        },
        "seen_unseen": {
            **{"seen_recall@1": 0.5, "seen_recall@2": 0.5, "seen_recall@5": 0.5, "seen_queries": 2},
            **{"unseen_recall@1": 0.0, "unseen_recall@2": 0.25, "unseen_recall@5": 0.75, "unseen_queries": 2},
            "all_unseen_queries": 1,
        },
    }


def test_chains_get_set_scores_done_missing_and_graph_checks(tmp_path):
    data = dataset(tmp_path / "data", PROBLEMS)
    done = Chain((Hit("f1", -0.5), Hit("r1", 0.0), Hit("DONE", 0.0)), -0.5, True)
    endless = Chain((Hit("f2", -0.5), Hit("r1", -1.0)), -1.5, False)
    run = tmp_path / "results.jsonl"
    write_jsonl_run(run, PROBLEMS, Corpus.read(data), "renormalized", chains={"q1": done, "q2": endless})
    report = evaluate_run(run, data)
    assert report["score_mode"] == "renormalized"
    assert report["queries"] == {"judged": 3, "unanswered": 1, "unjudged": 1}
    assert report["set"] == pytest.approx(
        {"precision": 0.5, "recall": 0.5, "f1": 0.5, "f1_known_number": 0.5}
    )
    assert report["done_missing"] == pytest.approx({"done_missing": 2 / 3})  # q3 has no chain
    assert report["graph_reuse"] == pytest.approx(
        {
            **{"success": 1 / 3, "node_number": 1 / 3, "start_node": 1 / 3, "end_node": 1 / 3},
            **{"missing_edge": 1 / 3, "queries": 3},
        }
    )
    once = {"success": 1 / 3, "node_number": 1 / 3, "start_node": 0, "end_node": 0, "missing_edge": 1 / 3}
    assert report["graph"] == pytest.approx({**once, "queries": 3})  # each under the first failed check
    assert list(report["sequence_recall"]) == ["recall@1", "recall@5", "recall@10", "recall@20"]
    assert "answer_recall" not in report
    json.dumps(report, allow_nan=False)


PATHS = [
    Query("t1", "train"), Query("q1", "one", ("f1", "r1")),
    Query("q2", "two", ("f2", "r2"), metadata='{"any_order": true}'),
    Query("q3", "three", ("r2", "f1"), metadata='{"proofs": [["r1", "r2"]]}'),
]  # fmt: skip


def test_paths_are_matched_by_chains_where_there_are_any_else_by_rankings(tmp_path):
    data = dataset(tmp_path / "data", PATHS)
    rankings = {q: [Hit(p, -n) for n, p in enumerate(hits)] for q, hits in
                {"q1": ["f1", "r1"], "q2": ["r2", "f2"], "q3": ["f1"]}.items()}  # fmt: skip
    write_run(tmp_path / "run", rankings)
    # q3: r2 has no grade, so its evidence is f1 alone.
    assert evaluate_run(tmp_path / "run", data)["path_match"] == {"path_match": 1.0, "queries": 3}
    chains = {
        "q1": Chain((Hit("r1", -1.0), Hit("f1", -1.0)), -2.0, False),
        "q3": Chain((Hit("r1", -1.0), Hit("r2", -1.0), Hit("DONE", 0.0)), -2.0, True),
    }
    file = tmp_path / "chains.jsonl"
    write_jsonl_run(file, PATHS, Corpus.read(data), "full", rankings, chains)
    report = evaluate_run(file, data)
    assert report["path_match"] == pytest.approx({"path_match": 1 / 3, "queries": 3})
    assert report["complete_recall"]["complete_recall@5"] == 1.0


@pytest.mark.parametrize(
    ("hits", "free", "kind"),
    [
        (["b", "a"], False, None),
        (["a", "x"], False, "miss_later_hop"),
        (["b", "x"], True, "miss_later_hop"),
        (["b", "x"], False, "miss_distracted"),  # the question names A
        (["a2", "x"], False, "miss_title_detail"),
        (["x", "y", "a", "b"], False, "miss_distracted"),  # deeper passages do not count
        (["c", "x"], False, "miss_implicit_first_hop"),
    ],
)
def test_what_kind_of_miss(hits, free, kind, tmp_path):
    """Gold: A, then B; with the hit c the question names B alone."""
    titles = {
        "a": "Ada Bell (poet)",
        "a2": "Ada Bell (singer)",
        "b": "Oslo",
        "c": "Rome",
        "x": "Zoo",
        "y": "Sea",
    }
    text = "What is near Oslo ?" if "c" in hits else "Where was Ada Bell born ?"
    metadata = json.dumps({"any_order": free})
    queries = [Query("q", text, ("a", "b"), metadata=metadata), Query("one", "why ?", ("x",))]
    corpus = Corpus.from_passages([Passage(name, "text", title) for name, title in titles.items()])
    qrels = {"q": {"a": 1, "b": 1}, "one": {"x": 1}}
    run = Run.of({"q": [Hit(name, -n) for n, name in enumerate(hits)], "one": [Hit("y", 0.0)]})
    expected = {**dict.fromkeys(KINDS, 0.0), "queries": 1} | ({kind: 1.0} if kind else {})
    report = score_run(Judged(run, queries, qrels, corpus))
    assert report["misses"] == expected
    said = " ".join(format_report(report).split())
    assert kind is None or f"{measure_label(kind)} 100.0" in said
    assert all(f"{measure_label(name).removeprefix('missed: ').capitalize()}: " in said for name in KINDS)
    bare = Corpus.from_passages([Passage(name, "text") for name in titles])
    assert "misses" not in score_run(Judged(run, queries, qrels, bare))
    both = {"q": Accepted([["x", "y"], ["a", "b"]], free)}
    either = miss_kinds(queries[:1], {"q": hits}, both, corpus)["q"]
    assert (sum(either.values()) == 0) == (kind is None or hits[:2] == ["x", "y"])


def test_evidence_that_the_corpus_lacks_is_not_found(tmp_path):
    """An error said that the results belong to other data."""
    titled = [Passage(name, "text", name.upper()) for name in ("a", "b", "x")]
    queries = [Query("q", "a ?", ("a", "gone")), Query("r", "b ?", ("a", "b"))]
    qrels = {"q": {"a": 1, "gone": 1}, "r": {"a": 1, "b": 1}}
    write_dataset(tmp_path / "data", titled, queries, {"test": qrels})
    write_run(tmp_path / "run", {query: [Hit("a", 0.0), Hit("x", -1.0)] for query in qrels})
    report = evaluate_run(tmp_path / "run", tmp_path / "data")
    assert report["sequence_recall"]["recall@1"] == 0.5
    assert (report["misses"]["miss_later_hop"], report["misses"]["queries"]) == (1.0, 1)
    shown = examples(tmp_path / "run", tmp_path / "data", 2)
    assert "gold, not found: gone: not in the corpus" in shown


def test_single_gold_and_evidence_have_neither_complete_recall_nor_path_match(tmp_path):
    single = {"train": QRELS["train"], "test": {"q1": {"f1": 1, "r1": 0}, "q2": {"f2": 1}}}
    write_dataset(tmp_path / "data", PASSAGES, PATHS[:3], single)
    write_run(tmp_path / "run", {"q1": [Hit("f1", 0.0)]})
    report = evaluate_run(tmp_path / "run", tmp_path / "data")
    assert not report.keys() & {"complete_recall", "path_match", "set"}
    two = {"train": QRELS["train"], "test": {"t1": {"f1": 1, "f2": 1}, "q2": {"f2": 1}}}
    write_dataset(tmp_path / "data", PASSAGES, PATHS[:3], two)
    write_run(tmp_path / "run", {"q2": [Hit("f1", 0.0)]})
    report = evaluate_run(tmp_path / "run", tmp_path / "data")
    assert "complete_recall" in report
    assert "path_match" not in report, "t1 has no evidence, q2 one passage of it"


def test_without_training_qrels_there_is_no_seen_split(tmp_path):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"t1": [Hit("f1", 0.0)]})
    assert "seen_unseen" not in evaluate_run(tmp_path / "run", data, split="train")
    (data / "qrels" / "train.tsv").unlink()
    write_run(tmp_path / "run", {"q1": [Hit("f1", 0.0)]})
    assert "seen_unseen" not in evaluate_run(tmp_path / "run", data)


def test_no_cutoff_and_no_such_split_are_refused(tmp_path):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"q1": [Hit("f1", 0.0)]})
    raises(ConfigError, "cut-offs", evaluate_run, tmp_path / "run", data, ks=())
    raises(DataError, r"nodev\.tsv: no such file", evaluate_run, tmp_path / "run", data, split="nodev")


def test_the_report_prints_as_an_aligned_table():
    report = {
        "split": "test",
        "score_mode": "full",
        "queries": {"judged": 3, "unanswered": 1, "unjudged": 0},
        "sequence_recall": {"recall@1": 0.125, "recall@20": 1.0},
        "seen_unseen": {"seen_recall@1": None, "seen_recall@20": None, "seen_queries": 0}
        | {"unseen_recall@1": 0.125, "unseen_recall@20": 1.0, "unseen_queries": 3}
        | {"all_unseen_queries": 3},
        "complete_recall": {"complete_recall@1": 0.0, "complete_recall@20": 0.5},
        "measures": {"nDCG@10": 0.5, "RR": 0.25},
        "path_match": {"path_match": 0.25, "queries": 3},
        "set": {"precision": 0.5, "recall": 0.25, "f1": 0.333},
        "done_missing": {"done_missing": 0.0},
        "graph": {"success": 0.6667, "queries": 3},
        "graph_reuse": {"success": 1.0, "queries": 3},
    }
    assert format_report(report).splitlines() == [
        "split test, score_mode full, queries: 3 judged, 1 unanswered, 0 unjudged", "",
        "                           R@1    R@20", "sequence recall           12.5   100.0",
        "  of seen passages           -       -", "  of unseen passages      12.5   100.0",
        "complete recall            0.0    50.0", "queries, all unseen      100.0",
        "nDCG@10                   50.0", "RR                        25.0",
        "path match                25.0", "path match queries           3",
        "set precision             50.0", "set recall                25.0",
        "set F1                    33.3", "DONE missing               0.0",
        "graph success             66.7", "graph queries                3",
        "graph reuse success      100.0", "graph reuse queries          3",
    ]  # fmt: skip


def _made(folder, data, split="test", hits=None):
    corpus, (queries, _) = Corpus.read(data), read_split(data, split)
    found = {query.id: [Hit("f1", -1.0)] for query in queries} if hits is None else hits
    write_run(folder / "run.trec", found)
    info = RunInfo(
        "bm25", "made", "single", corpus.fingerprint, fingerprint_queries(queries), str(data), split, ""
    )
    write_info(folder / "run", info)
    return folder / "run.trec"


@pytest.mark.parametrize("split", [None, "test"])
def test_a_run_is_what_its_manifest_says_whether_the_split_is_named_or_not(split, tmp_path):
    data = dataset(tmp_path / "data")
    run = _made(tmp_path, data)
    assert evaluate_run(run, data, split)["sequence_recall"]["recall@1"] == pytest.approx((0.5 + 0 + 1) / 3)
    with pytest.raises(MismatchError, match="is of the split test, and split asks for train"):
        evaluate_run(run, data, "train")
    other = tmp_path / "other"
    write_dataset(other, [*PASSAGES, Passage("new", "new")], PLAIN, QRELS)
    with pytest.raises(MismatchError, match=r"run\.trec was made with another corpus than .*other holds"):
        evaluate_run(run, other, split)
    write_run(tmp_path / "plain", {"q1": [Hit("f1", 0.0)]})
    baseline = (tmp_path / "plain", run, other, ["RR"])
    raises(MismatchError, r"run\.trec was made with another corpus", compared, *baseline)
    asked = tmp_path / "asked"
    write_dataset(asked, PASSAGES, [q._replace(text=q.text + " ?") for q in PLAIN], QRELS)
    raises(MismatchError, "was made with other queries", evaluate_run, run, asked, split)
    lines = run.read_text().splitlines(keepends=True)
    run.write_text("".join(lines[:-1]))
    raises(DataError, "has changed since this manifest was written", evaluate_run, run, data, split)


@pytest.mark.parametrize(("hits", "problem"), [
    ({}, "the run has no line"),
    ({"t1": [Hit("f1", 0.0)]}, "answers no query of the split 'test'"),
    ({"q9": [Hit("f1", 0.0)]}, r"query id 'q9' of the results is not in .*queries\.jsonl"),
    ({"q1": [Hit("f9", 0.0)]}, r"'f9' \(1 in all\) are no passages of .*corpus\.jsonl"),
])  # fmt: skip
def test_a_run_or_a_baseline_of_other_queries_is_refused(tmp_path, hits, problem):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"q1": [Hit("f1", 0.0), Hit("DONE", -1.0)]})
    write_run(tmp_path / "base", hits)
    options = [tmp_path / "run", tmp_path / "base", data, ["RR"]]
    raises(DataError, problem, compared, *options)
    raises(DataError, problem, evaluate_run, tmp_path / "base", data)
    raises(DataError, f"^[^:]*{problem}", evaluate_run, Run.of(hits), data)  # it has no file to name
    write_run(tmp_path / "base", {"q2": [Hit("f2", 0.0), Hit("DONE", -1.0)]})
    assert compared(*options)["RR"].difference == 0.0


def test_a_baseline_is_compared_with_by_every_recall_and_measure(tmp_path, capsys):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"q1": [Hit("f1", 0.0)], "q2": [Hit("f2", 0.0)], "q3": [Hit("f1", 0.0)]})
    write_run(tmp_path / "base", {"q1": [Hit("f1", 0.0)], "q2": [Hit("r1", 0.0), Hit("f2", -1.0)]})
    options = [str(tmp_path / "run"), "--data", str(data), "--baseline", str(tmp_path / "base")]
    out = tmp_path / "report.json"
    assert main(["evaluate", *options, "--ks=[1]", "--measures=RR Judged@1", f"--output={out}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-3:]] == [
        ["recall@1", "+50.0"],  # 0, 1/2 and 1 over three queries
        ["RR@1", "+66.7"],  # 0, 1 and 1 at the depth of the first run, whose lists have one passage
        ["Judged@1", "+33.3"],
    ]
    report = json.loads(out.read_text())
    assert list(report["measures"]) == ["RR", "Judged@1"]
    assert report["baseline"]["RR@1"]["difference"] == pytest.approx(2 / 3)
    assert report["baseline"]["RR@1"]["p"] == 0.5  # two queries differ: four swaps, two as far out


SHOWN = {  # as written by another tool or by hand -> the name here
    **{"recall@5": "R@5", "ndcg@10": "nDCG@10", "nDCG_10": "nDCG@10", "ndcg_cut_10": "nDCG@10"},
    **{"recall_20": "R@20", "map": "AP", "mrr": "RR", "recip_rank": "RR", "P": "P@10", "hits@5": "Success@5"},
}


@pytest.mark.parametrize(("name", "meant"), SHOWN.items())
def test_a_measure_in_the_spelling_of_another_tool_is_told_its_name(name, meant, tmp_path, capsys):
    (tmp_path / "x").touch()
    assert main(["evaluate", str(tmp_path / "x"), "--data", str(tmp_path), f"--measures=RR {name}"]) == 1
    assert f"{name!r} is no measure; did you mean {meant!r}?" in capsys.readouterr().err
    assert measure_names([meant]) == [meant]


def deep_dataset(folder, passages=30):
    """Two questions with two gold passages each, at rank 1 and 15 of what :func:`deep_run` writes."""
    ids = [f"p{n:02}" for n in range(passages)]
    queries = [
        Query(name, name, answers=("gold",), metadata=f'{{"type": "{name}"}}') for name in ("q1", "q2")
    ]
    qrels = {"test": {query.id: {"p00": 1, "p14": 1} for query in queries}}
    write_dataset(
        folder, [Passage(i, f"{'gold' if i == 'p14' else 'text'} {i}") for i in ids], queries, qrels
    )
    return folder


def deep_run(output, data, found=10, options=None, steps="single", manifest=True):
    corpus, (queries, _) = Corpus.read(data), read_split(data, "test")
    hits = [Hit(f"p{n:02}", -float(n)) for n in range(found)]
    info = RunInfo(
        "bm25", output.name, steps, corpus.fingerprint, fingerprint_queries(queries), str(data), "test",
        "bm25", options={"k": 10} if options is None else options,
    )  # fmt: skip
    run = Run.of({query.id: hits for query in queries}, info=info)
    run.save(output, queries, corpus)
    if not manifest:
        info_file(output).unlink()
    return f"{output}.jsonl"


def test_no_measure_reads_deeper_than_the_run_was_cut_off(tmp_path, capsys):
    data = deep_dataset(tmp_path / "data")
    run = deep_run(tmp_path / "run", data)
    report = evaluate_run(run, data)
    assert report["depth"] == 10
    recalls = {"recall@1": 0.5, "recall@5": 0.5, "recall@10": 0.5, "recall@20": None}
    assert report["sequence_recall"] == recalls
    assert report["complete_recall"]["complete_recall@10"] == 0.0
    deeper = {
        report["complete_recall"]["complete_recall@20"], report["answer_recall"]["answer_recall@20"],
        report["by_type"]["q1"]["recall@20"], report["by_type"]["q2"]["complete_recall@20"],
    }  # fmt: skip
    assert deeper == {None}
    assert main(["evaluate", run, "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[-1] for line in out.splitlines() if "recall" in line or line[:1] == "q"] == ["-"] * 5
    assert "cut off at 10 passages a query" in " ".join(out.split())


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--ks=[5,20]"], "recall@20"), (["--measures=nDCG@10 nDCG@20 P@11"], "nDCG@20, P@11")],
)
def test_a_measure_that_is_named_and_reads_deeper_is_refused(options, named, tmp_path, capsys):
    data = deep_dataset(tmp_path / "data")
    run, deep = deep_run(tmp_path / "run", data), deep_run(tmp_path / "deep", data, 20, {"k": 20})
    command = ["--data", str(data), *options]
    for runs in ([run], [deep, "--baseline", run], [run, "--baseline", deep]):
        assert main(["evaluate", *runs, *command]) == 1
        error = capsys.readouterr().err
        assert f"{run} was cut off at 10 passages a query, so it has no {named}" in error
        assert "--k" in error
    assert main(["evaluate", deep, *command]) == 0


def test_measures_without_a_cutoff_are_compared_at_the_depth_that_both_runs_have(tmp_path):
    data = deep_dataset(tmp_path / "data")
    run, deep = deep_run(tmp_path / "run", data), deep_run(tmp_path / "deep", data, 20, {"k": 20})
    whole = deep_run(tmp_path / "whole", data, 30, {"k": 40})
    for one, other, names in (
        (deep, run, ["AP@10", "RR@10", "Rprec"]),  # gold passages are at rank 1 and 15
        (run, whole, ["AP@10", "RR@10", "Rprec"]),
        (deep, whole, ["AP@20", "RR@20", "Rprec"]),
        (deep, deep_run(tmp_path / "x", data, 20, {"k": 20}), ["AP", "RR", "Rprec"]),
    ):
        results = compared(one, other, data, ["AP", "RR", "Rprec"])
        assert list(results) == ["recall@1", *names]
        assert {result.difference for result in results.values()} == {0.0}


@pytest.mark.parametrize(
    ("how", "recall"),
    [
        ({"found": 9}, 0.5),  # the words, or a filter, gave no more than 9 of 10
        ({"found": 10, "steps": "dynamic"}, 0.5),  # a chain ends
        ({"found": 10, "steps": "fixed"}, 0.5),
        ({"found": 10, "steps": "fixed", "options": {"k": 10, "pool": True}}, None),
        ({"found": 10, "steps": "ranked"}, None),
        ({"found": 30, "options": {"k": 30}}, 1.0),
        ({"found": 10, "options": {"k": None}}, 0.5),  # quotes, say: as many as were written
        ({"found": 10, "options": {}}, None),
        ({"found": 10, "manifest": False}, None),  # of another tool
        ({"found": 20, "manifest": False}, 1.0),
        ({"found": 20, "options": {"k": 20, "members_depth": 10}}, None),  # fused from lists of 10
    ],
)
def test_what_is_whole_has_every_recall(how, recall, tmp_path):
    data = deep_dataset(tmp_path / "data")
    assert (
        evaluate_run(deep_run(tmp_path / "run", data, **how), data)["sequence_recall"]["recall@20"] == recall
    )


@pytest.mark.parametrize("manifest", [True, False])
def test_a_ranking_of_the_whole_corpus_is_whole(manifest, tmp_path):
    data = deep_dataset(tmp_path / "data", 15)
    run = deep_run(tmp_path / "run", data, 15, {"k": 15}, manifest=manifest)
    assert evaluate_run(run, data)["sequence_recall"]["recall@20"] == 1.0


def test_scores_to_the_number_of_gold_passages_need_that_depth(tmp_path):
    data = deep_dataset(tmp_path / "data")
    run = deep_run(tmp_path / "run", data, 1, {"k": 1})
    report = evaluate_run(run, data)
    assert report["set"] == {"f1_known_number": None}
    raises(ConfigError, "has no Rprec", evaluate_run, run, data, measures=["Rprec", "P@1"])


TEN = [
    Passage("f1", "anna is kind ."), Passage("r1", "if someone is kind then they are big ."),
    *(Passage(f"x{n}", f"other {n}") for n in range(8)),
]  # fmt: skip
PROOF = json.dumps({"start": ["f1"], "goal": "anna is big ."})


def ten_passages(folder, queries):
    grades = {query.id: {"f1": 1, "r1": 2, "x7": 0} for query in queries}
    write_dataset(folder, TEN, queries, {"test": grades})
    return folder, Corpus.read(folder)


def test_gold_below_what_is_shown_is_named_with_its_rank(tmp_path):
    data, corpus = ten_passages(tmp_path / "data", [Query(q, f"ask {q}") for q in ("q1", "q2", "q3")])
    others = [Hit(f"x{n}", -1.0 - n) for n in range(7)]
    deep = [Hit("r1", -0.5), *others[:5], Hit("f1", -8.0)]
    write_run(tmp_path / "run", {"q1": others, "q2": deep, "q3": [Hit("f1", -1.0)]})
    shown = examples(tmp_path / "run", data, 9, corpus).split("\n\n")
    assert shown[0].splitlines() == [
        "query q2: ask q2", "  1. * if someone is kind then they are big .  [-0.50]",
        *(f"  {n + 2}.   other {n}  [{-1.0 - n:.2f}]" for n in range(4)),
        "  gold, rank 7: f1: anna is kind .", "  => all gold passages found in 7 hits",
    ]  # fmt: skip
    assert shown[1].splitlines()[-3:] == [
        "  gold, not found: f1: anna is kind .",
        "  gold, not found: r1: if someone is kind then they are big .",
        "  => 0 of 2 gold passages found in 7 hits",
    ]
    assert shown[2].endswith("  => 1 of 2 gold passages found in 1 hit")
    assert examples(tmp_path / "run", data, -1, corpus) == ""


def test_the_ids_of_all_chains_are_looked_up_at_once(tmp_path, monkeypatch):
    queries = [Query(f"q{n}", "why ?", metadata=PROOF) for n in range(20)]
    data, corpus = ten_passages(tmp_path / "data", queries)
    valid = Chain((Hit("f1", -0.5), Hit("r1", -0.1), Hit("DONE", 0.0)), -0.6, True)
    broken = Chain((Hit("r1", -0.5), Hit("x1", -0.5)), -1.0, False)
    chains = {q.id: broken if n % 2 else valid for n, q in enumerate(queries)}
    write_jsonl_run(tmp_path / "run.jsonl", queries, corpus, "full", chains=chains)
    calls = []
    numbers = corpus.numbers
    monkeypatch.setattr(corpus, "numbers", lambda ids: calls.append(len(ids)) or numbers(ids))
    first, second = examples(tmp_path / "run.jsonl", data, 2, corpus).split("\n\n")
    assert (
        len(calls) == 6
    )  # the split, the run, queries that are passages, start facts, chains, what is shown
    assert first.splitlines()[-2:] == ["  DONE", "  => proof valid"]
    assert "(stopped by the hop limit, DONE missing)" in second
    assert "=> proof fails: start node" in second


def test_other_data_may_use_the_same_keys(tmp_path):
    metadata = [{"start": 3}, {"start": [1, 2], "goal": "anna is big ."}, {"start": ["1:0"], "goal": "home"}]
    queries = [Query(f"q{n}", "why ?", metadata=json.dumps(m)) for n, m in enumerate(metadata)]
    data, corpus = ten_passages(tmp_path / "data", queries)
    chain = Chain((Hit("f1", -0.5), Hit("r1", -0.1)), -0.6, False)
    run = tmp_path / "run.jsonl"
    write_jsonl_run(run, queries, corpus, "full", chains=dict.fromkeys(["q0", "q1", "q2"], chain))
    assert examples(run, data, 3, corpus).count("=> all gold passages found") == 3
    assert "graph" not in evaluate_run(run, data)


RULE = "if someone is kind then they are big ."
CORPUS = Corpus.from_passages([Passage("f", "anna is kind ."), Passage("r", RULE), Passage("x", "other")])
HOP_PROOF = json.dumps({"start": ["f"], "goal": "anna is big ."})
QUERIES = [Query("q", "why ?", ("f", "r"), metadata=HOP_PROOF)]
HOP_QRELS = {"q": {"f": 1, "r": 1}}


def info(steps: Steps, mode: str = "renormalized", **options: object) -> RunInfo:
    return RunInfo("generator", "mine", steps, "", "", "", None, mode, options=options)


def ranked(*ids: str) -> list[Hit]:
    return [Hit(name, -1.0 - n) for n, name in enumerate(ids)]


def chained(*ids: str, done: bool = True) -> dict[str, Chain]:
    return {"q": Chain(tuple(ranked(*ids)), -1.0, done)}


def scored(
    run: Run, queries: Sequence[Query] = QUERIES, qrels: Mapping[str, dict[str, int]] = HOP_QRELS
) -> dict:
    return score_run(Judged(run, queries, dict(qrels), CORPUS))


@pytest.mark.parametrize("told", ["manifest", "results"])
def test_sets_have_exact_sets_and_nothing_that_asks_for_an_order(told: str) -> None:
    """Passages of a set stand by probability: a likelier second passage comes first."""
    mode = "renormalized, expected-f1"
    run = Run.of(chains=chained("r", "f"), info=info("dynamic", mode)) if told == "manifest" else None
    run = run or Run.of(chains=chained("r", "f"), score_mode=mode)
    report = scored(run)
    assert report["hops"] == {"exact_set": 1.0}
    assert not report.keys() & {"path_match", "graph", "graph_reuse"}
    assert report["set"]["f1"] == 1.0
    chains = scored(replace(run, info=info("dynamic"), score_mode="renormalized"))
    assert chains["hops"] == {"H1": 1.0, "H2": 1.0, "exact_set": 1.0, "exact_chain": 0.0}
    assert chains.keys() >= {"path_match", "graph", "graph_reuse"}


def test_a_fixed_number_of_hops_has_exact_chains_of_the_first_passages() -> None:
    """What fills up its ranking was found by no hop."""
    run = Run.of({"q": ranked("f", "r", "x")}, info=info("fixed", hops=2))
    assert scored(run)["hops"] == {"H1": 1.0, "H2": 1.0, "exact_set": 1.0, "exact_chain": 1.0}
    longer = replace(run, info=info("fixed", hops=3))
    assert scored(longer)["hops"] == {"H1": 1.0, "H2": 1.0, "exact_set": 0.0, "exact_chain": 0.0}
    unknown = replace(run, info=info("fixed"))
    assert scored(unknown)["hops"] == {"H1": 1.0, "H2": 1.0}, "how long its chains are is not known"
    assert "hops" not in scored(replace(run, info=info("single")))


def test_a_repeated_passage_takes_its_hop(tmp_path: Path) -> None:
    """A, A, B was saved as A, B, whose second passage is a hit of no second hop."""
    made = info("fixed", hops=3, repeat=True)
    Run.of(chains=chained("f", "f", "r", done=False), info=made).save(tmp_path / "r", QUERIES, CORPUS)
    run = Run.load(tmp_path / "r.jsonl")
    assert [hit.id for hit in run.chains["q"].hits] == ["f", "f", "r"]
    assert [hit.id for hit in run.rankings["q"]] == ["f", "r"]
    report = scored(run)
    assert report["hops"] == {"H1": 1.0, "H2": 0.0, "exact_set": 1.0, "exact_chain": 0.0}
    assert report["path_match"]["path_match"] == 0.0
    assert "done_missing" not in report, "a fixed number of hops has no DONE to miss"
    assert "DONE" not in examples(run, _written(tmp_path), 1, CORPUS)
    trec = scored(Run.load(tmp_path / "r.trec"))
    assert not trec.keys() & {"hops", "path_match"}, "a TREC run does not say where hops repeat"


def _written(folder: Path) -> Path:
    write_dataset(folder / "data", CORPUS, QUERIES, {"test": HOP_QRELS})
    return folder / "data"


def query(name: str, kind: object) -> Query:
    return Query(name, name, metadata=json.dumps({"type": kind} if kind is not None else {}))


def by_type(queries: list[Query], gold: list[list[str]], chains: list[list[str]], k: int) -> dict:
    """The scores by type of chains whose order is their gold's, where a query has evidence."""
    corpus = Corpus.from_passages([Passage(name, name) for name in "qstuvwxyz"])
    asked = {query.id: ranked(*ids) for query, ids in zip(queries, chains, strict=True)}
    run = Run.of(chains={name: Chain(tuple(hits), -1.0, True) for name, hits in asked.items()})
    qrels = {query.id: dict.fromkeys(names, 1) for query, names in zip(queries, gold, strict=True)}
    return score_run(Judged(run, queries, qrels, corpus), ks=[k])["by_type"]


def test_each_type_has_its_own_means() -> None:
    queries = [query("a", "bridge"), query("b", "comparison"), query("c", "bridge"), query("d", None)]
    found = by_type(queries, [["x", "u"], ["y", "z"], ["w"], ["v"]], [["x"], ["y", "z"], ["w"], ["v"]], 2)
    hops = ("H1", "H2", "exact_set")
    assert {kind: {n: v for n, v in values.items() if n not in hops} for kind, values in found.items()} == {
        "bridge": pytest.approx(
            {"queries": 2, "recall@2": 0.75, "complete_recall@2": 0.5}
            | {"set_f1": (2 / 3 + 1) / 2, "f1_known_number": (2 / 3 + 1) / 2}
        ),
        "comparison": {"queries": 1, "recall@2": 1.0, "complete_recall@2": 1.0}
        | {"set_f1": 1.0, "f1_known_number": 1.0},
    }


def test_one_type_or_too_many_are_none() -> None:
    assert types_of([query("a", "bridge"), query("b", "bridge")]) == {}
    assert types_of([query(str(n), f"t{n}") for n in range(21)]) == {}
    assert types_of([query("a", 3), query("b", ["x"])]) == {}


def test_each_type_has_its_own_hits_of_hops_exact_sets_and_exact_chains() -> None:
    gold = [["x", "u"], ["y"], ["w", "v"], ["z"]]
    known = (gold[0], (), gold[2], ())
    queries = [
        query(name, "bridge" if name in "ac" else "comparison")._replace(evidence=tuple(evidence))
        for name, evidence in zip("abcd", known, strict=True)
    ]
    found = by_type(queries, gold, [["x", "u"], ["y", "q"], ["v", "w"], ["z"]], 1)
    bridge, comparison = found["bridge"], found["comparison"]
    assert [bridge[name] for name in ("H1", "H2", "exact_set", "exact_chain")] == [1.0, 1.0, 1.0, 0.5]
    assert [comparison[name] for name in ("H1", "exact_set")] == [1.0, 0.5]
    assert not comparison.keys() & {"H2", "exact_chain"}, "one gold passage, and no known order"
    report = {"queries": {"judged": 4}, "sequence_recall": {"recall@1": 0.75}, "by_type": found}
    lines = format_report(report).splitlines()
    assert lines[lines.index("by type") :] == [
        "by type", "bridge                    50.0", "  complete                 0.0",
        "comparison               100.0", "  complete               100.0", "",
        "by type                 set F1  set F1, known number      H1      H2  exact set  exact chain",
        "bridge                   100.0                 100.0   100.0   100.0      100.0         50.0",
        "comparison                83.3                 100.0   100.0       -       50.0            -",
    ]  # fmt: skip
