"""Folders of every kind, written once."""

from pathlib import Path

import pytest
from composite_specs import COMPOSITES, write_kinds, written


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one folder of every kind, side by side, and the data set ``data``."""
    place = write_kinds(tmp_path_factory.mktemp("kinds"))
    for name, spec in COMPOSITES.items():
        written(place / name, spec)
    ranked = {"kind": "hops", "retriever": "../dense", "hops": {"steps": "ranked", "max": 3}}
    written(place / "ranked", ranked)
    return place
