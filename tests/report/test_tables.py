"""Tables by hand: values, the best, dashes, pairs of runs."""

import pytest
from report_helpers import GOOD, POOR, dataset, write

from grls.cli import main
from grls.data.types import IN_CHAINS
from grls.report.blocks import Cell, Column, value_table
from grls.report.measure import score_runs
from grls.report.page import build_page, render_html, run_table, section_tables
from grls.report.runs import load_groups
from grls.report.tables import (
    chains_table,
    ensemble_table,
    measures_table,
    memorisation_table,
    overlap,
    price_table,
    recall_table,
    significance_table,
    similarity_tables,
)


@pytest.fixture
def data(tmp_path):
    return dataset(tmp_path / "small")


def measured(*files, data=None, ks=(1, 3)):
    return [score_runs(group, ks) for group in load_groups(list(files), data)]


def lines(table):
    """The rows as text, the best with a star."""
    return [[cell.text + "*" * cell.strong for cell in row] for row in table.rows]


def test_the_best_is_marked_by_what_is_printed():
    columns = [Column("high"), Column("low", best="low"), Column("n", "count", ""), Column("words", "text")]
    rows = [
        (("a", "x"), [0.50001, 0.1, 1200, "one"]),
        (("b", "x"), [0.50002, None, 3, ""]),
        (("c", "y"), [0.1, 0.2, 4, None]),
    ]
    assert lines(value_table("t", "", ("run", "kind"), columns, rows)) == [
        ["a", "x", "50.0*", "10.0*", "1,200", "one"],
        ["b", "x", "50.0*", "–", "3", "–"],
        ["c", "y", "10.0", "20.0", "4", "–"],
    ]
    within = lines(
        value_table("t", "", ("run", "kind"), columns, [*rows, (("d", "y"), [0.2, 0.2, 1, "e"])], within=1)
    )
    assert [row[2:4] for row in within] == [
        ["50.0", "10.0"],
        ["50.0", "–"],
        ["10.0", "20.0"],
        ["20.0*", "20.0"],
    ]


def test_recall_of_every_run(data, tmp_path):
    good, poor = write(tmp_path / "good", data, GOOD, "good"), write(tmp_path / "poor", data, POOR, "poor")
    # good finds all; poor finds 2 of 3 and 1 of 2, first f1 and then nothing of q2 at rank 1
    table = recall_table(measured(good, poor), (1, 3))
    assert lines(table) == [
        ["good", "generator", "dynamic", "41.7*", "100.0*"],
        ["poor", "generator", "dynamic", "16.7", "58.3"],
    ]
    assert table.groups == ()


def test_data_sets_stand_side_by_side_and_no_run_is_hidden(data, tmp_path):
    other = dataset(tmp_path / "other")
    files = [write(tmp_path / "a", data, GOOD, "both"), write(tmp_path / "b", other, POOR, "both")]
    files.append(write(tmp_path / "c", other, GOOD, "one", "bm25", "single"))
    table = recall_table(measured(*files), (1, 3))
    assert [(head.text, head.span) for head in table.groups] == [("", 3), ("small", 2), ("other", 2)]
    assert lines(table) == [
        ["both", "generator", "dynamic", "41.7", "100.0", "16.7", "58.3"],
        ["one", "BM25", "single", "–", "–", "41.7*", "100.0*"],
    ]
    assert [head.text for head in chains_table(measured(*files)).groups] == ["", "small", "other"]
    assert memorisation_table(measured(files[2]), (1,)) is None


def test_memorisation(data, tmp_path):
    with_it = write(tmp_path / "a", data, GOOD, "with", stages=("memorise", "retrieve"))
    without = write(tmp_path / "b", data, POOR, "without", stages=("retrieve",))
    others = [
        write(tmp_path / system, data, POOR, system, system, stages=("memorise", "retrieve"), **more)
        for system, more in (("biencoder", {}), ("ensemble", {"members": ("with", "without")}))
    ]
    assert lines(memorisation_table(measured(with_it, without, *others), (3,))) == [
        ["with", "dynamic", "memorised", "100.0*", "100.0*"],
        ["without", "dynamic", "not memorised", "58.3", "65.0"],
    ]


def test_fixed_and_dynamic_chains_are_sets_with_lengths(data, tmp_path):
    dynamic = write(tmp_path / "a", data, POOR, "until done")
    fixed = write(tmp_path / "b", data, GOOD, "three hops", steps="fixed")
    single = write(tmp_path / "c", data, GOOD, "top", steps="single")
    assert lines(chains_table(measured(dynamic, fixed, single))) == [
        ["three hops", "generator", "fixed", "100.0*", "100.0*", "100.0*", "100.0*", "–", "2.5"],
        ["until done", "generator", "dynamic", "75.0", "58.3", "65.0", "65.0", "0.0", "2.0"],
        ["gold", "–", "–", "–", "–", "–", "–", "–", "2.5"],
    ]
    assert chains_table(measured(single)) is None


def test_dynamic_chains_of_a_trec_run_do_not_say_whether_done_came(data, tmp_path):
    write(tmp_path / "a", data, GOOD, "trec")
    (row, _) = lines(chains_table(measured(str(tmp_path / "a.trec"))))
    assert row == ["trec", "generator", "dynamic", "100.0", "100.0", "100.0", "100.0", "–", "2.5"]


def chained(*files):
    """Label -> whether a run has chain metrics; all of them, or none."""
    (group,) = measured(*files)
    table = chains_table([group])
    known = 6  # a ranking has F1 with the known number, too
    rows = {} if table is None else {row[0]: row[3:known] + row[known + 1 :] for row in lines(table)}
    found = {}
    for run in group.runs:
        has = {"f1" in run.report["set"], "graph" in run.report, group.set_f1s(run) is not None}
        has.add(set(rows.get(run.label, "–")) != {"–"})
        (found[run.label],) = has
    return found


def test_pooled_chains_are_no_chain(data, tmp_path):
    hops = write(tmp_path / "a", data, GOOD, "hops", steps="fixed", options={"k": 3, "pool": False})
    pool = write(tmp_path / "b", data, GOOD, "pool", steps="fixed", options={"k": 3, "pool": True})
    assert chained(hops, pool) == {"hops": True, "pool": False}
    table = chains_table(measured(hops, pool))
    assert lines(table)[1] == ["pool", "generator", "fixed", *"–––", "100.0", *"––"]  # said, not hidden
    assert chains_table(measured(pool)) is None


def test_a_fixed_ensemble_is_a_chain_unless_a_member_pools(data, tmp_path):
    """`grls fuse` writes into its manifest whether a member does."""

    def fused(name, *pools):
        members = [
            write(
                tmp_path / f"{name}{n}",
                data,
                GOOD,
                f"{name}{n}",
                steps="fixed",
                options={"k": 3, "pool": pool},
            )
            for n, pool in enumerate(pools)
        ]
        assert main(["fuse", *members, "--output", str(tmp_path / name), "--name", name]) == 0
        return str(tmp_path / f"{name}.jsonl")

    both, mixed = fused("both", False, False), fused("mixed", False, True)
    assert chained(both, mixed) == {"both": True, "mixed": False}


def test_a_ranking_has_no_recall_beyond_its_cutoff(data, tmp_path):
    def row(found, steps="single", options=None, **more):
        run = write(tmp_path / "run", data, found, steps=steps, options=options or {}, **more)
        table = recall_table(measured(run, deep, data=str(data), ks=(1, 2, 3)), (1, 2, 3))
        return next(line[3:] for line in lines(table) if line[0] == "run")

    deep = write(tmp_path / "deep", data, {"q1": ["odd", "odd", "r1"]}, "deep", steps="single")
    assert row(POOR, options={"k": 2}) == ["16.7*", "58.3*", "–"]
    assert row(POOR) == ["16.7*", "58.3*", "–"]  # no k is known: the longest list tells
    assert row(POOR, options={"k": 3}) == ["16.7*", "58.3*", "58.3*"]  # asked for 3, found 2
    assert row(POOR, "fixed", {"k": 2, "pool": True})[2] == "–"
    assert row(POOR, "fixed", {"k": 2, "pool": False})[2] == "58.3*"
    assert row(POOR, "dynamic", {"k": 2})[2] == "58.3*"
    assert row({"q1": [], "q2": []}) == ["0.0", "0.0", "0.0"]  # nothing was found: that scores 0
    (tmp_path / "run.info.json").unlink()
    assert row(POOR, "dynamic", manifest=False)[2] == "58.3*"  # its chains tell


@pytest.mark.parametrize("ending", [".jsonl", ".trec"])
def test_a_run_that_does_not_say_what_it_is_goes_as_deep_as_its_longest_list(ending, data, tmp_path):
    write(tmp_path / "run", data, {"q1": ["f1", "r2"], "q2": ["odd"]}, steps="single", manifest=False)
    (group,) = measured(str(tmp_path / f"run{ending}"), data=str(data), ks=(1, 2, 3))
    assert lines(recall_table([group], (1, 2, 3)))[0][3:] == ["16.7", "33.3", "–"]
    assert group.recalls(group.runs[0], 2) is not None
    assert group.recalls(group.runs[0], 3) is None


def test_values_beyond_the_cutoff_are_in_no_table(data, tmp_path):
    short = write(tmp_path / "a", data, POOR, "short", steps="single", options={"k": 2})
    deep = write(tmp_path / "b", data, POOR, "deep", steps="single", options={"k": 3})
    (group,) = measured(short, deep)
    table = dict(section_tables([group], ()))["seen_unseen"]
    seen = {row[0].text: dict(zip(table.heads, (c.text for c in row), strict=True)) for row in table.rows}
    assert (seen["short"]["seen R@1"], seen["short"]["seen R@3"]) == (seen["deep"]["seen R@1"], "–")
    assert seen["deep"]["seen R@3"] != "–"
    text = render_html(build_page([group], (1, 3), 3))
    assert text.count("was cut off before k has no value at k") == 1
    assert significance_table(group, "R@3", lambda run: group.recalls(run, 3)) is None
    assert significance_table(group, "R@2", lambda run: group.recalls(run, 2)) is not None
    alike = [[[cell.text for cell in row[1:]] for row in similarity_tables(group, k)[0].rows] for k in (2, 3)]
    assert alike == [[["1.00", "1.00"]] * 2, [["–", "–"], ["–", "1.00"]]]


def test_measures_without_a_cutoff_are_tested_at_the_depth_that_all_runs_have(data, tmp_path):
    found = {"q1": ["odd", "r1", "f1"], "q2": ["odd", "f1", "r2"]}
    short = write(tmp_path / "a", data, {q: ids[:2] for q, ids in found.items()}, "short", steps="single",
                  options={"k": 2})  # fmt: skip
    deep = write(tmp_path / "b", data, found, "deep", steps="single", options={"k": 3})
    better = {"q1": ["f1", "r1", "odd"], "q2": ["f2", "odd", "r1"]}
    other = write(tmp_path / "c", data, better, "other", steps="single", options={"k": 3})
    pairs = (
        (short, deep, "RR@2", 0.25, False),
        (short, other, "RR@2", 1.0, False),
        (deep, other, "RR", 1.0, True),
    )
    for one, second, name, value, best in pairs:
        (group,) = measured(one, second)
        text = render_html(build_page([group], (1,), 1, tested=["RR"]))
        assert f"{name}: every run against" in text
        scores = group.values(group.runs[1], "RR")
        assert sum(scores) / 2 == value
        table = measures_table([group])
        place = table.heads.index("RR")
        assert any(row[place].strong for row in table.rows) == best


def test_ensembles_stand_beside_their_members(data, tmp_path):
    one = write(tmp_path / "one", data, GOOD, "good", steps="single")
    two = write(tmp_path / "two", data, POOR, "dense", "biencoder", "single")
    mixed = write(
        tmp_path / "mixed", data, POOR, "mixed", "ensemble", "single", members=("good", str(tmp_path / "two"))
    )
    odd = write(tmp_path / "odd", data, GOOD, "odd", "ensemble", "single", members=("gone", "good"))
    same = write(tmp_path / "same", data, GOOD, "same", "ensemble", "single", members=("good",))
    assert lines(ensemble_table(measured(one, two, mixed, odd, same), (3,))) == [
        ["mixed", "mixed", "all together", "58.3"],
        ["mixed", "mixed", "member good", "100.0*"],
        ["mixed", "mixed", "member dense", "58.3"],
        ["odd", "–", "all together", "100.0"],
        ["odd", "–", "member gone", "–"],
        ["odd", "–", "member good", "100.0"],
        ["same", "homogeneous", "all together", "100.0"],
        ["same", "homogeneous", "member good", "100.0"],
    ]


def test_any_section_of_the_evaluation_becomes_a_table(data, tmp_path):
    groups = measured(
        write(tmp_path / "a", data, GOOD, "good"), write(tmp_path / "b", data, POOR, "poor", steps="single")
    )
    groups[0].runs[1].report["new_thing"] = {"new@2": 0.25, "queries": 2, "none": None}
    tables = dict(section_tables(groups, ("queries",)))
    assert lines(tables["new_thing"]) == [
        ["poor", "generator", "single", "–", "–", "–"],
        ["good", "generator", "dynamic", "25.0", "2", "–"],
    ]
    assert tables["new_thing"].heads[3:] == ("new@2", "queries", "none")
    assert {"sequence_recall", "seen_unseen", "set", "graph"} <= tables.keys()
    seen = tables["seen_unseen"]
    assert seen.heads[3:] == (
        "seen R@1",
        "seen R@3",
        "seen queries",
        "unseen R@1",
        "unseen R@3",
        "unseen queries",
        "all unseen queries",
    )
    graph = {row[0].text: [cell.text for cell in row[3:]] for row in tables["graph"].rows}
    assert graph == {"good": ["100.0", "0.0", "0.0", "0.0", "0.0", "2"], "poor": ["–"] * 6}


def test_what_was_run_tells_the_manifests_and_who_did_not_answer(data, tmp_path, caplog):
    known = write(
        tmp_path / "a", data, {"q1": ["f1"]}, "known", stages=("memorise", "retrieve"), members=("x", "y")
    )
    plain = write(tmp_path / "b", data, GOOD, manifest=False)
    table = run_table(measured(known, plain, data=str(data)))
    found = [dict(zip(table.heads, (cell.text for cell in row), strict=True)) for row in table.rows]
    assert found[0] == {
        "run": "known", "system": "generator", "steps": "dynamic", "data set": "small", "split": "test",
        "stages": "memorise + retrieve", "members": "x + y", "score mode": "renormalized", "seconds": "4.0",
        "queries/s": "0.5", "judged": "2", "unanswered": "1", "not judged": "0", "options": "k=3",
        "file": known,
    }  # fmt: skip
    assert f"{known}: 1 of 2 judged queries have no hit; they score 0." in caplog.text
    assert (found[1]["run"], found[1]["options"], found[1]["seconds"]) == ("b", "no manifest", "–")


def test_overlap_by_hand():
    first, second = [["a", "b"], ["c"], []], [["b", "d"], ["c"], []]
    assert overlap(first, second, 2, None) == pytest.approx(
        (1 / 3 + 1) / 2
    )  # the third has nothing to compare
    assert overlap(first, second, 1, None) == pytest.approx((0 + 1) / 2)
    assert overlap(first, second, 2, [["b"], ["x"], ["c"]]) == 1.0
    assert overlap(first, second, 2, [["a", "b"], ["x"], ["c"]]) == 0.5
    assert overlap([[]], [[]], 2, None) is None


def test_similarity_prints_its_values(data, tmp_path):
    (group,) = measured(write(tmp_path / "a", data, GOOD, "good"), write(tmp_path / "b", data, POOR, "poor"))
    every, correct = similarity_tables(group, 3)
    assert lines(every) == [["1. good", "1.00", "0.50"], ["2. poor", "0.50", "1.00"]]  # 2 of 3, 1 of 3
    assert lines(correct) == [["1. good", "1.00", "0.58"], ["2. poor", "0.58", "1.00"]]  # 2 of 3, 1 of 2
    assert every.heat
    assert every.rows[0][2] == Cell("0.50", shade=pytest.approx(0.5))


def test_significance_against_the_best_or_a_baseline(data, tmp_path):
    files = [write(tmp_path / name, data, found, name) for name, found in (("good", GOOD), ("poor", POOR))]
    files.append(write(tmp_path / "other", data, POOR, "other", steps="single"))
    (group,) = measured(*files)
    table = significance_table(group, "R@3", lambda run: group.recalls(run, 3))
    rows = {row[0]: row[1:] for row in lines(table)}
    assert "against good (the best), 2 queries" in table.caption
    assert rows["good"] == ["100.0", "reference", "–", "–", "–"]
    # the differences are -1/3 and -1/2: four swaps, two as far out; Holm doubles p, at most to 1
    assert rows["poor"] == ["58.3", "−41.7", "−50.0 to −33.3", "0.500", "1.000"]
    named = significance_table(group, "set F1", group.set_f1s, "poor")
    assert "against poor (the baseline asked for)" in named.caption
    assert [row[0] for row in lines(named)] == ["good", "poor"]  # single-step runs have no chains
    assert significance_table(group, "set F1", lambda run: None) is None


def test_the_price_of_the_end_stands_beside_the_same_system_without_one(data, tmp_path):
    short = {"q1": ["f1"], "q2": ["f2", "r2", "odd"]}
    ended = write(tmp_path / "a", data, short, "until DONE", retriever="one")
    fixed = {"steps": "fixed", "options": {"k": 3, "hops": 3}}
    whole = write(tmp_path / "b", data, GOOD, "three hops", retriever="one", **fixed)
    other = write(tmp_path / "c", data, GOOD, "another model", retriever="two", **fixed)
    (group,) = measured(ended, whole, other)
    (row,) = lines(price_table(group))  # q1: 0.5 of 1, q2: 0.8 of 1
    assert row[:6] == ["until DONE", "three hops", "DONE", "65.0", "100.0", "+35.0"]
    assert row[8:] == ["1", "0", "1"]
    parts = {part.title: part for part in build_page([group], [1, 3]).sections[0].parts}
    assert [block.name for block in parts["Fixed and dynamic steps"].blocks[:2]] == [
        "chains-small",
        "price-small",
    ]
    assert price_table(measured(ended, other)[0]) is None
    cut = write(tmp_path / "d", data, short, "cut", retriever="three", options={"k": 3, "cut": "x"})
    top = write(tmp_path / "e", data, GOOD, "top", steps="single", retriever="three")
    (row,) = lines(price_table(measured(cut, top)[0]))
    assert row[:3] == ["cut", "top", "the cut"]


def test_a_price_beside_too_few_passages_is_called_a_lower_bound(data, tmp_path):
    """The run without an end has two passages, and q1 has three gold ones."""
    ended = write(tmp_path / "a", data, {"q1": ["f1"], "q2": ["f2"]}, "until DONE", retriever="one")
    fixed = {"steps": "fixed", "options": {"k": 3, "hops": 2}}
    short = write(
        tmp_path / "b", data, {"q1": ["f1", "r1"], "q2": ["f2", "r2"]}, "two hops", retriever="one", **fixed
    )
    whole = write(tmp_path / "c", data, GOOD, "whole", retriever="one", steps="fixed", options={"hops": 3})
    note = price_table(measured(ended, short)[0]).note
    assert "The price of until DONE is a lower bound: for 1 query two hops has fewer passages than" in note
    assert "lower bound" not in price_table(measured(ended, whole)[0]).note


def test_members_are_known_by_their_files_where_names_are_alike(data, tmp_path):
    """Two runs of one usual name; the ensemble's second member is the second of them."""
    one = write(tmp_path / "one", data, GOOD, "hybrid", "hybrid", "single")
    two = write(tmp_path / "two", data, POOR, "hybrid", "hybrid", "single")
    options = {"k": 3, "runs": [str(tmp_path / "two.trec"), str(tmp_path / "gone.trec")]}
    both = write(
        tmp_path / "both",
        data,
        GOOD,
        "both",
        "ensemble",
        "single",
        members=("hybrid", "hybrid"),
        options=options,
    )
    rows = lines(ensemble_table(measured(one, two, both), (3,)))
    assert rows[1] == ["both", "–", "member hybrid (two)", "58.3"]
    assert rows[2] == ["both", "–", "member hybrid", "–"]  # gone, and two are called so


def test_a_table_of_memorisation_needs_both_kinds(data, tmp_path):
    one = write(tmp_path / "one", data, GOOD, "one", stages=("memorise", "retrieve"))
    assert memorisation_table(measured(one), (3,)) is None
    two = write(tmp_path / "two", data, GOOD, "two", stages=("retrieve",))
    assert memorisation_table(measured(one, two), (3,)) is not None


def test_rows_stand_by_what_they_find(data, tmp_path):
    files = [write(tmp_path / name, data, found, name, "bm25", "single")
             for name, found in (("poor", POOR), ("good", GOOD))]  # fmt: skip
    assert [row[0] for row in lines(recall_table(measured(*files), (3,)))] == ["poor", "good"]
    assert [row[0] for row in lines(recall_table(measured(*files), (3,), 3))] == ["good", "poor"]


def test_averages_over_few_queries_stand_in_parentheses(data, tmp_path):
    groups = measured(write(tmp_path / "a", data, GOOD, "good"))
    table = dict(section_tables(groups, ()))["seen_unseen"]
    assert lines(table)[0][3:6] == ["(100.0)", "(100.0)", "1"]
    assert "fewer than 30 queries" in table.note


def test_rankings_by_hops_are_called_so_and_stand_behind_single_steps(data, tmp_path):
    ranked = write(tmp_path / "hops", data, GOOD, "hops", "biencoder", "ranked", score_mode=IN_CHAINS)
    plain = write(tmp_path / "plain", data, POOR, "plain", "biencoder", "single")
    rows = lines(recall_table(measured(ranked, plain), (1,)))
    assert [row[:3] for row in rows] == [
        ["plain", "bi-encoder", "single"],
        ["hops", "bi-encoder", "ranked"],
    ]
    assert [run.chains for run in measured(ranked, plain)[0].runs] == [None, None]
