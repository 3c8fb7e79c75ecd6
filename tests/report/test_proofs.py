"""Faults put down to steps, and their drawing."""

import random
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import GOOD, POOR, dataset, write

from grls.evaluation.graph import GraphErrors
from grls.evaluation.ruletaker import Fact, Problem
from grls.report.blocks import INK
from grls.report.drawing import FAULT, LEFT, describe_proof, draw_proof
from grls.report.measure import score_runs
from grls.report.proofs import explain_chain, proof_examples
from grls.report.runs import load_groups

KIND, WARM = "anna is kind .", "anna is warm ."
KIND_CALM = "if someone is kind then they are calm ."
CALM_WARM_BIG = "if someone is calm and warm then they are big ."
BIG_OLD = "if someone is big then they are old ."
TWO = Problem((Fact("anna", "kind"), Fact("anna", "warm")), Fact("anna", "big"))


UNUSED = "left over: no later rule uses it"


def reasons(problem, chain):
    return [[fault.reason for fault in step.faults] for step in explain_chain(problem, chain).steps]


def test_a_proof_has_edges_and_no_faults():
    proof = explain_chain(TWO, [KIND, KIND_CALM, WARM, CALM_WARM_BIG])
    assert proof.edges == ((0, 1), (1, 3), (2, 3))
    assert proof.given == (0, 2)
    assert (proof.faults, [step.faults for step in proof.steps]) == ((), [()] * 4)
    assert (proof.start, proof.goal) == ((KIND, WARM), "anna is big .")


def test_the_wrong_step_is_named_and_only_that_one():
    assert reasons(TWO, [WARM, CALM_WARM_BIG]) == [[], ["missing before it: anna is calm"]]
    assert reasons(TWO, [WARM, CALM_WARM_BIG, BIG_OLD])[2] == []  # charged to the step before
    assert reasons(TWO, [CALM_WARM_BIG]) == [
        [
            "a proof begins with a start fact, and this is none",
            "missing before it: anna is calm and anna is warm",
        ]
    ]
    assert reasons(TWO, [KIND, WARM, KIND_CALM]) == [[], [UNUSED], []]
    assert reasons(TWO, [KIND, "ben is warm .", KIND_CALM])[1][0] == "this fact is none of the start facts"
    assert reasons(TWO, [KIND, "the moon"]) == [
        [UNUSED],
        ["neither a fact nor a rule: nothing leads to it or from it"],
    ]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([], ["nothing was retrieved", "there is no first step", "there is no last step"]),
        ([KIND], ["a proof has at least two steps", "the last step does not conclude the goal"]),
        ([KIND, KIND_CALM], ["the last step does not conclude the goal"]),
    ],
)
def test_faults_of_the_whole(chain, expected):
    assert [fault.reason for fault in explain_chain(TWO, chain).faults] == expected


def sentences():
    subjects, predicates = st.sampled_from(["anna", "ben"]), st.sampled_from(["kind", "calm", "warm", "big"])
    facts = st.builds("{} is {} .".format, subjects, predicates)
    rules = st.builds("if someone is {} then they are {} .".format, predicates, predicates)
    pairs = st.builds("if someone is {} and {} then they are {} .".format, predicates, predicates, predicates)
    return st.one_of(facts, rules, pairs, st.just("the moon"))


@settings(max_examples=120, deadline=None)
@given(st.lists(sentences(), max_size=6))
def test_a_chain_has_a_fault_of_a_kind_exactly_where_that_check_fails(chain):
    proof = explain_chain(TWO, chain)
    kinds = {fault.check for faults in (proof.faults, *(s.faults for s in proof.steps)) for fault in faults}
    assert kinds == {check for check, wrong in proof.errors._asdict().items() if wrong}


def test_examples_are_successes_then_failures_of_different_kinds(tmp_path):
    data = dataset(tmp_path / "small")
    runs = [write(tmp_path / "a", data, GOOD), write(tmp_path / "b", data, POOR)]
    runs.append(write(tmp_path / "c", data, GOOD, steps="single"))
    (group,) = [score_runs(g, (1,)) for g in load_groups(runs)]
    by_file = {run.entry.file.stem: run for run in group.runs}
    assert [(e.query_id, e.proof.errors.success) for e in proof_examples(group, by_file["a"], 1)] == [
        ("q1", True)
    ]
    bad = proof_examples(group, by_file["b"], 2)
    assert [(e.query_id, e.proof.errors) for e in bad] == [
        ("q1", GraphErrors(False, False, False, True)),
        ("q2", GraphErrors(False, True, False, True)),
    ]
    assert proof_examples(group, by_file["c"], 2) == []  # a ranking is no proof


def test_failures_of_a_kind_not_shown_yet_come_first(tmp_path):
    from report_helpers import PASSAGES, QUERIES

    queries = [QUERIES[0], *(QUERIES[1]._replace(id=i) for i in ("q1", "q2"))]
    data = dataset(tmp_path / "small", PASSAGES, queries)
    alike = write(tmp_path / "a", data, {"q1": ["f1", "r2"], "q2": ["f1", "r2"]})
    (group,) = [score_runs(g, (1,)) for g in load_groups([alike])]
    assert [e.query_id for e in proof_examples(group, group.runs[0], 2)] == ["q1", "q2"]
    assert [e.query_id for e in proof_examples(group, group.runs[0], 1)] == ["q1"]


def test_the_drawing_says_every_text_and_reason_and_escapes_them():
    proof = explain_chain(TWO, [KIND, "<b>&moon", CALM_WARM_BIG])
    root = ElementTree.fromstring(draw_proof(proof, "p1"))
    said = " ".join(
        text.text.replace("\u00a0", " ") for text in root.iter("{http://www.w3.org/2000/svg}text")
    )
    for text in (
        "Start: anna is kind .",
        "2. <b>&moon",
        "✗ neither a fact nor a rule",
        "✗ missing before it: anna is calm",
    ):
        assert text in said
    assert describe_proof(proof).startswith(
        "Start: anna is kind . anna is warm . Step 1: anna is kind . Wrong: left"
    )
    assert root.find(".//{http://www.w3.org/2000/svg}marker").get("id") == "p1-tip"


def test_each_use_is_an_edge_and_what_is_left_over_is_blue_what_is_missing_red():
    kind_calm_big = "if someone is kind and calm then they are big ."
    once, twice = (
        explain_chain(TWO, [KIND, KIND_CALM, kind_calm_big]),
        explain_chain(TWO, [KIND, KIND, KIND_CALM, WARM]),
    )
    assert once.edges == ((0, 1), (1, 2))
    assert [fault.reason for fault in once.steps[2].faults] == ["missing before it: anna is kind"]
    assert twice.edges == ((0, 2),)
    assert [[fault.left for fault in step.faults] for step in twice.steps] == [[], [True], [True], []]
    assert (FAULT in draw_proof(once, "p"), LEFT in draw_proof(once, "p")) == (True, False)
    frames = [
        box.get("stroke")
        for box in ElementTree.fromstring(draw_proof(twice, "p")).iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert frames[1:-1] == [INK, LEFT, LEFT, INK]


def test_arcs_that_overlap_have_lanes_of_their_own():
    from grls.report.drawing import _lanes

    generator = random.Random(0)
    for _ in range(50):
        arcs = list({(a, a + generator.randint(2, 5)) for a in (generator.randint(0, 6) for _ in range(6))})
        lanes = _lanes(arcs)
        for one in arcs:
            for other in arcs:
                if one != other and one[0] <= other[1] and other[0] <= one[1]:
                    assert lanes[one] != lanes[other]


def test_the_drawing_is_as_wide_as_a_phone_and_holds_long_passages():
    long = "word " * 200
    proof = explain_chain(TWO, [KIND, long, "x" * 300])
    root = ElementTree.fromstring(draw_proof(proof, "p"))
    assert int(root.get("width")) <= 390
    assert max(len(text.text) for text in root.iter("{http://www.w3.org/2000/svg}text")) <= 42
