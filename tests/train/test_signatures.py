"""The options that ``--help`` of a training reads from source are those that its parser takes."""

from pydoc import locate

import pytest
from lightning.pytorch.cli import LightningArgumentParser

from grls.commands.train import _CALLBACKS
from grls.train.signatures import STAGES, class_options, class_summary

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
    found = {option.name: option for option in class_options("grls.train.chains.data.ChainData", "data.")}
    assert found["data.data"][1:3] == ("str", "required")
    assert found["data.prior"].usual == "null"
    assert found["data.prior.analyzer.stem"][1:3] == ("bool", "False")
    assert found["data.mix.memorise.words"].usual == "(2, 6)"
    assert found["data.batch_size"].usual == "100"  # of a base, by its keywords
    model = {option.name: option for option in class_options("grls.train.chains.module.RetrieveChains")}
    assert (model["loss"].kind, model["loss"].usual) == ("Literal['full', 'allowed']", "'allowed'")
