"""Runs whose hops may repeat a passage: with their chains, and where a TREC run lost them."""

from pathlib import Path

from report_helpers import dataset

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Chain, Hit
from grls.report.measure import Measured, score_runs
from grls.report.runs import load_groups
from grls.runs.manifest import RunInfo, fingerprint_queries
from grls.runs.run import Run


def measured(file: str) -> Measured:
    (group,) = load_groups([file])
    (run,) = score_runs(group, [1]).runs
    return run


def test_only_chains_say_which_hop_found_a_passage(tmp_path: Path) -> None:
    data = dataset(tmp_path / "data")
    corpus, (queries, _) = Corpus.read(data), read_split(data, "test")
    info = RunInfo(
        "bm25", "hops", "fixed", corpus.fingerprint, fingerprint_queries(queries), str(data), "test", "bm25",
        options={"hops": 3, "repeat": True, "pool": False},
    )  # fmt: skip
    found = {"q1": ("f1", "f1", "r1"), "q2": ("f2", "r2", "f2")}
    chains = {q: Chain(tuple(Hit(i, -1.0) for i in ids), -3.0, False) for q, ids in found.items()}
    Run.of(chains=chains, info=info).save(tmp_path / "run", queries, corpus)
    whole, trec = measured(f"{tmp_path}/run.jsonl"), measured(f"{tmp_path}/run.trec")
    assert whole.chains == [list(ids) for ids in found.values()]
    assert (whole.report["hops"]["H1"], whole.report["hops"]["H2"]) == (1.0, 0.5)
    assert "done_missing" not in whole.report
    assert trec.chains == [["f1", "r1"], ["f2", "r2"]]
    assert trec.report["hops"] == {"exact_set": 0.5}
    assert not trec.report.keys() & {"path_match", "graph", "done_missing"}
    assert trec.report["set"]["f1"] == whole.report["set"]["f1"]
