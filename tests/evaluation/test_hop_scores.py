"""Scores of hops: where passages stand in hop order, and where they do not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Chain, Hit, Passage, Query, Steps
from grls.evaluation.evaluate import evaluate_results
from grls.evaluation.examples import format_examples
from grls.runs.manifest import RunInfo
from grls.runs.run import Run

RULE = "if someone is kind then they are big ."
CORPUS = Corpus.from_passages([Passage("f", "anna is kind ."), Passage("r", RULE), Passage("x", "other")])
PROOF = json.dumps({"start": ["f"], "goal": "anna is big ."})
QUERIES = [Query("q", "why ?", ("f", "r"), metadata=PROOF)]
QRELS = {"q": {"f": 1, "r": 1}}


def info(steps: Steps, mode: str = "renormalized", **options: object) -> RunInfo:
    return RunInfo("generator", "mine", steps, "", "", "", None, mode, options=options)


def ranked(*ids: str) -> list[Hit]:
    return [Hit(name, -1.0 - n) for n, name in enumerate(ids)]


def chained(*ids: str, done: bool = True) -> dict[str, Chain]:
    return {"q": Chain(tuple(ranked(*ids)), -1.0, done)}


def scored(run: Run, queries: Sequence[Query] = QUERIES, qrels: Mapping[str, dict[str, int]] = QRELS) -> dict:
    return evaluate_results(run, queries, dict(qrels), CORPUS)


@pytest.mark.parametrize("mode", ["renormalized, expected-f1", "bm25, cut"])
@pytest.mark.parametrize("told", ["manifest", "results"])
def test_sets_have_exact_sets_and_nothing_that_asks_for_an_order(mode: str, told: str) -> None:
    """Passages of a set stand by probability: a likelier second passage comes first."""
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


def test_types_have_the_scores_of_hops_of_a_run_of_fixed_hops() -> None:
    queries = [Query(name, name, ("f", "r"), metadata=json.dumps({"type": name})) for name in ("one", "two")]
    run = Run.of({"one": ranked("f", "r", "x"), "two": ranked("x", "r")}, info=info("fixed", hops=2))
    found = scored(run, queries, {"one": QRELS["q"], "two": QRELS["q"]})["by_type"]
    shown = {
        name: [some[m] for m in ("H1", "H2", "exact_set", "exact_chain")] for name, some in found.items()
    }
    assert shown == {"one": [1.0, 1.0, 1.0, 1.0], "two": [0.0, 1.0, 0.0, 0.0]}


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
    assert "DONE" not in format_examples(run, _written(tmp_path), "test", CORPUS, 1)
    trec = scored(Run.load(tmp_path / "r.trec"))
    assert not trec.keys() & {"hops", "path_match"}, "a TREC run does not say where hops repeat"


def test_pooled_chains_are_a_ranking(tmp_path: Path) -> None:
    made = info("fixed", hops=2, repeat=True, pool=True)
    run = Run.of({"q": ranked("f", "r", "x")}, chained("f", "f", done=False), made)
    run.save(tmp_path / "r", QUERIES, CORPUS)
    assert Run.load(tmp_path / "r.jsonl").chains == {}


def _written(folder: Path) -> Path:
    write_dataset(folder / "data", CORPUS, QUERIES, {"test": QRELS})
    return folder / "data"
