"""Options of `grls train`: refused in one line, numbers keep their kind, ``--help`` lists what is taken."""

import re
from pathlib import Path
from typing import Any

import pytest
from failing import raises, refuses
from train_helpers import arguments, train

from grls.errors import ConfigError
from grls.train.core.checkpoints import run_settings
from grls.train.doc2query.options import Drawing
from grls.train.options import (
    BiEncoderOptions,
    BiEncoderTraining,
    CheckpointOptions,
    EncoderOptions,
    MemoriseDataOptions,
    QueryDataOptions,
    QuoteDataOptions,
    QuoteOptions,
    RerankHopOptions,
    Rescore,
    RetrieveDataOptions,
    TrainerOptions,
    WriteSpans,
    as_record,
    read_stage,
)

GIVEN = {"model.generator": "Pretrained", "model.generator.name_or_path": "t5", "data.data": "d"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("--data.bach_size=3", "there is no option --data.bach_size; did you mean --data.batch_size?"),
        ("--model.generator.vocabluary=3", "--model.generator.vocabluary is no option of "
         "grls.models.load.generators.ScratchT5; did you mean --model.generator.vocabulary? `grls train "
         "retrieve --model.generator.help grls.models.load.generators.ScratchT5` lists them."),
        ("--data.batch_size=few", "--data.batch_size: expected a whole number, got few."),
        ("--model.loss=ful", "--model.loss: expected one of full, allowed, got ful."),
        ("--data.mix.share=1", "there is no option --data.mix.share; did you mean --data.mix.size?"),
        ("--config=/nowhere.yaml", "--config: File does not exist: '/nowhere.yaml'"),
        ("--model.generator=ScratchT6", "--model.generator: expected dot import path string: ScratchT6."),
        ("--nothing=3", "there is no option --nothing."),
        ("--outp=o", "there is no option --outp; did you mean --output?"),
    ],
)  # fmt: skip
def test_an_option_is_named_in_one_line(
    wrong: str, told: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refuses(capsys, "train", *arguments("retrieve", data, tmp_path / "run", wrong))
    section = re.match(r"(?:there is no option )?--(model|data\.mix|data)\.", told)
    asked = f"--help {section[1]}" if section else "--help"
    assert text.splitlines() == [f"error: {told}", f"`grls train retrieve {asked}` lists the options."]


def test_what_must_be_given_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments("retrieve", Path("data"), tmp_path / "run")
    without = [option for option in given if not option.startswith("--data.data")]
    assert refuses(capsys, "train", *without).startswith("error: --data.data must be given.\n")


@pytest.mark.parametrize(("given", "expected"), [(1, int), ("7", int), (1.0, float), ("0.25", float)])
def test_a_number_keeps_its_kind(given: Any, expected: type) -> None:
    """One batch is not the whole epoch."""
    read = read_stage("retrieve", (), GIVEN | {"trainer.limit_train_batches": given})
    assert type(read.trainer.limit_train_batches) is expected


OUTSIDE: list[tuple[Any, str, float]] = [
    *((TrainerOptions, name, 0) for name in ("accumulate_grad_batches", "num_nodes")),
    *((RetrieveDataOptions, name, 0) for name in ("length_pool", "max_passage_tokens", "teacher_share")),
    *((MemoriseDataOptions, "front", share) for share in (0.0, 1.0)),
    (QueryDataOptions, "max_passage_tokens", 0), (QuoteDataOptions, "max_target_tokens", 0),
    (QuoteOptions, "max_new_tokens", 0), (Rescore, "passages", 0),
    (WriteSpans, "words", 0), (WriteSpans, "drawn", 0),
    (Drawing, "queries", 0), (Drawing, "temperature", 0), (RerankHopOptions, "hard_negatives", 0),
    (BiEncoderOptions, "warmup", 2), (BiEncoderOptions, "hard_negatives", -1),
    (BiEncoderOptions, "teacher_share", 0), (EncoderOptions, "lora_rank", -1),
    (BiEncoderTraining, "max_tokens", 0),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "wrong"), OUTSIDE)
def test_a_number_outside_its_bounds_is_refused(kind: Any, name: str, wrong: float) -> None:
    given = {"data": "d", "output": "o", "source": "s", "retrievers": ["bm25"]}
    needed = {field: given[field] for field in given if field in kind.__dataclass_fields__}
    raises(ConfigError, f"{name} must be", kind, **needed, **{name: wrong})


@pytest.mark.parametrize(
    ("more", "same"), [({"max_time": "00:00:00:09"}, True), ({"overfit_batches": 2}, False)]
)
def test_further_options_that_change_the_losses_are_recorded(more: dict[str, Any], same: bool) -> None:
    """A run whose time was up goes on with more time."""
    first, second = (
        run_settings(as_record(read_stage("retrieve", (), GIVEN | {"trainer.more": given})))
        for given in ({}, more)
    )
    assert (first == second) == same


def test_what_is_best_follows_from_the_measure() -> None:
    least, most = ("dev_loss", "train_loss", "dev_unclosed"), ("dev_recall", "dev_f1", "dev_hits")
    assert {CheckpointOptions(name).mode for name in least} == {"min"}
    assert {CheckpointOptions(name).mode for name in most} == {"max"}


def test_the_options_of_a_run_are_a_config(data: Path, tmp_path: Path) -> None:
    output = train("retrieve", data, tmp_path / "run", "--trainer.max_epochs=1")
    file = output / "logs" / "version_0" / "config.yaml"
    assert next(file.parent.glob("events*")).stat().st_size > 0
    read = read_stage("retrieve", [str(file)])
    assert read == read_stage("retrieve", (), as_record(read))
    assert (read.model.learning_rate, read.data.batch_size, read.trainer.max_epochs) == (3e-3, 4, 1)


def test_a_run_without_logs(data: Path, tmp_path: Path) -> None:
    """Notebooks train so."""
    output = train(
        "memorise", data, tmp_path / "run", "--trainer.max_epochs=1", "--trainer.more={logger: false}"
    )
    assert (output / "model" / "config.json").is_file()
    assert not (output / "logs").exists()
