"""Models of entailment, both kinds."""

import logging
from collections.abc import Callable
from pathlib import Path

import nli_models
import pytest
from failing import raises

from grls.errors import ConfigError
from grls.models.entailment import ClassifyingJudge, WritingJudge, load_entailment

KINDS = {"classifier": (nli_models.classifier, ClassifyingJudge), "writer": (nli_models.writer, WritingJudge)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folder = tmp_path_factory.mktemp("nli")

    def get(kind: str) -> str:
        if not (folder / kind).is_dir():
            KINDS[kind][0](folder / kind)
        return str(folder / kind)

    return get


@pytest.mark.parametrize("batch_size", [1, 3, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_judge_judges_in_order(model: Callable[[str], str], kind: str, batch_size: int) -> None:
    judge = load_entailment(model(kind), "cpu", batch_size)
    assert isinstance(judge, KINDS[kind][1])
    premises, hypotheses, wanted = (list(column) for column in zip(*nli_models.PAIRS[:20], strict=True))
    assert judge.entails(premises, hypotheses) == wanted
    assert judge.entails(premises[::-1], hypotheses[::-1]) == wanted[::-1]
    assert judge.entails([], []) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_premise_is_cut_from_its_end_and_the_hypothesis_never(
    model: Callable[[str], str], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    # [CLS] p [SEP] h [SEP], or premise : p hypothesis : h </s>, in 14 tokens: 3 of a hypothesis leave 8 or 6.
    judge = load_entailment(model(kind), "cpu", max_tokens=14)
    room = 8 if kind == "classifier" else 6
    fill = ["the"] * (room - 1)
    assert judge.entails([" ".join([*fill, "red", "it"])], ["the barn is"]) == [True]
    assert judge.entails([" ".join([*fill, "blue", "red"])], ["the barn is"]) == [False]
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert judge.entails(["red", "red"], ["the " * 20, "the barn"]) == [False, True]
    assert "1 hypotheses leave no room" in caplog.text


def test_a_long_premise_goes_by_the_models_positions(model: Callable[[str], str]) -> None:
    judge = load_entailment(model("classifier"), "cpu")
    assert isinstance(judge, ClassifyingJudge)
    assert judge.max_tokens == 40
    assert judge.entails(["red " * 100], ["the barn"]) == [True]


@pytest.mark.parametrize("labels", [("LABEL_0", "LABEL_1"), ("not_entailment", "contradiction")])
def test_labels_without_entailment_are_refused(tmp_path: Path, labels: tuple[str, ...]) -> None:
    nli_models.classifier(tmp_path / "m", labels)
    with pytest.raises(ConfigError, match=f"has the labels {', '.join(labels)}, and exactly one"):
        load_entailment(str(tmp_path / "m"), "cpu")


def test_the_label_is_known_however_it_is_written(tmp_path: Path) -> None:
    nli_models.classifier(tmp_path / "m", ("not_entailment", "ENTAILMENT"))
    judge = load_entailment(str(tmp_path / "m"), "cpu")
    assert isinstance(judge, ClassifyingJudge)
    assert judge.label == 1


def test_what_is_no_model_is_refused(tmp_path: Path, model: Callable[[str], str]) -> None:
    raises(ConfigError, "no such folder", load_entailment, str(tmp_path / "nowhere"))
    raises(ConfigError, "cannot load a model of entailment", load_entailment, str(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_that_are_no_numbers_are_told(model: Callable[[str], str], kind: str) -> None:
    judge = load_entailment(model(kind), "cpu")
    for weight in judge.model.parameters():
        weight.data.fill_(float("nan"))
    raises(ConfigError, "not numbers", judge.entails, ["red"], ["the barn"])
