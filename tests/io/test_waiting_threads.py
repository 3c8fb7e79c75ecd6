"""Threads that wait asleep on a busy machine."""

import os

import pytest

from grls.io import progress
from grls.io.progress import wait_asleep_if_busy

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def settings(monkeypatch: pytest.MonkeyPatch, load: float, **own: str) -> list[str | None]:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(progress, "usable_cores", lambda: 2)
    monkeypatch.setattr(os, "environ", dict(own))
    wait_asleep_if_busy()
    return [os.environ.get(name) for name in NAMES]


def test_threads_sleep_where_more_wants_to_run_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch, 2.5) == ["PASSIVE", "0"]
    assert settings(monkeypatch, 1.5) == [None, "1000"]  # others may come later


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch, 9.0, OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE", "0"]
