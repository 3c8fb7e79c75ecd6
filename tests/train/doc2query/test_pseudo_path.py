"""From training pairs to a retriever that has learned from pseudo-queries, on generated data, by commands."""

import json
from pathlib import Path

import pytest

from benchmarks.trainings import options
from data_prep.ruletaker import prepare
from data_prep.theory import TheoryOptions
from grls.cli import main
from grls.data.dataset import read_queries

ROOT = Path(__file__).parents[3]
TINY = ("d_model=32", "d_ff=64", "d_kv=8", "num_layers=1", "num_decoder_layers=1")


def run(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0, arguments


def test_pseudo_queries_of_two_hops_reach_retrieval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    prepare(Path("data/quickstart"), TheoryOptions(6, 6, 8, max_depth=2), train=30, dev=4, test=4)
    tiny = [f"--model.generator.{option}" for option in TINY]
    quiet = [
        "--trainer.enable_progress_bar=false",
        "--trainer.enable_model_summary=false",
        "--data.dev_size=4",
    ]

    run("train", *options("quickstart", "query-generator"), *tiny, "--model.learning_rate=1e-2",
        "--data.batch_size=8", "--trainer.max_epochs=12", *quiet)  # fmt: skip
    run("prepare", "neighbours", "--data=data/quickstart", "--output=near", "--k=4")
    run("prepare", "pseudo-queries", "--data=data/quickstart", "--draw.queries=2", "--draw.hops=2",
        "--model=runs/quickstart/query-generator/model", "--links=near", "--k=10",
        "--output=runs/quickstart/pseudo.jsonl", "--draw.temperature=0.5", "--device=cpu")  # fmt: skip
    said = capsys.readouterr().out
    written = read_queries("runs/quickstart/pseudo.jsonl")
    assert f"{len(written)} of " in said
    assert "round trip: " in said
    about = json.loads(Path("runs/quickstart/pseudo.jsonl.manifest.json").read_text())
    assert (about["kept"], about["reads"]) == (len(written), "all")
    assert all(len(set(query.evidence)) == 2 for query in written)
    layers = [f"--config=configs/{layer}.yaml" for layer in ("memorise", "scratch/memorise", "quickstart")]
    given = [*tiny, "--model.generator.data=data/quickstart", "--output=runs/quickstart/memorise"]
    run("train", "memorise", *layers, *given, "--trainer.max_epochs=1", *quiet)
    run("train", *options("quickstart", "mixed"), "--trainer.max_epochs=2", *quiet)
    assert Path("runs/quickstart/mixed/model/config.json").is_file()
