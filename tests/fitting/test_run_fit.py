"""Whole runs on a data set that is small enough, with random models."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data, write_fit_models

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.fitting import ending, planner, run, trainings
from grls.fitting.choose import KeptSystem
from grls.fitting.clock import FitClock
from grls.fitting.comparing import read_gold
from grls.fitting.fusing import make_fusion_folder, save_fusion, system_run
from grls.fitting.journal import FitJournal
from grls.fitting.models import BaseModels
from grls.fitting.options import FitOptions
from grls.fitting.progress import FitProgress
from grls.fitting.result import Fitted, milliseconds
from grls.fitting.run import fit_dataset
from grls.fitting.speeds import EncoderSpeeds, Speeds, WriterSpeeds
from grls.fitting.systems import FittedSystem
from grls.fitting.work import FitWork
from grls.retrieve.card import figures_beside
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import followed

SPEEDS = Speeds(1e-4, 1e-4, EncoderSpeeds(0.1, 0.01, 0.01, 0.1), WriterSpeeds(0.1, 0.1, 0.1, 0.1, 0.01))


@pytest.fixture(autouse=True)
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured: that takes longer than these runs."""
    monkeypatch.setattr(planner, "known_speeds", known)


def known(data: Any, output: Any, facts: Any, machine: Any, models: BaseModels, *_: Any) -> Any:
    """The speeds of the models that there are."""
    encoder = None if models.biencoder is None else SPEEDS.encoder
    writer = None if models.generator is None else SPEEDS.writer
    return replace(SPEEDS, encoder=encoder, writer=writer), 0.5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fit")
    write_fit_data(root / "data")
    return root


@pytest.fixture(scope="module")
def options(place: Path) -> FitOptions:
    return fit_options(**write_fit_models(place, place / "data"))


@pytest.fixture(scope="module")
def whole(place: Path, options: FitOptions) -> Iterator[Fitted]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "known_speeds", known)
        yield fit_dataset(str(place / "data"), place / "whole", options, shown=False)


TIMES = ("seconds", "step_seconds", "query_seconds")


def without_times(output: Path) -> Any:
    """What stands in ``fit.json``, without times."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: stripped(v) for k, v in value.items() if k not in TIMES}
        return [stripped(one) for one in value] if isinstance(value, list) else value

    return stripped(json.loads((output / "fit.json").read_text()))


def test_a_run_makes_systems_compares_them_and_opens_as_the_best(place: Path, whole: Fitted) -> None:
    output = place / "whole"
    assert [one for one in whole.metrics if " + " not in one] == ["bm25", "dense", "generator", "hybrid"]
    for name in ("bm25-hops", "dense-hops"):  # tuned to one hop, which is the single step
        assert json.loads((output / "members" / name / "grls.json").read_text())["hops"]["max"] == 1
    assert (whole.queries, whole.notes) == ({"dev": 4, "test": 3}, ())
    for name in ("bm25-hops", "dense", "dense-hops", "generator", "hybrid"):
        load_retriever(output / "members" / name, Opening("cpu"))
    kept = json.loads((output / "fit.json").read_text())
    assert (kept["kept"], output / kept["retriever"]) == (whole.kept, followed(output))
    assert grls.load(output, device="cpu").search("is the otter calm ?", 2)
    assert whole.report.is_file()
    assert whole.kept in whole.report.read_text()
    assert f"* {whole.kept} " in whole.text()
    for split in ("dev", "test"):
        assert (output / "runs" / split / "hybrid.jsonl").is_file()


def test_the_card_says_what_was_measured_on_what_and_how_it_was_made(place: Path, whole: Fitted) -> None:
    card = (place / "whole" / "README.md").read_text()
    assert 'grls.load("whole")' in card
    assert "# the path of the folder of this file" in card
    assert "Measured on 4 dev, 3 test queries, in percent." in card
    assert f"| {100 * whole.metrics['bm25']['test R@2']:.1f} |" in card
    assert "## What was skipped\n\n- " in card
    assert "- dense-hops: one hop is best, which is dense" in card
    assert "Queries: 9 train, 4 dev, 3 test." in card
    assert "| hybrid |" in card
    assert "fine-tune" in card
    assert "## Licence" in card
    assert f"Kept: {whole.kept}," in card
    kept = FittedSystem(whole.kept, tuple(whole.kept.split(" + ")))
    content = json.loads((place / "whole" / "fit.json").read_text())
    named = [content["models"][model] for model in kept.models]
    assert content["base_models"] == named
    assert ("Begun from" in card) == bool(named)
    assert ("none is better than its members" in card) == (not content["weights"])
    assert figures_beside(place / "whole").keys() == whole.metrics.keys()


def test_the_table_and_the_card_say_what_a_query_costs(place: Path, whole: Fitted) -> None:
    assert whole.query_seconds.keys() == whole.metrics.keys()
    content = json.loads((place / "whole" / "runs" / "test" / "hybrid.info.json").read_text())
    assert whole.query_seconds["hybrid"] == pytest.approx(content["seconds"] / 3, abs=1e-6)
    for name in whole.metrics:
        parts = [whole.query_seconds[part] for part in name.split(" + ")]
        assert whole.query_seconds[name] == pytest.approx(sum(parts), abs=1e-5)
    head, *rows = whole.text().splitlines()[1:-1]
    assert head.endswith("  ms a query")
    assert [row.split()[-1] for row in rows] == [milliseconds(took) for took in whole.query_seconds.values()]
    named = ", ".join(f"{name} {milliseconds(took)}" for name, took in whole.query_seconds.items())
    assert f"Milliseconds a query, in batches and without loading, where it was made: {named}." in (
        (place / "whole" / "README.md").read_text()
    )


def test_a_run_of_before_says_nothing_of_costs(whole: Fitted, tmp_path: Path) -> None:
    content = json.loads((whole.output / "fit.json").read_text())
    del content["query_seconds"]
    (tmp_path / "fit.json").write_text(json.dumps(content))
    assert "ms a query" not in Fitted.read(tmp_path).text()


def test_milliseconds() -> None:
    assert [milliseconds(t) for t in (None, 0.00004, 0.00987, 0.01, 1.5842)] == [
        "-",
        "0.0",
        "9.9",
        "10",
        "1,584",
    ]


def test_the_kept_system_is_not_worse_on_dev_than_what_it_is_made_of(whole: Fitted) -> None:
    best = max(measures["dev R@2"] for measures in whole.metrics.values())
    members = whole.kept.split(" + ")
    assert all(
        whole.metrics[name]["dev R@2"] <= whole.metrics[whole.kept]["dev R@2"] <= best for name in members
    )


def test_the_folder_of_a_fusion_ranks_as_its_run_does(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path
) -> None:
    output = Path(shutil.copytree(place / "whole", tmp_path / "moved"))
    work = FitWork(output, options, "dev", FitProgress(output / "stages", False))
    gold, corpus = read_gold(work, "dev"), Corpus.read(work.data)
    for parts, weights in (
        (("bm25", "hybrid"), (0.4, 0.6)),
        (("bm25", "dense", "hybrid"), (0.5, 0.3, 0.2)),
    ):
        system, fusion = FittedSystem(" + ".join(parts), parts), Fusion("sum", "min-max", weights)
        save_fusion(work, system, fusion, [gold], corpus)
        make_fusion_folder(work, system, fusion)
        opened = load_retriever(work.member(system.folder), Opening("cpu"))
        run = system_run(work, "dev", system)
        for query, hits in zip(gold.queries, opened.retrieve(gold.queries, 5), strict=True):
            assert [hit.id for hit in hits] == [hit.id for hit in run.rankings[query.id]][:5]


def test_nothing_that_is_shown_or_saved_names_a_path_of_the_machine(
    place: Path, whole: Fitted, tmp_path: Path
) -> None:
    output = place / "whole"
    for name in ("README.md", "grls.json", "report.html", "report.md"):
        assert str(place) not in (output / name).read_text(), name
    for member in (output / "members").iterdir():
        saved = grls.load(member, device="cpu").save(tmp_path / member.name)
        for file in (file for file in saved.rglob("*") if file.is_file()):
            assert str(place).encode() not in file.read_bytes(), file


def test_an_output_and_its_copy_open_wherever_they_are_moved(
    place: Path, whole: Fitted, tmp_path: Path
) -> None:
    expected = grls.load(place / "whole", device="cpu").search("is the otter calm ?", 3)
    output = Path(shutil.copytree(place / "whole", tmp_path / "moved"))
    saved = grls.load(output, device="cpu").save(tmp_path / "saved")
    assert grls.load(output, device="cpu").search("is the otter calm ?", 3) == expected
    shutil.rmtree(output)
    shutil.move(saved, tmp_path / "elsewhere")
    assert grls.load(tmp_path / "elsewhere", device="cpu").search("is the otter calm ?", 3) == expected


def test_the_page_shows_every_system_of_the_table(place: Path, whole: Fitted) -> None:
    """The fusions, too, whether one is kept or not."""
    page = (place / "whole" / "report.md").read_text()
    assert f"{len(whole.metrics)} systems over" in page
    assert f"{len(whole.metrics)} runs on" in page


def test_the_page_says_what_was_kept_and_why_the_times_and_what_was_skipped(
    place: Path, whole: Fitted
) -> None:
    page = (place / "whole" / "report.html").read_text()
    assert f"{whole.kept}, {whole.why}." in page
    assert "What was skipped" in page
    assert "one hop is best, which is dense" in page
    assert "rank 4 dev and 3 test queries with every system" in page


def test_every_command_takes_the_output(place: Path, whole: Fitted, tmp_path: Path) -> None:
    command = ["retrieve", str(place / "whole"), f"--data={place / 'data'}", "--device=cpu"]
    assert main([*command, f"--output={tmp_path / 'test'}"]) == 0
    assert (tmp_path / "test.trec").is_file()


def test_a_run_that_is_done_is_read_and_other_options_are_refused(
    place: Path, whole: Fitted, options: FitOptions
) -> None:
    before = (place / "whole" / "fit.json").read_bytes()
    assert fit_dataset(str(place / "data"), place / "whole", options, shown=False) == whole
    assert (place / "whole" / "fit.json").read_bytes() == before
    with pytest.raises(MismatchError, match=r"holds a run of other k \(2, now 3\): call again with the same"):
        fit_dataset(str(place / "data"), place / "whole", fit_options(**vars(options) | {"k": 3}))


class Killed(BaseException):
    """What ends a process at once."""


def killed_at(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process before these steps are recorded, each once."""
    add = FitJournal.add

    def recorded(self: FitJournal, step: str, *more: Any) -> None:
        if step in steps:
            steps.remove(step)
            raise Killed
        add(self, step, *more)

    monkeypatch.setattr(FitJournal, "add", recorded)


def killed_in_training(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """End the process at the third step of the generator, after its first checkpoint."""
    meters: list[int] = []
    trained = trainings._trained

    def cut_off(work: Any, output: Path, train: Callable[..., Any]) -> Any:
        def metered(resume: bool, meter: Callable[[Any], None]) -> Any:
            def counted(step: Any) -> None:
                if output.name == "generator" and step.step == 3 and len(meters) < times:
                    meters.append(step.step)
                    raise Killed
                meter(step)

            return train(resume, counted)

        return trained(work, output, metered)

    monkeypatch.setattr(trainings, "_trained", cut_off)


def test_a_killed_run_goes_on_to_the_same_result(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        "data",
        "tune bm25-hops",
        "biencoder dense",
        "dense dense",
        "tune dense-hops",
        "tune hybrid",
        "compare dense",
        "end",
    ]
    killed_at(steps, monkeypatch)
    killed_in_training(monkeypatch, 1)
    for _ in range(len(steps) + 1):
        with pytest.raises(Killed):
            fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    ended = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert without_times(tmp_path / "out") == without_times(place / "whole")
    assert (ended.metrics, ended.kept) == (whole.metrics, whole.kept)
    kept = sorted(f.name for f in (tmp_path / "out" / "members").iterdir())
    assert kept == sorted(f.name for f in (place / "whole" / "members").iterdir())


@pytest.mark.parametrize("kept", ["bm25", "dense", "hybrid"])
def test_a_card_names_the_models_of_what_is_kept(
    place: Path,
    whole: Fitted,
    options: FitOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: str,
) -> None:
    shutil.copytree(place / "whole", tmp_path / "out")
    (tmp_path / "out" / "fit.json").unlink()
    monkeypatch.setattr(ending, "choose_system", lambda _: KeptSystem(kept, kept, "the test wants it"))
    fitted = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    card = (tmp_path / "out" / "README.md").read_text()
    named = {"bm25": [], "dense": [options.biencoder], "hybrid": [options.biencoder, options.generator]}[kept]
    assert fitted.kept == kept
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["base_models"] == named
    assert [f"`{Path(model).name}`" in card for model in (options.biencoder, options.generator)] == [
        model in named for model in (options.biencoder, options.generator)
    ]
    assert str(place) not in card


def test_what_was_removed_is_made_again(place: Path, tmp_path: Path) -> None:
    alone = fit_options(**WORDS_ALONE)
    first = fit_dataset(str(place / "data"), tmp_path / "out", alone, shown=False)
    (tmp_path / "out" / "fit.json").unlink()
    (tmp_path / "out" / "runs" / "dev" / "bm25.jsonl").unlink()
    assert fit_dataset(str(place / "data"), tmp_path / "out", alone, shown=False).metrics == first.metrics


def test_without_models_there_is_bm25(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = fit_dataset(str(place / "data"), tmp_path / "out", fit_options(**WORDS_ALONE))
    assert (fitted.kept, [*fitted.metrics]) == ("bm25", ["bm25"])
    assert load_retriever(tmp_path / "out").kind == "bm25"
    assert "recall 87.5 on 4 dev queries" in fitted.why
    captured = capsys.readouterr()
    assert "kept: bm25" in captured.out
    assert "bm25-hops: one hop is best, so it is bm25, and not compared" in captured.out
    assert captured.err == ""


def test_a_corpus_alone_is_fitted_with_pseudo_queries(
    place: Path, options: FitOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_fit_data(tmp_path / "data", "test")
    encoder = fit_options(**vars(options) | {"generator": "none"})
    fitted = fit_dataset(str(data), tmp_path / "out", encoder)
    assert {"bm25", "dense"} <= fitted.metrics.keys()
    assert "no training queries: 10 pseudo-queries" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "fit.json").read_text())["data"]
    assert content["pseudo"] == ["train", "dev"]
    assert content["queries"] == {"train": 8, "dev": 2, "test": 3}


def late(monkeypatch: pytest.MonkeyPatch, step: str, by: float) -> None:
    """Let time pass at once after a step."""
    now = [0.0]
    monkeypatch.setattr(run, "FitClock", lambda budget, spent: FitClock(budget, spent, lambda: now[0]))
    add = FitJournal.add

    def recorded(self: FitJournal, name: str, *more: Any) -> None:
        add(self, name, *more)
        now[0] += by if name == step else 0.0

    monkeypatch.setattr(FitJournal, "add", recorded)


def test_when_time_runs_out_what_is_there_is_compared(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late(monkeypatch, "dense dense", 3600)
    fitted = fit_dataset(
        str(place / "data"), tmp_path / "out", fit_options(**vars(options) | {"budget": "1h"}), shown=False
    )
    assert not (tmp_path / "out" / "members" / "generator").exists()
    assert "bm25" in fitted.metrics
    assert "hybrid" not in fitted.metrics
    again = json.loads((tmp_path / "out" / "fit.json").read_text())
    assert again["data"]["compared"] == {"dev": 4, "test": 3}


def test_a_training_that_fails_leaves_the_other_systems(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ConfigError("the training has diverged")

    monkeypatch.setattr(trainings, "train_writer", fail)
    fitted = fit_dataset(str(place / "data"), tmp_path / "out", options, shown=False)
    assert "dense" in fitted.metrics
    assert "hybrid" not in fitted.metrics
    left_out = json.loads((tmp_path / "out" / "fit.json").read_text())["plan"]["left_out"]
    assert left_out["generator hybrid"] == "it failed: the training has diverged"
    assert left_out["index hybrid"] == "there is no generator"


def broken(data: Path) -> None:
    (data / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\tgone\t1\n")


@pytest.mark.parametrize(
    ("change", "more", "error", "told"),
    [
        (broken, {}, DataError, "2 faults in queries and qrels"),
        (None, {"biencoder": "no/such-model"}, ConfigError, "there is no model 'no/such-model'"),
        (None, {"generator": "/no/folder"}, ConfigError, "/no/folder"),
        (None, {"budget": "1s"}, ConfigError, "too short for anything.*Give --budget"),
        (None, {"dev_split": "other"}, DataError, r"other\.tsv: no such file"),
    ],
)
def test_what_cannot_work_is_an_error_before_any_training(
    options: FitOptions,
    tmp_path: Path,
    change: Callable[[Path], None] | None,
    more: dict[str, Any],
    error: type[GrlsError],
    told: str,
) -> None:
    data = write_fit_data(tmp_path / "data")
    if change is not None:
        change(data)
    with pytest.raises(error, match=told):
        fit_dataset(str(data), tmp_path / "out", fit_options(**vars(options) | more), shown=False)
    assert not (tmp_path / "out" / "members").exists()
    assert not (tmp_path / "out" / "grls.json").exists()
