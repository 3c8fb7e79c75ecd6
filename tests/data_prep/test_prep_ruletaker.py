import hashlib
import json
from pathlib import Path

import pytest
import yaml
from prep_helpers import contents, fails, load

from data_prep.ruletaker import identifier, prepare, proofs_by_goal, render, render_query
from data_prep.theory import TheoryOptions
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries, read_split
from grls.data.types import Chain, Hit
from grls.evaluation.evaluate import Judged, score_run
from grls.evaluation.graph import graph_errors
from grls.evaluation.ruletaker import Fact, Rule, parse_statement, problem_of
from grls.runs.run import Run

ROOT = Path(__file__).parents[2]
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


def test_every_proof_passes_the_checks_and_the_evidence_has_fewest_statements(made):
    texts, splits = load(made[0])
    for query in (q for queries in splits.values() for q in queries):
        metadata = json.loads(query.metadata)
        problem = problem_of(metadata, texts)
        assert render_query(problem) == query.text
        proofs = [[texts[p] for p in proof] for proof in metadata["proofs"]]
        for reading in ("algorithm3", "reuse"):  # a statement stands as often as it is used
            assert all(graph_errors(problem, proof, reading).success for proof in proofs)
        assert len({tuple(proof) for proof in proofs}) == len(proofs) <= 16
        assert list(query.evidence) == metadata["proofs"][0]
        assert len(set(query.evidence)) == min(len(set(proof)) for proof in proofs)
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
    """Figures were measured on them. Queries name a statement of a proof as often as it is used."""
    prepare(tmp_path / "out", TheoryOptions(6, 8, 14, 0.5), **SMALL)
    files = {"corpus.jsonl": "42564eaf", "qrels/test.tsv": "42564eaf", "queries.jsonl": "ce5b25cb"}
    found = {start: hashlib.sha256() for start in files.values()}
    for name, start in files.items():
        found[start].update((tmp_path / "out" / name).read_bytes())
    assert all(digest.hexdigest().startswith(start) for start, digest in found.items())
    prepare(tmp_path / "other", TheoryOptions(6, 8, 14, 0.5), **SMALL, seed=1)
    assert contents(tmp_path / "out") != contents(tmp_path / "other")


@pytest.mark.parametrize("name", ["ruletaker-paper", "ruletaker-relations", "ruletaker"])
def test_a_retriever_that_returns_the_gold_chains_succeeds_on_every_question(name, tmp_path):
    """The ceiling of graph success, by algorithm 3, is 100 in the shipped data sets."""
    config = yaml.safe_load((ROOT / "configs" / "prepare" / f"{name}.yaml").read_text())
    splits = {split: config[split] for split in ("train", "dev", "test")}
    prepare(tmp_path / "data", TheoryOptions(**config["theory"]), **splits, seed=config["seed"])
    corpus = Corpus.read(tmp_path / "data")
    queries, qrels = read_split(tmp_path / "data", "test", corpus)
    chains = {q.id: Chain(tuple(Hit(i, -1.0) for i in q.evidence), -1.0, True) for q in queries}
    report = score_run(Judged(Run.of(chains=chains), queries, qrels, corpus))
    assert report["graph"]["success"] == report["graph_reuse"]["success"] == 1.0
    assert report["set"]["f1"] == report["path_match"]["path_match"] == 1.0
    assert set(report["hops"].values()) == {1.0}
    used_again = any(len(set(query.evidence)) < len(query.evidence) for query in queries)
    assert used_again == (name != "ruletaker-paper")  # rules of one premise
    texts = {passage.id: passage.text for passage in corpus}
    for query in read_queries(tmp_path / "data"):
        problem = problem_of(json.loads(query.metadata), texts)
        assert graph_errors(problem, [texts[i] for i in query.evidence]).success, query.id


def test_shortest_is_what_a_search_over_all_derivable_statements_finds():
    rules = [
        Rule(("a",), "b"), Rule(("b",), "c"), Rule(("a",), "c"), Rule(("c",), "a"), Rule(("b", "c"), "d"),
    ]  # fmt: skip
    proofs = proofs_by_goal(rules, max_depth=3, max_proofs=9)
    assert proofs[("a",), "c"] == [("a", rules[2]), ("a", rules[0], rules[1])]
    assert proofs[("a",), "d"] == [
        ("a", rules[0], "a", rules[0], rules[1], rules[4]), ("a", rules[0], "a", rules[2], rules[4]),
    ]  # fmt: skip
    assert (("a", "b"), "d") not in proofs  # b alone proves d
    assert proofs[("b",), "d"] == [("b", "b", rules[1], rules[4])]
    assert (("a",), "a") not in proofs


def test_limits_on_proofs():
    rules = [Rule(("a",), "b"), Rule(("b",), "c"), Rule(("a",), "c")]
    assert len(proofs_by_goal(rules, 2, 1)[("a",), "c"]) == 1
    assert len(proofs_by_goal(rules, 1, 9)[("a",), "c"]) == 1


def test_no_question_about_a_subject_stands_in_two_splits(made):
    _, splits = load(made[0])
    asked = [{q.text for q in queries} for queries in splits.values()]
    assert len(set().union(*asked)) == sum(map(len, asked)) == 90


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


@pytest.mark.parametrize(("options", "expected"), [
    (["--train", 100_000], "queries, 100210 were asked for"),
    (["--theory.rules", 1000], "20 predicates allow 380 rules with 1 premise(s), 1000 were asked for"),
    (["--theory.relations", 10_000], "39 subjects allow 234 relations, 10000 were asked for"),
])  # fmt: skip
def test_options_that_cannot_work(tmp_path, capsys, options, expected):
    assert expected in fails(prepare, capsys, "--out", tmp_path / "out", *options)
