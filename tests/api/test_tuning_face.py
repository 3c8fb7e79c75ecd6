"""Tuning a searcher: as the command does, written into its folder, and used at once."""

import shutil
from pathlib import Path

import pytest
from failing import raises

import grls
from grls.api.searcher import Searcher
from grls.cli import main
from grls.data.dataset import gold_passages, read_split
from grls.errors import ConfigError, DataError
from grls.retrieve.spec import read_spec, write_checksums, write_link

QUICK = {"k": 3, "prior_weights": [0.5, 1.0], "prior_temperatures": [1.0], "empty_weights": []}


def load(place: Path) -> Searcher:
    return grls.load(place, device="cpu")


def dev(kinds: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    queries, qrels = read_split(kinds / "data", "dev")
    return {q.id: q.text for q in queries}, {q.id: gold_passages(q, qrels) for q in queries}


def test_it_chooses_as_the_command_does(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queries, gold = dev(kinds)
    dense, generator = load(kinds / "dense"), load(kinds / "generative")
    for name, made, options in (
        ("hybrid", lambda where: generator.with_priors(dense, "bm25", output=where), QUICK),
        ("fusion", lambda where: grls.fuse([dense, "bm25"], method="sum", output=where), {}),
        ("ranked", lambda where: dense.hops(max=2, output=where), {"hops": [1, 2]}),
    ):
        searcher = made(tmp_path / name)
        by_command = made(tmp_path / f"{name}-command")
        assert searcher.tune(queries, gold, **options) is searcher
        grid = [f"--grid.{key}={value}" for key, value in options.items()]
        command = ["tune", str(by_command.folder), f"--data={kinds / 'data'}", "--device=cpu", *grid]
        assert main(command) == 0
        assert read_spec(searcher.folder) == read_spec(by_command.folder), name
        assert not (tmp_path / f"{name}.tune.jsonl").exists()
        texts = list(queries.values())
        assert searcher.search(texts, 3) == load(searcher.folder).search(texts, 3)
    assert "->" in capsys.readouterr().out


def test_a_data_set_and_a_split_are_queries_and_gold(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dense = load(kinds / "dense")
    one = grls.fuse([dense.hops(steps="fixed", max=1), dense], method="sum").tune(kinds / "data", "dev")
    assert ".tmp" not in capsys.readouterr().out
    one = grls.fuse([dense, "bm25"], method="sum").tune(kinds / "data", "dev")
    other = grls.fuse([dense, "bm25"], method="sum").tune(*dev(kinds))
    assert read_spec(one.folder)["weights"] == read_spec(other.folder)["weights"]
    write_link(tmp_path / "run", one.folder)
    assert load(tmp_path / "run").tune(*dev(kinds)).folder == tmp_path / "run"


def test_bad_input(kinds: Path, tmp_path: Path) -> None:
    queries, gold = dev(kinds)
    fusion = grls.fuse([load(kinds / "dense"), "bm25"], method="sum", output=tmp_path / "fusion")
    before = read_spec(fusion.folder)
    shutil.copytree(kinds / "dense", tmp_path / "dense")
    with pytest.raises(ConfigError, match="nothing to tune"):
        load(tmp_path / "dense").tune(queries, gold)
    raises(ConfigError, "tune has no argument 'beams'", fusion.tune, queries, gold, beams=3)
    raises(DataError, "zzz", fusion.tune, queries, {name: ["zzz"] for name in gold})
    with pytest.raises(DataError):
        fusion.tune(queries)
    assert read_spec(fusion.folder) == before
    write_checksums(fusion.folder)
    raises(ConfigError, "a download from the hub", fusion.tune, queries, gold)
