"""``--hops.steps single`` over a folder that stores hops: every command that has hops options heeds it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from composite_specs import write_spec
from failing import fails
from ralm_helpers import write_model
from verbs import commands

from grls.cli import Command, main
from grls.retrieve.spec import read_spec, update_spec

STORED = {"steps": "dynamic", "max": 2}
SINGLE = "--hops.steps=single"
ASKS = ["--data=data", "--model=lm", "--limit=1"]
READS = [*ASKS, "--reader.max_new_tokens=2"]
TEXTS = ["--model=lm", "--text=text.txt", "--reader.window=96", "--reader.document_tokens=24"]
TEXTS += ["--reader.cut=8"]
COMMANDS: dict[str, tuple[list[str], str]] = {
    "retrieve": (["--data=data", "--split=train"], "info.json"),
    "answer direct": (READS, "info.json"),
    "answer follow-up": (READS, "info.json"),
    "answer dsp": (
        ["retrieve-then-read", *ASKS, "--dsp.calls.max_new_tokens=2"], "info.json",
    ),
    "ralm": (TEXTS, "strides.jsonl"),
    "ralm examples": (TEXTS, "examples.jsonl"),
}  # fmt: skip
"""Options of a command, and the file that says how it retrieved."""


@pytest.fixture(scope="module")
def shared(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, a generator's folder that stores hops, a language model, a text."""
    place = tmp_path_factory.mktemp("single")
    shutil.copytree(kinds / "data", place / "data")
    shutil.copytree(kinds / "generative", place / "r")
    update_spec(place / "r", {"hops": STORED})
    write_model(place / "lm", positions=4096)
    (place / "text.txt").write_text("the otter is calm . is the lynx quick ? if something is calm " * 2)
    return place


@pytest.fixture
def place(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, a copy of it."""
    monkeypatch.chdir(shutil.copytree(shared, tmp_path / "place"))
    return tmp_path / "place"


def test_every_command_with_hops_is_here() -> None:
    ours = {name: Command(verb, name) for name, verb in commands().items() if not verb.training}
    hops = {n for n, one in ours.items() if any(a.dest == "hops.steps" for a in one.parser()._actions)}
    assert hops == {*COMMANDS, "explain", "search", "tune", "index hops"}  # search: test_search.py


@pytest.mark.parametrize("command", COMMANDS)
def test_a_single_step_that_is_asked_for_is_taken(place: Path, command: str) -> None:
    if command == "answer dsp":
        pytest.importorskip("dspy", reason="the extra dsp is not installed")
    options, file = COMMANDS[command]
    retriever = ["r"] if command == "retrieve" else ["--retriever=r"]
    for output, asked in (("hops", []), ("single", [SINGLE])):
        given = [*command.split(), *options, *retriever, f"--output={output}", "--device=cpu", *asked]
        assert main(given) == 0
    assert '"hops":' in Path(f"hops.{file}").read_text()
    assert '"hops":' not in Path(f"single.{file}").read_text()


@pytest.mark.parametrize("asked", ['--hops={"steps": "single"}', "--config=single.yaml", "--hops=hops.yaml"])
def test_a_single_step_is_taken_however_it_is_asked_for(place: Path, asked: str) -> None:
    """What a folder stores of chains that end says nothing of a single step."""
    Path("single.yaml").write_text("hops:\n  steps: single\n")
    Path("hops.yaml").write_text("steps: single\n")
    update_spec("r", {"hops": STORED | {"choose": "expected-f1"}})
    assert main(["retrieve", "r", "--data=data", "--output=o", "--device=cpu", asked]) == 0
    assert '"steps": "single"' in Path("o.info.json").read_text()


def test_other_steps_leave_what_the_folder_stores_of_its_own(place: Path) -> None:
    update_spec("r", {"hops": STORED | {"done_bias": -1.5}})
    for given, hops, bias in ((["--hops.max=3"], 3, -1.5), (["--hops.steps=fixed", "--hops.max=1"], 1, 0.0)):
        assert main(["retrieve", "r", "--data=data", "--output=o", "--device=cpu", *given]) == 0
        options = json.loads(Path("o.info.json").read_text())["options"]
        assert (options["hops"], options["done_bias"]) == (hops, bias)


@pytest.mark.parametrize(("section", "options", "says"), [
    ("hops", {"step": "single"}, "hops.step is no option; known are"),
    ("hops", {"steps": "dynamic", "max": "a"}, "hops: max must be a whole number, got 'a'"),
    ("search", {"beam": 3}, "search.beam is no option; known are"),
    ("search", {"beams": [3]}, "search: beams must be a whole number, got [3]"),
])  # fmt: skip
def test_a_stored_option_that_cannot_be_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], section: str, options: dict[str, Any], says: str
) -> None:
    update_spec("r", {section: options})
    error = fails(capsys, "retrieve", "r", "--data=data", "--output=o", "--device=cpu")
    assert f"r/grls.json: {says}" in error


def test_a_single_step_is_explained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", "all", "--retriever=r", "--data=data", "--device=cpu", "--limit=2"]
    assert main([*asked, SINGLE]) == 0
    told = capsys.readouterr().out
    update_spec("r", {"hops": None})
    assert main(asked) == 0
    assert capsys.readouterr().out == told


def test_a_single_step_is_tuned_and_the_hops_stay(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = {"generator": "../r", "priors": [{"retriever": "bm25"}], "hops": STORED}
    write_spec("hybrid", "hybrid", content)
    given = ["--data=data", "--split=train", "--device=cpu", "--limit=2", "--grid.k=2"]
    given += ["--grid.prior_weights=[1]", SINGLE]
    assert main(["tune", "hybrid", *given]) == 0
    told = capsys.readouterr().out
    assert "priors: recall@2" in told
    assert "chains" not in told
    assert read_spec("hybrid")["hops"] == STORED
    assert "r has nothing to tune in a single step" in fails(capsys, "tune", "r", *given)
    write_spec("hops", "hops", {"retriever": "../r", "hops": STORED})
    assert "hops has nothing to tune in a single step" in fails(capsys, "tune", "hops", *given)
