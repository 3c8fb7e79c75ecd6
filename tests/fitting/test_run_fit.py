"""Whole runs on a data set that is small enough, with random models."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from biencoder_helpers import settings
from composite_specs import create
from fit_helpers import WORDS_ALONE, fit_options, write_fit_data, write_fit_models
from report_helpers import page_text
from small_data import passages, tiny_bert

import grls
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.fitting import models, run, stages
from grls.fitting.candidates import FitCandidates, JudgedQueries, System
from grls.fitting.journal import CLOCK, FitClock, FitProgress
from grls.fitting.models import this_machine
from grls.fitting.options import FitOptions
from grls.fitting.result import Fitted, _examples, milliseconds
from grls.fitting.run import fit_dataset, plan_dataset
from grls.fitting.search import Allowance, Outcome, Stage, TimeIsUp
from grls.fitting.splits import read_data
from grls.io.work import Journal
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.hub import figures_beside
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import followed, read_spec
from grls.train.core.clock import TrainingResult
from grls.train.reranker import run as reranker


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fit")
    write_fit_data(root / "data")
    return root


@pytest.fixture(scope="module")
def options(place: Path) -> FitOptions:
    return fit_options(**write_fit_models(place, place / "data"))


def fitted(data: Path, output: Path, options: FitOptions | None = None, **more: Any) -> Fitted:
    """A run that prints nothing; without options of BM25 alone."""
    given = fit_options(**(WORDS_ALONE if options is None else vars(options)) | more)
    return fit_dataset(read_data(data, given), output, given, shown=False)


def steady(patch: pytest.MonkeyPatch) -> None:
    """Let four queries take ten seconds, whatever the machine does: costs tell which candidate is kept."""
    ticks = count()
    patch.setattr("grls.fitting.candidates.perf_counter", lambda: 10.0 * next(ticks))


@pytest.fixture(scope="module")
def whole(place: Path, options: FitOptions) -> Fitted:
    with pytest.MonkeyPatch.context() as patch:
        steady(patch)
        return fitted(place / "data", place / "whole", options)


def without_times(output: Path) -> Any:
    """What stands in ``fit.json``, without times, which are named as such."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: timeless(one) for name, one in value.items() if "seconds" not in name}
        return [*map(timeless, value)] if isinstance(value, list) else value

    return timeless(json.loads((output / "fit.json").read_text()))


def singles(fitted: Fitted) -> list[str]:
    return [name for name in fitted.metrics if " + " not in name]


def test_a_run_makes_candidates_compares_them_and_opens_as_the_best(place: Path, whole: Fitted) -> None:
    output = place / "whole"
    assert singles(whole) == ["bm25", "base", "dense", "hybrid", "rescored"]
    for name in ("bm25-hops", "base-hops", "dense-hops"):  # tuned to one hop, which is the single step
        assert json.loads((output / "members" / name / "grls.json").read_text())["hops"]["max"] == 1
    assert (whole.queries, whole.notes) == ({"dev": 4, "test": 3}, ())
    for name in ("bm25-hops", "base", "dense", "dense-hops", "generator", "hybrid", "rescored"):
        load_retriever(output / "members" / name, Opening("cpu"))
    content = json.loads((output / "fit.json").read_text())
    assert (content["kept"], output / content["retriever"]) == (whole.kept, followed(output))
    assert grls.load(output, device="cpu").search("is the otter calm ?", 2)
    assert whole.report.is_file()
    assert f"* {whole.kept} " in whole.text()
    assert (output / "runs" / "test" / "hybrid.jsonl").is_file()
    assert not (output / "stages" / "base-generator").exists()
    hops = settings(output / "stages" / "reranker")["hops"]
    assert (hops["train_split"], hops["dev_size"]) == ("train-first-32", 100)  # four steps of 8 examples


def test_the_card_says_what_was_measured_on_what_and_what_was_done(place: Path, whole: Fitted) -> None:
    card = (place / "whole" / "README.md").read_text()
    assert 'grls.load("whole")' in card
    assert "Measured on 4 dev, 3 test queries, in percent." in card
    assert f"| {100 * whole.metrics['bm25']['test R@2']:.1f} |" in card
    assert "## What was skipped\n\n- " in card
    assert "one hop is best, which is dense" in card
    assert "Queries: 9 train, 4 dev, 3 test." in card
    assert "| hybrid |" in card
    assert "## Licence" in card
    assert f"Kept: {whole.kept}," in card
    content = json.loads((place / "whole" / "fit.json").read_text())
    assert ("Begun from" in card) == bool(content["base_models"])
    assert figures_beside(place / "whole").keys() == whole.metrics.keys()
    done = [one["stage"] for one in content["account"]["done"]]
    (trained,) = [what for what in done if what.startswith("fine-tune bert")]
    assert trained.endswith(", 3 steps")  # as many as were done
    assert trained in card


def test_the_table_says_what_a_query_costs(place: Path, whole: Fitted) -> None:
    assert whole.query_seconds.keys() == whole.metrics.keys()
    for name in whole.metrics:
        parts = [whole.query_seconds[part] for part in name.split(" + ")]
        assert whole.query_seconds[name] == pytest.approx(sum(parts), abs=1e-5)
    head, *rows = whole.text().splitlines()[1:-1]
    assert head.endswith("  ms a query  links")
    shown = [[milliseconds(took), "no"] for took in whole.query_seconds.values()]
    assert [row.split()[-2:] for row in rows] == shown


def test_the_gain_names_what_is_lower_than_bm25s(tmp_path: Path) -> None:
    bm25 = {"dev R@5": 0.5, "test R@5": 0.6, "test R@1": 0.4, "test RR": 0.7}
    base = {"dev R@5": 0.4, "test R@5": 0.8, "test R@1": 0.3, "test RR": 0.6996}
    ended = Fitted(tmp_path, "base", "", {"dev": 9, "test": 8}, {"bm25": bm25, "base": base}, 1.0)
    assert ended.gain == (
        "test R@5 80.0 on 8 queries, 20.0 points above BM25. Below BM25's: test R@1 by 10.0."
    )


def test_bm25_has_stems_where_they_find_more(tmp_path: Path) -> None:
    animals = ("otter", "badger", "heron", "weasel", "falcon", "beaver", "lizard", "salmon")
    corpus = [Passage(f"p{n}", f"{name.title()}s swimming.") for n, name in enumerate(animals)]
    for form, stemmed in (("{}", True), ("{}s", False)):  # of equals the simpler one
        asked = [Query(f"q{n}", f"how does the {form.format(name)} live?") for n, name in enumerate(animals)]
        qrels = {"dev": {f"q{n}": {f"p{n}": 1} for n in range(len(animals))}}
        write_dataset(tmp_path / form, corpus, asked, qrels)
        ended = fitted(tmp_path / form, tmp_path / f"out {form}")
        assert ended.metrics["bm25"]["dev R@2"] == 1.0
        assert ended.done[0][0] == ("BM25, with stems" if stemmed else "BM25")
        candidates = candidates_of(tmp_path / f"out {form}")
        candidates.systems["bm25"] = System("bm25", "bm25")
        for member in (candidates.named("bm25"), read_spec(candidates.folder("bm25"))):
            assert member["analyzer"].get("stem", False) == stemmed


def test_the_page_shows_every_candidate_why_one_was_kept_and_what_was_skipped(
    place: Path, whole: Fitted
) -> None:
    page = page_text(place / "whole" / "report.html")
    assert f"{len(whole.metrics)} candidates over" in page
    assert f"{len(whole.metrics)} runs on" in page
    assert f"{whole.kept}, {whole.why}." in page
    assert "What was skipped" in page
    assert "Quality and cost" in page
    assert f"{whole.kept}chosen of" in page


def test_three_examples_found_in_whole_in_part_and_not() -> None:
    corpus = Corpus.from_passages([Passage(name, f"text {name}") for name in "abc"])
    queries = [Query(f"q{n}", "ask") for n in range(3)]
    qrels = {"q0": {"a": 1}, "q1": {"c": 1}, "q2": {"a": 1, "c": 1}}
    gold = JudgedQueries("test", queries, qrels)
    table = _examples(gold, [[Hit("a", 1.0), Hit("b", 0.5)]] * 3, corpus, 2, "")
    assert [[cell.text for cell in row[1:]] for row in table.rows] == [
        ["1. text a", "none", "2. text b"],
        ["1. text a", "text c", "2. text b"],
        ["none", "text c", "1. text a · 2. text b"],
    ]


def test_the_folder_of_a_fusion_ranks_as_its_run_does(place: Path, whole: Fitted) -> None:
    output = place / "whole"
    fused = [name for name in whole.metrics if " + " in name]
    assert fused
    for name in fused:
        folder = "fusion-" + name.replace(" + ", "-")
        opened = load_retriever(output / "members" / folder, Opening("cpu"))
        for line in (output / "runs" / "test" / f"{folder}.jsonl").open():
            record = json.loads(line)
            (hits,) = opened.retrieve([record["text"]], 20)
            assert [hit.id for hit in hits] == [hit["id"] for hit in record["hits"]]


def test_nothing_that_is_shown_or_saved_names_a_path_of_the_machine(
    place: Path, whole: Fitted, tmp_path: Path
) -> None:
    output = place / "whole"
    for name in ("README.md", "grls.json", "report.html"):
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


def test_a_run_that_is_called_again_does_nothing_twice_and_keeps_what_it_is_asked_to(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Path(shutil.copytree(place / "whole", tmp_path / "out"))

    def again(**more: Any) -> Fitted:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("build", "tune_spec"):
                patch.setattr(stages, name, None)  # it would fail
            return fitted(place / "data", output, options, **more)

    assert again().metrics == whole.metrics
    assert again(budget="+10m", reranker="auto").metrics == whole.metrics  # it keeps its reranker
    kept = again(keep="dense")
    assert (kept.kept, kept.skipped) == ("dense", whole.skipped)
    found = 100 * whole.metrics["dense"]["dev R@2"]
    assert kept.why.startswith(f"as was asked: R@2 {found:.1f} on 4 dev queries (95 % interval ")
    assert followed(output).name == "dense"
    assert "Kept: dense" in (output / "README.md").read_text()
    assert "points of R@2 against BM25" in page_text(output / "report.html")
    with pytest.raises(ConfigError, match="there is no candidate 'colbert'; there are bm25, base"):
        again(keep="colbert")
    fusion = max((output / "members").glob("fusion-*"))
    shutil.rmtree(fusion)
    assert again().metrics == whole.metrics
    assert fusion.is_dir()  # what was removed is made again
    done = (output / "fit.jsonl").read_text().count('{"of": "fusion 1"')
    assert "nDCG@10" in again(measure="nDCG@10").why
    assert (output / "fit.jsonl").read_text().count('{"of": "fusion 1"') == done + 1  # it sets weights
    data = write_fit_data(tmp_path / "other", "train", "dev")
    with pytest.raises(MismatchError, match="holds a run over other data"):
        fitted(data, output, options)


def test_a_journal_of_another_version_is_named(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path
) -> None:
    output = Path(shutil.copytree(place / "whole", tmp_path / "out"))
    journal = output / "fit.jsonl"
    journal.write_text(journal.read_text().replace('"portions": ', '"parts of dev": '))
    with pytest.raises(DataError, match=r"fit\.jsonl: the record of bm25 is of another version"):
        fitted(place / "data", output, options)


def candidates_of(output: Path) -> FitCandidates:
    options = fit_options()
    return FitCandidates(read_data(output / "data", options), output, options, this_machine("cpu"))


def test_what_hops_have_found_in_tuning_is_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fit_data(tmp_path / "data")
    searched = 0
    retrieve = BM25Retriever.retrieve

    def counting(self: BM25Retriever, queries: Sequence[Any], *more: Any, **options: Any) -> Any:
        nonlocal searched
        searched += len(queries)
        return retrieve(self, queries, *more, **options)

    monkeypatch.setattr(BM25Retriever, "retrieve", counting)

    def ranked(found: dict[Any, Any] | None) -> int:
        """Queries of BM25 until the hops have ranked four queries."""
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        candidates = candidates_of(tmp_path)
        if not (folder := candidates.folder("bm25-hops")).is_dir():
            BM25Retriever(candidates.data.corpus).save_pretrained(candidates.folder("bm25"))
            hops = {"steps": "ranked", "max": 2}
            create(folder, "hops", {"retriever": "../bm25", "hops": hops}, Opening("cpu"))
        before = searched
        candidates.rank(System("bm25-hops", "bm25-hops"), found=found)
        assert candidates.systems["bm25-hops"].portions == 1
        return searched - before

    once, found = ranked(None), dict[Any, Any]()
    assert ranked(found) == 2 * once  # its cost is measured apart
    assert found
    assert ranked(found) == once


def test_a_fusion_costs_what_its_members_cost_now(tmp_path: Path) -> None:
    """Members were measured again on more queries, and a fusion could be cheaper than its member."""
    write_fit_data(tmp_path / "data")
    candidates = candidates_of(tmp_path)
    for name in ("bm25", "other"):
        BM25Retriever(candidates.data.corpus).save_pretrained(candidates.folder(name))
        candidates.rank(System(name, name))
    (fused,) = candidates.fuse(["bm25", "other"])
    member: Any = candidates.named(fused.name)  # no folder: another fusion may be written there
    assert member["weights"] == [*fused.weights]
    candidates.systems["bm25"].cost = 5.0
    candidates.rank_fusion(fused, candidates.portions[0])
    assert fused.cost == 5.0 + candidates.systems["other"].cost


class Killed(BaseException):
    """What ends a process at once."""


def killed_at(stage_names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process before these stages are recorded, each once."""
    put = Journal.put

    def recorded(self: Journal, of: Any, found: Any) -> None:
        if of in stage_names:
            stage_names.remove(of)
            raise Killed
        put(self, of, found)

    monkeypatch.setattr(Journal, "put", recorded)


def test_a_run_that_is_killed_in_any_stage_opens_as_the_best_so_far_and_goes_on_to_the_same_result(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of each, and once in the middle of a training, which goes on from its checkpoint."""
    names = ["bm25", "base", "bm25-hops", "base-hops", "fusion 1", "dense", "dense-hops", "fusion 2"]
    names += ["generator", "hybrid", "fusion 3", "rescored", "fusion 4"]
    output = tmp_path / "out"
    resumed: list[bool] = []
    steady(monkeypatch)
    train = stages.FitStages._train_generator

    def metered(self: Any, steps: int, resume: bool, seconds: Any, meter: Callable[[Any], None]) -> Any:
        resumed.append(resume)

        def counted(step: Any) -> None:
            if step.step == 3 and len(resumed) == 1:
                raise Killed
            meter(step)

        return train(self, steps, resume, seconds, counted)

    monkeypatch.setattr(stages.FitStages, "_train_generator", metered)
    killed_at(names, monkeypatch)
    for _ in range(len(names) + 1):
        opens = (output / "grls.json").is_file()
        with pytest.raises(Killed):
            fitted(place / "data", output, options)
        if opens:  # from the first candidate on
            assert grls.load(output, device="cpu").search("is the otter calm ?", 2)
    assert (output / "grls.json").is_file()
    assert resumed[:2] == [False, True]
    ended = fitted(place / "data", output, options)
    assert without_times(output) == without_times(place / "whole")
    assert (ended.metrics, ended.kept) == (whole.metrics, whole.kept)
    members = sorted(file.name for file in (output / "members").iterdir())
    assert members == sorted(file.name for file in (place / "whole" / "members").iterdir())


def test_a_run_that_is_killed_while_it_tunes_leaves_no_untuned_candidate(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood in ``members`` as it was before tuning, and ``fit.json`` held times without their name."""

    def killed(*_: Any) -> None:
        raise Killed

    for method in ("measured", "remove"):
        output = tmp_path / method
        with monkeypatch.context() as patch:
            patch.setattr(Journal, method, killed)
            with pytest.raises(Killed):
                fitted(place / "data", output)
        left = output / "members" / "bm25-hops" / "grls.json"
        tuned = left.read_bytes() if left.exists() else None
        fitted(place / "data", output)
        assert tuned in (None, left.read_bytes())
    assert without_times(tmp_path / "measured") == without_times(tmp_path / "remove")


def test_an_encoder_cuts_long_queries_though_the_run_was_killed_after_it_was_built(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read_data(place / "data", options).written(tmp_path / "data")
    progress = FitProgress(tmp_path / "logs", FitClock(tmp_path), False)
    made = stages.FitStages(data, tmp_path, options, progress)

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(stages, "update_spec", killed)
        with pytest.raises(Killed):
            made._embedded("base", str(options.biencoder), Allowance())
    made._embedded("base", str(options.biencoder), Allowance())
    assert read_spec(tmp_path / "members" / "base")["search"] == {"truncate_queries": True}


def test_a_reranker_reads_single_steps_and_learns_from_what_hops_with_links_find_wrongly(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read_data(place / "data", options).written(tmp_path / "data")
    made = stages.FitStages(data, tmp_path, options, FitProgress(tmp_path, FitClock(tmp_path), False))
    named = ("bm25", "bm25 + base", "bm25-hops + base", "bm25-hops")
    made.candidates.systems = {name: System(name, name, links=True) for name in named}
    monkeypatch.setattr(made.candidates, "best", " or ".join)
    made.candidates.systems["bm25 or bm25 + base"] = System("best", "best")

    def trained(training: Any, _: Any) -> TrainingResult:
        assert Path(training.hops.negatives).name == "bm25-hops"
        return TrainingResult(tmp_path, tmp_path, "dev_loss", 1.3, 3, 9, 1.0, False)

    monkeypatch.setattr(reranker, "run_reranker", trained)
    assert made._train_reranker(3, False, 9.0, lambda _: None).best is None  # no share of 100
    assert made._reranked.name == "best"


@pytest.mark.parametrize("option", [{"k": 21}, {"seed": 1}, {"measure": "R@50"}])
def test_other_options_of_its_stages_are_refused_and_the_output_stays(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path, option: dict[str, Any]
) -> None:
    output = Path(shutil.copytree(place / "whole", tmp_path / "out"))
    expected = grls.load(output, device="cpu").search("is the otter calm ?", 3)
    with pytest.raises(
        MismatchError, match=r"(begun with other settings \(.*\);|measure.* reads deeper .*:) give"
    ):
        fitted(place / "data", output, options, **option)
    assert grls.load(output, device="cpu").search("is the otter calm ?", 3) == expected


def test_an_embedding_that_does_not_fit_begins_with_the_time_that_is_left(
    options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was never begun, and the time stayed unused."""
    write_dataset(tmp_path / "data", passages(), [], {})
    encoder = {"biencoder": options.biencoder, "generator": "none", "budget": "1h"}
    monkeypatch.setattr(DenseRetriever, "part", 4)
    shard, shards = DenseRetriever.encode_shard, list[int]()

    def slow(model: Any, corpus: Any, size: int, part: Any, folder: Path) -> Any:
        if 1 <= len(shards) < 3:
            shards.append(-1)
            raise TimeIsUp(seconds=90 * 60.0)
        shards.append(part.number)
        return shard(model, corpus, size, part, folder)

    monkeypatch.setattr(DenseRetriever, "encode_shard", slow)
    ended = fitted(tmp_path / "data", tmp_path / "out", **encoder)
    assert (ended.kept, shards) == ("bm25", [0, -1, -1])
    assert ended.skipped[0].why.endswith('up before it was done; another call with budget="+135m" goes on')
    again = ' Left out: base. Next: more time, budget="+135m".'
    assert ended.text().endswith(again)
    assert again in page_text(tmp_path / "out" / "report.html")
    assert fitted(tmp_path / "data", tmp_path / "out", **encoder).kept == "bm25 + base"
    assert shards == [0, -1, -1, 1, 2]


def stages_of(*names: str, runs: list[str], fail: str = "") -> Callable[[stages.FitStages], list[Stage]]:
    """Stages of BM25 under several names; ``fusion 1`` makes nothing, ``late`` waits for all others."""

    def made(self: stages.FitStages) -> list[Stage]:
        def stage(name: str) -> Stage:
            def work(_: Allowance) -> None:
                runs.append(name)
                if not name.startswith("fusion"):
                    BM25Retriever(self.data.corpus).save_pretrained(self.candidates.folder(name))
                    self.candidates.rank(System(name, name))
                if name == fail:
                    raise MemoryError

            return Stage(name, name, work, share=0.0 if name == "late" else 1.0)

        return [stage(name) for name in names]

    return made


def test_a_stage_that_was_done_later_than_its_place_makes_no_earlier_one_stale(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    monkeypatch.setattr(stages.FitStages, "all", stages_of("bm25", "late", "fusion 1", runs=runs))
    for _ in range(2):
        ended = fitted(place / "data", tmp_path / "out", budget="1h")
        assert runs == ["bm25", "fusion 1", "late"]
        assert [what for what, _ in ended.done] == ["bm25", "late", "fusion 1"]


def test_the_seconds_of_a_stage_are_those_of_all_its_turns(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, every = [0.0], stages_of("bm25", runs=[])

    def work(_: Allowance) -> None:
        now[0] += 20.0
        if now[0] < 40.0:
            raise TimeIsUp

    twice = lambda self: [*every(self), Stage("twice", "done in two turns", work)]  # noqa: E731
    monkeypatch.setattr(stages.FitStages, "all", twice)
    monkeypatch.setattr(run, "perf_counter", lambda: now[0])
    assert fitted(place / "data", tmp_path / "out").done[1] == ("done in two turns", 40.0)


def test_a_training_leaves_time_to_embed_and_to_rank_by_hops_as_long_as_that_took_and_takes_still(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read_data(place / "data", options).written(tmp_path / "data")
    made = stages.FitStages(data, tmp_path, options, FitProgress(tmp_path, FitClock(tmp_path), False))
    made.outcomes["base-hops"] = Outcome(100.0, "its time was up", 300.0)
    monkeypatch.setattr(stages.FitStages, "_embedding", lambda _: 40.0)
    with pytest.raises(TimeIsUp, match="to embed and rank anew takes about 9 min") as late:
        made._dense(Allowance(1.0))
    assert late.value.seconds == 1.25 * (40 + 100 + 300)


def test_a_stage_that_fails_after_its_first_queries_leaves_no_candidate(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in the table, and said to be left out."""
    made = stages_of("bm25", "other", "fusion 1", runs=[], fail="other")
    monkeypatch.setattr(stages.FitStages, "all", made)
    ended = fitted(place / "data", tmp_path / "out")
    assert [*ended.metrics] == ["bm25"]
    assert [(part.name, part.why) for part in ended.skipped] == [
        ("other", "left out: it failed: there is too little memory for it")
    ]


def test_with_more_time_more_dev_queries_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had had its turn was done, though some queries were not ranked yet."""
    queries = [Query(f"q{n}", f"is the otter {n} calm ?", ("r0",)) for n in range(64)]
    parts = {"train": queries[:4], "dev": queries[4:]}
    qrels = {split: {query.id: {"r0": 1} for query in part} for split, part in parts.items()}
    write_dataset(tmp_path / "data", passages(), queries, qrels)
    first = lambda self, name, *_: self.candidates.rank(System(name, name))  # noqa: E731
    monkeypatch.setattr(stages.FitStages, "_ranked", first)
    with monkeypatch.context() as patch:
        patch.setattr(stages.FitStages, "_more_dev", lambda *_: None)
        short = fitted(tmp_path / "data", tmp_path / "out")
    longer = fitted(tmp_path / "data", tmp_path / "out", budget="+10m")
    assert (short.queries, longer.queries) == ({"dev": 30}, {"dev": 60})


def test_a_run_that_has_spent_its_budget_keeps_what_there_is(
    place: Path, whole: Fitted, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Path(shutil.copytree(place / "whole", tmp_path / "out"))
    (output / CLOCK).write_text('{"seconds": 1000000}')
    for more in ({"budget": "1h"}, {"budget": "1h", "keep": "base"}, {"budget": "+1s"}):
        again = fitted(place / "data", output, options, **more)
        assert again.metrics == whole.metrics
        assert again.kept == more.get("keep", whole.kept)


def test_the_report_of_a_later_call_is_on_no_fewer_test_queries(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the budget spent it was on a single one."""
    steady(monkeypatch)
    late(monkeypatch, "none", 0.0)
    for _ in range(2):
        ended = fitted(place / "data", tmp_path / "out", budget="8s")
        assert ended.queries == {"dev": 4, "test": 2}
        (tmp_path / "out" / CLOCK).write_text('{"seconds": 1000000}')


def test_models_that_came_later_are_taken_up_and_others_are_refused(
    place: Path, options: FitOptions, tmp_path: Path
) -> None:
    def made(**more: Any) -> set[str]:
        return set(fitted(place / "data", tmp_path / "out", options, **more).metrics)

    base = tmp_path / "out" / "members" / "base" / "embeddings.npy"
    assert not {"hybrid"} & made(generator=None)
    before = base.stat().st_mtime_ns
    assert {"hybrid", "base", "dense"} <= made()
    assert base.stat().st_mtime_ns == before
    assert not (tmp_path / "out" / "stages" / "biencoder" / "checkpoints").exists()
    tiny_bert(tmp_path / "other", width=8)
    with pytest.raises(MismatchError, match=r"was made with biencoder=.*: name it again, or give another"):
        made(biencoder=str(tmp_path / "other"), generator=None)


def test_without_models_there_is_bm25(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = fit_options(**WORDS_ALONE)
    ended = fit_dataset(read_data(place / "data", words), tmp_path / "out", words)
    assert (ended.kept, [*ended.metrics]) == ("bm25", ["bm25"])
    assert load_retriever(tmp_path / "out").kind == "bm25"
    assert ended.why.endswith("R@2 87.5 on 4 dev queries (95 % interval 42 to 96)")
    assert ended.text().endswith("42 to 96). Next: more questions with their passages.")
    captured = capsys.readouterr()
    rows = [" ".join(line.split()) for line in captured.out.splitlines()]
    head = rows.index("dev R@2 queries ms a query")
    assert re.fullmatch(r"bm25 87\.5 4 [\d.]+ best so far", rows[head + 1])
    assert "bm25-hops one hop is best, which is bm25" in rows
    assert captured.err == ""
    manifest = tmp_path / "out" / "runs" / "test" / "bm25.info.json"
    manifest.unlink()  # as a kill leaves a run, of which it is the last file
    fit_dataset(read_data(place / "data", words), tmp_path / "out", words)
    assert manifest.is_file()


def test_where_no_model_is_there_that_is_said_before_any_work(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of 40 minutes ended after 33 seconds with BM25."""

    def none(name: str) -> Any:
        raise ConfigError(f"{name} is not here.")

    monkeypatch.setattr(models, "find_encoder", none)
    monkeypatch.setattr(models, "find_writer", none)
    with pytest.raises(ConfigError, match=r'`make models` installs two.*biencoder="none" generator="none"'):
        fitted(place / "data", tmp_path / "out", fit_options())
    assert not (tmp_path / "out" / "members").exists()


def test_without_labelled_questions_the_fusion_with_the_encoder_is_kept(
    options: FitOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BM25 wins on sentences that are cut out of passages, and was kept; R@5 "on dev queries" said so."""
    data, output = write_fit_data(tmp_path / "data", "test"), tmp_path / "out"
    ended = fit_dataset(read_data(data, options), output, options)
    assert [*ended.metrics] == ["bm25", "base", "bm25 + base"]
    assert (ended.kept, ended.queries) == ("bm25 + base", {"cut sentences": 2, "test": 3})
    assert "cut sentences R@2" in ended.metrics["bm25"]
    assert read_spec(followed(output))["weights"] == [0.3, 0.7]
    assert re.match(r"test R@2 [\d.]+ on 3 queries, [\d.]+ points (above|below) BM25\.", ended.gain)
    printed, page = capsys.readouterr().out, page_text(output / "report.html")
    rule = "bm25 + base, by rule, since no labelled question tells which is best"
    for text in (printed, page, (output / "README.md").read_text()):
        assert rule in text
        assert not re.search(r"\bdev R@|dev quer|\d dev\b(?! \(cut sentences\))", text)
    assert "no labelled questions: 10 pseudo-queries" in printed
    assert "nothing is trained: without labelled questions" in printed
    words = fit_options(**vars(options) | WORDS_ALONE)  # and a reranker
    assert "nothing is trained: without" in plan_dataset(read_data(data, words), tmp_path / "words", words)
    assert "cut sentences R@2" in printed
    assert re.search(r"bm25 \+ base .* kept so far\n", printed)
    content = json.loads((output / "fit.json").read_text())
    assert (content["best_on_dev"], content["data"]["pseudo"]) == (
        None,
        {"train": "cut sentences", "dev": "cut sentences"},
    )
    assert content["data"]["queries"] == {"train": 8, "dev": 2, "test": 3}
    kept = fitted(data, output, options, keep="base")
    assert " on 2 cut sentences (95 % " in kept.why
    shutil.rmtree(data / "qrels")
    (data / "queries.jsonl").unlink()
    alone = fitted(data, tmp_path / "alone", options)
    assert (alone.kept, alone.queries, alone.gain) == ("bm25 + base", {"cut sentences": 2}, "")
    page = page_text(tmp_path / "alone" / "report.html")
    assert "Scores on them say nothing of questions." in page
    for figures in ("chosen of", "R@2", "nDCG@10", "Significance", "Similarity", "Examples", "Measured on"):
        assert figures not in page


PLACES = ("Tallow", "Brind", "Corvey", "Dunmore", "Elstow", "Farrow", "Gannet", "Hollin") * 3


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Films whose passages name their directors, whose passages say where they were born."""
    films = [Passage(f"f{n}", f"A film by Person{n} Smith.", f"Film Nr{n}") for n in range(24)]
    people = [Passage(f"p{n}", f"Born in {town}.", f"Person{n} Smith") for n, town in enumerate(PLACES)]
    asked = [Query(f"q{n}", f"Where was the director of Film Nr{n} born?") for n in range(24)]
    gold = {f"q{n}": {f"f{n}": 1, f"p{n}": 1} for n in range(24)}
    splits = {"train": asked[:12], "dev": asked[12:]}
    qrels = {name: {query.id: gold[query.id] for query in part} for name, part in splits.items()}
    write_dataset(tmp_path / "linked", [*films, *people], asked, qrels)
    return tmp_path / "linked"


def test_where_passages_name_each_other_hops_with_links_come_first(
    linked: Path, options: FitOptions, tmp_path: Path
) -> None:
    plan = plan_dataset(read_data(linked, options), tmp_path / "plan", options)
    assert "48 passages of 6 words (en), 50% of them with links" in plan
    first = "bm25: BM25\n  bm25-hops: BM25, ranked by hops with links\n  base: "
    assert first in plan
    ended = fitted(linked, tmp_path / "out")
    assert (ended.kept, [*ended.metrics], ended.links) == ("bm25-hops", ["bm25", "bm25-hops"], ["bm25-hops"])
    assert ended.metrics["bm25-hops"]["dev R@2"] == 1.0 > ended.metrics["bm25"]["dev R@2"]
    assert [row.split()[-1] for row in ended.text().splitlines()[1:4]] == ["links", "no", "yes"]
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["links"] == ["bm25-hops"]


def test_a_training_learns_what_links_do_not_tell(
    linked: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, needed = stages.FitStages.all, ("bm25", "bm25-hops", "base", "dense")
    few = lambda self: [stage for stage in every(self) if stage.name in needed]  # noqa: E731
    monkeypatch.setattr(stages.FitStages, "all", few)
    for name, negatives in (("out", 1), ("plain", 0)):
        if name == "plain":  # the same texts without names
            corpus = [passage._replace(title="") for passage in Corpus.read(linked)]
            lines = (json.dumps({"_id": p.id, "text": p.text.lower(), "title": ""}) for p in corpus)
            (linked / "corpus.jsonl").write_text("".join(f"{line}\n" for line in lines))
        fitted(linked, tmp_path / name, options, generator="none")
        held = settings(tmp_path / name / "stages" / "biencoder")
        ranks = "bm25-hops" if negatives else "bm25"
        assert (held["fit"]["hard_negatives"], Path(held["negatives"]).name) == (negatives, ranks)


def test_without_questions_hops_with_links_are_kept_whatever_cut_sentences_say(
    linked: Path, options: FitOptions, tmp_path: Path
) -> None:
    """A cut sentence has one passage, so that tuning on such would choose one hop."""
    shutil.rmtree(linked / "qrels")
    (linked / "queries.jsonl").unlink()
    words = fitted(linked, tmp_path / "words")
    assert (words.kept, [*words.metrics]) == ("bm25-hops", ["bm25", "bm25-hops"])
    ended = fitted(linked, tmp_path / "out", options)
    assert ended.kept == "bm25-hops + base-hops"
    fused = ["bm25 + base", "bm25-hops + base-hops"]
    assert [*ended.metrics] == ["bm25", "bm25-hops", "base", "base-hops", *fused]
    assert ended.links == ["bm25-hops", "base-hops", "bm25-hops + base-hops"]
    for name in ("bm25-hops", "base-hops"):
        assert read_spec(tmp_path / "out" / "members" / name)["hops"] == {"steps": "ranked"}
    assert fitted(linked, tmp_path / "out", options, keep="bm25 + base").kept == "bm25 + base"


def late(monkeypatch: pytest.MonkeyPatch, stage: str, by: float) -> None:
    """Let time pass at once after a stage."""
    now = [0.0]
    monkeypatch.setattr(run, "FitClock", lambda *given: FitClock(*given, now=lambda: now[0]))
    put = Journal.put

    def recorded(self: Journal, of: Any, found: Any) -> None:
        put(self, of, found)
        now[0] += by if of == stage else 0.0

    monkeypatch.setattr(Journal, "put", recorded)


def test_when_time_runs_out_the_best_so_far_is_kept(
    place: Path, options: FitOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late(monkeypatch, "dense", 3600)
    ended = fitted(place / "data", tmp_path / "out", options, budget="1h")
    assert not (tmp_path / "out" / "members" / "generator").exists()
    assert "dense" in ended.metrics
    assert "hybrid" not in ended.metrics
    content = json.loads((tmp_path / "out" / "fit.json").read_text())
    assert content["data"]["compared"] == {"dev": 4, "test": 3}
    skipped = {one["name"]: one["why"] for one in content["account"]["skipped"]}
    assert skipped["hybrid"] == "there is no generator"
    assert skipped["generator"] == "left out: no time was left for it; another call with more time goes on"


def test_a_plan_says_what_there_would_be_and_writes_nothing(
    place: Path, options: FitOptions, tmp_path: Path
) -> None:
    given = fit_options(**vars(options) | {"budget": "9m"})
    text = plan_dataset(read_data(place / "data", given), tmp_path / "out", given)
    assert "queries: 9 train, 4 dev, 3 test" in text
    assert "Stages, in this order, while there is time (9m):\n  bm25: BM25\n  bm25-hops: BM25, ranked" in text
    assert "generator: fine-tune llama to write spans" in text
    assert list(tmp_path.iterdir()) == []


def broken(data: Path) -> None:
    (data / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\tgone\t1\n")


@pytest.mark.parametrize(
    ("change", "more", "error", "said"),
    [
        (broken, {}, DataError, "2 faults in queries and qrels"),
        (None, {"biencoder": "no/such-model"}, ConfigError, "there is no model 'no/such-model'"),
        (None, {"generator": "/no/folder"}, ConfigError, "/no/folder"),
        (None, {"dev_split": "other"}, DataError, r"other\.tsv: no such file"),
        (None, {"keep": "bm25 + dense", "biencoder": None}, ConfigError, r"candidate 'bm25 \+ dense'"),
        (None, {"keep": "more dev"}, ConfigError, "keep: there is no candidate .*; none is made yet"),
    ],
)
def test_what_cannot_work_is_an_error_before_any_training(
    options: FitOptions,
    tmp_path: Path,
    change: Callable[[Path], None] | None,
    more: dict[str, Any],
    error: type[GrlsError],
    said: str,
) -> None:
    data = write_fit_data(tmp_path / "data")
    if change is not None:
        change(data)
    with pytest.raises(error, match=said):
        fitted(data, tmp_path / "out", options, **more)
    assert not (tmp_path / "out" / "members").exists()
    assert not (tmp_path / "out" / "grls.json").exists()
