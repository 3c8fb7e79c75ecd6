"""A name holds the whole content or what it held before."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from grls.dataset import write_dataset
from grls.errors import ConfigError, DataError, WriteError
from grls.files import atomic_file, atomic_folder, read_json, sha256, write_json
from grls.types import Passage


def names(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir())


def test_a_file_appears_only_when_complete(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.txt"
    with atomic_file(file) as stream:
        stream.write("ü")
        assert not file.exists()
    assert file.read_bytes() == "ü".encode()
    assert names(file.parent) == ["a.txt"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask


def test_an_error_inside_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_file(file) as stream:
        stream.write(f"new {1 / 0}")
    assert (file.read_text(), names(tmp_path)) == ("old", ["a.txt"])


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for text in ("old", "new"):
        with atomic_folder(folder, "mark") as new:
            (new / "mark").touch()
            (new / text).write_text(text)
    assert (names(tmp_path), names(folder)) == (["set"], ["mark", "new"])
    with pytest.raises(ZeroDivisionError), atomic_folder(folder, "mark") as new:
        (new / "third").write_text(f"{1 / 0}")
    assert (names(tmp_path), names(folder)) == (["set"], ["mark", "new"])


def test_a_failing_rename_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "mark").write_text("old")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(WriteError, match="No space left on device"), atomic_folder(folder, "mark") as new:
        (new / "new").write_text("new")
    assert (names(tmp_path), names(folder)) == (["set"], ["mark"])


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from grls.errors import WriteError
try:
    {body}
except WriteError as error:
    print(error)
    sys.exit(7)
"""


def on_full_disk(body: str, *arguments: object) -> str:
    """Run ``body`` where no file may pass 20 kB; returns the text of the WriteError."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK.format(body=body), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    return done.stdout


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"old": 1})
    body = "from grls.files import write_json; write_json(sys.argv[1], ['x' * 10] * 100_000)"
    message = on_full_disk(body, file)
    assert f"cannot write {file}: File too large; nothing was left under that name." in message
    assert (read_json(file), names(tmp_path)) == ({"old": 1}, ["a.json"])


def test_a_full_disk_leaves_the_old_data_set(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", [Passage("a", "old")], [], {})
    before = (tmp_path / "set" / "corpus.jsonl").read_bytes()
    body = (
        "from grls.dataset import write_dataset; from grls.types import Passage; "
        "write_dataset(sys.argv[1], (Passage(str(n), 'x' * 99) for n in range(9999)), [], {{}})"
    )
    assert "nothing was left" in on_full_disk(body.replace("{{}}", "{}"), tmp_path / "set")
    assert (tmp_path / "set" / "corpus.jsonl").read_bytes() == before
    assert names(tmp_path) == ["set"]


def test_a_full_disk_leaves_no_retriever(tmp_path: Path) -> None:
    """The weights are written by another library, whose error is none of Python's."""
    body = (
        "sys.path.insert(0, sys.argv[2]); from small_data import *; "
        "folder = write_small(Path(sys.argv[1])); "
        "small_retriever(folder).save_pretrained(folder.parent / 'retriever')"
    )
    message = on_full_disk(body, tmp_path / "set", Path(__file__).parent)
    assert f"cannot write {tmp_path / 'retriever'}" in message
    assert "\n" not in message.strip()
    assert names(tmp_path) == ["set"]


def test_a_full_disk_leaves_no_corpus_cache(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"_id": str(n), "text": "x" * 90}) + "\n" for n in range(900))
    (tmp_path / "corpus.jsonl").write_text(lines)
    body = (
        "import grls.corpus, datasets; grls.corpus._IN_MEMORY_BYTES = 0; "
        "datasets.config.HF_DATASETS_CACHE = Path(sys.argv[1]) / 'cache'; "
        "grls.corpus.Corpus.read(sys.argv[1])"
    )
    assert "cannot write" in on_full_disk(body, tmp_path)
    assert names(tmp_path / "cache" / "grls") == []


def test_a_place_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="cannot write"), atomic_file(tmp_path / "file" / "a"):
        pass
    with pytest.raises(WriteError, match="cannot write"), atomic_folder(tmp_path / "file" / "a", "mark"):
        pass
    assert (tmp_path / "file").read_text() == "x"


def test_json_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.json: no such file"):
        read_json(tmp_path / "a.json")
    for bad in (b"{", b"\xff"):
        (tmp_path / "a.json").write_bytes(bad)
        with pytest.raises(DataError, match=r"a\.json: expected a JSON document"):
            read_json(tmp_path / "a.json")


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_folder_of_another_kind_is_never_replaced(tmp_path: Path) -> None:
    """`--output .` must not cost a user the folder they stand in."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"holds no grls\.json"), atomic_folder(tmp_path, "grls.json"):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert list(tmp_path.iterdir()) == [tmp_path / "thesis.tex"]
    with atomic_folder(tmp_path / "new", "grls.json") as new:
        (new / "grls.json").write_text("1")
    with atomic_folder(tmp_path / "new", "grls.json") as new:
        (new / "grls.json").write_text("2")
    assert (tmp_path / "new" / "grls.json").read_text() == "2"


def test_a_folder_never_takes_the_place_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text("dear")
    with pytest.raises(ConfigError, match="is a file"), atomic_folder(file, "marker"):
        pass
    assert file.read_text() == "dear"
