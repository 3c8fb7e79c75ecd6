"""Results that are kept portion by portion: they come back as they were, and of an earlier version, too."""

import json
from pathlib import Path
from typing import Any

import pytest

from grls.data.types import Chain, Hit, Query
from grls.runs.portions import in_portions
from grls.runs.results import Retrieved

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


@pytest.mark.parametrize("kind", ["rankings", "chains", "sets"])
def test_what_an_earlier_version_kept_is_gone_on_with(tmp_path: Path, kind: str) -> None:
    hits = [[hit.id, hit.score] for hit in KINDS[kind][0].hits]
    hops = [[hit.id, hit.score] for hit in CHAIN.hits]
    record: dict[str, Any] = {}
    if kind != "chains":
        record["hits"] = hits
    if kind != "rankings":
        record["chain"] = {"hops": hops, "score": CHAIN.score, "done": CHAIN.done}
    lines = [{"settings": {}}, {"query_id": "q0", **record}, {"query_id": "q1", **record, "seconds": 2.0}]
    (tmp_path / "r.retrieved.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    portions = in_portions(f"{tmp_path}/r", dict, QUERIES, lambda some: KINDS[kind][some], 2)
    assert list(portions.retrieved) == KINDS[kind]
    assert portions.seconds >= 2.0
