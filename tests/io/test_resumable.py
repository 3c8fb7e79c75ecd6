"""A file that grows as work is done."""

import subprocess
import sys
from pathlib import Path

import pytest
from failing import raises

from grls.answer.riches.propositions import PropositionFile
from grls.errors import DataError, MismatchError, WriteError
from grls.io.resumable import GrowingFile


def test_records_stay_and_a_torn_line_goes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.jsonl"
    GrowingFile(path, {"a": 1}).add([{"n": 1}, {"n": 2}])
    with path.open("a") as stream:
        stream.write('{"n": 3')
    again = GrowingFile(path, {"a": 1})
    assert again.records == [{"n": 1}, {"n": 2}]
    again.add([{"n": (3, 4)}])
    assert again.records[-1] == {"n": [3, 4]}
    assert GrowingFile(path, {"a": 1}).records == [{"n": 1}, {"n": 2}, {"n": [3, 4]}]


def test_a_torn_first_line_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text('{"settings": {"a"')
    assert GrowingFile(path, {"a": 1}).records == []
    assert GrowingFile(path, {"a": 1}).records == []


def test_nothing_is_begun_before_there_is_something_to_keep(tmp_path: Path) -> None:
    """A first call with a wrong option does not bind the next one to it."""
    path = tmp_path / "new" / "work.jsonl"
    GrowingFile(path, {"a": 1})
    assert not path.parent.exists()
    GrowingFile(path, {"a": 2}).add([])
    assert path.read_text() == '{"settings": {"a": 2}}\n'
    GrowingFile(path, {"a": 2}).add([{"n": 1}])
    assert GrowingFile(path, {"a": 2}).records == [{"n": 1}]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    GrowingFile(path, {"a": 1, "b": [2]}).add([{"n": 1}])
    raises(MismatchError, r"other settings \(b, c\)", GrowingFile, path, {"a": 1, "b": [3], "c": 4})
    assert GrowingFile(path, {"a": 1, "b": (2,)}).records == [{"n": 1}]


@pytest.mark.parametrize("text", ['{"n": 1}\n', "no json\n", "[1]\n"])
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text(text)
    raises(DataError, "move", GrowingFile, path, {})
    assert path.read_text() == text


def test_half_of_a_surrogate_pair_is_read_back(tmp_path: Path) -> None:
    """Models write such things."""
    GrowingFile(tmp_path / "x.jsonl", {}).add([{"a": "\ud800 é"}])
    assert GrowingFile(tmp_path / "x.jsonl", {}).records == [{"a": "\ud800 é"}]


WRITER = """
import sys
from grls.io.resumable import LockedFile
files = [LockedFile(path) for path in sys.argv[1:]]
print("begun", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    path, other = tmp_path / "new" / "work.jsonl", tmp_path / "propositions.jsonl"
    GrowingFile(path, {}).add([{"n": 1}])
    command = [sys.executable, "-c", WRITER, str(path), str(other)]
    first = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "begun\n"
    before = path.read_bytes()
    raises(WriteError, r"work\.jsonl is being written by another run", GrowingFile, path, {})
    raises(WriteError, r"propositions\.jsonl is being written by another run", PropositionFile, other, {})
    assert path.read_bytes() == before
    first.kill()
    first.communicate()
    assert GrowingFile(path, {}).count == 1
    PropositionFile(other, {})


def test_two_that_begin_one_file_do_not_both_write_it(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    first, second = GrowingFile(path, {}), GrowingFile(path, {})
    first.add([{"n": 1}])
    raises(WriteError, "begun by another run meanwhile", second.add, [{"n": 1}])
    third = GrowingFile(path, {})
    third.add([{"n": 2}])
    raises(WriteError, "another run in this process", first.add, [{"n": 3}])
    path.unlink()
    raises(WriteError, "removed or replaced", third.add, [{"n": 3}])
    assert not path.exists()


@pytest.mark.parametrize(
    ("records", "line"), [([1, 1], 3), ([2], 2), ([1, 3], 3), ([1, 2, 3, 4], 5), ([1, 2], None)]
)
def test_repeated_and_foreign_records_are_refused(
    tmp_path: Path, records: list[int], line: int | None
) -> None:
    file = GrowingFile(tmp_path / "work.jsonl", {})
    file.add([{"n": n} for n in records])
    if line is None:
        file.refuse_other(["n"], [(1,), (2,), (3,)])
        return
    with pytest.raises(DataError, match=rf"work\.jsonl, line {line}: the record of n"):
        file.refuse_other(["n"], [(1,), (2,), (3,)])


def test_what_was_made_together_is_made_anew_together(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    GrowingFile(path, {}).add([{"n": 1}, {"n": 2, "end": True}, {"n": 3}])
    again = GrowingFile(path, {}, lambda record: "end" in record)
    assert again.records == [{"n": 1}, {"n": 2, "end": True}]
    assert path.read_text().count("\n") == 3


def test_records_need_not_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    GrowingFile(path, {}, keep=False).add([{"n": 1}, {"n": 2}])
    file = GrowingFile(path, {}, keep=False)
    file.add([{"n": "\ud800"}])
    assert (file.records, file.count) == ([], 3)
    assert list(file.each()) == [{"n": 1}, {"n": 2}, {"n": "\ud800"}]
    file.remove()
    assert not path.exists()
