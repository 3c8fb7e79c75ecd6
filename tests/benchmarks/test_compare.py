"""The comparison: its commands are those that exist, and all of it runs on small data."""

import re
from pathlib import Path

import pytest
from test_configs import QUICK, small, tiny_model
from verbs import parsed

from benchmarks.compare import BIASES, PLANS, Comparison
from grls.runs.portions import read_info

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Small(Comparison):
    """Every model tiny, every training short."""

    def grls(self, *arguments: str, makes: Path | None = None) -> None:
        given = [*arguments]
        tiny = tiny_model(self.data)
        if arguments[:2] == ("train", "biencoder"):
            given += ["--fit.epochs=1", "--fit.max_steps=2", "--fit.batch_size=8"]
        elif arguments[0] == "train":
            given += QUICK
            if {"memorise", "nomem"} & set(Path(str(makes)).parts):
                given = [a for a in given if not a.startswith("--model.generator")] + tiny
        super().grls(*given, makes=makes)


def test_everything_runs_and_goes_on(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(workplace / "data" / "ruletaker")
    Small("ruletaker").run()
    runs = workplace / "runs" / "ruletaker"
    made = {file.name for file in runs.glob("*.jsonl")}
    systems = ("generator", "nomem", "biencoder", "bm25", "ensemble", "hybrid")
    single = {f"{s}-single.jsonl" for s in systems}
    assert single | {"ensemble-fixed.jsonl", "ensemble-tuned-single.jsonl", "bm25-fixed.jsonl"} <= made
    assert (runs / "report.html").is_file()
    info = read_info(runs / "generator-dynamic.jsonl")
    assert info is not None
    assert info.options["done_bias"] in BIASES["generator"]
    assert info.stages == ("memorise", "retrieve")
    nomem = read_info(runs / "nomem-single.jsonl")
    assert nomem is not None
    assert nomem.stages == ("retrieve",)

    again = []
    monkeypatch.setattr("benchmarks.compare.grls", lambda command: again.append(command[0]) or 0)
    Small("ruletaker").run()
    assert again == ["experiment"]


def test_every_command_is_one_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the repository's own configs; nothing is run.

    Of commands that differ only in numbers and names of files, one is parsed.
    """
    monkeypatch.chdir(ROOT)
    commands: list[list[str]] = []
    seen: set[tuple[str, str]] = set()
    for name in PLANS:
        comparison = Comparison(name, dry_run=True)
        comparison.run()
        for command in comparison.commands:
            verb = " ".join(command[: 1 + (command[0] == "train")])
            words = (word for word in command if " " not in word)
            options = {(verb, re.sub(r"(data|runs)/\S*|[\d.]+(e-\d+)?", "", word)) for word in words}
            if options - seen:
                commands.append(command)
            seen |= options
    for command in commands:
        parsed(command)
    verbs = {command[0] for command in commands} - {"train"}
    assert verbs == {"index", "retrieve", "fuse", "tune", "experiment"}
