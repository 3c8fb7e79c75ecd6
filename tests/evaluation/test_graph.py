"""Hand-known chains, one for each error; algorithm 3 held against the paper's loop, written down as it is."""

import itertools
import random

import pytest

from data_prep.ruletaker import render, render_query
from grls.evaluation.graph import GraphErrors, graph_errors
from grls.evaluation.ruletaker import (
    Fact,
    Problem,
    Rule,
    parse_statement,
    problem_of,
    states_problem,
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


TWICE_CALM = [KIND, KIND_CALM, KIND_CALM, CALM_BIG]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([], NONE._replace(node_number=True, start_node=True, end_node=True)),
        ([KIND], NONE._replace(node_number=True, end_node=True)),
        (["anna is big ."], NONE._replace(node_number=True, start_node=True)),
        # start node
        (["ben is kind .", KIND_BIG], NONE._replace(start_node=True, end_node=True)),  # it proves ben big
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
        (TWICE_CALM, NONE),  # both feed the last: an edge for each
        ([KIND, KIND_BIG, KIND_BIG], NONE._replace(missing_edge=True)),  # the first of a repetition dangles
        ([KIND, "the moon", KIND_BIG], NONE._replace(missing_edge=True)),
        ([KIND, "the moon"], NONE._replace(end_node=True, missing_edge=True)),
    ],
)
def test_each_error(chain, expected):
    assert graph_errors(ONE, chain, "reuse") == expected
    assert graph_errors(ONE, chain, "reuse").success == (expected == NONE)
    if chain not in (TWICE_CALM, ["ben is kind .", KIND_BIG]):  # see the tests below
        assert graph_errors(ONE, chain) == expected


def test_algorithm_3_consumes_what_it_uses():
    """So a statement that feeds two rules must stand twice; the papers' loop below decides the rest."""
    lost = NONE._replace(missing_edge=True)
    assert graph_errors(ONE, TWICE_CALM) == lost
    calm_cold, cold_calm_big = (
        "if someone is calm then they are cold .", "if someone is cold and calm then they are big .",
    )  # fmt: skip
    shared = [KIND, KIND_CALM, calm_cold, cold_calm_big]
    assert graph_errors(ONE, shared, "reuse") == NONE
    assert graph_errors(ONE, shared) == lost
    twice = [KIND, KIND, KIND_CALM, CALM_BIG]
    assert graph_errors(ONE, twice, "reuse") == NONE
    assert graph_errors(ONE, twice) == lost


def test_a_proof_is_about_the_subject_of_the_goal():
    start = (Fact("anna", "kind"), Fact("ben", "kind"))
    about_ben = ["ben is kind .", KIND_BIG]
    problem = Problem(start, Fact("anna", "big"))
    assert graph_errors(problem, about_ben) == NONE._replace(missing_edge=True)  # its last word is right
    assert graph_errors(problem, about_ben, "reuse") == NONE._replace(end_node=True)
    dangling = ["ben is kind .", KIND, KIND_BIG]
    twice = ["ben is kind .", KIND, KIND_CALM, CALM_BIG]  # a rule of the proof would take ben, too
    for reading in ("algorithm3", "reuse"):
        assert graph_errors(problem, [KIND, KIND_BIG], reading) == NONE
        assert graph_errors(problem, dangling, reading) == NONE._replace(missing_edge=True)
        assert graph_errors(problem, twice, reading) == NONE._replace(missing_edge=True)
        assert graph_errors(problem, [KIND, KIND_CALM, CALM_BIG], reading) == NONE
    other = ["ben is warm .", KIND, KIND_CALM, CALM_WARM_BIG]
    problem = Problem((Fact("ben", "warm"), Fact("anna", "kind")), Fact("anna", "big"))
    assert graph_errors(problem, other, "reuse") == NONE._replace(missing_edge=True)
    dangling = ["ben is warm .", KIND, KIND_BIG]
    assert graph_errors(problem, dangling, "reuse") == NONE._replace(missing_edge=True)


def test_relations_are_proved_and_checked_like_attributes():
    start = (Fact("the cat", "red"), Fact("the cat", "chases the mouse"))
    problem = Problem(start, Fact("the cat", "sees the dog"))
    facts = ["The cat is red.", "The cat chases the mouse."]
    rule = "If something is red and it chases the mouse then it sees the dog."
    named = "If the cat chases the mouse then the cat sees the dog."
    for reading in ("algorithm3", "reuse"):
        assert graph_errors(problem, [*facts, rule], reading) == NONE
        assert graph_errors(problem, [facts[1], named], reading) == NONE
        wrong = graph_errors(problem, [facts[1], named.replace("dog", "mouse")], reading)
        assert wrong == NONE._replace(end_node=True)
    about_dog = "If the dog chases the mouse then the cat sees the dog."
    assert graph_errors(problem, [facts[1], about_dog]) == NONE._replace(missing_edge=True)
    verb = "If the cat chases the mouse then it likes the dog."
    assert graph_errors(problem, [facts[1], verb]) == NONE._replace(missing_edge=True)
    assert graph_errors(problem, [facts[1], verb], "reuse") == NONE._replace(end_node=True)


def test_the_first_failed_check_is_the_one_that_counts():
    errors = graph_errors(ONE, ["ben is kind ."])
    assert errors == GraphErrors(True, True, True, False)
    assert errors.first == NONE._replace(node_number=True)
    assert errors._replace(node_number=False).first == NONE._replace(start_node=True)
    assert NONE.first == NONE


def algorithm3(nodes, goal):
    """The paper's loop under every choice of subjects; the goal alone may stay."""
    names = sorted({node.subject for node in nodes if isinstance(node, Fact)} | {goal.subject})
    rules = [n for n, node in enumerate(nodes) if isinstance(node, Rule)]
    for chosen in itertools.product(names, repeat=len(rules)):
        subjects = dict(zip(rules, chosen, strict=True))
        if literal(nodes, subjects) == [goal]:
            return True
    return False


def literal(nodes, subjects):
    unused = []
    for n, node in enumerate(nodes):
        if isinstance(node, Rule):
            premises, result = node.of(subjects[n])
            for premise in premises:
                if premise not in unused:
                    return None
                unused.remove(premise)
            unused.append(result)
        else:
            unused.append(node)
    return unused


def test_algorithm_3_agrees_with_the_papers_loop():
    rng = random.Random(0)
    names, words = ("anna", "ben"), ("kind", "calm", "big")
    rules = [Rule((a,), b) for a in words for b in words if a != b]
    rules += [Rule(("calm", "kind"), "big"), Rule(("kind", "big"), "calm")]
    rules += [Rule(("kind",), "big", ("ben", "anna")), Rule(("kind", "calm"), "big", ("", "ben", ""))]
    facts = [Fact(name, word) for name in names for word in words]
    goal, passed, stricter = Fact("anna", "big"), 0, 0
    for _ in range(3000):
        chain = [rng.choice(facts)]
        chain += [rng.choice(facts if rng.random() < 0.3 else rules) for _ in range(rng.randint(1, 4))]
        problem = Problem(tuple(facts), goal)
        errors = graph_errors(problem, chain)
        if errors.end_node:
            continue
        assert errors.missing_edge is not algorithm3(chain, goal), chain
        passed += errors.success
        assert not errors.success or graph_errors(problem, chain, "reuse").success, chain
        stricter += errors.missing_edge and not graph_errors(problem, chain, "reuse").missing_edge
    assert min(passed, stricter) > 20  # both kinds are met


def test_many_subjects_to_choose_from_take_no_time():
    names = [f"s{n}" for n in range(30)]
    chain = [Fact(name, "kind") for name in names] + [Rule(("kind",), "calm")] * 30
    assert graph_errors(Problem(tuple(chain[:30]), Fact("s0", "calm")), chain).missing_edge


def test_premises_must_hold_of_one_subject_and_a_circle_is_no_missing_edge():
    problem = Problem((Fact("anna", "kind"), Fact("ben", "warm")), Fact("anna", "big"))
    chain = [KIND, KIND_CALM, "ben is warm .", CALM_WARM_BIG]
    assert graph_errors(problem, chain) == NONE._replace(missing_edge=True)
    assert graph_errors(ONE, [KIND, KIND_CALM, CALM_KIND, KIND_BIG]) == NONE


@pytest.mark.parametrize("statement", [
    Fact("anna", "kind"),
    Fact("the cat", "chases the mouse"),
    Rule(("kind",), "calm"),
    Rule(("calm", "warm"), "big"),
    Rule(("likes the cat", "likes the dog"), "sees anna"),
    Rule(("kind", "chases the cat"), "young", (), "something"),
    Rule(("red",), "sees the mouse", ("the dog", "the dog")),
    Rule(("chases the mouse", "red"), "young", ("", "the dog", ""), "something"),
    Rule(("red", "kind"), "young", ("the dog", "the dog", "the mouse")),
    Fact("the bald eagle", "chases the bald eagle"),
    Rule(("chases the bald eagle",), "young", ("the cat", "the bald eagle")),
    Rule(("red", "kind"), "young", ("the dog", "", ""), "something"),
    Rule(("red", "likes bob"), "sees bob", ("anna", "", "anna")),
])  # fmt: skip
def test_parse_reads_what_render_writes(statement):
    text = render(statement)
    assert parse_statement(text) == statement
    assert parse_statement(f"  {text.upper()}".replace(" .", ".")) == statement
    assert parse_statement(text.removesuffix(" .")) == statement


@pytest.mark.parametrize(("text", "expected"), [
    ("the cat is kind", Fact("the cat", "kind")),
    ("if something is kind then it chases the cat", Rule(("kind",), "chases the cat", (), "something")),
    ("if something chases the cat then it is young", Rule(("chases the cat",), "young", (), "something")),
    ("if something is kind and young then it is cold", Rule(("kind", "young"), "cold", (), "something")),
    ("If the dog is red then it is cold.", Rule(("red",), "cold", ("the dog", "the dog"))),
    ("if the dog chases the mouse then the mouse is young",
     Rule(("chases the mouse",), "young", ("the dog", "the mouse"))),
    ("if someone is kind then they like the cat", Rule(("kind",), "likes the cat")),
    ("if the dog is red and something is kind then it is cold",
     Rule(("red", "kind"), "cold", ("the dog", "", ""), "something")),
    ("if someone is kind and they like bob then they are big", Rule(("kind", "likes bob"), "big")),
])  # fmt: skip
def test_sentences_of_the_papers_language(text, expected):
    assert parse_statement(text) == expected


@pytest.mark.parametrize("text", [
    "something is kind .",
    "it is kind .",
    "the cat does not .",
    "the cat is not kind .",
    "if the dog is red then something is kind .",
    "if something is red and someone is kind then it is big .",
    "",
    "anna is very kind .",
    "if someone is kind .",
    "if someone is a and b and c then they are d .",
    "the cat chases it .",
    "the cat is something .",
    "if something chases the cat then the mouse sees it .",
    "if someone is kind then anna likes them .",
    "if someone is kind and they like them then they are big .",
])  # fmt: skip
def test_other_texts_are_no_statements(text):
    assert parse_statement(text) is None


def test_query_text():
    chases = Problem((Fact("the cat", "red"),), Fact("the cat", "chases the mouse"))
    assert render_query(TWO) == "anna is kind . anna is warm . why is anna big ?"
    assert render_query(chases) == "the cat is red . why does the cat chase the mouse ?"
    problem = Problem((Fact("the bald eagle", "red"),), Fact("the bald eagle", "chases the cow"))
    assert render_query(problem) == "the bald eagle is red . why does the bald eagle chase the cow ?"


def test_problem_of_metadata():
    texts = {"f1": KIND, "f2": WARM, "r1": KIND_BIG}
    assert problem_of({"start": ["f1", "f2"], "goal": "anna is big ."}, texts) == TWO
    assert problem_of({"start": ["r1"], "goal": KIND}, texts) is None
    for other in ({}, {"start": ["f1"]}, {"start": [], "goal": KIND}, {"start": [1], "goal": KIND}):
        assert not states_problem(other)
