"""Options of `grls train`: refused in one line, numbers keep their kind, ``--help`` lists what is taken."""

from pathlib import Path
from pydoc import locate
from typing import Any, Union

import pytest
from failing import refuses
from lightning.pytorch.cli import LightningArgumentParser
from train_helpers import arguments

from grls.commands.train import _CALLBACKS
from grls.train.cli import Parser
from grls.train.signatures import STAGES, class_options, class_summary


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("--data.bach_size=3", "--data.bach_size is no option of grls.train.generator.data.RetrieveData; "
         "did you mean --data.batch_size? `grls train retrieve --data.help "
         "grls.train.generator.data.RetrieveData` lists them."),
        ("--model.generator.vocabluary=3", "--model.generator.vocabluary is no option of "
         "grls.models.load.build.ScratchT5; did you mean --model.generator.vocabulary?"),
        ("--data.batch_size=few", "--data.batch_size: expected a whole number, got few."),
        ("--model.loss=ful", "--model.loss: expected one of full, allowed, got ful."),
        ("--data.mix.share=1", "there is no option --data.mix.share."),
        ("--config=/nowhere.yaml", "--config: File does not exist: '/nowhere.yaml'"),
        ("--data=grls.train.generator.data.RetrieveDate", "--data: module 'grls.train.generator.data' has no "
         "attribute "
         "'RetrieveDate'"),
        ("--model.generator=ScratchT6", "--model.generator: cannot take ScratchT6."),
        ("--nothing=3", "there is no option --nothing."),
        ("--outp=o", "there is no option --outp; did you mean --output?"),
    ],
)  # fmt: skip
def test_an_option_is_named_in_one_line(
    wrong: str, told: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refuses(capsys, "train", *arguments("retrieve", data, tmp_path / "run", wrong))
    assert text.splitlines() == [f"error: {told}", "`grls train retrieve --help` lists the options."]


def test_what_must_be_given_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments("retrieve", Path("data"), tmp_path / "run")
    without = [option for option in given if not option.startswith("--data.data")]
    assert refuses(capsys, "train", *without).startswith("error: --data.data must be given.\n")


class Limits:
    def __init__(
        self,
        batches: Union[float, int, None] = None,  # noqa: UP007
        every: Union[str, float, int] = 1.0,  # noqa: UP007
        rate: float = 0.5,
    ):
        self.batches, self.every, self.rate = batches, every, rate


@pytest.mark.parametrize(("given", "expected"), [(1, int), (7, int), (1.0, float), (0.25, float)])
def test_a_number_keeps_its_kind(given: Any, expected: type) -> None:
    parser = Parser(exit_on_error=False)
    parser.add_class_arguments(Limits, "limits")
    parsed = parser.parse_object({"limits": {"batches": given, "rate": given}})
    assert type(parsed.limits.batches) is expected
    assert type(parsed.limits.rate) is float
    assert type(parser.parse_args([f"--limits.batches={given}"]).limits.batches) is expected


PATHS = {path for stage in STAGES.values() for path in (stage.model, stage.data, *stage.measured.values())}


@pytest.mark.parametrize("path", sorted({*PATHS, *_CALLBACKS.values()}))
def test_the_names_are_those_of_the_parser(path: str) -> None:
    parser = LightningArgumentParser()
    parser.add_class_arguments(locate(path), "x", fail_untyped=False)  # type: ignore[arg-type]
    places = [action.dest.split(".") for action in parser._actions]
    expected = {place[1] for place in places if place[0] == "x" and len(place) > 1} - {"help"}
    found = class_options(path)
    assert {option.name.split(".")[0] for option in found} == expected
    assert class_summary(path)
    assert all(option.help for option in found if not path.startswith("lightning")), path


def test_kinds_and_defaults_are_spelled_out() -> None:
    found = {
        option.name: option for option in class_options("grls.train.generator.data.RetrieveData", "data.")
    }
    assert found["data.data"][1:3] == ("str", "required")
    assert found["data.prior"].usual == "null"
    assert found["data.prior.analyzer.stem"][1:3] == ("bool", "False")
    assert found["data.mix.memorise.reads"].usual == "'front'"
    assert found["data.batch_size"].usual == "100"  # of a base, by its keywords
    model = {option.name: option for option in class_options("grls.train.generator.module.RetrieveChains")}
    assert (model["loss"].kind, model["loss"].usual) == ("Literal['full', 'allowed']", "'allowed'")
