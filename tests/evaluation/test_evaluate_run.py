"""A run and a data set in, the whole report out."""

import json
from math import log2

import pytest
from run_files import write_jsonl_run

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.evaluation.evaluate import evaluate_run, format_report
from grls.evaluation.measures import measure_names
from grls.evaluation.significance import compare_runs
from grls.runs.manifest import RunInfo, fingerprint_queries, info_file, write_info
from grls.runs.run import Run
from grls.runs.trec import write_run

PASSAGES = [
    Passage("f1", "anna is kind ."),
    Passage("f2", "bob is calm ."),
    Passage("r1", "if someone is kind then they are big ."),
    Passage("r2", "if someone is calm then they are big ."),
]
PLAIN = [
    Query("t1", "train"),
    Query("q1", "one", answers=("kind",)),
    Query("q2", "two"),
    Query("q3", "three", answers=("cold", "big")),
]
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
    Query("t1", "train"),
    Query("q1", "one", ("f1", "r1")),
    Query("q2", "two", ("f2", "r2"), metadata='{"any_order": true}'),
    Query("q3", "three", ("r2", "f1"), metadata='{"proofs": [["r1", "r2"]]}'),
]


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


def test_a_run_of_another_split_is_refused(tmp_path):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"t1": [Hit("f1", 0.0)]})
    with pytest.raises(DataError, match="answers no query of the split 'test': give split"):
        evaluate_run(tmp_path / "run", data)


def test_what_a_run_lacks_is_said_with_its_name(tmp_path, caplog):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "half.trec", {"q1": [Hit("f1", 0.0)]})
    evaluate_run(tmp_path / "half.trec", data)
    assert "half.trec: 2 of 3 judged queries have no hit" in caplog.text


def test_a_run_of_other_data_is_refused(tmp_path):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"q9": [Hit("f1", 0.0)]})
    with pytest.raises(DataError, match=r"query id 'q9' of the results is not in .*queries\.jsonl"):
        evaluate_run(tmp_path / "run", data)
    write_run(tmp_path / "run", {"q1": [Hit("f9", 0.0)]})
    with pytest.raises(DataError, match=r"passage id 'f9' of the results is not in .*corpus\.jsonl"):
        evaluate_run(tmp_path / "run", data)
    with pytest.raises(ConfigError, match="cut-offs"):
        evaluate_run(tmp_path / "run", data, ks=())
    with pytest.raises(DataError, match=r"nodev\.tsv: no such file"):
        evaluate_run(tmp_path / "run", data, split="nodev")


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
        "split test, score_mode full, queries: 3 judged, 1 unanswered, 0 unjudged",
        "",
        "                           R@1    R@20",
        "sequence recall           12.5   100.0",
        "  of seen passages           -       -",
        "  of unseen passages      12.5   100.0",
        "complete recall            0.0    50.0",
        "queries, all unseen      100.0",
        "nDCG@10                   50.0",
        "RR                        25.0",
        "path match                25.0",
        "path match queries           3",
        "set precision             50.0",
        "set recall                25.0",
        "set F1                    33.3",
        "DONE missing               0.0",
        "graph success             66.7",
        "graph queries                3",
        "graph reuse success      100.0",
        "graph reuse queries          3",
    ]


@pytest.mark.parametrize("ks", ["1,5", "5"])
def test_cutoffs_without_brackets_are_told_how_to_write_them(ks, tmp_path, capsys):
    data = dataset(tmp_path / "data")
    whole = [Hit(passage.id, -float(n)) for n, passage in enumerate(PASSAGES)]
    write_run(tmp_path / "run", {"q1": whole})
    command = ["evaluate", str(tmp_path / "run"), "--data", str(data), "--ks"]
    assert main([*command, ks]) == 1
    assert f"write --ks [{ks}]" in capsys.readouterr().err
    assert main([*command, f"[{ks}]"]) == 0


def _made(folder, data, split="test", hits=None):
    """A TREC run with the manifest that retrieval for a split of ``data`` writes."""
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
    with pytest.raises(MismatchError, match="retrieved for the split test, and split asks for train"):
        evaluate_run(run, data, "train")
    other = tmp_path / "other"
    write_dataset(other, [*PASSAGES, Passage("new", "new")], PLAIN, QRELS)
    with pytest.raises(MismatchError, match=r"run\.trec was made with another corpus than .*other holds"):
        evaluate_run(run, other, split)
    asked = tmp_path / "asked"
    write_dataset(asked, PASSAGES, [q._replace(text=q.text + " ?") for q in PLAIN], QRELS)
    with pytest.raises(MismatchError, match="was made with other queries"):
        evaluate_run(run, asked, split)
    lines = run.read_text().splitlines(keepends=True)
    run.write_text("".join(lines[:-1]))
    with pytest.raises(DataError, match="has changed since this manifest was written"):
        evaluate_run(run, data, split)


def test_an_empty_run_is_refused_and_scores_no_zeros(tmp_path):
    data = dataset(tmp_path / "data")
    (tmp_path / "empty.trec").write_text("")
    with pytest.raises(DataError, match="the run has no line; retrieve again"):
        evaluate_run(tmp_path / "empty.trec", data, "test")


@pytest.mark.parametrize(
    ("hits", "problem"),
    [
        ({}, "the run has no line"),
        ({"t1": [Hit("f1", 0.0)]}, "answers no query of the split 'test'"),
        ({"q9": [Hit("f1", 0.0)]}, r"query id 'q9' of the results is not in .*queries\.jsonl"),
        ({"q1": [Hit("f9", 0.0)]}, r"'f9' \(1 in all\) are no passages of .*corpus\.jsonl"),
    ],
)
def test_a_baseline_that_is_no_run_of_these_queries_is_refused(tmp_path, hits, problem):
    data = dataset(tmp_path / "data")
    write_run(tmp_path / "run", {"q1": [Hit("f1", 0.0), Hit("DONE", -1.0)]})
    write_run(tmp_path / "base", hits)
    options = [
        str(tmp_path / "run"),
        str(tmp_path / "base"),
        str(data),
        "test",
        [1],
        ["RR"],
        Corpus.read(data),
    ]
    with pytest.raises(DataError, match=problem):
        compare_runs(*options)
    write_run(tmp_path / "base", {"q2": [Hit("f2", 0.0), Hit("DONE", -1.0)]})
    assert compare_runs(*options)["RR"].difference == 0.0


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


@pytest.mark.parametrize("name", ["foo", "nDCG@0", "alpha_nDCG@20", "P@x", "__import__('os')"])
def test_what_is_no_measure_is_told_with_examples(name, tmp_path, capsys):
    command = ["evaluate", "x", "--data", str(tmp_path), f"--measures=RR {name}"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert repr(name) in error
    assert "'nDCG@10 RR AP P@5 Judged@10'" in error


SHOWN = {  # as written by another tool or by hand -> the name here
    **{"recall@5": "R@5", "ndcg@10": "nDCG@10", "nDCG_10": "nDCG@10", "ndcg_cut_10": "nDCG@10"},
    **{"recall_20": "R@20", "map": "AP", "mrr": "RR", "recip_rank": "RR", "P": "P@10", "hits@5": "Success@5"},
}


@pytest.mark.parametrize(("name", "meant"), SHOWN.items())
def test_a_measure_in_the_spelling_of_another_tool_is_told_its_name(name, meant, tmp_path, capsys):
    assert main(["evaluate", "x", "--data", str(tmp_path), f"--measures=RR {name}"]) == 1
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
    """A run of the first ``found`` passages of the corpus for every question."""
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
        report["complete_recall"]["complete_recall@20"],
        report["answer_recall"]["answer_recall@20"],
        report["by_type"]["q1"]["recall@20"],
        report["by_type"]["q2"]["complete_recall@20"],
    }
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


def test_a_comparison_leaves_out_what_one_of_the_runs_cannot_tell(tmp_path):
    data = deep_dataset(tmp_path / "data")
    run, deep = deep_run(tmp_path / "run", data), deep_run(tmp_path / "deep", data, 20, {"k": 20})
    compared = compare_runs(deep, run, data, "test", None, None, Corpus.read(data))
    assert [name for name in compared if name.startswith("recall")] == ["recall@1", "recall@5", "recall@10"]
    assert "recall@20" in compare_runs(deep, deep_run(tmp_path / "x", data, 20, {"k": 20}), data, "test",
                                       None, None, Corpus.read(data))  # fmt: skip


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
        compared = compare_runs(one, other, data, "test", [1], ["AP", "RR", "Rprec"], Corpus.read(data))
        assert list(compared) == ["recall@1", *names]
        assert {result.difference for result in compared.values()} == {0.0}


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
    with pytest.raises(ConfigError, match="has no Rprec"):
        evaluate_run(run, data, measures=["Rprec", "P@1"])


def test_hits_of_a_fixed_number_of_hops_are_those_of_its_hops(tmp_path):
    """What fills up the ranking of such a run was found by no hop."""
    data = dataset(tmp_path / "data")
    corpus = Corpus.read(data)
    queries, _ = read_split(data, "test", corpus)
    run = tmp_path / "run.trec"
    write_run(run, {"q1": [Hit("f1", 3.0), Hit("r1", 2.0)], "q2": [Hit("r1", 3.0), Hit("f2", 2.0)], "q3": []})
    exact = {"exact_set"}
    for hops, names in ((1, {"H1"} | exact), (2, {"H1", "H2"} | exact)):
        info = RunInfo(
            system="dense", name="dense", steps="fixed", corpus=corpus.fingerprint,
            queries=fingerprint_queries(queries), data=str(data), split="test", score_mode="x",
            options={"hops": hops},
        )  # fmt: skip
        write_info(tmp_path / "run", info, endings=[".trec"])
        assert set(evaluate_run(run, data)["hops"]) == names
    assert evaluate_run(run, data)["hops"] == pytest.approx({"H1": 1 / 3, "H2": 1.0, "exact_set": 1 / 3})
