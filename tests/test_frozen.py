"""Results stay as they are: every run of ``frozen_runs.py`` against its file in ``tests/frozen``."""

import json

import pytest
from frozen_runs import RUNS, Place
from frozen_values import HERE, differences, frozen


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("frozen"))


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_that_were_frozen(name: str, place: Place) -> None:
    found = json.loads(json.dumps(RUNS[name](place)))
    assert differences(frozen(name), found, name) == []


def test_every_frozen_file_has_its_run_and_all_are_small() -> None:
    files = sorted(HERE.iterdir())
    assert [file.stem for file in files] == sorted(RUNS)
    assert sum(file.stat().st_size for file in files) < 150_000
