"""What a data set is like."""

from pathlib import Path

import pytest

from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.fitting.facts import data_facts

PASSAGES = [
    Passage("p0", "The otter eats fish in the river and it sleeps.", "Otter"),
    Passage("p1", "A holt is the den of an otter near the water."),
    Passage("p2", "The river flows to the sea and is cold."),
    Passage("p3", "Fish live in the river, which is what they need."),
]


def write(folder: Path, train: list[tuple[Query, list[str]]], dev: list[tuple[Query, list[str]]]) -> Path:
    splits = {"train": train, "dev": dev}
    qrels = {
        name: {query.id: dict.fromkeys(gold, 1) for query, gold in rows} for name, rows in splits.items()
    }
    write_dataset(folder, PASSAGES, [query for rows in splits.values() for query, _ in rows], qrels)
    return folder


def test_sizes_lengths_and_languages(tmp_path: Path) -> None:
    rows = [(Query("q0", "what do otters eat in the river"), ["p0"]), (Query("q1", "where is it"), ["p1"])]
    facts = data_facts(
        write(tmp_path / "data", rows, [(Query("d0", "who is it"), ["p2"])]), "train", "dev", "test"
    )
    assert facts.passages == 4
    assert facts.words == 10.25
    assert facts.language == "en"
    assert facts.splits["train"].queries == 2
    assert facts.splits["train"].words == 5.0
    assert not facts.hops
    assert facts.most_hops == 1
    assert facts.short


def test_several_ordered_gold_passages_ask_for_hops(tmp_path: Path) -> None:
    two = Query("q0", "what do otters eat", evidence=("p0", "p3"), answers=("fish",))
    three = Query("q1", "where do they live", metadata='{"any_order": true}', evidence=("p1", "p0", "p2"))
    one = Query("q2", "where does the river flow")
    rows = [(two, ["p0", "p3"]), (three, ["p0", "p1", "p2"]), (one, ["p2"])]
    facts = data_facts(write(tmp_path / "data", rows, [(Query("d0", "who"), ["p2"])]), "train", "dev", "test")
    train = facts.splits["train"]
    assert (train.gold, train.most_gold) == (2.0, 3)
    assert train.several == pytest.approx(2 / 3)
    assert train.ordered == 0.5
    assert facts.hops
    assert facts.most_hops == 3


def test_the_order_of_several_gold_passages_is_told_as_it_is(tmp_path: Path) -> None:
    """Without evidence, or with ``any_order``, gold passages have no order: so they are learned."""
    free = '{"any_order": true}'
    ordered = Query("q0", "what do otters eat", evidence=("p0", "p3"))
    others = [Query("q1", "who", metadata=free, evidence=("p0", "p3")), Query("q2", "where do they live")]
    dev = [(Query("d0", "who is it"), ["p2"])]

    def said(*queries: Query) -> str:
        rows = [(query, ["p0", "p3"]) for query in queries]
        folder = tmp_path / "-".join(query.id for query in queries)
        return data_facts(write(folder, rows, dev), "train", "dev", "test").lines()[2]

    assert "100% with several (33% of these in order, 67% in any order)" in said(ordered, *others)
    assert "100% with several (in order)" in said(ordered)
    assert "100% with several (in any order)" in said(*others)


def test_unseen_gold_is_gold_of_no_training_query(tmp_path: Path) -> None:
    dev = [(Query("d0", "what"), ["p0", "p2"]), (Query("d1", "where"), ["p2", "p3"])]
    facts = data_facts(write(tmp_path / "data", [(Query("q0", "who"), ["p0"])], dev), "train", "dev", "test")
    assert facts.unseen == 0.75
    assert "75% of those of dev are never gold in train" in " ".join(facts.lines())


def test_without_a_test_split_dev_is_reported(tmp_path: Path) -> None:
    row = [(Query("q0", "who"), ["p0"])]
    facts = data_facts(write(tmp_path / "data", row, [(Query("d0", "what"), ["p1"])]), "train", "dev", "test")
    assert facts.test == "dev"
    assert set(facts.splits) == {"train", "dev"}


def test_a_query_without_gold_counts_nowhere(tmp_path: Path) -> None:
    data = write(tmp_path / "data", [(Query("q0", "who"), ["p0"])], [(Query("d0", "what"), ["p1"])])
    (data / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nd0\tp1\t0\n")
    with pytest.raises(DataError, match=r"dev\.tsv: no query of the split has a gold passage"):
        data_facts(data, "train", "dev", "test")


def test_a_missing_split_is_named(tmp_path: Path) -> None:
    row = [(Query("q0", "who"), ["p0"])]
    data = write(tmp_path / "data", row, [(Query("d0", "what"), ["p1"])])
    (data / "qrels" / "train.tsv").unlink()
    with pytest.raises(DataError, match=r"train\.tsv: no such file; there are dev"):
        data_facts(data, "train", "dev", "test")


def test_gold_outside_the_corpus_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "data", [(Query("q0", "who"), ["nowhere"])], [(Query("d0", "what"), ["p1"])])
    with pytest.raises(DataError, match="passage id 'nowhere' is not in"):
        data_facts(data, "train", "dev", "test")
