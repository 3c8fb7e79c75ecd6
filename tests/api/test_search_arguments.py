"""What a search cannot take is an error of ours, whatever the retriever."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import grls
from grls.errors import ConfigError, DataError

CORPUS = ["Otters eat fish.", "A holt is an otter's den."]


@pytest.fixture(scope="module")
def searcher() -> grls.Searcher:
    return grls.BM25(CORPUS)


def searched(searcher: grls.Searcher, *arguments: Any, **options: Any) -> Any:
    return searcher.search(*arguments, **options)


def searched_later(searcher: grls.Searcher, *arguments: Any, **options: Any) -> Any:
    return asyncio.run(searcher.asearch(*arguments, **options))


@pytest.mark.parametrize("search", [searched, searched_later])
@pytest.mark.parametrize(
    ("arguments", "kind", "complaint"),
    [
        (("",), DataError, "query 0: its text is empty"),
        ((["otter", " \n"],), DataError, "query 1: its text is empty"),
        (({"q1": "otter"},), DataError, "of a dict search for the list of its values"),
        ((None,), DataError, "expected a query or a list of queries, got None"),
        ((5,), DataError, "expected a query or a list of queries, got 5"),
        ((["otter", 5],), DataError, "query 1: expected a Query or a text"),
        (("otter", "3"), ConfigError, "k must be a whole number, got '3'"),
        (("otter", 3.0), ConfigError, "k must be a whole number, got 3.0"),
        (("otter", True), ConfigError, "k must be a whole number, got True"),
        (("otter", 0), ConfigError, "k must be at least 1, got 0"),
    ],
)
def test_arguments(
    searcher: grls.Searcher,
    search: Callable[..., Any],
    arguments: tuple[Any, ...],
    kind: type[Exception],
    complaint: str,
) -> None:
    with pytest.raises(kind, match=complaint):
        search(searcher, *arguments)


@pytest.mark.parametrize("search", [searched, searched_later])
def test_allowed_ids(searcher: grls.Searcher, search: Callable[..., Any]) -> None:
    """A whole number is an id, as in a corpus from Python."""
    assert [hit.id for hit in search(searcher, "otter", np.int64(2), allow=[1])] == ["1"]
    with pytest.raises(DataError, match="expected an id that is a text or a whole number, got"):
        search(searcher, "otter", allow=[1.5])
    with pytest.raises(ConfigError, match="allow takes passage ids as a list or set"):
        search(searcher, "otter", allow="1")


def test_a_stream_refuses_an_empty_query_at_once(searcher: grls.Searcher) -> None:
    with pytest.raises(DataError, match="its text is empty"):
        searcher.stream(" ")


def test_gold_of_an_explanation_may_be_numbers(searcher: grls.Searcher) -> None:
    assert searcher.explain("otters", gold=0)[0].rank == 1
    assert len(searcher.explain("otters", gold=[0, "1"])) == 2


@pytest.mark.parametrize("members", [0, 1])
def test_a_fusion_has_two_members(searcher: grls.Searcher, members: int) -> None:
    with pytest.raises(ConfigError, match="at least two retrievers"):
        grls.fuse([searcher] * members)
