"""Filters: what they let through, how they are written, columns of metadata, and what is refused."""

import copy
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import write_jsonl

from grls.data import columns
from grls.data.columns import FieldColumn, MetadataColumns, part_mask
from grls.data.corpus import Corpus
from grls.data.filters import (
    AllOf,
    Filter,
    Matching,
    Only,
    both,
    one_each,
    own_filters,
    read_allowed,
    where,
)
from grls.data.types import Passage, Query
from grls.data.where import DEPTH, MOST, parse_filter
from grls.errors import ConfigError, DataError

METADATA = {
    "a": {"year": 1999, "lang": "de", "tags": ["x", "y"]}, "b": {"year": 2000, "lang": "fr", "tags": []},
    "c": {"year": "2010", "lang": "de", "open": True}, "d": {"lang": None},
}  # fmt: skip
QUERIES = [Query("q1", "one", metadata='{"where": "lang=fr", "allow": ["a", "b"]}'), Query("q2", "two")]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lines = [{"_id": name, "text": name, "metadata": metadata} for name, metadata in METADATA.items()]
    return Corpus.read(write_jsonl(tmp_path / "corpus.jsonl", lines))


def through(some: Filter, corpus: Corpus) -> str:
    return "".join(corpus.ids(some.numbers(corpus).tolist()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("year>=2000", "b"), ("year<2000", "a"), ("year = 2000.0", "b"), ("year>999", "ab")),
        *(("lang=de", "ac"), ("lang!=de", "b"), ("lang=fr|de", "abc"), ("lang!=fr|de", "")),
        *(("tags=y", "a"), ("tags!=y", "b"), ("open=true", "c"), ("lang>=e", "b")),
        *(("year>=1999 and lang=de", "a"), ("year<=2000 and year>1999", "b"), ("year=2010", "c")),
        *(("lang=fr or year<2000", "ab"), ("not lang=de", "bd"), ("not (lang=fr or open=true)", "ad")),
        ("lang=fr or lang=de and open=true", "bc"),
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
        where("yaer=1").numbers(corpus)
    raises(ConfigError, r"a filter over metadata is a text such as .*got \{'year': 3\}", where, {"year": 3})


@pytest.mark.parametrize(("values", "told", "right"), [
    (["2020-01-05", None, "2019"], {"f>=2020": "quote the value, which is text then: f>='2020'"}, "f>'2019'"),
    ([[], ["x"]], {"f>2 or other=1": "such as 'x', which are neither", "not f<2": "f<'2'."}, "f>'a'"),
    ([3, 4.5], {"f>='3'": "a number without quotes, as in f>=3.", "f<b": "above nor below b"}, "f>=3"),
    ([True], {"f>1": "such values have no order; use = or !="}, "f=true"),
    ([1, "a"], {}, "f>0"), ([1, "a"], {}, "f>'0'"), ([None, []], {}, "not f>2"),
])  # fmt: skip
@pytest.mark.parametrize("most", [2**20, 0])
def test_an_order_that_no_passage_can_have_is_refused(
    values: list[Any], told: dict[str, str], right: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MOST_VALUES", most)
    monkeypatch.setattr(columns, "_ROWS", 1)
    passages = [Passage(str(n), "x") for n in range(len(values))]
    corpus = Corpus.from_passages(passages, metadata=[{"f": value, "other": 1} for value in values])
    for text, why in told.items():
        raises(ConfigError, re.escape(why), where(text).numbers, corpus)
    assert through(where(right), corpus)


def test_one_filter_a_query() -> None:
    assert one_each(None, 2) == [None, None]
    assert one_each(["a", "b"], 2) == one_each({"a", "b"}, 2) == [Only(frozenset("ab"))] * 2
    assert one_each([["a"], None], 2) == [Only(frozenset("a")), None]
    assert one_each(where("a=b"), 1) == [where("a=b")]
    for wrong in ("ab", [["a"], 3], [None]):
        raises(ConfigError, r"allow takes|expected a filter|for 2 queries", one_each, wrong, 2)


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
        raises(DataError, message, read_allowed, file, QUERIES)
    raises(DataError, "no such file", read_allowed, tmp_path / "none", QUERIES)
    assert own_filters(QUERIES) == [AllOf((Only(frozenset("ab")), where("lang=fr"))), None]
    for metadata in ('{"allow": "a"}', '{"where": 3}'):
        raises(DataError, "query 'q': expected metadata", own_filters, [Query("q", "?", metadata=metadata)])
    with pytest.raises(
        DataError, match=r"query 'q', metadata.where: filter, column 5, behind 'a = ': expected a value"
    ):
        own_filters([Query("q", "?", metadata='{"where": "a = "}')])


@pytest.mark.parametrize("sign", ["\u2028", "\u0085", "\v", "\f", "\x1c"])
def test_ids_with_signs_that_end_a_line_elsewhere_stand_in_files(sign: str, tmp_path: Path) -> None:
    file = tmp_path / "allow"
    file.write_text(f"a{sign}b\r\nc\n", encoding="utf-8", newline="")
    assert read_allowed(file, QUERIES) == [Only(frozenset({f"a{sign}b", "c"}))] * 2


BIG = 2**60 + 1


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        # whole numbers exactly, beyond what a float holds
        *((f"f={BIG}", BIG, True), (f"f={BIG}", BIG - 1, False), (f"f!={BIG}", BIG - 1, True)),
        *((f"f>{BIG}", BIG, False), (f"f>={BIG}", BIG, True), (f"f<{BIG}", BIG - 1, True)),
        *((f"f={2**53}", float(2**53), True), (f"f={2**53 + 1}", float(2**53), False)),
        # other ways to write a number
        *(("f=1e1", 10, True), ("f=10", 10.0, True), ("f=0.1", 0.1, True), ("f<=0.3", 0.1 + 0.2, False)),
        *(("f=-5", -5, True), ("f=+5", 5, True), ("f<-1.5", -2, True), ("f<1e400", 10**300, True)),
        # nan and inf are words
        *(("f=nan", "nan", True), ("f!=nan", "zho", True), ("f!=nan", "nan", False), ("f=inf", 1.5, False)),
        # with text a number is equal by its letters, and has no order
        *(("f=10", "1e1", False), ("f=10", "10", True), ("f=7", "007", False), ("f>=2020", "unknown", False)),
        *(("f>=2000", "2010", False), ("f<2020", "1", False), ("f>='2000'", "2010", True)),
        *(("f='10'", 10, False), ("f='10'", "10", True), ("f!='10'", 10, True)),
        # truth values
        *(("f=true", True, True), ("f=1", True, False), ("f=true", "true", True), ("f='true'", True, False)),
        *(("f=false", False, True), ("f>'false'", "true", True), ("f<'inf'", "a", True)),
        *(("f='null'", "null", True), ("f=nullable", "nullable", True), ("f>trueish", "zoo", True)),
        # text by its letters
        *(("f>=2020-01-05", "2020-01-10", True), ("f<b", "a", True), ("f='a b'", "a b", True)),
        *(("f=\"it's\"", "it's", True), (r"f='it\'s'", "it's", True), ("f=o'neil", "o'neil", True)),
        *(("f=or", "or", True), ("f=in|not", "not", True), ("f=日本|中", "中", True)),
        ("f='a|b'", "a|b", True),
        # lists, missing, null
        *(("f=2", [1, 2], True), ("f!=2", [1, 2], False), ("f!=3", [1, 2], True), ("f>1", [1, 2], True)),
        *(("f!=2", [], True), ("f=2", [], False), ("f!=2", None, False)),
        *(("f=1|'x'|y", "y", True), ("f!=1|2", 3, True), ("f=1", {"a": 1}, False)),
    ],
)  # fmt: skip
def test_a_value_is_compared_with_its_like(text: str, value: Any, expected: bool) -> None:
    assert holds_for(text, {"f": value, "other": 1}) is expected
    assert holds_for(f"not ({text})", {"f": value}) is not expected


def holds_for(text: str, metadata: dict[str, Any]) -> bool:
    expression = parse_filter(text)
    names = (comparison.field for comparison in expression.comparisons())
    row = {name: FieldColumn(np.array([0]), [metadata.get(name)]) for name in names}
    return bool(part_mask(expression, row)[0])


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        *(("", 1, "expected a field"), ("year", 5, "expected one of = "), ("=3", 1, "expected a field")),
        *(("year>=2000 and", 15, "expected a field"), ("(a=1", 5, r"expected '\)'")),
        ("year>2018 AND lang=fr", 11, "Write 'and' in lower case"),
        ("year==2018", 6, "One '=' compares"),
        *(("y in (1, 2)", 3, r"field=a\|b"), ("y not in (1, 2)", 3, r"field!=a\|b for none")),
        ("lang=new york", 10, "white space in quotes"),
        ("lang='de", 6, "a quote that is not closed"),
        *(("a=|", 3, "a value"), ("a not 1", 3, "one of ="), ("a=1 and not", 12, "a field")),
        *(("a>=.5", 4, "no number such as 20"), ("a>=2020.", 4, "no number"), ("a=２０２０", 3, "Quote it")),
        ("a>=\u22125", 4, "no number"),  # a minus, not a hyphen
        *(("b>true", 3, "nothing is above or below true. Quote it"), ("b<=FALSE", 4, "truth values")),
        *(("y<inf", 3, "nothing is above or below inf. Quote"), ("y>=-Infinity", 4, "above or below -Inf")),
        *(("n=null", 3, "no comparison holds for a null"), ("n != 1 or n=a|NULL", 15, "a null")),
    ],
)  # fmt: skip
def test_what_does_not_parse_is_told_with_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        parse_filter(text)
    behind = f", behind {text[: column - 1]!r}" if column > 1 else ""
    assert f"filter, column {column}{behind}:" in str(error.value)


def test_length_and_depth_have_limits() -> None:
    parse_filter("(" * DEPTH + "a=1" + ")" * DEPTH)
    parse_filter("a=1 and " * 500 + "a=1")
    for text in ("(" * (DEPTH + 1) + "a=1" + ")" * (DEPTH + 1), "not " * 200 + "a=1", "a=" + "b" * MOST):
        raises(ConfigError, "at most", parse_filter, text)
    for text in ("a=1" + " " * 4000 + "x", " " * 4000 + "!", "a" + " " * 4000, "'" + "\\\\" * 2000):
        with pytest.raises(ConfigError, match="column"):
            parse_filter(text)  # in no time, however much white space there is


LEAVES = [("x=1", lambda m: m["x"] == 1), ("y!=b", lambda m: m["y"] != "b"), ("x>1", lambda m: m["x"] > 1),
          ("y=a|'b'", lambda m: m["y"] in "ab")]  # fmt: skip


def join(word: str, parts: list[Any]) -> Any:
    every = {"and": all, "or": any}[word]
    text = f" {word} ".join(f"({part})" if " or " in part or " and " in part else part for part, _ in parts)
    return text, lambda m: every(holds(m) for _, holds in parts)


def deny(part: Any) -> Any:
    return f"not ({part[0]})", lambda m: not part[1](m)


EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(join, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        st.builds(deny, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, st.sampled_from([0, 1, 2]), st.sampled_from("abc"))
def test_expressions_agree_with_a_naive_evaluator(expression: Any, x: int, y: str) -> None:
    text, holds = expression
    assert holds_for(text, {"x": x, "y": y}) == holds({"x": x, "y": y})


SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 2, -0.0, 2**60, 2**60 + 1, 1e300, "1", "a", "true"])
)
ENTRIES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.just({"f": 1}))
RECORDS = st.lists(
    st.dictionaries(st.sampled_from(["f", "g", "h"]), ENTRIES, max_size=3), min_size=1, max_size=9
)
VALUES = st.sampled_from(["0", "1", "1.0", "'1'", "a", "true", "false", str(2**60), "'true'"])
SIGNS = st.sampled_from(["=", "!="])
COMPARISONS = st.one_of(
    st.builds("{}{}{}|{}".format, st.sampled_from("fgh"), SIGNS, VALUES, VALUES),
    st.builds(
        "{}{}{}".format,
        st.sampled_from("fgh"),
        st.sampled_from(["<", ">="]),
        st.sampled_from(["1", "0.5", "b"]),
    ),
)
FILTERS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=4,
)


def corpus_of(metadata: list[dict[str, Any]], first: int = 0) -> Corpus:
    passages = [Passage(str(first + number), "text") for number in range(len(metadata))]
    return Corpus.from_passages(passages, metadata=metadata)


def naive(metadata: list[dict[str, Any]], text: str) -> list[int]:
    expression, rows = parse_filter(text), np.arange(len(metadata))
    names = (comparison.field for comparison in expression.comparisons())
    fields = {name: FieldColumn(rows, [row.get(name) for row in metadata]) for name in names}
    return np.flatnonzero(part_mask(expression, fields)).tolist()  # type: ignore[no-any-return]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    batches = MetadataColumns._batches

    def counted(self: MetadataColumns) -> Iterator[Any]:
        made.append(0)
        return batches(self)

    monkeypatch.setattr(MetadataColumns, "_batches", counted)
    return made


@settings(max_examples=60, deadline=None)
@given(RECORDS, RECORDS, st.lists(FILTERS, min_size=1, max_size=4), st.sampled_from([0, 3, 2**20]), st.data())
def test_columns_filter_as_the_metadata_do(
    metadata: list[dict[str, Any]],
    more: list[dict[str, Any]],
    texts: list[str],
    most: int,
    data: st.DataObject,
) -> None:
    """In batches of two passages, with columns of at most ``most`` values, before and after an addition."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_ROWS", 2)
        patch.setattr(columns, "MOST_VALUES", most)
        corpus, held = corpus_of(metadata), metadata
        for text in [*texts, *texts]:
            if data.draw(st.integers(0, 3)) == 0:
                corpus, held = corpus.extended(corpus_of(more, len(held))), [*held, *more]
            known = sorted({name for one in held for name in one})
            filled = [
                (
                    comparison,
                    [one[comparison.field] for one in held if one.get(comparison.field) not in (None, [])],
                )
                for comparison in parse_filter(text).comparisons()
            ]
            if not {comparison.field for comparison, _ in filled} <= set(known):
                there = f"the fields are {', '.join(known)}." if known else "there is no metadata."
                raises(ConfigError, there, corpus.columns.allowed, parse_filter(text))
            elif any(values and not any(map(one.compares, values)) for one, values in filled):
                raises(ConfigError, "can hold for no passage", corpus.columns.allowed, parse_filter(text))
            else:
                assert corpus.columns.allowed(parse_filter(text)).tolist() == naive(held, text)


def test_metadata_are_read_once(reads: list[int]) -> None:
    corpus = corpus_of([{"year": 1990 + n % 30, "lang": "de", "n": n} for n in range(500)])
    for _ in range(3):
        for text in ("year=2001", "year>=2000", "not year=2000|2001"):
            where(text).numbers(corpus)
    assert reads == [0]
    where("lang=de and year=2001").numbers(corpus)
    assert reads == [0, 0]  # a field that no filter had named
    for _ in range(2):
        with pytest.raises(ConfigError, match="field 'yaer': the fields are lang, n, year"):
            where("yaer=2001").numbers(corpus)
    longer = corpus.extended(corpus_of([{"year": 2001, "open": True}], 500))
    assert 500 in where("year=2001").numbers(longer)
    assert where("open=true").numbers(longer).tolist() == [500]
    assert 500 not in where("year=2001").numbers(corpus)


def test_what_a_caller_changes_stays_its_own() -> None:
    corpus = corpus_of([{"n": n} for n in range(9)])
    for _ in range(2):
        numbers = corpus.columns.allowed(parse_filter("n<3"))
        assert numbers.tolist() == [0, 1, 2]
        numbers[:] = 7


def test_a_corpus_travels_to_another_process() -> None:
    corpus = corpus_of([{"n": 1}, {}])
    corpus.columns.allowed(parse_filter("n=1"))
    for copied in (pickle.loads(pickle.dumps(corpus)), copy.deepcopy(corpus)):
        assert copied.columns.allowed(parse_filter("n=1")).tolist() == [0]
    assert np.array_equal(json.loads(json.dumps(list(corpus.metadata()))), [{"n": 1}, {}])
