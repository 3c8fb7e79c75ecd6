"""Work in order, and the file that grows with it."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from failing import raises

from grls.errors import DataError, MismatchError, WriteError
from grls.io.work import GrowingFile, all_done


def test_records_stay_and_a_torn_line_goes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.jsonl"
    GrowingFile(path, {"a": 1}).add([{"n": 1}, {"n": 2}])
    with path.open("a") as stream:
        stream.write('{"n": 3')
    with GrowingFile(path, {"a": 1}) as again:
        assert list(again) == [{"n": 1}, {"n": 2}]
        again.add([{"n": (3, 4)}])
        assert list(again) == [{"n": 1}, {"n": 2}, {"n": [3, 4]}]
        assert (again.found, again.count) == (2, 3)
    assert list(GrowingFile(path, {"a": 1})) == [{"n": 1}, {"n": 2}, {"n": [3, 4]}]


def test_a_torn_first_line_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text('{"settings": {"a"')
    assert list(GrowingFile(path, {"a": 1})) == []
    assert list(GrowingFile(path, {"a": 1})) == []


def test_nothing_is_begun_before_there_is_something_to_keep(tmp_path: Path) -> None:
    """A first call with a wrong option does not bind the next one to it."""
    path = tmp_path / "new" / "work.jsonl"
    GrowingFile(path, {"a": 1})
    assert not path.parent.exists()
    GrowingFile(path, {"a": 2}).add([])
    assert path.read_text() == '{"settings": {"a": 2}}\n'
    GrowingFile(path, {"a": 2}).add([{"n": 1}])
    assert list(GrowingFile(path, {"a": 2})) == [{"n": 1}]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    GrowingFile(path, {"a": 1, "b": [2]}).add([{"n": 1}])
    raises(MismatchError, r"other settings \(b, c\)", GrowingFile, path, {"a": 1, "b": [3], "c": 4})
    assert list(GrowingFile(path, {"a": 1, "b": (2,)})) == [{"n": 1}]


@pytest.mark.parametrize("text", ['{"n": 1}\n', "no json\n", "[1]\n"])
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text(text)
    raises(DataError, "move", GrowingFile, path, {})
    assert path.read_text() == text


def test_half_of_a_surrogate_pair_is_read_back(tmp_path: Path) -> None:
    """Models write such things."""
    GrowingFile(tmp_path / "x.jsonl", {}).add([{"a": "\ud800 é"}])
    assert list(GrowingFile(tmp_path / "x.jsonl", {})) == [{"a": "\ud800 é"}]


WRITER = """
import sys
from grls.io.work import GrowingFile
file = GrowingFile(sys.argv[1], {})
print("begun", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    path = tmp_path / "new" / "work.jsonl"
    GrowingFile(path, {}).add([{"n": 1}])
    command = [sys.executable, "-c", WRITER, str(path)]
    first = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "begun\n"
    before = path.read_bytes()
    raises(WriteError, r"work\.jsonl is being written by another run", GrowingFile, path, {})
    assert path.read_bytes() == before
    first.kill()
    first.communicate()
    assert GrowingFile(path, {}).count == 1


def test_two_that_begin_one_file_do_not_both_write_it(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    first, second = GrowingFile(path, {}), GrowingFile(path, {})
    first.add([{"n": 1}])
    raises(WriteError, "being written by another run", second.add, [{"n": 1}])
    raises(WriteError, "being written by another run", GrowingFile, path, {})
    first.close()
    raises(WriteError, "begun by another run meanwhile", second.add, [{"n": 1}])
    second.close()
    third = GrowingFile(path, {})
    path.unlink()
    raises(WriteError, "removed or replaced", third.add, [{"n": 3}])
    assert not path.exists()


def done(path: Path, items: list[int], do: Any = None, **more: Any) -> list[dict[str, Any]]:
    """The records of all items, two at a time; ``do`` may fail, or be slow."""
    squares = do or (lambda group, _: [{"square": n * n} for n in group])
    with all_done(items, squares, path, {}, lambda n: {"n": n}, 2, "square", "numbers", **more) as file:
        return list(file)


def test_items_are_done_once_whatever_was_cut(tmp_path: Path) -> None:
    """The lines are those of a whole run, wherever a kill has cut them; a split pair is done again."""
    path, asked = tmp_path / "work.jsonl", list[list[int]]()

    def squares(group: list[int], report: Any) -> list[dict[str, int]]:
        asked.append(group)
        report(len(group))
        return [{"square": n * n} for n in group]

    expected = done(path, [1, 2, 3, 4, 5], squares, spent=dict)
    assert [(record["n"], record["square"]) for record in expected] == [(n, n * n) for n in range(1, 6)]
    assert ["spent" in record for record in expected] == [False, True, False, True, True]
    whole = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        asked.clear()
        again = done(path, [1, 2, 3, 4, 5], squares, spent=dict)
        assert [record | {"spent": 0} for record in again] == [record | {"spent": 0} for record in expected]
        pairs = sum(length >= end for end in (ends[2], ends[4], ends[5]))
        assert asked == [[1, 2], [3, 4], [5]][pairs:], length


def test_a_run_over_more_items_goes_on_and_counts_what_was_spent(tmp_path: Path) -> None:
    path, total, six = tmp_path / "work.jsonl", Counter(calls=0), [1, 2, 3, 4, 5, 6]

    def squares(group: list[int], _: Any) -> list[dict[str, int]]:
        total["calls"] += 1
        return [{} for _ in group]

    done(path, [1, 2, 3], squares, known=six, spent=lambda: total)
    total["calls"] = 100
    with all_done(
        [1, 2, 3, 4, 5, 6], squares, path, {}, lambda n: {"n": n}, 2, "", "", spent=lambda: total
    ) as file:
        assert file.spent()["calls"] == 4
        assert file.spent()["seconds"] > 0
    assert len(done(path, [1, 2], squares, known=six)) == 6


def test_items_that_stand_alone_are_done_once_and_saved_one_by_one(tmp_path: Path) -> None:
    path, asked = tmp_path / "work.jsonl", list[list[int]]()

    def first(group: list[int], _: Any) -> list[dict[str, int]]:
        asked.append(group)
        return [{"square": group[0] ** 2}]

    for items in ([1, 2, 3], [1, 2, 3, 4]):
        assert [record["square"] for record in done(path, items, first, alone=True)] == [n * n for n in items]
    assert asked == [[1, 2], [2, 3], [3], [4]]


def test_without_costs_a_file_has_the_same_bytes_wherever_it_was_cut(tmp_path: Path) -> None:
    """Groups stay the same, so a model pads and rounds as in a run that nothing ends."""
    path, asked = tmp_path / "work.jsonl", list[list[int]]()

    def squares(group: list[int], _: Any) -> list[dict[str, int]]:
        asked.append(group)
        return [{"square": n * n} for n in group]

    done(path, [1, 2, 3, 4, 5], squares)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        done(path, [1, 2, 3, 4, 5], squares)
        assert path.read_bytes() == whole, length
    assert {*map(tuple, asked)} == {(1, 2), (3, 4), (5,)}


@pytest.mark.parametrize(
    ("numbers", "line"), [([1, 1], 3), ([2], 2), ([1, 3], 3), ([1, 2, 3, 4], 5), ([1, 2], None)]
)
def test_repeated_and_foreign_records_are_refused(
    tmp_path: Path, numbers: list[int], line: int | None
) -> None:
    path = tmp_path / "work.jsonl"
    GrowingFile(path, {}).add([{"n": n} for n in numbers])
    if line is None:
        assert len(done(path, [1, 2, 3])) == 3
        return
    with pytest.raises(DataError, match=rf"work\.jsonl, line {line}: the record of n"):
        done(path, [1, 2, 3])
