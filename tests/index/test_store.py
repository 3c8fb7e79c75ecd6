"""What loading and building refuse, and a backend that the package does not have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from failing import raises
from small_data import small_tokenizer, write_small

from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError, IndexFormatError
from grls.index.backends import BACKENDS, FlatIndex, check_backend, register_backend
from grls.index.base import Segment
from grls.index.build import build_index, index_sequences
from grls.index.rows import MAX_LENGTH, Array, Ints, Rows
from grls.index.storage import load_index, save_index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_index(index_sequences([np.array([3, 1]), np.array([4, 3, 1])], 1), tmp_path / "index", "t", "c")
    return tmp_path / "index"


def change(folder: Path, *keys: str, value: object = None) -> None:
    """Set a value of the manifest; None takes the key out."""
    file = folder / "index.json"
    manifest = json.loads(file.read_text())
    del manifest["seal"]
    place = manifest
    for key in keys[:-1]:
        place = place[key]
    place.pop(keys[-1])
    if value is not None:
        place[keys[-1]] = value
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("value", [None, ["other"]])
@pytest.mark.parametrize("keys", [
    *(["tokenizer"], ["corpus"], ["end"], ["files"]),
    *(["files", "tokens.npy", "bytes"], ["files", "tokens.npy", "sha256"]),
])  # fmt: skip
def test_a_manifest_that_lacks_something_is_refused(folder: Path, keys: list[str], value: object) -> None:
    change(folder, *keys, value=value)
    with pytest.raises(
        IndexFormatError, match=rf"index\.json: the key '{keys[0]}' is .*malformed.*grls index"
    ):
        load_index(folder, "t", "c")


@pytest.mark.parametrize("value", [["array"], {"array": 1}, "trie"])
def test_a_backend_that_is_none_is_refused(folder: Path, value: object) -> None:
    change(folder, "backend", value=value)
    raises(IndexFormatError, "reads array, ", load_index, folder)


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "array"])
def test_the_files_of_another_backend_are_refused(folder: Path, backend: str) -> None:
    save_index(index_sequences([np.array([3, 1])], 1, backend), folder)
    change(folder, "backend", value="array")
    raises(IndexFormatError, r"index\.json: its files do not fit .*grls index", load_index, folder)


def test_the_longest_passage_that_a_codec_gives_fits(tmp_path: Path) -> None:
    """The codec refuses a higher limit, so no corpus can hold a sequence that is too long."""
    tokenizer = small_tokenizer(write_small(tmp_path / "data"))
    corpus = Corpus.from_passages([Passage("a", "calm ."), Passage("b", "calm . " * 40_000)])
    assert len(build_index(corpus, Codec(tokenizer, Limits(passage=MAX_LENGTH - 1)))) == 3
    with pytest.raises(ConfigError):
        build_index(corpus, Codec(tokenizer, Limits(passage=MAX_LENGTH)))


def damage(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("verify", [None, True])
def test_a_changed_byte_is_found(folder: Path, verify: bool | None) -> None:
    damage(folder / "tokens.npy", -1)
    with pytest.raises(IndexFormatError, match=r"tokens\.npy: it has changed.*grls index"):
        load_index(folder, verify=verify)
    load_index(folder, verify=False)


def test_a_large_index_is_opened_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grls.io.seal.CHECKED_BYTES", 10_000)
    monkeypatch.setattr("grls.io.seal._SAMPLE_BYTES", 100)
    sequences = np.random.default_rng(0).integers(2, 9, (2_000, 20))
    save_index(index_sequences([np.append(s, 1) for s in sequences], 1), tmp_path / "index")
    file = tmp_path / "index" / "tokens.npy"
    size = file.stat().st_size
    monkeypatch.setattr("grls.io.seal.sha256", None)  # reading everything would fail
    load_index(tmp_path / "index")
    damage(file, size // 2)  # between two samples
    load_index(tmp_path / "index")
    content = bytearray(file.read_bytes())
    content[size // 2 : size // 2 + size // 10] = bytes(size // 10)  # a hole
    file.write_bytes(content)
    raises(IndexFormatError, r"tokens\.npy: it has changed", load_index, tmp_path / "index")


def test_a_damaged_header_or_size_is_refused_unverified_too(folder: Path) -> None:
    damage(folder / "members.npy", 0)
    with pytest.raises(IndexFormatError, match=r"members\.npy: no array can be read.*grls index"):
        load_index(folder, verify=False)
    damage(folder / "members.npy", 0)
    change(folder, "rows", value=7)
    raises(IndexFormatError, "2 rows, the manifest says 7", load_index, folder, verify=False)


def test_passages_that_are_cut_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_small(tmp_path)
    codec = Codec(small_tokenizer(data), Limits(passage=6))
    corpus = Corpus.read(data)
    longer = sum(len(codec.texts([passage.text])[0]) > 6 for passage in corpus)
    assert 0 < longer < len(corpus)
    build_index(corpus, codec)
    assert f"{longer} of {len(corpus)} passages are longer than 6 tokens" in caplog.text
    caplog.clear()
    build_index(corpus, Codec(codec.tokenizer, Limits()))
    assert not caplog.text


ROWS = [np.array(tokens) for tokens in ([3, 4, 1], [3, 5, 1], [6, 1], [3, 4, 1])]


class Dated(FlatIndex):
    """Flat, with an array of its own."""

    backend = "dated"
    stored = ("days",)
    days: Array

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:
        made = super().build(rows, shared)
        made.days = np.arange(len(rows))
        return made

    def arrays(self) -> dict[str, Array]:
        return {"days": self.days}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:
        made = super().restore(rows, {})
        made.days = arrays["days"]
        return made


@pytest.fixture
def known() -> Iterator[None]:
    register_backend(Dated)
    yield
    BACKENDS.pop("dated", None)


def test_it_is_stored_and_opened_with_its_arrays(known: None, tmp_path: Path) -> None:
    save_index(index_sequences(ROWS, 1, "dated"), tmp_path / "index")
    opened = load_index(tmp_path / "index")
    assert isinstance(opened, Dated)
    assert opened.days.tolist() == [0, 1, 2]
    assert [opened.tokens(n).tolist() for n in range(4)] == [list(tokens) for tokens in ROWS]


def test_the_option_names_what_is_registered(known: None) -> None:
    raises(ConfigError, "array, marisa, flat, dated", check_backend, "nope")


def test_arrays_that_are_not_declared_are_refused_when_they_are_stored(known: None, tmp_path: Path) -> None:
    class Silent(Dated):
        backend, stored = "silent", ()

    index = Silent.build(index_sequences(ROWS, 1, "dated").rows, np.zeros(0, np.int64))
    said = r"stores the arrays \['days'\] and declares \[\]"
    raises(ConfigError, said, save_index, index, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(("changes", "message"), [
    ({"backend": "flat"}, "is FlatIndex already"),
    ({"backend": ""}, "has no name"),
    ({"backend": "new", "stored": ("tokens",)}, "stores 'tokens', which is an array of the rows"),
])  # fmt: skip
def test_a_class_that_cannot_be_a_backend_is_refused(changes: dict[str, Any], message: str) -> None:
    one = type("One", (FlatIndex,), changes)
    raises(ConfigError, message, register_backend, one)
    assert set(BACKENDS) == {"array", "marisa", "flat"}


def test_a_class_without_its_methods_is_refused() -> None:
    half = type("Half", (Segment,), {"backend": "half", "start": lambda self: 0})
    raises(ConfigError, "lacks allowed, arrays, build, restore, span", register_backend, half)


def test_a_folder_of_a_backend_that_is_unknown_here_says_so(known: None, tmp_path: Path) -> None:
    save_index(index_sequences(ROWS, 1, "dated"), tmp_path / "index")
    del BACKENDS["dated"]
    raises(IndexFormatError, "backend 'dated'.*register", load_index, tmp_path / "index")
