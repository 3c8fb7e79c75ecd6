"""Counts with their nouns."""

import pytest

from grls.io.progress import counted, plural


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "query", "1 query"),
        (0, "query", "0 queries"),
        (1200, "gold passage", "1,200 gold passages"),
        (2, "key", "2 keys"),
        (2, "prefix", "2 prefixes"),
    ],
)
def test_a_noun_is_in_the_singular_for_one(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_more_than_the_last_word_may_change() -> None:
    assert counted(1, "query has", "queries have") == "1 query has"
    assert counted(2, "query has", "queries have") == "2 queries have"
    assert plural("batch") == "batches"
