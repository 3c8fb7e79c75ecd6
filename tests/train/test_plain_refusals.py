"""What `grls train` says of options that it does not know or cannot take: one line, not pages."""

from pathlib import Path

import pytest
from failing import refuses
from train_helpers import arguments

from grls.io.option_errors import plain_error


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("--data.bach_size=3", "--data.bach_size is no option of grls.train.stages.data.RetrieveData; "
         "did you mean --data.batch_size? `grls train retrieve --data.help "
         "grls.train.stages.data.RetrieveData` lists them."),
        ("--model.generator.vocabluary=3", "--model.generator.vocabluary is no option of "
         "grls.models.load.build.ScratchT5; did you mean --model.generator.vocabulary?"),
        ("--data.batch_size=few", "--data.batch_size: expected a whole number, got few."),
        ("--model.loss=ful", "--model.loss: expected one of full, allowed, got ful."),
        ("--data.mix.share=1", "there is no option --data.mix.share."),
        ("--config=/nowhere.yaml", "--config: File does not exist: '/nowhere.yaml'"),
        ("--data=grls.train.stages.data.RetrieveDate", "--data: module 'grls.train.stages.data' has no "
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


def test_other_errors_stay_as_they_are() -> None:
    for text in ("", "expected a number\nof rows", "bad\nGiven value: 3\nmore"):
        assert plain_error(text) == text
