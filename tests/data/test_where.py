"""Filters as text: values and types by hand, the grammar beside a naive evaluator, errors by place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grls.data.where import DEPTH, MOST, parse_filter
from grls.errors import ConfigError

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
        *(("f!=2", [], True), ("f=2", [], False), ("f!=2", None, False), ("f not in (2)", None, False)),
        *(("f in (1, 'x', y)", "y", True), ("f not in (1, 2)", 3, True), ("f in (1)", {"a": 1}, False)),
    ],
)  # fmt: skip
def test_a_value_is_compared_with_its_like(text: str, value: Any, expected: bool) -> None:
    assert parse_filter(text).holds({"f": value, "other": 1}) is expected
    assert parse_filter(f"not ({text})").holds({"f": value}) is not expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        *(("", 1, "expected a field"), ("year", 5, "expected one of = "), ("=3", 1, "expected a field")),
        *(("year=", 6, "expected a value"), ("year>1|2", 7, "'and', 'or' or the end")),
        *(("year>=2000 and", 15, "expected a field"), ("(a=1", 5, r"expected '\)'")),
        *(("a=1)", 4, "or the end"), ("a=b|", 5, "a value"), ("a<>1", 3, "a value")),
        ("year>2018 AND lang=fr", 11, "Write 'and' in lower case"),
        ("year>2018 Or lang=fr", 11, "Write 'or' in lower case"),
        ("year==2018", 6, "One '=' compares"),
        ("lang=new york", 10, "white space in quotes"),
        ("lang='de", 6, "a quote that is not closed"),
        *(("a=1 b=2", 5, "'and', 'or'"), ("a ! b", 3, "got '!'"), ("and=1", 1, "a field")),
        *(("a in ()", 7, "a value"), ("a not 1", 7, "'in'"), ("a=1 and not", 12, "a field")),
        ("a in 1", 6, r"'\('"),
        *(("a>=.5", 4, "no number such as 20"), ("a>=2020.", 4, "no number"), ("a=２０２０", 3, "Quote it")),
        ("a>=\u22125", 4, "no number"),  # a minus, not a hyphen
        *(("b>true", 3, "nothing is above or below true. Quote it"), ("b<=FALSE", 4, "truth values")),
        *(("y<inf", 3, "nothing is above or below inf. Quote"), ("y>=-Infinity", 4, "above or below -Inf")),
        *(("x=1 and y<NaN", 11, "above or below NaN"), ("y>+inf", 3, r"above or below \+inf")),
        *(("n=null", 3, "no comparison holds for a null"), ("n != 1 or n in (a, NULL)", 20, "a null")),
        *(("n<null", 3, "a null or missing field. Quote"), ("n=a|null", 5, "a null")),
        *(("a=1_000", 3, "no number"), ("a=True", 3, "truth values are true and false")),
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
        with pytest.raises(ConfigError, match="at most"):
            parse_filter(text)
    for text in ("a=1" + " " * 4000 + "x", " " * 4000 + "!", "a" + " " * 4000, "'" + "\\\\" * 2000):
        with pytest.raises(ConfigError, match="column"):
            parse_filter(text)  # in no time, however much white space there is


LEAVES = [("x=1", lambda m: m["x"] == 1), ("y!=b", lambda m: m["y"] != "b"), ("x>1", lambda m: m["x"] > 1),
          ("y in (a, 'b')", lambda m: m["y"] in "ab")]  # fmt: skip


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
    assert parse_filter(text).holds({"x": x, "y": y}) == holds({"x": x, "y": y})


def test_and_binds_before_or() -> None:
    found = parse_filter("x=1 or x=2 and y=b")
    assert [found.holds({"x": x, "y": y}) for x in (1, 2) for y in "ab"] == [True, True, False, True]
