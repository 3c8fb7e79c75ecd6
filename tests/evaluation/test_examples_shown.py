"""Worked examples of a run, as a person reads them."""

import json

from run_files import write_jsonl_run

from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Chain, Hit, Passage, Query
from grls.evaluation.evaluate import evaluate_run
from grls.evaluation.examples import format_examples
from grls.runs.trec import write_run

PASSAGES = [
    Passage("f1", "anna is kind ."),
    Passage("r1", "if someone is kind then they are big ."),
    *(Passage(f"x{n}", f"other {n}") for n in range(8)),
]
PROOF = json.dumps({"start": ["f1"], "goal": "anna is big ."})


def dataset(folder, queries):
    grades = {query.id: {"f1": 1, "r1": 2, "x7": 0} for query in queries}
    write_dataset(folder, PASSAGES, queries, {"test": grades})
    return folder, Corpus.read(folder)


def test_gold_below_what_is_shown_is_named_with_its_rank(tmp_path):
    data, corpus = dataset(tmp_path / "data", [Query(q, f"ask {q}") for q in ("q1", "q2", "q3")])
    others = [Hit(f"x{n}", -1.0 - n) for n in range(7)]
    deep = [Hit("r1", -0.5), *others[:5], Hit("f1", -8.0)]
    write_run(tmp_path / "run", {"q1": others, "q2": deep, "q3": [Hit("f1", -1.0)]})
    shown = format_examples(tmp_path / "run", data, "test", corpus, 9).split("\n\n")
    assert shown[0].splitlines() == [
        "query q2: ask q2",
        "  1. * if someone is kind then they are big .  [-0.50]",
        *(f"  {n + 2}.   other {n}  [{-1.0 - n:.2f}]" for n in range(4)),
        "  gold, rank 7: f1: anna is kind .",
        "  => all gold passages found in 7 hits",
    ]
    assert shown[1].splitlines()[-3:] == [
        "  gold, not found: f1: anna is kind .",
        "  gold, not found: r1: if someone is kind then they are big .",
        "  => 0 of 2 gold passages found in 7 hits",
    ]
    assert shown[2].endswith("  => 1 of 2 gold passages found in 1 hit")
    assert format_examples(tmp_path / "run", data, "test", corpus, -1) == ""


def test_long_passages_are_shown_by_title_and_beginning(tmp_path):
    long = Passage("long", "a holt is a den . " * 30, "Holts")
    write_dataset(
        tmp_path / "data", [long, Passage("x", "x")], [Query("q", "q")], {"test": {"q": {"long": 1}}}
    )
    corpus = Corpus.read(tmp_path / "data")
    for hit, start in (
        ("x", "  gold, not found: long: Holts: a holt is"),
        ("long", "  1. * Holts: a holt is"),
    ):
        write_run(tmp_path / "run", {"q": [Hit(hit, -1.0)]})
        lines = format_examples(tmp_path / "run", tmp_path / "data", "test", corpus, 1).splitlines()
        assert any(line.startswith(start) and "…" in line for line in lines)
        assert max(map(len, lines)) < 150


def test_the_ids_of_all_chains_are_looked_up_at_once(tmp_path, monkeypatch):
    queries = [Query(f"q{n}", "why ?", metadata=PROOF) for n in range(20)]
    data, corpus = dataset(tmp_path / "data", queries)
    valid = Chain((Hit("f1", -0.5), Hit("r1", -0.1), Hit("DONE", 0.0)), -0.6, True)
    broken = Chain((Hit("r1", -0.5), Hit("x1", -0.5)), -1.0, False)
    chains = {q.id: broken if n % 2 else valid for n, q in enumerate(queries)}
    write_jsonl_run(tmp_path / "run.jsonl", queries, corpus, "full", chains=chains)
    calls = []
    numbers = corpus.numbers
    monkeypatch.setattr(corpus, "numbers", lambda ids: calls.append(len(ids)) or numbers(ids))
    first, second = format_examples(tmp_path / "run.jsonl", data, "test", corpus, 2).split("\n\n")
    assert len(calls) == 3  # the split, the checks, what is shown
    assert first.splitlines()[-2:] == ["  DONE", "  => proof valid"]
    assert "(stopped by the hop limit, DONE missing)" in second
    assert "=> proof fails: start node" in second


def test_other_data_may_use_the_same_keys(tmp_path):
    metadata = [{"start": 3}, {"start": [1, 2], "goal": "anna is big ."}, {"start": ["1:0"], "goal": "home"}]
    queries = [Query(f"q{n}", "why ?", metadata=json.dumps(m)) for n, m in enumerate(metadata)]
    data, corpus = dataset(tmp_path / "data", queries)
    chain = Chain((Hit("f1", -0.5), Hit("r1", -0.1)), -0.6, False)
    run = tmp_path / "run.jsonl"
    write_jsonl_run(run, queries, corpus, "full", chains=dict.fromkeys(["q0", "q1", "q2"], chain))
    assert format_examples(run, data, "test", corpus, 3).count("=> all gold passages found") == 3
    assert "graph" not in evaluate_run(run, data)
