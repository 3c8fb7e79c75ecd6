"""What a data set is like."""

from pathlib import Path

import pytest

from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.fitting.options import FitOptions
from grls.fitting.splits import SplitData, read_data

PASSAGES = [
    Passage("p0", "The otter eats fish in the river and it sleeps.", "Otter"),
    Passage("p1", "A holt is the den of an otter near the water."),
    Passage("p2", "The river flows to the sea and is cold."),
    Passage("p3", "Fish live in the river, which is what they need."),
]


def facts_of(folder: Path, train: list[tuple[str, list[str]]]) -> SplitData:
    """The facts of training queries with their gold, and of a dev query."""
    texts = {f"q{n}": text for n, (text, _) in enumerate(train)}
    qrels = {"train": {f"q{n}": dict.fromkeys(gold, 1) for n, (_, gold) in enumerate(train)}}
    qrels["dev"] = {"d0": {"p2": 1}}
    queries = [Query(name, text) for name, text in (texts | {"d0": "who"}).items()]
    write_dataset(folder, PASSAGES, queries, qrels)
    return read_data(folder, FitOptions())


def test_sizes_lengths_and_languages(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, [("what do otters eat in the river", ["p0"]), ("where is it", ["p1"])])
    assert (len(facts.corpus), facts.words, facts.language) == (4, 10.25, "en")
    assert facts.counts() == {"train": 2, "dev": 1}
    assert (facts.hops, facts.most_hops, facts.short, facts.few) == (False, 1, True, True)
    assert facts.lines()[-1] == "queries: 2 train, 1 dev; gold passages: 1.0 a query, one each"


def test_several_gold_passages_ask_for_hops(tmp_path: Path) -> None:
    rows = [("what do otters eat", ["p0", "p3"]), ("where do they live", ["p0", "p1", "p2"]), ("who", ["p2"])]
    facts = facts_of(tmp_path, rows)
    assert (facts.gold, facts.several) == (2.0, pytest.approx(2 / 3))
    assert (facts.hops, facts.most_hops) == (True, 3)
    assert facts.lines()[-1].endswith("2.0 a query, 67% with several")
    few = facts_of(tmp_path / "few", [*rows[:1], *[("who", ["p2"])] * 3])
    assert few.lines()[-1].endswith("25% with several (hops are tried from 30% on)")
