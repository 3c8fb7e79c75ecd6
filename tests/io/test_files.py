"""A name holds the whole content or what it held before."""

import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from failing import raises
from fixture_types import Patch
from full_disk import full_disk
from small_data import small_retriever, write_small

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.filters import read_allowed
from grls.data.types import Hit
from grls.errors import ConfigError, DataError, WriteError
from grls.io import ending
from grls.io.files import (
    _machine,
    atomic_file,
    atomic_folder,
    atomic_path,
    named_lines,
    near_name,
    read_json,
    read_text,
    refuse_foreign,
    refuse_unwritable,
    text_lines,
    write_json,
)
from grls.runs.trec import read_run


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


def test_a_failing_rename_puts_the_old_folder_back(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "mark").write_text("old")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    monkeypatch.setattr("grls.io.files.exchange", lambda one, other: False)  # as an old system
    with pytest.raises(WriteError, match="No space left on device"), atomic_folder(folder, "mark") as new:
        (new / "new").write_text("new")
    assert (names(tmp_path), names(folder)) == (["set"], ["mark"])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems exchange no names")
def test_a_folder_is_there_while_it_is_replaced(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / "set"
    write_set(folder, "old")
    monkeypatch.setattr(Path, "rename", None)  # what there was is never moved away
    write_set(folder, "new")
    assert ((folder / "mark").read_text(), names(tmp_path)) == ("new", ["set"])


def write_set(folder: Path, text: str) -> None:
    with atomic_folder(folder, "mark") as new:
        (new / "mark").write_text(text)


KILLED = """
import os, signal, sys
from pathlib import Path
import grls.io.files
from grls.io.files import atomic_file, atomic_folder, atomic_path
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
place = Path(sys.argv[1])
{point}
with atomic_folder(place / "set", "mark") as new:
    (new / "mark").write_text("new")
"""
POINTS = {
    "in a file": "with atomic_file(place / 'file') as s: s.write('new'); s.flush(); die()",
    "in a path": "with atomic_path(place / 'file') as p: p.write_text('new'); die()",
    "in a folder": "with atomic_folder(place / 'set', 'mark') as new: (new / 'mark').touch(); die()",
    "between two renames": "grls.io.files.exchange = lambda *_: False; rename = Path.rename; "
    "Path.rename = lambda self, to: die() if self.name == 'new' else rename(self, to)",
    "after the exchange": "import shutil; shutil.rmtree = die",
}


@pytest.mark.parametrize("point", POINTS)
def test_what_a_killed_writer_leaves_goes_with_the_next_one(point: str, tmp_path: Path) -> None:
    write_set(tmp_path / "set", "old")
    (tmp_path / "file").write_text("old")
    code = KILLED.format(point=POINTS[point])
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == (2 if point == "between two renames" else 3)
    assert (tmp_path / "file").read_text() == "old"
    refuse_foreign(tmp_path / "set", "mark")  # what a command calls before its work
    there = "new" if point == "after the exchange" else "old"
    assert (tmp_path / "set" / "mark").read_text() == there
    with atomic_file(tmp_path / "file") as stream:
        stream.write("third")
    assert names(tmp_path) == ["file", "set"]


def test_what_others_are_writing_stays(tmp_path: Path, monkeypatch: Patch) -> None:
    """One that holds its lock, at any age; one of another machine; one with a name like ours."""
    monkeypatch.setattr("grls.io.files._YOUNG", -1)
    for name in (".a.0000zzzz.x.tmp", ".a.b.tmp", f".ab.{_machine()}.x.tmp"):
        (tmp_path / name).mkdir()
    foreign = tmp_path / f".a.{'0000' if _machine()[:4] != '0000' else '1111'}ffff.x.tmp"
    foreign.mkdir()
    before = names(tmp_path)
    with atomic_file(tmp_path / "a") as first:
        first.write("first")
        with atomic_file(tmp_path / "a") as second:
            second.write("second")
    assert (tmp_path / "a").read_text() == "first"
    assert names(tmp_path) == [*before, "a"]


@pytest.mark.parametrize("locked", [False, True])
def test_a_writer_that_is_young_stays_until_it_is_due(locked: bool, tmp_path: Path) -> None:
    """It may be between making the folder and holding the lock."""
    work = tmp_path / f".a.{_machine()}.x.tmp"
    for due in (False, True):
        work.mkdir()
        if locked:
            (work / "lock").touch()
        if due and locked:
            (work / "new").mkdir()
        elif due:
            os.utime(work, (0, 0))
        write_json(tmp_path / "a", 1)
        assert work.is_dir() != due
        shutil.rmtree(work, ignore_errors=True)
    assert names(tmp_path) == ["a"]


@pytest.fixture
def machine(monkeypatch: Patch, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """What a machine would be called that has this name and this time of start."""

    def named(host: str, boot: str) -> str:
        monkeypatch.setattr("socket.gethostname", lambda: host)
        file = tmp_path / "boot" / boot
        if boot:
            file.parent.mkdir(exist_ok=True)
            file.write_text(boot)
        monkeypatch.setattr("grls.io.files._BOOT", str(file if boot else tmp_path / "missing"))
        _machine.cache_clear()
        return _machine()

    yield named
    monkeypatch.undo()
    _machine.cache_clear()


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        (("a", "monday"), ("a", "tuesday"), True),  # started again
        (("a", "monday"), ("b", "monday"), True),  # a container of another name
        (("a", "monday"), ("b", "tuesday"), False),
        (("mac", ""), ("mac", ""), True),
        (("mac", ""), ("book", ""), False),
    ],
)
def test_machines_are_told_apart(
    theirs: Any, ours: Any, same: bool, machine: Callable[..., str], tmp_path: Path
) -> None:
    folder = tmp_path / f".a.{machine(*theirs)}.x.tmp"
    folder.mkdir()
    os.utime(folder, (0, 0))
    machine(*ours)
    write_json(tmp_path / "a", 1)
    assert folder.is_dir() != same


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_a_command_leaves_nothing(name: str, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time, grls.cli as cli; from grls.io.files import atomic_file\n"
        f"signal.signal(signal.{name}, signal.SIG_DFL)  # nohup ignores SIGHUP\n"
        "def run(*_):\n"
        "    with atomic_file(sys.argv[1]) as stream:\n"
        f"        os.kill(os.getpid(), signal.{name}); time.sleep(60)\n"
        "cli.Command.run = run; sys.exit(cli.main(['index']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, names(tmp_path)) == (128 + getattr(signal, name), [])
    assert done.stderr == f"error: ended by {name}; nothing half-written is left.\n"


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "set").symlink_to(tmp_path / "big" / "set")
    (tmp_path / "a").symlink_to(tmp_path / "big" / "a")
    for text in ("1", "2"):
        write_set(tmp_path / "set", text)
        write_json(tmp_path / "a", int(text))
        assert (tmp_path / "big" / "set" / "mark").read_text() == text
        assert read_json(tmp_path / "big" / "a") == int(text)
    assert (tmp_path / "set").is_symlink()
    assert (tmp_path / "a").is_symlink()
    assert names(tmp_path / "big") == ["a", "set"]


def test_long_names_are_written_or_refused(tmp_path: Path) -> None:
    write_json(tmp_path / ("é" * 125), 1)
    assert read_json(tmp_path / ("é" * 125)) == 1
    raises(WriteError, r"[Nn]ame too long", write_json, tmp_path / ("é" * 130), 1)
    raises(ConfigError, "has 250 bytes, at most 235 leave room", refuse_unwritable, tmp_path / ("a" * 250))


@pytest.mark.parametrize("given", ["runs/", ".", "..", "", "/"])
def test_a_folder_is_no_name_of_files(given: str) -> None:
    raises(ConfigError, "names a folder, and files are written", refuse_unwritable, given)


def test_the_folder_that_a_command_runs_in_is_not_replaced(tmp_path: Path, monkeypatch: Patch) -> None:
    write_set(tmp_path / "set", "old")
    (tmp_path / "set" / "within").mkdir()
    for place in (tmp_path / "set", tmp_path / "set" / "within"):
        monkeypatch.chdir(place)
        with pytest.raises(ConfigError, match="the folder that this command runs in, or holds it"):
            write_set(Path(os.path.relpath(tmp_path / "set")), "new")
    assert (tmp_path / "set" / "mark").read_text() == "old"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"old": 1})
    told = f"cannot write {file}: File too large; nothing was left under that name."
    with full_disk(20_000), pytest.raises(WriteError, match=re.escape(told)):
        write_json(file, ["x" * 10] * 100_000)
    assert (read_json(file), names(tmp_path)) == ({"old": 1}, ["a.json"])


def test_a_full_disk_leaves_no_retriever(tmp_path: Path) -> None:
    """The weights are written by another library, whose error is none of Python's."""
    retriever = small_retriever(write_small(tmp_path / "set"))
    with full_disk(20_000), pytest.raises(WriteError) as caught:
        retriever.save_pretrained(tmp_path / "retriever")
    assert f"cannot write {tmp_path / 'retriever'}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["set"]


def test_a_full_disk_leaves_no_corpus_cache(tmp_path: Path, monkeypatch: Patch) -> None:
    lines = "".join(json.dumps({"_id": str(n), "text": "x" * 90}) + "\n" for n in range(900))
    (tmp_path / "corpus.jsonl").write_text(lines)
    monkeypatch.setattr("grls.data.corpus_table.IN_MEMORY_BYTES", 0)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    with full_disk(20_000), pytest.raises(WriteError, match="cannot write"):
        Corpus.read(tmp_path)
    assert names(tmp_path / "cache" / "grls") == []


def test_a_place_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="cannot write"), atomic_file(tmp_path / "file" / "a"):
        pass
    with pytest.raises(WriteError, match="cannot write"), atomic_folder(tmp_path / "file" / "a", "mark"):
        pass
    assert (tmp_path / "file").read_text() == "x"


def test_json_that_is_none_is_named(tmp_path: Path) -> None:
    raises(DataError, r"a\.json: no such file", read_json, tmp_path / "a.json")
    for bad in (b"{", b"\xff"):
        (tmp_path / "a.json").write_bytes(bad)
        raises(DataError, r"a\.json: expected a JSON document", read_json, tmp_path / "a.json")


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    """In every kind of file that people write by hand or export."""
    bom = b"\xef\xbb\xbf"

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bom + text.encode())
        return tmp_path / name

    write("corpus.jsonl", '{"_id": "p", "text": "x"}\n')
    write("queries.jsonl", '{"_id": "q", "text": "x ?"}\n')
    write("qrels/test.tsv", "q\tp\t1\n")  # without a header
    queries, qrels = read_split(tmp_path, "test", Corpus.read(tmp_path))
    assert ([query.id for query in queries], qrels) == (["q"], {"q": {"p": 1}})
    assert read_allowed(write("allow", "p\n"), queries)[0].passages == {"p"}
    assert read_run(write("run.trec", "q Q0 p 1 2.0 tag\n")) == {"q": [Hit("p", 2.0)]}
    assert read_json(write("x.json", "[1]")) == [1]
    assert read_text(write("x.txt", "x")) == "x"
    (tmp_path / "bad.txt").write_bytes(b"x\n\xff\n")
    with pytest.raises(DataError, match="line 2: expected UTF-8 text"):
        list(text_lines(tmp_path / "bad.txt"))


def test_a_line_that_names_a_passage_is_its_id_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "ids"
    file.write_bytes("\ufeffa\r\n\n b \n\u00a0c\n \t\nd".encode())
    assert named_lines(file, "an id a line") == [(1, "a"), (3, " b "), (4, "\u00a0c"), (6, "d")]
    for content, message in (
        (b"a\nb\rc\n", r"line 2: 'b\\rc' holds a carriage return; expected an id a line"),
        (b"a\r\r\n", "line 1: .*carriage return"),
        (b"\n \r\n", "empty; expected an id a line"),
        (b"\xff\n", "UTF-8"),
    ):
        file.write_bytes(content)
        raises(DataError, message, named_lines, file, "an id a line")
    raises(DataError, "no such file; expected an id a line", named_lines, tmp_path / "none", "an id a line")


def test_a_full_disk_that_a_library_wraps_is_a_write_error(tmp_path: Path) -> None:
    """safetensors raises a class of its own: a command ended in a traceback."""
    full = "Error while serializing: I/O error: File too large (os error 27)"
    named = pytest.raises(WriteError, match=r"cannot write .*made: .*Free disk space")
    with named, atomic_path(tmp_path / "made"):
        raise RuntimeError(full)
    with pytest.raises(RuntimeError, match="a bug"), atomic_path(tmp_path / "made"):
        raise RuntimeError("a bug")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "printed"), [(errno.ENOSPC, False), (errno.ENOENT, True)])
def test_a_thread_that_cannot_write_leaves_the_report_to_the_main_thread(
    number: int, printed: bool, capfd: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    def write() -> None:
        raise OSError(number, "no room")

    def command() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        write()

    if printed:
        raises(OSError, "no room", ending.exit_code_of, command, str)
    else:
        assert ending.exit_code_of(command, str) == 1
    assert ("Traceback" in capfd.readouterr().err) == printed


def test_a_folder_that_cannot_be_listed_has_no_near_name(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "bm25").mkdir()
    assert near_name(tmp_path / "bm52") == f"; did you mean {tmp_path / 'bm25'}?"

    def refused(_: object) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(os, "listdir", refused)
    assert near_name(tmp_path / "bm52") == "."
