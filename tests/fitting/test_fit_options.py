"""What a user may choose."""

from grls.fitting.options import FitOptions


def test_a_budget_in_seconds_or_without_limit() -> None:
    given = ("30m", "1h30m", "90s", "1.5h", "2h 5m", "1M", "+30m", None)
    assert [FitOptions(budget=b).seconds for b in given] == [1800, 5400, 90, 5400, 7500, 60, 1800, None]


def test_a_device_that_the_trainings_take() -> None:
    devices = ["auto", "cpu", "cuda", "cuda:0", "mps"]
    assert [FitOptions(device=device).device for device in devices] == devices


def test_a_measure_decides_by_its_name_and_recall_at_k_without_one() -> None:
    assert FitOptions(k=3).decides == "R@3"
    assert FitOptions(measure="nDCG@10").decides == "nDCG@10"
    assert (FitOptions(budget="+30m").adds, FitOptions(budget="30m").adds) == (True, False)


def test_the_number_behind_a_measure_may_be_no_rank() -> None:
    assert [FitOptions(measure=name).depth for name in ("IPrec@0.5", "R@50", "RR")] == [20, 50, 20]
