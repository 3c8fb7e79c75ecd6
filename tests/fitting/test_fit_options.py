"""What a user may choose."""

from math import inf
from typing import Any

import pytest

from grls.errors import ConfigError
from grls.fitting.options import FitOptions


def test_a_budget_in_seconds_or_without_limit() -> None:
    given = ("30m", "1h30m", "90s", "1.5h", "2h 5m", "1M", "+30m", None)
    assert [FitOptions(budget=b).seconds for b in given] == [1800, 5400, 90, 5400, 7500, 60, 1800, inf]


def test_a_device_that_the_trainings_take() -> None:
    devices = ["auto", "cpu", "cuda", "cuda:0", "mps"]
    assert [FitOptions(device=device).device for device in devices] == devices


def test_a_measure_decides_by_its_name_and_recall_at_k_without_one() -> None:
    assert FitOptions(k=3).decides == "R@3"
    assert FitOptions(measure="nDCG@10").decides == "nDCG@10"
    assert (FitOptions(budget="+30m").adds, FitOptions(budget="30m").adds) == (True, False)


def test_the_number_behind_a_measure_may_be_no_rank() -> None:
    assert [FitOptions(measure=name).depth for name in ("IPrec@0.5", "R@50", "RR")] == [20, 50, 20]


NO_TIMES = ("", "30", "0m", "half an hour", "-5m", "m", "5m5h")
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"budget": text}, "expected a budget such as 30m, 1h30m or 90s") for text in NO_TIMES),
    ({"budget": 60}, "budget must be a text, got 60"),
    ({"device": "gpu"}, "device: expected auto, cpu, cuda or mps, got 'gpu'"),
    ({"device": "cuda:1"}, r"got 'cuda:1'\. Set CUDA_VISIBLE_DEVICES=1, and give cuda"),
    ({"measure": "nDCG@x"}, "nDCG@x"),
    ({"k": 0}, "k must be at least 1, got 0"),
    ({"writer_limit": 9}, "writer names no model that writes questions; give one"),
    ({"writer": "http://localhost:1/v1"}, "writer_model names the model at http://localhost:1/v1; give it"),
    ({"writer": "localhost:8000/v1", "writer_model": "some"}, "localhost.* is no address: give one such as"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_values_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FitOptions(**given)
