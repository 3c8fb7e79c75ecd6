"""Searches in asynchronous code."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Hit, Passage, Query
from grls.errors import DataError
from grls.retrieve.queries import queries_of

CORPUS = Corpus.from_passages([Passage(name, f"text {name}") for name in "abcdef"])


class Slow:
    """Finds the passage that a query names; a query that is no passage fails."""

    kind, corpus = "slow", CORPUS

    def __init__(self, seconds: float = 0.0):
        self.seconds, self.batches = seconds, []

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        asked = [query.text for query in queries_of(queries)]
        self.batches.append((asked, k))
        time.sleep(self.seconds)
        if bad := [text for text in asked if text not in "abcdef"]:
            raise DataError(f"bad query {bad[0]!r}")
        return [[Hit(text, 1.0)] for text in asked]


def slow(seconds: float = 0.0) -> tuple[Searcher, Slow]:
    retriever = Slow(seconds)
    return Searcher(retriever, "nowhere"), retriever  # type: ignore[arg-type]


def test_searches_of_one_loop_wait_for_each_other_and_not_for_the_loop() -> None:
    searcher, retriever = slow(0.1)

    async def run() -> list[Any]:
        asked = [
            searcher.asearch("a", 1),
            searcher.asearch(["c", "d"], 1),
            searcher.asearch("e", 1, allow=["e"]),
        ]
        searches = asyncio.gather(*asked)
        await asyncio.sleep(0.02)
        assert not searches.done()
        return await searches

    assert asyncio.run(run()) == [
        [Hit("a", 1.0, "text a")],
        [[Hit("c", 1.0, "text c")], [Hit("d", 1.0, "text d")]],
        [Hit("e", 1.0, "text e")],
    ]
    assert sorted(retriever.batches) == [(["a"], 1), (["c", "d"], 1), (["e"], 1)]


def test_an_error_reaches_its_caller_alone() -> None:
    searcher, _ = slow()

    async def run() -> list[object]:
        asked = [searcher.asearch("a"), searcher.asearch("zzz"), searcher.asearch("b")]
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert (first, third) == ([Hit("a", 1.0, "text a")], [Hit("b", 1.0, "text b")])
    assert isinstance(second, DataError)
