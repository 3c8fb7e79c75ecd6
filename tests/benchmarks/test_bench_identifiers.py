"""The bench of identifiers and losses: its parts of a data set, its commands, a cell, and the table."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from llama_small import write_llama
from small_data import passages, queries

from benchmarks import identifiers
from benchmarks.identifiers import GRID, MEASURES, QUESTIONS, ROOT, Call, Cell, main, part, table
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset


def write_small(folder: Path) -> Path:
    """Facts of the lynx are gold for test questions alone."""
    every = queries()
    splits = {"train": every[:11], "dev": every[11:12], "test": every[12:]}
    qrels = {name: {q.id: dict.fromkeys(q.evidence, 1) for q in part} for name, part in splits.items()}
    write_dataset(folder, passages(), every, qrels)
    return folder


def test_passages_that_come_later_are_gold_for_test_questions_alone(tmp_path: Path) -> None:
    source = write_small(tmp_path / "data")
    part(source, tmp_path / "parts")
    known, added, every = (
        {passage.id for passage in Corpus.read(tmp_path / "parts" / name)}
        for name in ("known", "added", "all")
    )
    assert known | added == every == {passage.id for passage in Corpus.read(source)}
    assert not known & added
    assert added == {"lynx-calm"}
    for split in ("train", "dev"):
        learned, qrels = read_split(tmp_path / "parts" / "known", split)
        assert {name for query in learned for name in qrels[query.id]} <= known
    asked, _ = read_split(tmp_path / "parts" / "all", "test")
    kinds = {query.id: json.loads(query.metadata)["type"] for query in asked}
    both = dict.fromkeys(("q-lynx-calm", "q-lynx-kind"), "growth")
    assert kinds == {**both, **dict.fromkeys(("q-lynx-quick", "q-lynx-proud"), "unseen")}


def test_the_grid_names_what_there_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for method in GRID["methods"].values():
        assert method["identifiers"] in GRID["identifiers"]
        assert method["loss"] in GRID["losses"]
    main(methods=[*GRID["methods"]], dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("grls ")]
    assert {command[1] for command in commands} == {"prepare", "identify", "train", "index", "retrieve"}
    root = Path(identifiers.__file__).parents[1]
    read = {word for command in commands for word in command if word.startswith("configs/")}
    assert read
    assert all((root / name).is_file() for name in read)


def test_a_cell_is_measured_once(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(Path(identifiers.__file__).parents[1] / "configs")
    monkeypatch.chdir(tmp_path)
    write_small(Path("data/nq"))
    write_llama(Path("lm"), Path("data/nq"))
    options = "--config configs/chains.yaml --model.generator.name_or_path lm --trainer.max_steps 2"
    options += " --data.multistep false --data.done false --checkpoint.monitor null"
    options += " --trainer.more '{limit_val_batches: 0}'"
    for name, value in (("train", options), ("after", "--trainer.max_steps 2"), ("candidates", "--k 5")):
        monkeypatch.setitem(GRID, name, value)
    main(identifiers=["whole"], losses=["margin"])
    out = capsys.readouterr().out
    assert out.count("| nq | whole |") == 1
    (seconds,) = (json.loads(file.read_text()) for file in (ROOT / "nq/whole/margin").glob("*/seconds.json"))
    assert {*seconds} == {"train model", "index retriever", "index grown", "retrieve seed-0"}
    cell = json.loads((ROOT / "nq/whole/margin/seed-0/cell.json").read_text())
    assert cell["bytes"] > 1
    assert [cell["questions"][kind]["queries"] for kind in QUESTIONS] == [0, 2, 2]
    assert cell["questions"]["growth"]["R@20"] > 0  # what was added is found among ten passages
    main(identifiers=["whole"], losses=["margin"])
    assert "grls " not in capsys.readouterr().out


def test_the_table_has_means_over_seeds(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [Cell("nq", "whole", "cross-entropy", seed, "renormalized", Call()) for seed in (0, 1, 2)]
    for number, cell in enumerate(cells[:2]):
        cell.folder.mkdir(parents=True)
        part_of = {"queries": 2, **dict.fromkeys(MEASURES, 0.2 + 0.1 * number)}
        result = {"questions": dict.fromkeys(QUESTIONS, part_of), "milliseconds": 4.0, "bytes": 10.0}
        (cell.folder / "cell.json").write_text(json.dumps(result))
    (row,) = table(cells).splitlines()[2:]
    assert row.startswith("| nq | whole | cross-entropy | renormalized | 2 | 25.0 ± 7.1 |")
    assert row.endswith("| 4 | 10 |")
