"""The data set, the bi-encoder and the generator of :func:`kinds`; not to be changed."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data(kinds: Path) -> Path:
    return kinds / "data"


@pytest.fixture(scope="session")
def dense(kinds: Path) -> Path:
    return kinds / "dense"


@pytest.fixture(scope="session")
def generative(kinds: Path) -> Path:
    return kinds / "generative"
