import hashlib
import json

import pytest
from prep_helpers import contents, fails, load

from data_prep.ruletaker import identifier, prepare, proofs_by_goal
from data_prep.theory import TheoryOptions
from grls.evaluation.graph import graph_errors
from grls.evaluation.ruletaker import Fact, Rule, parse_query, parse_statement, problem_of, render

SMALL = {"train": 60, "dev": 10, "test": 20}
RELATIONS = TheoryOptions(6, 4, 20, conjunction_rate=0.5, relations=4, named_rate=0.5)


@pytest.fixture(
    scope="module",
    params=[TheoryOptions(6, 8, 14), TheoryOptions(6, 8, 14, 0.5), RELATIONS],
    ids=["chains", "conjunctions", "relations"],
)
def made(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("ruletaker") / "out"
    prepare(out, request.param, **SMALL)
    return out, request.param.conjunction_rate, request.param.rules


def test_one_corpus_of_every_fact_and_the_rules(made):
    texts, splits = load(made[0])
    statements = [parse_statement(text) for text in texts.values()]
    assert [identifier(s) for s in statements] == list(texts)
    assert [render(s) for s in statements] == list(texts.values())
    rules = [s for s in statements if isinstance(s, Rule)]
    assert len(statements) - len(rules) == 6 * 8
    assert len(set(rules)) == made[2]
    assert sum(len(r.premises) == 2 for r in rules) == round(made[2] * made[1])
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 60, "dev": 10, "test": 20}


def test_every_proof_passes_the_checks_and_the_evidence_is_a_shortest(made):
    texts, splits = load(made[0])
    for query in (q for queries in splits.values() for q in queries):
        metadata = json.loads(query.metadata)
        problem = problem_of(metadata, texts)
        assert problem == parse_query(query.text)
        proofs = [[texts[p] for p in proof] for proof in metadata["proofs"]]
        assert all(graph_errors(problem, proof, "reuse").success for proof in proofs)
        assert len({tuple(proof) for proof in proofs}) == len(proofs) <= 16
        assert list(query.evidence) == metadata["proofs"][0]
        assert len(query.evidence) == min(map(len, proofs))
        facts = [set(proof) & set(metadata["start"]) for proof in metadata["proofs"]]
        assert all(found == set(metadata["start"]) for found in facts)


def test_relations_and_rules_about_one_subject(tmp_path):
    prepare(tmp_path / "out", RELATIONS, **SMALL)
    texts, splits = load(tmp_path / "out")
    statements = [parse_statement(text) for text in texts.values()]
    facts = [s for s in statements if isinstance(s, Fact)]
    rules = [s for s in statements if isinstance(s, Rule)]
    assert sum(" " in fact.predicate for fact in facts) == 6 * 4
    assert sum(not rule.free for rule in rules) == 10
    assert {rule.variable for rule in rules if rule.free} == {"something"}
    used = {p for queries in splits.values() for q in queries for p in q.evidence}
    named = [name for name, rule in zip(texts, statements, strict=True) if getattr(rule, "subjects", ())]
    assert used.intersection(named)
    problems = [problem_of(json.loads(q.metadata), texts) for queries in splits.values() for q in queries]
    assert any(" " in problem.goal.predicate for problem in problems)


def test_the_old_data_stay_byte_for_byte(tmp_path):
    """Figures were measured on them."""
    prepare(tmp_path / "out", TheoryOptions(6, 8, 14, 0.5), **SMALL)
    found = hashlib.sha256()
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        found.update((tmp_path / "out" / name).read_bytes())
    assert found.hexdigest() == "9d9142f0aeb32ab78351d5e0154ee5dba45e71def059d3513737a0ae51c692cb"


def test_shortest_is_what_a_search_over_all_derivable_statements_finds():
    rules = [
        Rule(("a",), "b"),
        Rule(("b",), "c"),
        Rule(("a",), "c"),
        Rule(("c",), "a"),
        Rule(("b", "c"), "d"),
    ]
    proofs = proofs_by_goal(rules, max_depth=3, max_proofs=9)
    assert proofs[("a",), "c"] == [("a", rules[2]), ("a", rules[0], rules[1])]
    assert proofs[("a",), "d"] == [
        ("a", rules[0], rules[1], rules[4]),
        ("a", rules[0], rules[2], rules[4]),
    ]
    assert (("a", "b"), "d") not in proofs  # b alone proves d
    assert proofs[("b",), "d"] == [("b", rules[1], rules[4])]
    assert (("a",), "a") not in proofs


def test_limits_on_proofs():
    rules = [Rule(("a",), "b"), Rule(("b",), "c"), Rule(("a",), "c")]
    assert len(proofs_by_goal(rules, 2, 1)[("a",), "c"]) == 1
    assert len(proofs_by_goal(rules, 1, 9)[("a",), "c"]) == 1


def test_no_question_about_a_subject_stands_in_two_splits(made):
    _, splits = load(made[0])
    asked = [{parse_query(q.text) for q in queries} for queries in splits.values()]
    assert len(set().union(*asked)) == sum(map(len, asked)) == 90


def test_deterministic_for_a_seed(tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        prepare(tmp_path / name, TheoryOptions(6, 8, 14, 0.3), **SMALL, seed=seed)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one") != contents(tmp_path / "three")


def test_words_are_invented_where_the_lists_end(tmp_path):
    prepare(tmp_path / "out", TheoryOptions(80, 70, 90), train=10, dev=2, test=5)
    facts = [s for s in map(parse_statement, load(tmp_path / "out")[0].values()) if isinstance(s, Fact)]
    subjects, predicates = {f.subject for f in facts}, {f.predicate for f in facts}
    assert (len(subjects), len(predicates), len(facts)) == (80, 70, 5600)
    assert not subjects & predicates


def test_defaults_and_what_is_printed(tmp_path, capsys):
    prepare(tmp_path / "out")
    printed = capsys.readouterr().out
    assert "840 passages" in printed
    assert "588 train, 60 dev, 150 test" in printed
    assert "of the test queries have premises and goal that training asks about another subject" in printed


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--train", 100_000], "queries, 100210 were asked for"),
        (["--theory.rules", 1000], "20 predicates allow 380 rules with 1 premise(s), 1000 were asked for"),
        (["--theory.conjunction_rate", 1.5], "--theory.conjunction_rate must be between 0 and 1"),
        (["--theory.subjects", 1], "--theory.subjects must be at least 2"),
        (["--theory.relations", 10_000], "39 subjects allow 234 relations, 10000 were asked for"),
        (["--theory.named_rate", 2], "--theory.named_rate must be between 0 and 1"),
        (["--theory.rules", -3], "--theory.rules must be at least 0"),
        (["--theory.max_depth", 0], "--theory.max_depth must be at least 1"),
        (["--test", -1], "--test must be at least 0"),
    ],
)
def test_options_that_cannot_work(tmp_path, capsys, options, expected):
    assert expected in fails(prepare, capsys, "--out", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()
