"""Reading raw files one record at a time, whole and damaged, compressed and not."""

import bz2
import gzip
import json
import sys

import pytest

from data_prep.raw import find_raw, read_csv, read_json_lines, read_json_list, read_json_object, read_lines
from grls.errors import ConfigError, DataError

PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


def write(tmp_path, content, suffix="", name="file"):
    file = tmp_path / f"{name}{suffix}"
    file.write_bytes(PACK[suffix](content if isinstance(content, bytes) else content.encode()))
    return file


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_or_not_the_records_are_the_same(suffix, tmp_path):
    table = write(tmp_path, 'id\ttext\ttitle\n1\t"a ""b""\tc"\tT\r\n2\té\tU\n', suffix, "table.tsv")
    assert list(read_csv(table, ("title", "text"), "\t")) == [(2, ["T", 'a "b"\tc']), (3, ["U", "é"])]
    lines = write(tmp_path, '{"a": 1}\n\n{"a": "é"}\n', suffix, "lines")
    assert list(read_json_lines(lines)) == [(1, {"a": 1}), (3, {"a": "é"})]
    records = write(tmp_path, json.dumps([{"a": 1.5}, {"b": [None]}]), suffix, "list")
    assert list(read_json_list(records)) == [("record 1", {"a": 1.5}), ("record 2", {"b": [None]})]
    nested = write(tmp_path, json.dumps({"v": 1, "data": [{"a": 1}]}), suffix, "nested")
    assert list(read_json_list(nested, "data")) == [("record 1", {"a": 1})]
    members = write(tmp_path, json.dumps({"x.y-1": {"a": 1}, "z": {}}), suffix, "members")
    assert list(read_json_object(members)) == [("x.y-1", {"a": 1}), ("z", {})]


@pytest.mark.parametrize("suffix", PACK)
def test_lines_of_any_format(suffix, tmp_path):
    file = write(tmp_path, b"\xef\xbb\xbf? a\r\n\n> b\x85c", suffix)
    with pytest.raises(DataError, match="line 3: expected cards"):
        list(read_lines(file, "cards"))
    file = write(tmp_path, b"\xef\xbb\xbf? a\r\n\n> b", suffix)
    assert list(read_lines(file, "cards")) == [(1, "? a"), (2, ""), (3, "> b")]
    with pytest.raises(DataError, match="no such file; expected cards"):
        list(read_lines(tmp_path / "absent", "cards"))


def test_a_file_is_found_whole_or_compressed(tmp_path):
    assert find_raw(tmp_path, "file") == tmp_path / "file"
    packed = write(tmp_path, "x", ".gz")
    assert find_raw(tmp_path, "file") == packed
    assert find_raw(tmp_path, "file") != write(tmp_path, "x")
    assert find_raw(tmp_path, "file") == tmp_path / "file"


def test_a_table_without_a_header(tmp_path):
    file = write(tmp_path, 'a\t"[\'x ""y""\']"\n')
    assert list(read_csv(file, ("question", "answers"), "\t", header=False)) == [(1, ["a", "['x \"y\"']"])]


def table(file):
    return read_csv(file, ("id", "text", "title"), "\t")


@pytest.mark.parametrize(("read", "content", "expected"), [
    (table, "id\ttext\n", "line 1: the header lacks title, got ['id', 'text']"),
    (table, "id\ttext\ttitle\n1\ta\n", "line 2: expected 3 columns (id, text, title), got ['1', 'a']"),
    (table, "id\ttext\ttitle\n1\t \tb\n", "line 2: the column 'text' is blank"),
    (table, 'id\ttext\ttitle\n1\ta\tb\n2\t"cut off\n', "line 3: expected 3 columns"),
    (table, b"id\ttext\ttitle\n1\t\xff\tb\n", "a table with the columns id, text, title ('utf-8' codec"),
    (read_json_lines, '{"a": 1}\n[1]\n', "line 2: expected a JSON object, got list"),
    (read_json_lines, b'{"a": "\xff"}', "line 1: expected a JSON object ('utf-8' codec"),
    (read_json_list, '[{"a": 1}, {"a":', "record 2: expected a JSON list of objects (parse error: premature"),
    (read_json_list, '[{"a": 1}, 7]', "record 2: expected a JSON object, got 7"),
    (read_json_list, "[]", "expected a JSON list of objects, found no record"),
    (lambda file: read_json_list(file, "data"), '{"other": []}', "of objects under 'data', found no record"),
    (read_json_object, '[{"a": 1}]', "found no record"),
    (read_json_object, '{"a": 1}', "record 'a': expected a JSON object, got 1"),
])  # fmt: skip
def test_what_is_malformed_is_named(read, content, expected, tmp_path):
    file = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        list(read(file))
    assert expected in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
@pytest.mark.parametrize("damage", ["half", "plain"])
def test_a_damaged_archive_is_named(suffix, damage, tmp_path):
    file = write(tmp_path, "".join(f'{{"a": {n * n}}}\n' for n in range(3000)), suffix)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"plain text\n")
    for read in (read_json_lines, read_json_list, lambda f: read_csv(f, ("a", "b"), "\t", header=False)):
        with pytest.raises(DataError) as caught:
            list(read(file))
        assert str(file) in str(caught.value)
        if read is not read_json_list:  # whose parser meets the wrong JSON first
            assert "line " in str(caught.value)
    with pytest.raises(DataError, match="fetch the file again"):
        list(read_json_lines(file))


def test_missing_files_and_a_missing_parser(tmp_path, monkeypatch):
    for read in (read_json_lines, read_json_list, read_json_object):
        with pytest.raises(DataError, match="no such file; expected"):
            list(read(tmp_path / "none.gz"))
    monkeypatch.setitem(sys.modules, "ijson", None)
    with pytest.raises(ConfigError, match=r'needs ijson .*: `pip install "grls\[releases\]"'):
        list(read_json_list(write(tmp_path, "[]")))
