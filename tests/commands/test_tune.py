"""``grls tune``: what it writes is the best of what it tried, and retrieves what it promised."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from composite_specs import write_spec
from failing import fails
from fixture_types import Capsys
from small_data import write_jsonl, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.evaluation.evaluate import evaluate_run
from grls.io.work import Journal
from grls.retrieve.hops.stop import DoneByLogOdds
from grls.retrieve.registry import load_retriever
from grls.retrieve.spec import read_spec, relative, update_spec

SHOWN = re.compile(r"set F1 +([\d.]+), DONE missing +([\d.]+) %, done_bias (\S+), ([\w-]+)")
GAIN = re.compile(r"^(\w+): (recall@\d+|set F1) ([\d.]+) -> ([\d.]+) \((.+)\), ", re.MULTILINE)
BEST = re.compile(r"best: ([\d.]+) \((.+?)\)")
CHOSEN = re.compile(r"; chosen: ([\d.]+) \((.+?)\), within one standard error, ([\d.]+) points")
DYNAMIC = ("--hops.steps=dynamic", "--hops.max=4")


@pytest.fixture
def own(generative: Path, tmp_path: Path) -> Path:
    """A generator's folder that may be changed."""
    return Path(shutil.copytree(generative, tmp_path / "own"))


@pytest.fixture
def hopping(dense: Path, tmp_path: Path) -> Path:
    """A folder of kind hops."""
    content = {"retriever": relative(dense, tmp_path / "hops"), "hops": {"steps": "dynamic", "max": 4}}
    write_spec(tmp_path / "hops", "hops", content)
    return tmp_path / "hops"


@pytest.fixture
def fused(dense: Path, tmp_path: Path) -> Path:
    """A folder of kind fusion."""
    folder = tmp_path / "fused"
    members = [relative(dense, folder), {"kind": "bm25", "corpus": relative(dense, folder)}]
    write_spec(folder, "fusion", {"members": members, "method": "sum"})
    return folder


def tune(folder: Path, data: Path, *options: str) -> list[str]:
    return ["tune", str(folder), f"--data={data}", "--device=cpu", "--split=train", *options]


def retrieved(folder: Path, data: Path, tmp_path: Path, *options: str, ks: tuple[int, ...] = (2,)) -> Any:
    """Measures of what the folder retrieves, without further options."""
    given = [str(folder), f"--data={data}", f"--output={tmp_path / 'o'}", "--device=cpu", "--split=train"]
    assert main(["retrieve", *given, *options]) == 0
    return evaluate_run(f"{tmp_path / 'o'}.jsonl", data, "train", ks=ks)


@pytest.mark.parametrize("kind", ["dense", "beside"])
def test_the_folder_retrieves_the_best_that_was_tried(
    kind: str, data: Path, own: Path, dense: Path, hopping: Path, tmp_path: Path, capsys: Capsys
) -> None:
    options, folder = ["--grid.done_biases=[-9, 0, 9]"], hopping
    if kind == "beside":
        options += [*DYNAMIC, "--hops.chains=6", "--search.beams=6"]
        folder = tmp_path / "hybrid"
        priors = [{"retriever": relative(dense, folder)}]
        named = {"generator": relative(own, folder), "priors": priors, "normalized": True}
        write_spec(folder, "hybrid", named)
        options += ["--grid.prior_weights=[1]"]
    assert main(tune(folder, data, *options)) == 0
    told = capsys.readouterr().out
    found = [match.groups() for match in SHOWN.finditer(told)]
    assert len(found) == (3 if kind == "dense" else 6)
    assert len({f1 for f1, *_ in found}) > 1
    gain = GAIN.findall(told)[-1]
    best = max((f1 for f1, *_ in found), key=float)
    (before,) = [f1 for f1, _, bias, how in found if (bias, how) == ("0", "likeliest")]
    assert gain[:3] == ("chains", "set F1", before)
    told_best, told_chosen = BEST.search(told), CHOSEN.search(told)
    assert told_best is not None
    assert told_best[1] == best
    if told_chosen is not None:  # as good, and nearer to what the folder had
        assert float(best) - float(told_chosen[1]) <= float(told_chosen[3]) + 0.11
        best = told_chosen[1]
    assert gain[3] == best
    hops = read_spec(folder)["hops"]
    bias, how = hops.get("done_bias", 0), hops.get("choose", "likeliest")
    assert gain[4] == f"done_bias {bias:g}, {how}"
    (missing,) = [missing for *some, missing in _by_choice(found) if some == [best, f"{bias:g}", how]]
    measures = retrieved(folder, data, tmp_path)
    assert f"{100 * measures['set']['f1']:.1f}" == best
    assert f"{100 * measures['done_missing']['done_missing']:.1f}" == missing
    assert (hops["steps"], hops["max"]) == ("dynamic", 4)


def _by_choice(found: list[Any]) -> list[list[str]]:
    return [[f1, bias, how, missing] for f1, missing, bias, how in found]


def test_one_setting_alone_and_some_queries(data: Path, own: Path, capsys: Capsys) -> None:
    before = read_spec(own)
    given = ["--grid.done_biases=[-1]", "--limit=2"]
    assert main(tune(own, data, *DYNAMIC, *given)) == 0
    *measured, gain, last = capsys.readouterr().out.splitlines()
    assert (
        len([line for line in measured if SHOWN.search(line)]) == 3
    )  # two choices, and the folder's own setting
    assert "(done_bias -1, likeliest)" in gain
    assert last == f"{own}: tuned on 2 queries of train of {data}"
    spec = read_spec(own)
    assert spec.pop("hops") == {"steps": "dynamic", "max": 4, "done_bias": -1.0}
    assert spec == before  # the checksum of the file, too
    assert load_retriever(own).describe().steps == "dynamic"


@pytest.mark.parametrize("stored", [{"done_bias": 9.0}, {"done_bias": 3.5, "choose": "expected-f1"}])
def test_before_is_what_the_folder_retrieved_wherever_the_grid_begins(
    stored: dict[str, Any], data: Path, own: Path, tmp_path: Path, capsys: Capsys
) -> None:
    """Its own bias and choice are measured, whether they are in the grid or not."""
    update_spec(own, {"hops": {"steps": "dynamic", "max": 4, "chains": 6} | stored, "search": {"beams": 6}})
    before = retrieved(own, data, tmp_path)["set"]["f1"]
    capsys.readouterr()
    assert main(tune(own, data, "--grid.done_biases=[-9, -1]")) == 0
    told = capsys.readouterr().out
    (gain,) = GAIN.findall(told)
    assert gain[2] == f"{100 * before:.1f}"
    first, *tried = [match.groups() for match in SHOWN.finditer(told)]
    assert first[::2] == (gain[2], f"{stored.get('done_bias', 0):g}")
    assert [bias for _, _, bias, _ in tried] == ["-9", "-9", "-1", "-1"]
    assert gain[2] != tried[0][0]
    assert read_spec(own)["hops"]["done_bias"] in (-9, -1)


@pytest.mark.parametrize("priors", [[{"retriever": "bm25"}], []])
def test_scores_in_nats_have_biases_of_their_own(
    priors: list[Any], data: Path, own: Path, tmp_path: Path, capsys: Capsys
) -> None:
    folder = own
    if priors:
        folder = tmp_path / "hybrid"
        write_spec(folder, "hybrid", {"generator": relative(own, folder), "priors": priors})
    given = [*DYNAMIC, "--limit=2", "--search.beams=3", "--grid.prior_weights=[1]"]
    assert main(tune(folder, data, *given)) == 0
    tried = [match[3] for match in SHOWN.finditer(capsys.readouterr().out)]
    assert {float(bias) for bias in tried} == set(DoneByLogOdds.biases)


def test_how_it_was_searched_is_written_and_of_equal_biases_the_smallest_is(data: Path, own: Path) -> None:
    given = ["--hops.sets=true", "--search.mode=full", "--hops.chains=3", "--hops.max=1", "--limit=1"]
    assert main(tune(own, data, "--hops.steps=dynamic", *given, "--grid.done_biases=[-2, 1, -1]")) == 0
    spec = read_spec(own)
    assert spec["search"] == {"mode": "full"}
    assert spec["hops"] == {"steps": "dynamic", "max": 1, "chains": 3, "sets": True, "done_bias": 1.0}


@pytest.mark.parametrize("depth", [None, 1])
def test_the_weights_of_a_fusion(
    depth: int | None, data: Path, fused: Path, tmp_path: Path, capsys: Capsys
) -> None:
    update_spec(fused, {"depth": depth})
    before = retrieved(fused, data, tmp_path, "--k=2")["sequence_recall"]["recall@2"]
    capsys.readouterr()
    assert main(tune(fused, data, "--grid.k=2")) == 0
    (gain,) = GAIN.findall(capsys.readouterr().out)
    assert gain[:3] == ("fusion", "recall@2", f"{100 * before:.1f}")
    assert float(gain[3]) > float(gain[2]) or depth == 1
    spec = read_spec(fused)
    assert sum(spec["weights"]) == pytest.approx(1)
    assert gain[4] == f"weights {spec['weights'][0]:g} {spec['weights'][1]:g}"
    found = retrieved(fused, data, tmp_path, "--k=2")["sequence_recall"]["recall@2"]
    assert f"{100 * found:.1f}" == gain[3]
    update_spec(fused, {"method": "interleave", "weights": None})
    assert "interleaving has no weights to tune" in fails(capsys, *tune(fused, data))


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_killed_run_goes_on_and_the_folder_stays_until_the_end(
    data: Path,
    generative: Path,
    dense: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
) -> None:
    folder = tmp_path / "hybrid"
    priors = [{"retriever": "bm25"}, {"retriever": relative(dense, folder)}]
    write_spec(folder, "hybrid", {"generator": relative(generative, folder), "priors": priors})
    grid = ["--grid.k=2", "--grid.prior_weights=[1]"]
    command = tune(folder, data, *grid, "--grid.done_biases=[0.1, 0.2]", "--limit=4")
    before = (folder / "grls.json").read_bytes()
    journal, measured, original = Path(f"{folder}.tune.jsonl"), list[Any](), Journal.measured

    def noted(self: Journal, of: dict[str, Any], measure: Callable[[], Any]) -> Any:
        return original(self, of, lambda: (measured.append(of), measure())[1])

    monkeypatch.setattr(Journal, "measured", noted)
    with monkeypatch.context() as patch:
        patch.setattr("grls.tune.run.update_spec", killed)
        assert main(command) == 130
    lines, whole = journal.read_text().splitlines(keepends=True), len(measured)
    assert whole == len(lines) - 1 > 0
    assert (folder / "grls.json").read_bytes() == before
    journal.write_text("".join(lines[:-1]) + lines[-1][:9])  # cut within the last measurement
    if whole > 1:
        other = [option for option in command if option != "--limit=4"]
        assert f"{journal}" in fails(capsys, *other)  # of other queries
    capsys.readouterr()
    assert main(command) == 0
    gains = GAIN.findall(capsys.readouterr().out)
    assert (len(measured), journal.exists()) == (whole + 1, False)
    after = (folder / "grls.json").read_bytes()
    assert after != before
    (folder / "grls.json").write_bytes(before)
    assert main(command) == 0
    assert len(measured) == 2 * whole + 1
    assert (folder / "grls.json").read_bytes() == after
    assert GAIN.findall(capsys.readouterr().out) == gains


def test_a_run_of_another_cut_off_measures_anew(
    data: Path, generative: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured for fewer passages says nothing of more."""
    folder = tmp_path / "hybrid"
    write_spec(
        folder, "hybrid", {"generator": relative(generative, folder), "priors": [{"retriever": "bm25"}]}
    )
    grid = ["--grid.prior_weights=[1]", "--search.beams=2", "--limit=4"]
    with monkeypatch.context() as patch:
        patch.setattr("grls.tune.run.update_spec", killed)
        assert main(tune(folder, data, *grid, "--grid.k=2")) == 130
    assert main(tune(folder, data, *grid, "--grid.k=8")) == 0
    resumed = read_spec(folder)
    assert main(tune(folder, data, *grid, "--grid.k=8")) == 0
    assert read_spec(folder) == resumed


def test_what_cannot_be_tuned_is_refused(
    data: Path, own: Path, dense: Path, hopping: Path, tmp_path: Path, capsys: Capsys
) -> None:
    before = read_spec(own), read_spec(hopping)
    ours = tune(own, data, *DYNAMIC)
    assert "grid.done_biases is empty" in fails(capsys, *ours, "--grid.done_biases=[]")
    assert "a finite number" in fails(capsys, *ours, "--grid.done_biases=[.inf]")
    chosen = fails(capsys, *tune(hopping, data, "--hops.steps=dynamic", "--hops.choose=expected-f1"))
    assert "needs log-probabilities" in chosen
    assert "limit must be at least 1" in fails(capsys, *tune(hopping, data, "--limit=0"))
    for folder in (own, dense):
        assert f"{folder} has nothing to tune: " in fails(capsys, *tune(folder, data))
    assert "no retriever here" in fails(capsys, *tune(tmp_path / "nowhere", data))
    other = write_small(tmp_path / "other")
    lines = [{"_id": p.id, "text": p.text + " ."} for p in Corpus.read(other)]
    write_jsonl(other / "corpus.jsonl", lines)
    assert "over another corpus" in fails(capsys, *tune(hopping, other))
    assert (read_spec(own), read_spec(hopping)) == before
    assert not list(tmp_path.glob("*.tune.jsonl"))
