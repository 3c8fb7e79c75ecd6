"""A few steps are measured on small models, and measurements are kept."""

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
from llama_small import write_llama
from small_data import scratch, tiny_bert, write_small

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.errors import ConfigError
from grls.fitting import timing
from grls.fitting.facts import DataFacts, data_facts
from grls.fitting.machine import Machine
from grls.fitting.measure import Bench
from grls.fitting.models import BaseModel, BaseModels, find_encoder
from grls.fitting.options import FitOptions
from grls.fitting.recipe import recipe
from grls.fitting.sample import write_sample
from grls.fitting.speeds import EncoderSpeeds, Speeds, WriterSpeeds, quickest_parts
from grls.fitting.timing import TIMING, known_speeds
from grls.io.progress import reporting

MACHINE = Machine(1, False, 16.0, "", 0.0, 60.0)
ON_CPU = FitOptions(device="cpu", precision="float32")
SOME = Speeds(0.1, 0.2, EncoderSpeeds(1, 2, 3, 4), WriterSpeeds(5, 6, 7, 8, 9))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measure")


@pytest.fixture(scope="module")
def data(place: Path) -> Path:
    return write_small(place / "data")


@pytest.fixture(scope="module")
def facts(data: Path) -> DataFacts:
    return data_facts(data, "train", "dev", "test")


@pytest.fixture(scope="module")
def bench(place: Path, data: Path, facts: DataFacts) -> Bench:
    write_sample(data, "train", place / "sample")
    return Bench(place / "sample", facts, MACHINE, ON_CPU)


def test_a_sample_is_a_data_set_with_all_gold(place: Path, bench: Bench) -> None:
    corpus = Corpus.read(place / "sample")
    queries, _ = read_split(place / "sample", "train", corpus)
    assert (len(corpus), len(queries)) == (10, 12)


def test_a_sample_is_small(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.fitting.sample.QUERIES", 3)
    monkeypatch.setattr("grls.fitting.sample.PASSAGES", 8)
    write_sample(data, "train", tmp_path / "sample")
    corpus = Corpus.read(tmp_path / "sample")
    assert len(corpus) == 8
    assert len(read_split(tmp_path / "sample", "train", corpus)[0]) == 3


def test_every_part_of_an_encoder_is_measured(place: Path, bench: Bench) -> None:
    heard: list[str] = []
    with reporting(lambda loop: heard.append(loop.standing())):
        speeds = bench.encoder(find_encoder(str(tiny_bert(place / "bert"))))
    assert heard == [f"measure {done} of 5 parts of the bi-encoder's work" for done in range(6)]
    assert min(vars(speeds).values()) > 0
    assert min(bench.bm25()) > 0


@pytest.mark.parametrize("causal", [True, False])
def test_every_part_of_a_generator_is_measured(place: Path, data: Path, bench: Bench, causal: bool) -> None:
    folder = place / f"writer-{causal}"
    if causal:
        write_llama(folder, data)
    else:
        model, tokenizer = scratch(data).load()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    heard: list[str] = []
    with reporting(lambda loop: heard.append(loop.standing())):
        speeds = bench.writer(BaseModel(str(folder), "folder", causal))
    assert min(vars(speeds).values()) > 0
    assert heard == [f"measure {done} of 6 parts of the generator's work" for done in range(7)]


def test_passages_are_not_rescored_where_they_are_long(place: Path, data: Path, facts: DataFacts) -> None:
    folder = place / "long"
    write_llama(folder, data)
    write_sample(data, "train", place / "other")
    long = Bench(place / "other", replace(facts, words=90.0), MACHINE, ON_CPU)
    assert long.writer(BaseModel(str(folder), "folder")).rescored == 0


def test_a_later_recipe_overrides_an_earlier_one() -> None:
    merged = recipe(["chains", "default/chains"])
    assert merged["model"]["init_args"]["generator"]["init_args"]["name_or_path"] == "SmolLM2-135M-Instruct"
    assert merged["model"]["init_args"]["loss"] == "allowed"
    assert merged["trainer"]["precision"] == "auto"


def models(generator: str = "b") -> BaseModels:
    return BaseModels(BaseModel("a", "folder"), BaseModel(generator, "folder"), {})


def test_measurements_are_kept(tmp_path: Path, facts: DataFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(*given: object) -> Speeds:
        measured.append("")
        return SOME

    monkeypatch.setattr(timing, "measured_speeds", measure)

    def known(models: BaseModels) -> tuple[Speeds, float]:
        return known_speeds("data", tmp_path / "run", facts, MACHINE, models, ON_CPU)

    speeds, seconds = known(models())
    assert speeds == SOME
    assert known(models()) == (SOME, seconds)
    assert len(measured) == 1
    known(models("c"))
    assert len(measured) == 2
    (tmp_path / "run" / TIMING).write_text('{"settings": 1}')
    assert known(models("c"))[0] == SOME
    assert len(measured) == 3


def test_speeds_that_leave_something_out_are_measured_again_and_the_least_count(
    tmp_path: Path, facts: DataFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Speeds(1.0, 2.0, EncoderSpeeds(9.0, 9.0, 9.0, 0.1), None)
    usual = Speeds(0.5, 3.0, EncoderSpeeds(1.0, 1.0, 1.0, 1.0), None)
    coming = [slow, usual, slow]
    monkeypatch.setattr(timing, "measured_speeds", lambda *_: coming.pop(0))

    def enough(speeds: Speeds, took: float) -> bool:
        return speeds.encoder is not None and speeds.encoder.step < 5

    options = replace(ON_CPU, budget="60m")
    speeds, _ = known_speeds("data", tmp_path / "run", facts, MACHINE, models(), options, enough)
    assert speeds == Speeds(0.5, 2.0, EncoderSpeeds(1.0, 1.0, 1.0, 0.1), None)
    assert len(coming) == 1


def test_what_was_measured_for_another_budget_counts_and_a_model_that_had_no_time_is_measured(
    tmp_path: Path, facts: DataFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that a small budget had no time to measure was once left out of every larger one."""
    coming = [replace(SOME, writer=None, bm25_query=0.1), SOME]
    monkeypatch.setattr(timing, "measured_speeds", lambda *_: coming.pop(0))

    def known(budget: str) -> Speeds:
        options = replace(ON_CPU, budget=budget)
        enough = lambda speeds, took: speeds.writer is not None  # noqa: E731
        return known_speeds("data", tmp_path / "run", facts, MACHINE, models(), options, enough)[0]

    monkeypatch.setattr(timing, "_AGAIN", -1.0)
    assert known("5m").writer is None
    assert known("5m").writer is None
    assert known("60m") == replace(SOME, bm25_query=0.1)
    assert known("5m") == replace(SOME, bm25_query=0.1)
    assert coming == []
    assert quickest_parts(SOME, replace(SOME, writer=None, encoder=None)) == SOME


def test_speeds_are_not_measured_again_where_that_takes_much_of_the_budget(
    tmp_path: Path, facts: DataFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[None] = []

    def measure(*_: object) -> Speeds:
        taken.append(None)
        time.sleep(0.03)
        return SOME

    monkeypatch.setattr(timing, "measured_speeds", measure)
    options = replace(ON_CPU, budget="1s")
    known_speeds("data", tmp_path / "run", facts, MACHINE, models(), options, lambda *_: False)
    assert len(taken) == 1


def test_a_generator_is_not_measured_where_the_budget_is_far_too_short(
    facts: DataFacts, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        def __init__(self, *given: object):
            pass

        def bm25(self) -> tuple[float, float]:
            return (0.1, 0.2)

        def encoder(self, model: BaseModel) -> EncoderSpeeds:
            return EncoderSpeeds(1, 2, 3, 4)

        def writer(self, model: BaseModel, name: str | None = None) -> WriterSpeeds:
            raise ConfigError("measured")

    monkeypatch.setattr("grls.fitting.measure.Bench", Short)
    short = replace(ON_CPU, budget="2m")
    assert timing.measured_speeds(data, facts, MACHINE, models(), short).writer is None
    with pytest.raises(ConfigError, match="measured"):
        timing.measured_speeds(data, facts, MACHINE, models(), ON_CPU)


def test_warnings_about_the_sample_are_not_shown(
    data: Path, facts: DataFacts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("grls.index.build")

    class Warns(Bench):
        def bm25(self) -> tuple[float, float]:
            log.warning("2 of 9 passages are longer than 96 tokens")
            return 1.0, 1.0

    monkeypatch.setattr("grls.fitting.measure.Bench", Warns)
    timing.measured_speeds(data, facts, MACHINE, BaseModels(None, None, {}), ON_CPU)
    assert not caplog.records
    log.warning("of the whole corpus")
    assert len(caplog.records) == 1
