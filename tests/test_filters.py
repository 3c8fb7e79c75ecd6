"""Filters: what they let through, how they are written, and what is refused."""

from pathlib import Path

import pytest
from small_data import write_jsonl

from grls.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.filters import (
    AllOf,
    Filter,
    Matching,
    Only,
    both,
    evaluate,
    one_each,
    own_filters,
    read_allowed,
    where,
)
from grls.types import Query

METADATA = {
    "a": {"year": 1999, "lang": "de", "tags": ["x", "y"]},
    "b": {"year": 2000, "lang": "fr", "tags": []},
    "c": {"year": "2010", "lang": "de", "open": True},
    "d": {"lang": None},
}
QUERIES = [Query("q1", "one", metadata='{"where": "lang=fr", "allow": ["a", "b"]}'), Query("q2", "two")]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lines = [{"_id": name, "text": name, "metadata": metadata} for name, metadata in METADATA.items()]
    return Corpus.read(write_jsonl(tmp_path / "corpus.jsonl", lines))


def through(some: Filter, corpus: Corpus) -> str:
    return "".join(corpus.ids(evaluate([some], corpus)[some].tolist()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("year>=2000", "bc"), ("year<2000", "a"), ("year = 2000.0", "b"), ("year>999", "abc")),
        *(("lang=de", "ac"), ("lang!=de", "b"), ("lang=fr|de", "abc"), ("lang!=fr|de", "")),
        *(("tags=y", "a"), ("tags!=y", "b"), ("open=true", "c"), ("lang>=e", "b")),
        *(("year>=2000 and lang=de", "c"), ("year<=2000 and year>1999", "b")),
    ],
)
def test_comparisons_of_metadata(text: str, expected: str, corpus: Corpus) -> None:
    assert through(where(text), corpus) == expected


@pytest.mark.parametrize("text", ["", "year", "=3", "year=", "year>1|2", "year>=2000 and", "a=b|"])
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected comparisons such as"):
        where(text)


def test_filters_of_every_kind(corpus: Corpus) -> None:
    assert through(Only(frozenset("db")), corpus) == "bd"
    assert through(Matching(lambda metadata: "open" in metadata), corpus) == "c"
    assert through(AllOf((where("lang=de"), Only(frozenset("ab")))), corpus) == "a"
    assert both(None, None) is None
    assert both(None, where("a=b")) == where("a=b")
    with pytest.raises(ConfigError, match=r"metadata field 'yaer': the fields are lang, open, tags, year"):
        evaluate([where("yaer=1")], corpus)


def test_a_filter_is_evaluated_once_however_many_queries_have_it(corpus: Corpus) -> None:
    asked = []
    some = Matching(lambda metadata: bool(asked.append(1)) or True)
    assert len(evaluate([some, some, Matching(some.accepts)], corpus)) == 1
    assert len(asked) == 4


def test_one_filter_a_query() -> None:
    assert one_each(None, 2) == [None, None]
    assert one_each(["a", "b"], 2) == one_each({"a", "b"}, 2) == [Only(frozenset("ab"))] * 2
    assert one_each([["a"], None], 2) == [Only(frozenset("a")), None]
    assert one_each(where("a=b"), 1) == [where("a=b")]
    for wrong in ("ab", [["a"], 3], [None]):
        with pytest.raises(ConfigError, match=r"allow takes|expected a filter|entries for 2"):
            one_each(wrong, 2)  # type: ignore[arg-type]


def test_filters_from_files_and_from_queries(tmp_path: Path) -> None:
    file = tmp_path / "allow"
    file.write_text("a\n\nb c\n")
    assert read_allowed(file, QUERIES) == [Only(frozenset({"a", "b c"}))] * 2
    file.write_text("q2\ta\nq1\tb\nq2\tc\nq9\td\n")
    assert read_allowed(file, QUERIES) == [Only(frozenset("b")), Only(frozenset("ac"))]
    for text, message in (
        ("", "the file is empty"),
        ("q1\ta\nb\n", "line 2: expected a passage id a line"),
        ("q1\ta\n", "no line allows a passage to query 'q2'"),
        ("q1\ta\tb\n", "line 1: expected"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            read_allowed(file, QUERIES)
    with pytest.raises(DataError, match="no such file"):
        read_allowed(tmp_path / "none", QUERIES)
    assert own_filters(QUERIES) == [AllOf((Only(frozenset("ab")), where("lang=fr"))), None]
    for metadata in ('{"allow": "a"}', '{"where": 3}'):
        with pytest.raises(DataError, match="query 'q': expected metadata"):
            own_filters([Query("q", "?", metadata=metadata)])


def test_ids_are_parted_by_newlines_alone_and_a_byte_order_mark_is_none_of_them(tmp_path: Path) -> None:
    names = ["a\u2028b", "a\u0085b", "a\vb", "a\fb", "a\x1cb"]
    file = tmp_path / "allowed"
    file.write_text("\ufeff" + "".join(f"{name}\n" for name in names), encoding="utf-8")
    assert read_allowed(file, QUERIES) == [Only(frozenset(names))] * 2


@pytest.mark.parametrize(
    "text",
    ["a" + " " * 20_000 + "b", "a=" + " " * 20_000, " " * 20_000],
)
def test_white_space_is_read_in_linear_time(text: str) -> None:
    with pytest.raises(ConfigError, match="expected comparisons"):  # hours, where it is cubic
        where(text)
