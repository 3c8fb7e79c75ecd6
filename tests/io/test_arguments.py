"""The door of public calls: what it takes as what, and what its errors say."""

import asyncio
import math
import pathlib
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from failing import raises

import grls
from grls.errors import ConfigError, Option, in_shell, worded
from grls.io.arguments import (
    Count,
    NegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    Share,
    checked,
    checked_options,
    fitted,
    options,
    options_of,
)


@dataclass(frozen=True)
class Extra:
    depth: Count = 3
    shares: tuple[float, ...] = ()
    method: Literal["sum", "rrf"] = "sum"


@checked_options(Extra)
def call(
    name: str | Path,
    k: Count = 10,
    *rest: float,
    flag: bool = False,
    ids: Collection[str | int] | None = None,
    table: Mapping[str, float] | None = None,
    tell: Callable[[], None] | None = None,
    **options: Any,
) -> Any:
    return name, k, rest, flag, ids, table, options


class Named(str, Enum):  # noqa: UP042
    DENSE, RRF = "dense", "rrf"


class Folder:
    def __fspath__(self) -> str:
        return "folder"


def test_values_of_other_libraries_become_plain() -> None:
    assert call(Folder(), np.int64(2), np.float32(0.5), flag=np.bool_(True)) == (  # type: ignore[arg-type]
        Path("folder"), 2, (0.5,), True, None, None, {},
    )  # fmt: skip
    name, k, *_ = call(np.str_("a"), np.uint8(3))
    assert (type(name), type(k)) == (str, int)
    assert call(Named.DENSE, method=Named.RRF)[::6] == ("dense", {"method": "rrf"})
    assert call("a", shares=np.array([1, 2]), depth=np.int32(4))[-1] == {"shares": (1, 2), "depth": 4}
    for ids in (["a", 1], np.array(["a", 1], dtype=object), pd.Series(["a", 1]), (one for one in ("a", 1))):
        assert list(call("a", ids=ids)[4]) == ["a", 1]  # type: ignore[arg-type]
    assert call("a", ids=pl.Series([1, 2]))[4] == [1, 2]  # type: ignore[arg-type]
    assert call("a", ids={"a": 1}.keys())[4] == {"a"}
    assert type(call("a", table={np.str_("x"): np.float64(2)})[5]["x"]) is float


@pytest.mark.parametrize(
    ("arguments", "named", "complaint"),
    [
        ((5,), {}, "call: name must be a path, got 5."),
        (("",), {}, "call: name must be a name of at least one character, without NUL, got ''."),
        (("\ud800",), {}, r"name must be a text without half characters (lone surrogates), got '\ud800'."),
        (("a/" + "x" * 300,), {}, "name must be a path whose names have at most 255 bytes each"),
        ((b"a",), {}, "name must be a path, got b'a'."),
        (("a", True), {}, "call: k must be a whole number, got True."),
        (("a", 0), {}, "call: k must be at least 1, got 0."),
        (("a", 10**30), {}, "call: k must be a whole number of 64 bits, got 1000"),
        (("a", 1, 2, float("nan")), {}, "call: rest[1] must be a finite number, got nan."),
        (("a",), {"flag": 1}, "call: flag must be True or False, got 1."),
        (("a",), {"ids": "b"}, "call: ids must be a list of texts or whole numbers, got 'b'; write ['b']."),
        (("a",), {"ids": ["b", None]}, "call: ids[1] must be a text or a whole number, got None."),
        (("a",), {"table": {"x": "y"}}, "call: table['x'] must be a number, got 'y'."),
        (("a",), {"tell": 3}, "call: tell must be a function, got 3."),
        (("a",), {"method": "sun"}, "call: method must be one of sum, rrf, got 'sun'; did you mean 'sum'?"),
        (
            ("a",),
            {"ids": pd.DataFrame({"x": [1]})},
            "ids must be a list of texts or whole numbers, got x 0 1.",
        ),
        (("a",), {"top_k": 1}, "call has no argument 'top_k'; did you mean k?"),
        (
            ("a",),
            {"dept": 1},
            "call has no argument 'dept'; did you mean depth? It takes depth, name, k, flag, ids, table, "
            "tell, shares, method.",
        ),
    ],
)
def test_errors_name_the_call_and_the_argument(
    arguments: tuple[Any, ...], named: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **named)
    assert complaint in str(caught.value)
    assert not str(caught.value).endswith("?.")


@checked
def listing(
    rows: Sequence[Mapping[str, Any]] = (),
    sheets: Sequence[Path | Callable[[], None] | Sequence[str] | None] = (),
    kind: type[Exception] = ValueError,
    ways: Sequence[Literal["up", "down"]] = (),
) -> Any:
    return rows


@pytest.mark.parametrize(("arguments", "complaint"), [
    ({"rows": ["{}"]}, "listing: rows[0] must be a dict, got '{}'."),
    ({"rows": {"{}"}}, "listing: rows must be a list of dicts, got {'{}'}; a set has no order."),
    ({"rows": 5}, "listing: rows must be a list of dicts, got 5."),
    ({"sheets": 5}, "sheets must be a list of paths or functions or lists of texts, got 5."),
    ({"kind": int}, "listing: kind must be a class that derives from Exception, got <class 'int'>."),
    ({"kind": 5}, "listing: kind must be a class, got 5."),
    ({"ways": 5}, "listing: ways must be a list of up or down, got 5."),
])  # fmt: skip
def test_what_a_list_holds_is_checked_and_said_in_plain_words(
    arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        listing(**arguments)
    assert complaint in str(caught.value)
    assert listing(rows=[{"a": 1}]) == [{"a": 1}]


@checked
def either(ids: Collection[str] | Sequence[Collection[str] | None] | None = None) -> Any:
    return ids


def test_a_call_says_what_it_needs() -> None:
    raises(ConfigError, "^call needs name", call, k=3)
    raises(ConfigError, "^BM25 needs corpus", grls.BM25)
    raises(ConfigError, "^experiment needs systems and queries", grls.experiment)


def test_what_can_be_read_once_is_read_once() -> None:
    """It was used up as a list of texts, and then was an empty list of lists."""
    for ids in (["a", "b"], [["a"], None]):
        assert either(iter(ids)) == ids  # type: ignore[arg-type]


def test_the_names_of_a_dict_keep_their_order() -> None:
    names = {"b": 1, "a": 2}
    assert listing(ways={"up": 1, "down": 2}.keys(), rows=[{}]) == [{}]
    assert fitted(names.keys(), Sequence[str]) == fitted(names.keys(), list[str]) == ["b", "a"]
    assert fitted(names.keys(), tuple[str, ...]) == ("b", "a")
    assert fitted({"a"}, Collection[str]) == {"a"}


@options("hops")
class Options:
    """Options."""

    depth: Count = 1
    shares: tuple[Share, ...] = ()
    temperature: PositiveFloat | None = None
    after: NegativeFloat = -1.0

    def __post_init__(self) -> None:
        if self.depth == 7:
            raise ConfigError(f"{Option('hops.depth')}: not 7.")


@options("hops")
class MoreOptions(Options):
    """More options."""

    width: NonNegativeInt = 0


def test_the_fields_of_options_are_checked() -> None:
    assert Options(np.int64(2), [0.5]) == Options(2, (0.5,))  # type: ignore[arg-type]
    assert MoreOptions(shares=(0, 1), temperature=None).shares == (0, 1)


@pytest.mark.parametrize(("values", "complaint"), [
    ({"depth": ""}, "depth must be a whole number, got ''."),
    ({"depth": 0}, "depth must be at least 1, got 0."),
    ({"depth": 7}, "depth: not 7."),
    ({"shares": (0.5, 1.5)}, "shares[1] must be between 0 and 1, got 1.5."),
    ({"temperature": 0}, "temperature must be above 0, got 0."),
    ({"temperature": math.inf}, "temperature must be a finite number, got inf."),
    ({"after": 0.0}, "after must be below 0, got 0.0."),
    ({"width": -1}, "width must be at least 0, got -1."),
])  # fmt: skip
def test_the_bounds_of_options_stand_in_their_types(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MoreOptions(**values)
    assert str(caught.value) == complaint
    assert worded(caught.value.text, in_shell) == f"--hops.{complaint}"


def test_an_error_of_asynchronous_code_comes_when_it_is_awaited() -> None:
    @checked
    async def later(k: Count) -> int:
        return k

    waiting = later("x")  # type: ignore[arg-type]
    raises(ConfigError, "k must be a whole number", asyncio.run, waiting)
    assert asyncio.run(later(np.int64(2))) == 2  # type: ignore[arg-type]


def test_a_value_that_cannot_be_shown() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    raises(ConfigError, r"k must be a whole number, got <", call, "a", Shy())


def test_values_that_fit_stay_as_they_are() -> None:
    ids = [f"p{n}" for n in range(3)]
    assert fitted(ids, Sequence[str]) is ids
    assert fitted({"a"}, Collection[str]) == {"a"}
    assert fitted(60, float) == 60
    assert type(fitted(60, float)) is int  # a file of options holds what was written
    assert fitted(None, int | None) is None
    assert fitted(pathlib.PurePosixPath("a"), str | Path) == Path("a")
    assert options_of(Extra, {"shares": [1]}, "x") == Extra(shares=(1,))


def test_a_misspelt_keyword_is_found_before_torch_is_imported() -> None:
    code = """
import sys, grls
try:
    grls.fit(["otters"], biencodr="x")
except grls.errors.ConfigError as error:
    print(error)
print("torch" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, torch = ran.stdout.splitlines()
    assert "fit has no argument 'biencodr'; did you mean biencoder" in said
    assert "It takes biencoder, " in said
    for name in ("corpus", "queries", "gold", "output", "budget", "dev", "test", "seed", "measure"):
        assert f" {name}," in said or f" {name}." in said
    assert torch == "False"
