"""``grls tune`` of a composite measures its members with the search that the folder stores."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from failing import fails
from small_data import write_jsonl

from grls.cli import main
from grls.retrieve.spec import read_spec, write_spec
from grls.tune.step import Journal

FOLDERS: dict[str, dict[str, Any]] = {
    "hops": {"retriever": "../generative", "hops": {"steps": "dynamic", "max": 2}},
    "fusion": {"members": ["../generative", "../dense"], "method": "rrf"},
    "cut": {"retriever": "../generative", "depth": 6},
    "rescored": {"retriever": "../generative", "model": "../encoder", "passages": 4},
    "hybrid": {"generator": "../generative", "priors": [{"retriever": "../dense"}]},
}
GRID = ["--grid.k=2", "--grid.prior_weights=[1]", "--grid.empty_weights=[]", "--grid.done_biases=[0.5]"]
GRID += ["--grid.cross_encoder_passages=[3]", "--grid.cross_encoder_weights=[2]"]


@pytest.fixture
def place(kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, a copy of it, with ``long``: the data set with queries that are too long."""
    monkeypatch.chdir(shutil.copytree(kinds, tmp_path / "place"))
    shutil.copytree("data", "long")
    lines = [json.loads(line) for line in Path("data/queries.jsonl").read_text().splitlines()]
    write_jsonl(Path("long/queries.jsonl"), [line | {"text": f"{line['text']} " * 99} for line in lines])
    return tmp_path / "place"


def tune(data: str, *options: str) -> list[str]:
    return ["tune", "r", f"--data={data}", "--split=train", "--limit=6", "--device=cpu", *GRID, *options]


@pytest.mark.parametrize("kind", FOLDERS)
def test_queries_that_may_be_cut_are_cut_in_tuning(place: Path, kind: str) -> None:
    write_spec("r", kind, FOLDERS[kind] | {"search": {"truncate_queries": True}})
    assert main(tune("long")) == 0
    assert read_spec("r")["search"]["truncate_queries"] is True
    given = ["--data=long", "--split=train", "--output=o", "--device=cpu"]
    assert main(["retrieve", "r", *given]) == 0


@pytest.mark.parametrize("kind", ["cut", "fusion", "hops"])
def test_a_killed_run_does_not_go_on_with_another_search(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rescoring is no step of these kinds: its weight is an option of the search, as any other."""
    write_spec("r", kind, FOLDERS[kind])

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("grls.tune.run.update_spec", killed)
        assert main(tune("data")) == 130
    for option in ("--search.beams=3", "--search.rescore_weight=0.5"):
        assert "other settings (search)" in fails(capsys, *tune("data", option))


@pytest.mark.parametrize("step", ["chains", "hops"])
def test_hops_are_measured_anew_with_other_choices_of_earlier_steps(
    place: Path, step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed run may go on with another grid: what it measured with other weights is not taken."""
    content = FOLDERS["rescored"] | {"weight": 0.5}
    hops = {"steps": "dynamic" if step == "chains" else "ranked", "max": 2}
    more = [] if step == "chains" else ["--grid.hops=[1, 2]"]
    write_spec("r", "rescored", content | {"hops": hops})
    measured: list[str] = []
    original = Journal.measured

    def noted(self: Journal, of: dict[str, Any], measure: Any) -> Any:
        return original(self, of, lambda: (measured.append(of["step"]), measure())[1])

    monkeypatch.setattr(Journal, "measured", noted)
    with monkeypatch.context() as patch:
        patch.setattr("grls.tune.run.update_spec", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(tune("data", "--grid.cross_encoder_passages=[2]", *more)) == 130
    assert step in measured
    measured.clear()
    assert main(tune("data", "--grid.cross_encoder_passages=[4]", *more)) == 0
    assert step in measured
