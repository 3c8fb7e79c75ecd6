"""A trie from elsewhere is walked only where all its places are within it."""

import json
import random
from pathlib import Path
from typing import Any

import marisa_trie
import numpy as np
import pytest

from grls.errors import IndexFormatError
from grls.index import index_sequences, load_index, save_index
from grls.index.array_files import describe_arrays
from grls.index.trie_check import check_trie


def made_keys(rng: random.Random, count: int, longest: int, letters: str, closed: bool) -> set[str]:
    keys = {"".join(rng.choices(letters, k=rng.randint(1, longest))) for _ in range(count)}
    return {key[:n] for key in keys for n in range(1, len(key) + 1)} if closed else keys


@pytest.mark.parametrize("letters", ["ab", "abcdefgh", "aé漢𝒳"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(("count", "longest"), [(0, 1), (1, 1), (2, 9), (300, 5), (900, 40)])
def test_every_trie_of_the_library_passes(letters: str, closed: bool, count: int, longest: int) -> None:
    """Also those of several levels, whose texts are nodes of the next level."""
    keys = made_keys(random.Random(count), count, longest, letters, closed)
    content = marisa_trie.Trie(keys).tobytes()
    most = max((len(key.encode()) for key in keys), default=0)
    check_trie(content, most)
    if most > 1:
        with pytest.raises(ValueError, match=f"more than {most - 1} bytes"):
            check_trie(content, most - 1)
    for broken in (content[:-1], content + b"\0", b"w" + content[1:], b""):
        with pytest.raises(ValueError, match=r"it ends|it goes on|another header"):
            check_trie(broken, most)


def test_what_passes_can_be_walked() -> None:
    """Before, a third of such tries ended in an error of Python, in a crash, or never."""
    rng = random.Random(1)
    keys = made_keys(rng, 40, 9, "abcdefgh", closed=True)
    content = marisa_trie.Trie(keys).tobytes()
    passed = 0
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        try:
            check_trie(bytes(changed), 9)
            trie = marisa_trie.Trie().frombytes(bytes(changed))
        except (ValueError, RuntimeError):
            continue
        passed += 1
        for number in range(len(trie)):
            try:
                assert len(trie.restore_key(number).encode()) <= 9
            except UnicodeDecodeError:
                continue
        assert all(0 <= trie.get(key, 0) < len(trie) for key in keys)
    assert 0 < passed < len(content) // 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    sequences = [np.append(rng.integers(2, 6, int(rng.integers(1, 9))), 1) for _ in range(60)]
    folder = tmp_path_factory.mktemp("tries") / "index"
    save_index(index_sequences(sequences, 1, "marisa"), folder, "t", "c")
    return folder


def with_trie(made: Path, folder: Path, trie: Any) -> Path:
    """The index with another trie and checksums that fit, as a stranger can write it."""
    folder.mkdir()
    for file in made.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    np.save(folder / "trie.npy", trie)
    manifest = json.loads((folder / "index.json").read_text())
    manifest["files"] = describe_arrays(folder)
    (folder / "index.json").write_text(json.dumps(manifest))
    return folder


def test_an_index_with_a_broken_trie_is_refused(made: Path, tmp_path: Path) -> None:
    trie = np.load(made / "trie.npy")
    place = 219  # in its counts: states beyond the last one, in an error of NumPy
    changed = trie.copy()
    changed[place] ^= 1
    with pytest.raises(IndexFormatError, match=r"trie\.npy: this is no trie: .*build it again"):
        load_index(with_trie(made, tmp_path / "places", changed))


def test_a_trie_of_keys_that_are_no_text_is_refused_when_it_is_walked(made: Path, tmp_path: Path) -> None:
    count = len(marisa_trie.Trie().frombytes(np.load(made / "trie.npy").tobytes()))
    keys = [bytes([255, 1 + number % 200, 1 + number // 200]) for number in range(count)]
    other = np.frombuffer(marisa_trie.BinaryTrie(keys).tobytes(), dtype=np.uint8)
    index = load_index(with_trie(made, tmp_path / "other", other))
    with pytest.raises(IndexFormatError, match="the trie holds keys that are no text; build it again"):
        index.allowed(np.arange(count))
