"""Filters: what they let through, how they are written, and what is refused."""

from pathlib import Path

import pytest
from small_data import write_jsonl

from grls.data.corpus import Corpus
from grls.data.filters import (
    AllOf,
    Filter,
    Matching,
    Only,
    both,
    evaluate_filters,
    one_each,
    own_filters,
    read_allowed,
    where,
)
from grls.data.types import Query
from grls.errors import ConfigError, DataError

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
    return "".join(corpus.ids(evaluate_filters([some], corpus)[some].tolist()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("year>=2000", "b"), ("year<2000", "a"), ("year = 2000.0", "b"), ("year>999", "ab")),
        *(("lang=de", "ac"), ("lang!=de", "b"), ("lang=fr|de", "abc"), ("lang!=fr|de", "")),
        *(("tags=y", "a"), ("tags!=y", "b"), ("open=true", "c"), ("lang>=e", "b")),
        *(("year>=1999 and lang=de", "a"), ("year<=2000 and year>1999", "b"), ("year=2010", "c")),
        *(("lang=fr or year<2000", "ab"), ("not lang=de", "bd"), ("not (lang=fr or open=true)", "ad")),
        *(
            ("lang in (de, fr)", "abc"),
            ("lang not in ('de')", "b"),
            ("lang=fr or lang=de and open=true", "bc"),
        ),
    ],
)
def test_comparisons_of_metadata(text: str, expected: str, corpus: Corpus) -> None:
    assert through(where(text), corpus) == expected


def test_filters_of_every_kind(corpus: Corpus) -> None:
    assert through(Only(frozenset("db")), corpus) == "bd"
    assert through(Matching(lambda metadata: "open" in metadata), corpus) == "c"
    assert through(AllOf((where("lang=de"), Only(frozenset("ab")))), corpus) == "a"
    assert both(None, None) is None
    assert both(None, where("a=b")) == where("a=b")
    with pytest.raises(ConfigError, match=r"metadata field 'yaer': the fields are lang, open, tags, year"):
        evaluate_filters([where("yaer=1")], corpus)
    with pytest.raises(ConfigError, match=r"a filter over metadata is a text such as .*got \{'year': 3\}"):
        where({"year": 3})  # type: ignore[arg-type]


def test_a_filter_is_evaluated_once_however_many_queries_have_it(corpus: Corpus) -> None:
    asked = []
    some = Matching(lambda metadata: bool(asked.append(1)) or True)
    assert len(evaluate_filters([some, some, Matching(some.accepts)], corpus)) == 1
    assert len(asked) == 4


def test_one_filter_a_query() -> None:
    assert one_each(None, 2) == [None, None]
    assert one_each(["a", "b"], 2) == one_each({"a", "b"}, 2) == [Only(frozenset("ab"))] * 2
    assert one_each([["a"], None], 2) == [Only(frozenset("a")), None]
    assert one_each(where("a=b"), 1) == [where("a=b")]
    for wrong in ("ab", [["a"], 3], [None]):
        with pytest.raises(ConfigError, match=r"allow takes|expected a filter|for 2 queries"):
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
    with pytest.raises(
        DataError, match=r"query 'q', metadata.where: filter, column 5, behind 'a = ': expected a value"
    ):
        own_filters([Query("q", "?", metadata='{"where": "a = "}')])


@pytest.mark.parametrize("sign", ["\u2028", "\u0085", "\v", "\f", "\x1c"])
def test_ids_with_signs_that_end_a_line_elsewhere_stand_in_files(sign: str, tmp_path: Path) -> None:
    file = tmp_path / "allow"
    file.write_text(f"a{sign}b\r\nc\n", encoding="utf-8", newline="")
    assert read_allowed(file, QUERIES) == [Only(frozenset({f"a{sign}b", "c"}))] * 2
