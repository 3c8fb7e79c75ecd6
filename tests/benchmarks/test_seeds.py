"""Training with several seeds: its commands, what is measured, and the table."""

import json
import shlex
from pathlib import Path

import pytest

from benchmarks import seeds, trainings
from benchmarks.recipes import Recipe, Stage
from benchmarks.seeds import Repeat, flat, main, table
from benchmarks.trainings import Training


def test_every_seed_has_its_own_folder_and_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    main("ruletaker-paper", (3, 4), dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["train", "train", "index", "retrieve"] * 2
    for number, half in ((3, lines[:4]), (4, lines[4:])):
        assert all(f"runs/ruletaker-paper/seed-{number}/" in line for line in half)
        for line in half[:2]:
            assert f"--seed_everything {number} " in line
        assert f"--model.generator.name_or_path runs/ruletaker-paper/seed-{number}/memorise/model" in half[1]


def test_a_killed_training_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    last = Path("runs/ruletaker-paper/seed-0/memorise/checkpoints/last.ckpt")
    last.parent.mkdir(parents=True)
    last.touch()
    main("ruletaker-paper", (0,), dry_run=True)
    told = ["--resume true" in line for line in capsys.readouterr().out.splitlines()]
    assert told == [True, False, False, False]
    model = last.parents[1] / "model" / "config.json"
    model.parent.mkdir()
    model.touch()
    main("ruletaker-paper", (0,), dry_run=True)
    assert "--resume" not in capsys.readouterr().out


def test_every_training_and_the_search_of_the_generator_have_the_precision_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main("strategyqa", (0,), dry_run=True)
    assert "trainer.precision" not in capsys.readouterr().out
    main("strategyqa", (0,), dry_run=True, precision="bf16-mixed", search_precision="bfloat16")
    lines = capsys.readouterr().out.splitlines()
    told = ["--trainer.precision bf16-mixed" in line for line in lines]
    assert told == [line.startswith("grls train ") for line in lines]
    searched = [line for line in lines if line.startswith("grls retrieve ")]
    told = ["--precision bfloat16" in line for line in searched]
    assert told == ["seed-0/retriever" in line for line in searched]
    assert set(told) == {True, False}


def test_ensembles_are_tuned_on_dev_and_hold_the_seeds_own_run(capsys: pytest.CaptureFixture[str]) -> None:
    main("strategyqa", (1, 2), dry_run=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("grls fuse ")]
    assert len(lines) == 4  # two for each seed
    for seed, line in ((1, lines[1]), (2, lines[3])):
        runs, tuned = line.split(" --fusion.method ")[0].split(" --tune.runs ")
        own = f"runs/strategyqa/seed-{seed}/single"
        assert runs.split()[2:] == [
            "runs/strategyqa/bm25-test.jsonl", "runs/strategyqa/biencoder-test.jsonl", f"{own}-test.jsonl"
        ]  # fmt: skip
        assert json.loads(shlex.split(tuned)[0]) == [n.replace("-test", "-dev") for n in runs.split()[2:]]


@pytest.mark.parametrize("name", sorted(seeds.RECIPES))
def test_every_recipe_has_its_configs(name: str) -> None:
    repeat = Repeat(name, dry_run=True)
    repeat.measures_of(0)
    layers = [word for command in repeat.commands for word in command if word.startswith("configs/")]
    assert layers
    assert all(Path(layer).is_file() for layer in layers)


def test_a_small_run_measures_each_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real commands on a small set, twice: the second time nothing is made again."""
    root = Path(__file__).parents[2]
    monkeypatch.chdir(tmp_path)
    from data_prep.ruletaker import prepare
    from data_prep.theory import TheoryOptions

    prepare(Path("data/small"), TheoryOptions(5, 6, 6, max_depth=2), train=20, dev=4, test=6)
    (tmp_path / "configs").symlink_to(root / "configs")
    few = ("--trainer.max_epochs=1", "--trainer.check_val_every_n_epoch=1")
    given = ("--data.data=data/small", "--model.generator.data=data/small", *few)
    training = Training(("memorise", "scratch/memorise"), given)
    monkeypatch.setitem(trainings.TRAININGS, "small", {"memorise": training})
    recipe = Recipe(
        (Stage("memorise"),),
        {"single": ("--k", "5"), "wide": ("--k", "6")},
        {"bm25": ("bm25", "--k", "5")},
        {"bm25 + single": ("bm25", "single")},
        across={"both": ("single", "wide")},
    )
    monkeypatch.setitem(seeds.RECIPES, "small", recipe)
    main("small", (0, 1))
    shown = capsys.readouterr().out
    written = (tmp_path / "runs" / "small" / "seeds.md").read_text()
    assert written.strip() in shown
    written, _, over = written.partition("\n\n")
    assert {line.split(" | ")[0] for line in over.splitlines()[2:]} == {"| both"}
    rows = [line.split(" | ") for line in written.splitlines()[2:]]
    assert [row[1] for row in rows if "@5" in row[1]]
    assert any(row[-2] != row[-1].removesuffix(" |") for row in rows)  # the seeds differ
    names = {"single", "wide", "bm25", "bm25 + single"}
    assert {row[0].removeprefix("| ") for row in rows} == names
    assert all(row[3] == "0.0" for row in rows if row[0] == "| bm25")
    before = (tmp_path / "runs" / "small" / "seed-0" / "single-test.jsonl").stat().st_mtime_ns
    main("small", (0, 1))
    assert (tmp_path / "runs" / "small" / "seed-0" / "single-test.jsonl").stat().st_mtime_ns == before


def test_the_table_has_mean_and_spread() -> None:
    found = [
        {"single": flat({"recall": {"recall@5": value}, "queries": {"judged": 3}})} for value in (0.5, 0.7)
    ]
    assert table(found, (0, 1)).splitlines()[2:] == ["| single | recall@5 | 60.0 | 14.1 | 50.0 | 70.0 |"]
    groups = {"set": {"f1": 0.5}, "seen_unseen": {"seen_recall@5": 0.5, "seen_queries": 3}}
    groups |= {"done_missing": {"done_missing": 0.5}}
    assert list(flat(groups)) == ["set F1", "seen recall@5", "DONE missing"]
    assert "| 60.0 | – |" in table([{"single": {"recall@5": 0.6}}], (0,))


def test_unknown_recipes_are_refused() -> None:
    with pytest.raises(SystemExit, match="unknown recipe 'nowhere'"):
        main("nowhere")
    with pytest.raises(SystemExit, match="name at least one seed"):
        main("ruletaker-paper", ())
