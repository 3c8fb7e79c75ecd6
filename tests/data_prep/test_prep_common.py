"""What all preparations share: statistics, splits, passages, and a corpus that is written as it is read."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failing import raises
from prep_helpers import contents, real, run

from data_prep import common, stream
from grls.data.corpus import Corpus
from grls.data.dataset import check_data
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError


def _query(name: str, evidence: str, text: str = "") -> Query:
    return Query(name, text or f"text of {name}", evidence=tuple(evidence))


def _data(**splits: list[Query]) -> common.Dataset:
    passages = [
        Passage(name, "one two three", title) for name, title in zip("abcd", ["t", "", "", ""], strict=True)
    ]
    return common.dataset(passages, splits)


def test_statistics_by_hand():
    data = _data(train=[_query("q1", "ab")], test=[_query("q2", "bc"), _query("q3", "d")])
    numbers = common.statistics(data)
    assert numbers.corpus_size == 4
    assert numbers.queries == {"train": 1, "test": 2}
    assert numbers.passage_tokens == (4 + 3 + 3 + 3) / 4
    assert numbers.tokens == "whitespace tokens"
    assert numbers.steps == 5 / 3
    assert numbers.unseen_rate == 1 / 2  # q3: b of q2 was seen
    assert numbers.unseen_passages == 2 / 3  # c and d of b, c, d
    alone = common.statistics(_data(test=[_query("q", "a")]))
    assert (alone.unseen_rate, alone.unseen_passages) == (None, None)
    assert "50.0% of the test queries have no gold" in common.describe(numbers)
    assert "66.7% of the test gold passages" in common.describe(numbers)


def test_statistics_name_the_tokenizer_or_refuse_its_folder(tmp_path):
    numbers = common.statistics(_data(test=[_query("q", "a")]), real("t5_tokenizer"))
    assert numbers.tokens == "tokens of t5_tokenizer"
    assert numbers.passage_tokens >= 3
    with pytest.raises(ConfigError, match="Expected a folder with a Hugging Face tokenizer"):
        common.statistics(_data(test=[_query("q", "a")]), tmp_path)


def test_a_query_text_in_two_splits_is_refused(tmp_path):
    data = _data(train=[_query("q1", "a", "Why so?")], test=[_query("q2", "b", "why  SO?")])
    raises(DataError, "'q2' stands in train and in test", common.finish, tmp_path / "out", data)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("queries", "message"), [
    ([Query("q1", " ", ("a",))], "the query 'q1' has no text"),
    ([_query("q1", "a"), _query("q1", "b", "another")], "two queries have the id 'q1'"),
])  # fmt: skip
def test_queries_that_could_not_be_read_again_are_not_written(queries, message, tmp_path):
    with pytest.raises(DataError, match=message):
        common.finish(tmp_path / "out", _data(train=queries))
    assert not (tmp_path / "out").exists()


def test_a_split_without_a_query_is_not_written(tmp_path, capsys):
    common.finish(tmp_path / "out", _data(train=[_query("q", "a")], dev=[]))
    assert "no query in          dev: not written" in capsys.readouterr().out
    assert [file.name for file in (tmp_path / "out" / "qrels").iterdir()] == ["train.tsv"]
    assert check_data(tmp_path / "out", Corpus.read(tmp_path / "out")).faults == []


def test_query_texts_that_differ_in_signs_alone_are_no_leak():
    data = _data(train=[_query("q1", "a", "What is C++?")], test=[_query("q2", "b", "What is C#?")])
    common.refuse_faulty(data)
    assert common.query_key(" Wo ist\tdie STRASSE ?") == common.query_key("wo ist die Straße ?")


def test_split_keeps_groups_together_and_follows_the_seed():
    items = [f"{group}-{n}" for group in range(50) for n in range(2)]
    parts = common.split(items, (0.7, 0.1, 0.2), 3, group=lambda i: i.split("-")[0])
    assert [len(p) for p in parts] == [70, 10, 20]
    groups = [{i.split("-")[0] for i in part} for part in parts]
    assert sum(map(len, groups)) == 50
    assert sorted(i for part in parts for i in part) == sorted(items)
    assert parts == common.split(items, (0.7, 0.1, 0.2), 3, group=lambda i: i.split("-")[0])
    assert parts != common.split(items, (0.7, 0.1, 0.2), 4, group=lambda i: i.split("-")[0])


def test_a_pool_keeps_the_first_text_and_no_order_of_adding():
    pool = common.PassagePool(key=common.plain_words)
    for text in ("Ice, cold  ice", "ice cold ice", "water"):
        pool.add(text)
    assert pool.passages() == [Passage("p000000", "Ice, cold ice"), Passage("p000001", "water")]
    assert pool.finder()(["water", "ICE COLD ICE", "Water!"]) == ("p000001", "p000000")
    pools = [common.PassagePool(), common.PassagePool()]
    for pool, texts in zip(pools, ("abc", "cab"), strict=True):
        for text in texts:
            pool.add(text)
    assert pools[0].passages() == pools[1].passages()


@pytest.mark.parametrize("value", [None, "", "  ", 3, ["a"]])
def test_field_refuses_other_values(tmp_path, value):
    with pytest.raises(DataError, match=r"f, line 7: expected 'k' to be a non-empty str, got"):
        common.field({"k": value}, "k", str, tmp_path / "f", 7)


def test_field_takes_false_and_zero(tmp_path):
    assert common.field({"k": False}, "k", bool, tmp_path, 1) is False
    assert common.field({"k": 0}, "k", int, tmp_path, 1) == 0


@pytest.mark.parametrize(("cause", "code", "line"), [
    (KeyboardInterrupt(), 130, "error: interrupted; nothing half-written is left.\n"),
    (signal.SIGTERM, 143, "error: ended by SIGTERM; nothing half-written is left.\n"),
    (DataError("no \x1b[2J of ours"), 1, "error: no ␛[2J of ours\n"),
    (OSError(28, "No space left on device"), 1, "error: cannot write "),
])  # fmt: skip
def test_what_ends_a_command_is_one_line_and_leaves_the_earlier_folder(
    cause: Any, code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def passages() -> Iterator[Passage]:
        yield Passage("a", "one")
        if isinstance(cause, signal.Signals):
            os.kill(os.getpid(), cause)
        else:
            raise cause

    def prepare(out: Path) -> None:
        common.write_dataset(out, passages(), [], {})

    common.finish(tmp_path / "out", _data(test=[_query("q", "a")]))
    before, _ = contents(tmp_path / "out"), capsys.readouterr()
    assert run(prepare, "--out", tmp_path / "out") == code
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith(line)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert contents(tmp_path / "out") == before


PASSAGES = [Passage("a", "one two", "T"), Passage("b", "three")]
SPLITS = {"train": [Query("q", "who", ("a",))], "test": [Query("r", "what", ("a", "b"))]}


def test_streaming_writes_and_counts_the_same(tmp_path, capsys):
    numbers = common.finish(tmp_path / "held", common.dataset(PASSAGES, SPLITS))
    printed = capsys.readouterr().out.replace("held", "streamed")
    assert stream.finish_stream(tmp_path / "streamed", iter(PASSAGES), lambda: SPLITS) == numbers
    assert capsys.readouterr().out == printed
    assert contents(tmp_path / "held") == contents(tmp_path / "streamed")
    assert numbers == common.Statistics(2, {"train": 1, "test": 1}, 2.0, "whitespace tokens", 1.5, 0.0, 0.5)


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
