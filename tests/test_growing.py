"""A file that grows as work is done."""

from pathlib import Path

import pytest

from grls.errors import DataError, MismatchError
from grls.growing import GrowingFile


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
    with pytest.raises(MismatchError, match=r"other settings \(b, c\)"):
        GrowingFile(path, {"a": 1, "b": [3], "c": 4})
    assert GrowingFile(path, {"a": 1, "b": (2,)}).records == [{"n": 1}]


@pytest.mark.parametrize("text", ['{"n": 1}\n', "no json\n", "[1]\n"])
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match="move"):
        GrowingFile(path, {})
    assert path.read_text() == text


def test_half_of_a_surrogate_pair_is_read_back(tmp_path: Path) -> None:
    """Models write such things."""
    GrowingFile(tmp_path / "x.jsonl", {}).add([{"a": "\ud800 é"}])
    assert GrowingFile(tmp_path / "x.jsonl", {}).records == [{"a": "\ud800 é"}]
