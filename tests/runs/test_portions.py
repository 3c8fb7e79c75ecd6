"""Results that are kept portion by portion: they come back as they were."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.runs import portions as module
from grls.runs.manifest import RunInfo
from grls.runs.portions import in_portions
from grls.runs.results import Retrieved
from grls.runs.save import save_retrieved

QUERIES = [Query(f"q{n}", f"{n}?") for n in range(5)]
CHAIN = Chain((Hit("a", -0.5), Hit("b", -0.25), Hit("DONE", -0.125)), -0.875, True)
KINDS = {
    "rankings": [Retrieved.ranked(query.id, [Hit("a", 2.0), Hit("b", 1.0)]) for query in QUERIES],
    "chains": [Retrieved.chained(query.id, CHAIN) for query in QUERIES],
    "sets": [Retrieved.chained(query.id, CHAIN, [Hit("a", 9.0), Hit("b", 8.0)]) for query in QUERIES],
    "nothing": [Retrieved.ranked(query.id, []) for query in QUERIES],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 5])
def test_results_come_back_in_portions_and_at_once(tmp_path: Path, kind: str, size: int) -> None:
    expected, asked = KINDS[kind], []

    def retrieve(some: slice) -> list[Retrieved]:
        asked.append((some.start, some.stop))
        return expected[some]

    portions = in_portions(f"{tmp_path}/r", dict, QUERIES, retrieve, size)
    assert list(portions.retrieved) == list(portions.retrieved) == expected
    assert asked == ([(0, 5)] if size == 5 else [(0, 2), (2, 4), (4, 5)])
    assert (portions.file is None) == (size == 5)


def test_hits_that_the_chain_says_are_not_kept_twice(tmp_path: Path) -> None:
    in_portions(f"{tmp_path}/r", dict, QUERIES, lambda some: KINDS["chains"][some], 2)
    _, first, *_ = map(json.loads, (tmp_path / "r.retrieved.jsonl").read_text().splitlines())
    assert sorted(first) == ["chain", "query_id"]


class Hits(list[Hit]):
    """A list that can be counted while it lives."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def test_memory_does_not_grow_with_the_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 queries no more are in memory than two portions hold."""
    queries = [Query(f"q{n}", f"{n}?") for n in range(60)]
    living: WeakSet[Hits] = WeakSet()
    most = 0

    def counted(pairs: Sequence[Sequence[Any]]) -> Hits:
        nonlocal most
        hits = Hits(Hit(*pair) for pair in pairs)
        living.add(hits)
        most = max(most, len(living))
        return hits

    monkeypatch.setattr(module, "_hits", counted)
    monkeypatch.setattr("grls.runs.results._AT_ONCE", 4)
    monkeypatch.setattr("grls.runs.portions.Retrieved.ranked", Retrieved)
    portions = in_portions(
        f"{tmp_path}/r",
        dict,
        queries,
        lambda some: [Retrieved(query.id, counted([("a", 1.0)])) for query in queries[some]],
        4,
    )
    info = RunInfo("bm25", "bm25", "single", "", "", "", None, "bm25")
    save_retrieved(
        tmp_path / "r", queries, Corpus.from_passages([Passage("a", "x")]), portions.retrieved, info
    )
    assert len((tmp_path / "r.trec").read_text().splitlines()) == 60
    assert 4 <= most <= 9
