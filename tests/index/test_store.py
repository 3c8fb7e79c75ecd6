"""What loading and building refuse."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_data import small_tokenizer, write_small

from grls.corpus import Corpus
from grls.errors import ConfigError, IndexFormatError
from grls.index import BACKENDS, build_index, index_sequences, load_index, save_index
from grls.index.rows import MAX_LENGTH
from grls.text import Codec, Limits
from grls.types import Passage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_index(index_sequences([np.array([3, 1]), np.array([4, 3, 1])], 1), tmp_path / "index", "t", "c")
    return tmp_path / "index"


def change(folder: Path, *keys: str, value: object = None) -> None:
    """Set a value of the manifest; None takes the key out."""
    file = folder / "index.json"
    manifest = json.loads(file.read_text())
    place = manifest
    for key in keys[:-1]:
        place = place[key]
    place.pop(keys[-1])
    if value is not None:
        place[keys[-1]] = value
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("value", [None, ["other"]])
@pytest.mark.parametrize(
    "keys",
    [
        *(["tokenizer"], ["corpus"], ["end"], ["files"], ["files", "members"]),
        *(["files", "tokens", "bytes"], ["files", "tokens", "sha256"]),
    ],
)
def test_a_manifest_that_lacks_something_is_refused(folder: Path, keys: list[str], value: object) -> None:
    change(folder, *keys, value=value)
    name = ".".join(keys[:2])
    with pytest.raises(IndexFormatError, match=rf"index\.json: the key '{name}' is missing.*grls index"):
        load_index(folder, "t", "c")


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "array"])
def test_the_files_of_another_backend_are_refused(folder: Path, backend: str) -> None:
    save_index(index_sequences([np.array([3, 1])], 1, backend), folder)
    change(folder, "backend", value="marisa" if backend == "flat" else "array")
    with pytest.raises(IndexFormatError, match=r"index\.json: its files are not those of .*grls index"):
        load_index(folder)


def test_the_longest_passage_that_a_codec_gives_fits(tmp_path: Path) -> None:
    """The codec refuses a higher limit, so no corpus can hold a sequence that is too long."""
    tokenizer = small_tokenizer(write_small(tmp_path / "data"))
    corpus = Corpus.from_passages([Passage("a", "calm ."), Passage("b", "calm . " * 40_000)])
    assert len(build_index(corpus, Codec(tokenizer, Limits(passage=MAX_LENGTH - 1)))) == 3
    with pytest.raises(ConfigError):
        build_index(corpus, Codec(tokenizer, Limits(passage=MAX_LENGTH)))
