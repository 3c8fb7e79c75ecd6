"""A corpus written as it is read gives the same folder as one that is held."""

from pathlib import Path

import pytest
from prep_helpers import contents

from data_prep import common, stream
from grls.data.types import Passage, Query
from grls.errors import DataError

PASSAGES = [Passage("a", "one two", "T"), Passage("b", "three")]
SPLITS = {"train": [Query("q", "who", ("a",))], "test": [Query("r", "what", ("a", "b"))]}


def test_streaming_writes_and_counts_the_same(tmp_path, capsys):
    numbers = common.finish(tmp_path / "held", common.dataset(PASSAGES, SPLITS))
    printed = capsys.readouterr().out.replace("held", "streamed")
    assert stream.finish_stream(tmp_path / "streamed", iter(PASSAGES), lambda: SPLITS) == numbers
    assert capsys.readouterr().out == printed
    assert contents(tmp_path / "held") == contents(tmp_path / "streamed")
    assert numbers == common.Statistics(2, {"train": 1, "test": 1}, 2.0, "whitespace tokens", 1.5, 0.0, 0.5)


def test_each_passage_is_written_before_the_next_is_read(tmp_path, monkeypatch):
    """Nothing piles up between source and file: the queries are asked for after the last passage."""
    events = []

    def passages():
        for passage in PASSAGES:
            events.append(f"read {passage.id}")
            yield passage
        events.append("end")

    def splits():
        events.append("splits")
        return SPLITS

    monkeypatch.setattr(
        "grls.data.dataset.write_line", lambda _, record: events.append(f"write {record['_id']}")
    )
    stream.finish_stream(tmp_path / "out", passages(), splits)
    assert events == ["read a", "write a", "read b", "write b", "end", "splits", "write q", "write r"]


def test_an_error_of_queries_or_passages_leaves_nothing(tmp_path):
    def broken():
        yield PASSAGES[0]
        raise DataError("line 2")

    with pytest.raises(DataError, match="line 2"):
        stream.finish_stream(tmp_path / "out", broken(), lambda: SPLITS)
    leaky = {"train": [Query("q", "who", ("a",))], "test": [Query("r", " WHO", ("a",))]}
    with pytest.raises(DataError, match="stands in train and in test"):
        stream.finish_stream(tmp_path / "out", iter(PASSAGES), lambda: leaky)
    assert list(tmp_path.iterdir()) == []


def test_queries_that_could_not_be_read_again_are_not_written(tmp_path):
    twice = {"train": [Query("q", "who", ("a",)), Query("q", "what", ("a",))]}
    with pytest.raises(DataError, match="two queries have the id 'q'"):
        stream.finish_stream(tmp_path / "out", iter(PASSAGES), lambda: twice)
    assert not (tmp_path / "out").exists()


def test_leaks_are_refused_or_left_out_of_the_earlier_split(capsys):
    splits = {"train": ["a", "b", "B "], "dev": ["b", "c"], "test": ["C"]}
    with pytest.raises(
        DataError, match=r"3 query texts stand in two splits, such as 'b' in train and in dev"
    ):
        stream.without_leaks(splits, str, drop=False)
    assert stream.without_leaks(splits, str, drop=True) == {"train": ["a"], "dev": ["b"], "test": ["C"]}
    assert "3 queries whose text stands in a later split" in capsys.readouterr().out
    clean = {"train": ["a", "a"], "test": ["b"]}
    assert stream.without_leaks(clean, str, drop=False) == clean


def test_queries_without_their_passages_are_refused_or_left_out(capsys):
    missing = {"r": ["x", "y"], "unused": ["z"]}
    with pytest.raises(DataError) as caught:
        stream.without_missing(SPLITS, missing, Path("wiki.tsv"), drop=False)
    assert "wiki.tsv: the gold passages of 1 query are not there: 'x', 'y' of query 'r'." in str(caught.value)
    assert "--drop_missing true" in str(caught.value)
    kept = stream.without_missing(SPLITS, missing, Path("wiki.tsv"), drop=True)
    assert kept == {"train": SPLITS["train"], "test": []}
    assert "1 query whose gold passages" in capsys.readouterr().out
    assert stream.without_missing(SPLITS, {}, Path("wiki.tsv"), drop=False) == SPLITS
