"""Shared paths and small models."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before torch is loaded: the models here are too small for two threads, which only wait for each other where
# the machine is shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

import pytest
from hypothesis import settings

# No test is about time: a busy machine made examples fail by hypothesis' deadline of 200 ms.
settings.register_profile("grls", deadline=None)
settings.load_profile("grls")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """`grls serve` in the process of a test changes the logs, for good: the next test has them as before."""
    logs = [logging.getLogger(name) for name in ("grls", "uvicorn", "mcp")]
    before = [(log, list(log.handlers), log.propagate, log.level) for log in logs]
    yield
    for log, handlers, propagate, level in before:
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)
