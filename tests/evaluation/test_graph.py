"""Hand-known chains, one for each error."""

import pytest

from grls.evaluation.graph import (
    Fact,
    GraphErrors,
    Problem,
    Rule,
    graph_errors,
    parse,
    parse_query,
    problem_of,
    render,
    render_query,
)

KIND, WARM = "anna is kind .", "anna is warm ."
KIND_CALM = "if someone is kind then they are calm ."
CALM_BIG = "if someone is calm then they are big ."
CALM_WARM_BIG = "if someone is calm and warm then they are big ."
KIND_BIG = "if someone is kind then they are big ."
CALM_KIND = "if someone is calm then they are kind ."
ONE = Problem((Fact("anna", "kind"),), Fact("anna", "big"))
TWO = Problem((Fact("anna", "kind"), Fact("anna", "warm")), Fact("anna", "big"))
NONE = GraphErrors(False, False, False, False)


@pytest.mark.parametrize(
    ("problem", "chain"),
    [
        (ONE, [KIND, KIND_BIG]),
        (ONE, [KIND, KIND_CALM, CALM_BIG]),
        (TWO, [KIND, KIND_CALM, WARM, CALM_WARM_BIG]),
        (TWO, [WARM, KIND, KIND_CALM, CALM_WARM_BIG]),
        (TWO, [KIND, KIND_CALM, CALM_BIG]),  # a start fact need not be used
    ],
)
def test_proofs_have_no_error(problem, chain):
    assert graph_errors(problem, chain) == NONE
    assert graph_errors(problem, chain).success


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([], NONE._replace(node_number=True, start_node=True, end_node=True)),
        ([KIND], NONE._replace(node_number=True, end_node=True)),
        (["anna is big ."], NONE._replace(node_number=True, start_node=True)),
        # start node
        (["ben is kind .", KIND_BIG], NONE._replace(start_node=True)),
        ([WARM, KIND, KIND_CALM, CALM_WARM_BIG], NONE._replace(start_node=True)),
        ([KIND, KIND_CALM, WARM, CALM_WARM_BIG], NONE._replace(start_node=True)),
        ([KIND_BIG, KIND, KIND_BIG], NONE._replace(start_node=True, missing_edge=True)),
        # end node
        ([KIND, KIND_CALM], NONE._replace(end_node=True)),
        ([KIND, KIND_CALM, CALM_BIG, KIND], NONE._replace(end_node=True, missing_edge=True)),
        # missing edge
        ([KIND, CALM_BIG], NONE._replace(missing_edge=True)),  # a premise is missing
        ([KIND, CALM_BIG, KIND_CALM], NONE._replace(end_node=True, missing_edge=True)),  # wrong order
        ([KIND, KIND_CALM, CALM_WARM_BIG], NONE._replace(missing_edge=True)),  # one of two premises
        ([KIND, KIND_CALM, KIND_BIG], NONE._replace(missing_edge=True)),  # the second node dangles
        ([KIND, KIND_CALM, KIND_CALM, CALM_BIG], NONE),  # both feed the last: an edge for each
        ([KIND, KIND_BIG, KIND_BIG], NONE._replace(missing_edge=True)),  # the first of a repetition dangles
        ([KIND, "the moon", KIND_BIG], NONE._replace(missing_edge=True)),
        ([KIND, "the moon"], NONE._replace(end_node=True, missing_edge=True)),
    ],
)
def test_each_error(chain, expected):
    assert graph_errors(ONE, chain) == expected
    assert graph_errors(ONE, chain).success == (expected == NONE)


def test_premises_must_hold_of_one_subject():
    problem = Problem((Fact("anna", "kind"), Fact("ben", "warm")), Fact("anna", "big"))
    chain = [KIND, KIND_CALM, "ben is warm .", CALM_WARM_BIG]
    assert graph_errors(problem, chain) == NONE._replace(missing_edge=True)


def test_a_circle_is_no_missing_edge():
    assert graph_errors(ONE, [KIND, KIND_CALM, CALM_KIND, KIND_BIG]) == NONE


def test_parsed_statements_and_texts_give_the_same():
    chain = [KIND, KIND_CALM, CALM_BIG]
    assert graph_errors(ONE, [parse(text) for text in chain]) == graph_errors(ONE, chain)


@pytest.mark.parametrize(
    "statement",
    [Fact("anna", "kind"), Rule(("kind",), "calm"), Rule(("calm", "warm"), "big")],
)
def test_parse_reads_what_render_writes(statement):
    text = render(statement)
    assert parse(text) == statement
    assert parse(f"  {text.upper()}".replace(" .", ".")) == statement
    assert parse(text.removesuffix(" .")) == statement


@pytest.mark.parametrize(
    "text",
    [
        "",
        "anna",
        "anna is very kind .",
        "if someone is kind .",
        "if someone is a and b and c then they are d .",
        "x",
    ],
)
def test_other_texts_are_no_statements(text):
    assert parse(text) is None


@pytest.mark.parametrize("problem", [ONE, TWO])
def test_queries_go_to_text_and_back(problem):
    assert parse_query(render_query(problem)) == problem


def test_query_text():
    assert render_query(TWO) == "anna is kind . anna is warm . why is anna big ?"
    assert parse_query("why is anna big ?") is None
    assert parse_query("anna is kind .") is None


def test_problem_of_metadata():
    texts = {"f1": KIND, "f2": WARM, "r1": KIND_BIG}
    assert problem_of({"start": ["f1", "f2"], "goal": "anna is big ."}, texts) == TWO
    for broken in ({}, {"start": ["f1"]}, {"start": [], "goal": KIND}, {"start": ["r1"], "goal": KIND}):
        assert problem_of(broken, texts) is None
    assert problem_of({"start": ["unknown"], "goal": KIND}, texts) is None
