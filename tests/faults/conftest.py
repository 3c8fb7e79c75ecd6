"""Folders of every kind and form, written once for all tests of this folder."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of :func:`fault_folders.write_every_kind`; what a test changes it puts back."""
    from fault_folders import write_every_kind

    place = tmp_path_factory.mktemp("every")
    write_every_kind(place)
    return place
