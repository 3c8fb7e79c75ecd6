"""Demonstrate-search-predict: retrievers as DSPy gets them, asked by many threads at once."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import pytest
from failing import raises

pytest.importorskip("dspy", reason="the extra dsp is not installed")

from dsp_helpers import CORPUS, ScriptedRetriever, retrieval

from grls.answer.dsp.calls import Gathered
from grls.answer.dsp.retrieval import Retrieval, RetrievedPassage
from grls.data.types import Query
from grls.errors import ConfigError


def test_an_error_is_that_of_its_own_asker() -> None:
    begun, go = threading.Event(), threading.Event()

    def compute(asked: Sequence[int]) -> list[int]:
        begun.set()
        assert go.wait(10)
        if 1 in asked:
            raise ValueError("no")
        return list(asked)

    gathered = Gathered(compute, batch_size=4)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(gathered, 0)
        assert begun.wait(10)
        rest = [pool.submit(gathered, n) for n in (1, 2)]
        while len(gathered._waiting) < 2:
            sleep(0.001)
        go.set()
        assert (first.result(), rest[1].result()) == (0, 2)
        raises(ValueError, "no", rest[0].result)


def test_a_retriever_as_a_module() -> None:
    source = ScriptedRetriever({"q": [("b", 2.0), ("a", 1.0), ("c", 0.0)]})
    module = Retrieval(source, CORPUS, k=2)
    found = module(query="q")
    assert found.passages == ["B: text b", "A: text a"]
    e = 2.718281828459045
    assert found.found == [
        RetrievedPassage("b", "B: text b", 2.0, pytest.approx(e / (1 + e))),
        RetrievedPassage("a", "A: text a", 1.0, pytest.approx(1 / (1 + e))),
    ]
    assert module.find(" ") == []
    assert len(source.asked) == 1  # nothing is asked for an empty query
    assert [one.id for one in module.find("q", k=3)] == ["b", "a", "c"]
    raises(ConfigError, "k must be", Retrieval, source, CORPUS, k=0)


def test_fusion_counts_a_query_as_often_as_it_is_given() -> None:
    module = retrieval({"x": [("a", -1.0)], "y": [("b", -0.5)], "z": [("c", -2.0), ("d", -2.0)]}, k=3)
    e = 2.718281828459045
    found = module.fused(["x", "y", "", "x"])
    assert [(one.id, one.score) for one in found] == [
        ("a", pytest.approx(2 * e**-1)),
        ("b", pytest.approx(e**-0.5)),
    ]
    assert module.fused(["", "z"], k=1) == [RetrievedPassage("c", "C: text c", -2.0, pytest.approx(e**-2))]
    assert module.fused([]) == []


def test_a_fused_query_is_retrieved_for_deeper() -> None:
    deep = retrieval({"x": [("a", -1.0), ("b", -1.5)], "y": [("c", -1.1), ("b", -1.2)]}, k=1)
    assert [one.id for one in deep.fused(["x", "y"])] == ["b"]  # second in both


def test_a_retriever_is_never_called_by_two_threads_at_once() -> None:
    class Jealous(ScriptedRetriever):
        busy = False

        def retrieve(self, queries: Sequence[Query], k: int, allow: Any = None) -> Any:
            assert not self.busy
            self.busy = True
            sleep(0.002)
            self.busy = False
            return super().retrieve(queries, k, allow)

    source = Jealous({f"q{n}": [("abcdef"[n % 6], -1.0)] for n in range(30)})
    module = Retrieval(source, CORPUS, k=1)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: module.find(f"q{n}")[0].id, range(30)))
    assert found == ["abcdef"[n % 6] for n in range(30)]
    assert max(map(len, source.asked)) > 1
