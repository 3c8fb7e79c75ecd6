"""What the tests of training read and do not change: made once."""

from pathlib import Path

import biencoder_helpers
import pytest
from train_helpers import write_chain_parts

from grls.train.biencoder import run

run.LOGGED = 1  # short runs have few steps


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data``, a causal model ``llama``, a dense retriever ``dense``."""
    return write_chain_parts(tmp_path_factory.mktemp("chains"))


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data`` and ``bert``."""
    return biencoder_helpers.made_place(tmp_path_factory.mktemp("biencoder"))


@pytest.fixture(scope="session")
def trained(place: Path) -> Path:
    """The output of a bi-encoder's run of three epochs."""
    return biencoder_helpers.train(place, place / "trained")
