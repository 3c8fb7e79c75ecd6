"""``grls fuse cut``: what is kept of each ranking, what is written with it, and what is refused."""

from pathlib import Path

import pytest
from failing import fails
from small_data import passages, write_small

from grls.cli import main
from grls.data.dataset import gold_passages, read_split
from grls.evaluation.evaluate import evaluate_run
from grls.runs.portions import read_info
from grls.runs.run import Run

IDS = [passage.id for passage in passages()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a data set ``data``."""
    write_small(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trec(split: str) -> str:
    """A run of another tool: the gold of each query scores 9, all else 1."""
    lines = []
    for query in read_split("data", split)[0]:
        gold = gold_passages(query, read_split("data", split)[1])
        ranked = [*gold, *(name for name in IDS if name not in gold)]
        for n, name in enumerate(ranked):
            lines.append(f"{query.id} Q0 {name} 0 {(9 if name in gold else 1) - 0.01 * n} x\n")
    Path(f"{split}.trec").write_text("".join(lines))
    return f"{split}.trec"


def test_rankings_end_where_gold_ends(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, dev = trec("test"), trec("train")
    how = ("--data=data", "--split=test", "--tune_split=train", "--output=out/cut")
    assert main(["fuse", "cut", run, "--tune", dev, *how]) == 0
    told = "set F1 100.0 on train, which it was fitted to, 100.0 there with the known number of passages"
    assert told in capsys.readouterr().out
    found = Run.load("out/cut.jsonl")
    queries, qrels = read_split("data", "test")
    for query in queries:
        gold = gold_passages(query, qrels)
        assert [hit.id for hit in found.chains[query.id].hits] == gold
        assert [(hit.id, hit.score) for hit in found.rankings[query.id]] == [
            (hit.id, hit.score) for hit in Run.load(run).rankings[query.id][: len(gold)]
        ]
    info = read_info("out/cut.jsonl")
    assert info is not None
    assert (info.steps, info.split, info.name) == ("dynamic", "test", "test, cut")
    report = evaluate_run("out/cut.jsonl", "data", "test")
    assert report["set"]["f1"] == 1.0
    assert report["hops"] == {"exact_set": 1.0}, "what is cut has no order of hops"


def test_a_run_of_ours_keeps_what_made_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        given = ["--data=data", f"--split={split}", "--k=5", f"--output={split}-bm25"]
        assert main(["retrieve", "bm25", *given]) == 0
    assert main(["fuse", "cut", "test-bm25.jsonl", "--tune", "train-bm25.jsonl", "--output=out/cut"]) == 0
    before, after = read_info("test-bm25.jsonl"), read_info("out/cut.jsonl")
    assert before is not None
    assert after is not None
    assert (after.system, after.corpus, after.queries) == (before.system, before.corpus, before.queries)
    assert after.name == f"{before.name}, cut"
    assert after.score_mode == "bm25, cut"
    assert after.options["tune"] == "train-bm25.jsonl"
    assert after.retriever == before.retriever != ""
    assert main(["evaluate", "out/cut.jsonl", "test-bm25.jsonl", "--data=data"]) == 0
    assert "out/cut.jsonl: price of the cut" in capsys.readouterr().out
    assert main(["report", "test-bm25.jsonl", "out/cut.jsonl", "--output=out/report"]) == 0


def test_what_cannot_be_cut_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, dev = trec("test"), trec("train")
    data = ("--data=data", "--split=test", "--tune_split=train")
    other = fails(
        capsys, "fuse", "cut", run, "--tune", dev, "--data=data", "--split=train", "--output=out/cut"
    )
    assert "give the split that was retrieved for" in other
    assert main(["fuse", "cut", run, "--tune", dev, *data, "--output=out/cut"]) == 0
    again = fails(capsys, "fuse", "cut", "out/cut.jsonl", "--tune", dev, *data, "--output=out/again")
    assert "is dynamic: its chains end by themselves" in again
    assert not Path("out/again.jsonl").exists()
    Path("empty.jsonl").write_text("")
    nothing = fails(
        capsys, "fuse", "cut", "empty.jsonl", "--tune", dev, "--data=data", "--tune_split=train", "--output=e"
    )
    assert "empty.jsonl: the run answers no query, so there is nothing to cut: retrieve again" in nothing
    replaced = fails(capsys, "fuse", "cut", run, "--tune", dev, *data, "--output=train")
    assert "would replace train.trec" in replaced
    Path("copy.trec").write_bytes(Path(run).read_bytes())
    same = ("--data=data", "--split=test", "--tune_split=test", "--output=out/same")
    for tune in (run, "copy.trec"):
        assert "queries of the runs to tune on and of what is given" in fails(
            capsys, "fuse", "cut", run, "--tune", tune, *same
        )
    assert not Path("out/same.trec").exists()
