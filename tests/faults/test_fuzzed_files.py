"""Index files made up by a stranger: every checksum fits, the arrays do not. And manifests of any JSON.

What comes is an error of grls, or an index that can be walked; never another exception, an endless walk, or
memory beyond what the files' sizes allow.
"""

import json
import shutil
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_folders import write_indexes
from fuzzing import JSON, NUMBERS, fuzzed, within_bounds
from hypothesis import given
from hypothesis import strategies as st

from grls.errors import ConfigError, GrlsError, IndexFormatError
from grls.index.base import Segment
from grls.index.index_check import check_index
from grls.index.storage import load_index
from grls.io.seal import seal

MOST_BYTES = 64 * 2**20
"""Of memory, for indexes of a few kilobytes; loading also fills caches of NumPy."""

WHOLE = NUMBERS.filter(lambda number: isinstance(number, int))
NAMES = ["index-array-whole", "index-array-prefixes", "index-marisa-whole", "index-flat-whole"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("indexes")
    write_indexes(place)
    return place


@pytest.fixture
def fresh(made: Path, tmp_path: Path) -> Any:
    def copy(name: str) -> Path:
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        return Path(shutil.copytree(made / name, tmp_path / "index"))

    return copy


def walk(index: Segment) -> None:
    """What a search does with an index, as far as it goes."""
    states = np.array([index.start()])
    for _ in range(min(index.rows.longest, 70_000) + 1):
        allowed = index.allowed(states)
        assert len(allowed.states) <= len(index.rows) + 1
        if not len(allowed.states):
            break
        assert (index.count(allowed.states) >= 0).all()
        states = allowed.states
    for passage in range(min(len(index), 5)):
        index.tokens(passage)
    index.passages(index.start())


def tried(folder: Path) -> None:
    told = f"{folder} grls index"
    tracemalloc.start()
    try:
        with within_bounds():
            index = load_index(folder)
        # `prefixes` is refused beyond a prefix, and so is a trie of other tokens.
        with within_bounds(), suppress(ConfigError, IndexFormatError):
            walk(index)
    except GrlsError as error:
        told = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES
    assert str(folder) in told
    assert "grls index" in told


@fuzzed(60)
@given(st.sampled_from(NAMES), st.data())
def test_arrays_whose_checksums_fit(fresh: Any, name: str, data: st.DataObject) -> None:
    folder = fresh(name)
    files = sorted(folder.glob("*.npy"))
    for file in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2)):
        np.save(file, changed(np.load(file), data))
    manifest = json.loads((folder / "index.json").read_text())
    sizes = {"passages": "members", "tokens": "tokens"}
    for key, array in sizes.items():
        manifest[key] = len(np.atleast_1d(np.load(folder / f"{array}.npy")))
    seal(folder / "index.json", manifest)
    tried(folder)
    check_index(folder)


def changed(array: Any, data: st.DataObject) -> Any:
    """An array of other numbers, another length, type or shape."""
    how = data.draw(
        st.sampled_from(["number", "number", "number", "longer", "shorter", "type", "shape", "order"])
    )
    flat = array.reshape(-1).copy()
    if how == "number" and flat.dtype.kind in "iu" and len(flat):
        place = data.draw(st.integers(0, len(flat) - 1))
        limits = np.iinfo(flat.dtype)
        flat[place] = min(max(data.draw(WHOLE), int(limits.min)), int(limits.max))
        return flat.reshape(array.shape)
    if how == "longer":
        return np.concatenate([array, array])
    if how == "shorter":
        return array[: data.draw(st.integers(0, max(len(array) - 1, 0)))] if array.ndim else array
    if how == "type":
        kind = data.draw(st.sampled_from(["<f4", "<i8", "<u8", "|u1", "<c8", "|S3", ">u2", "?"]))
        return array.astype(kind) if array.dtype.kind in "iu" else array
    return flat[::-1] if how == "order" else flat.reshape(1, -1)


@fuzzed(60)
@given(st.sampled_from(NAMES), st.data())
def test_manifests_of_any_json(fresh: Any, name: str, data: st.DataObject) -> None:
    """Sizes that the files do not have are refused before anything of such a size is made."""
    folder = fresh(name)
    manifest = json.loads((folder / "index.json").read_text())
    del manifest["seal"]
    place, key = manifest, data.draw(st.sampled_from(sorted(manifest)))
    while isinstance(place[key], dict) and data.draw(st.integers(0, 3)):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place)))
    place[key] = data.draw(JSON)
    (folder / "index.json").write_text(json.dumps(manifest))
    tried(folder)


@fuzzed(60)
@given(st.sampled_from(NAMES), st.binary(max_size=300), st.data())
def test_files_of_any_bytes(fresh: Any, name: str, content: bytes, data: st.DataObject) -> None:
    folder = fresh(name)
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    kept = file.read_bytes()
    cut = data.draw(st.integers(0, len(kept)))
    file.write_bytes(kept[:cut] + content)
    if file.suffix == ".npy":
        seal(folder / "index.json", json.loads((folder / "index.json").read_text()))
    tried(folder)
