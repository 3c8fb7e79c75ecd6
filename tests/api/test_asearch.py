"""Searches at the same time: as one batch, with the results of a search alone."""

import asyncio
import gc
import threading
import time
from collections.abc import Sequence

from grls.api.searcher import Searcher
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Hit, Passage, Query
from grls.errors import DataError
from grls.retrieve.queries import queries_of

CORPUS = Corpus.from_passages([Passage(name, f"text {name}") for name in "abcdef"])


class Slow:
    """Finds the passage that a query names; a query that is no passage fails the whole batch."""

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


def test_what_comes_in_together_is_one_batch() -> None:
    searcher, retriever = slow()

    async def run() -> list[list[Hit]]:
        return await asyncio.gather(*(searcher.asearch(name) for name in "abcdef"))

    assert [[hit.id for hit in hits] for hits in asyncio.run(run())] == [[name] for name in "abcdef"]
    assert retriever.batches == [(list("abcdef"), 10)]


def test_another_k_or_filter_is_another_batch() -> None:
    searcher, retriever = slow()

    async def run() -> list[object]:
        some = [searcher.asearch("a", 1), searcher.asearch("b", 2), searcher.asearch(["c", "d"], 1)]
        return await asyncio.gather(*some, searcher.asearch("e", 1, allow=["e"]))

    found = asyncio.run(run())
    assert found[2] == [[Hit("c", 1.0, "text c")], [Hit("d", 1.0, "text d")]]
    assert retriever.batches == [(["a", "c", "d"], 1), (["b"], 2), (["e"], 1)]


def test_what_comes_in_while_a_batch_runs_is_the_next_one() -> None:
    searcher, retriever = slow(0.2)

    async def run() -> None:
        first = asyncio.create_task(searcher.asearch("a"))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, *(later(name) for name in "bcd"))

    async def later(name: str) -> None:
        await asyncio.sleep(0.02 * "bcd".index(name))
        await searcher.asearch(name)

    asyncio.run(run())
    assert [batch for batch, _ in retriever.batches] == [["a"], ["b", "c", "d"]]


def test_an_error_reaches_its_caller_alone() -> None:
    searcher, retriever = slow()

    async def run() -> list[object]:
        asked = [searcher.asearch("a"), searcher.asearch("zzz"), searcher.asearch("b")]
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert (first, third) == ([Hit("a", 1.0, "text a")], [Hit("b", 1.0, "text b")])
    assert isinstance(second, DataError)
    assert [batch for batch, _ in retriever.batches] == [["a", "zzz", "b"], ["a"], ["zzz"], ["b"]]


def test_a_cancelled_search_disturbs_no_other() -> None:
    searcher, retriever = slow(0.15)

    async def run() -> list[object]:
        running = asyncio.create_task(searcher.asearch("a"))
        await asyncio.sleep(0.05)
        waiting, other = (asyncio.create_task(searcher.asearch(name)) for name in "bc")
        await asyncio.sleep(0.02)
        running.cancel()  # its batch runs
        waiting.cancel()  # its batch has not begun
        return await asyncio.gather(running, waiting, other, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(second, asyncio.CancelledError)
    assert third == [Hit("c", 1.0, "text c")]
    assert [batch for batch, _ in retriever.batches] == [["a"], ["c"]]


def test_the_thread_starts_late_and_ends_with_the_searcher() -> None:
    before = set(threading.enumerate())  # threads of other searchers may end meanwhile
    searcher, _ = slow()
    assert set(threading.enumerate()) <= before
    asyncio.run(searcher.asearch("a"))
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name.startswith("grls-search"))
    del searcher
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()
