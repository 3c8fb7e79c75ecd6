"""How many hops a ranking takes: the choice within one standard error, and the step on a folder."""

import json
from pathlib import Path

import pytest

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.registry import Opening, create, load_retriever
from grls.tune.dev import DevHops, DevQueries
from grls.tune.hops import TriedHops, chosen_hops
from grls.tune.options import TuneOptions
from grls.tune.run import tune_folder

HOUSES = ("Tallow", "Brind", "Corvey", "Dunmore", "Elstow", "Farrow", "Gannet", "Hollin")


def tried(hops: int, recalls: list[float], complete: float = 0.0) -> TriedHops:
    return TriedHops(hops, None, True, recalls, complete)


def test_few_queries_do_not_choose_more_hops_than_they_can_tell() -> None:
    for n in range(2, 60):  # one query of n: 1/n better, standard error 1/n
        single, double = tried(1, [1.0] * (n - 1) + [0.0]), tried(2, [1.0] * n)
        assert chosen_hops([single, double]) is single
    double = tried(2, [1.0] * 10)
    clear = tried(1, [1.0] * 6 + [0.0] * 4)
    assert chosen_hops([clear, double]) is double


def test_of_as_few_hops_the_best_and_then_the_complete_ones() -> None:
    first, second = tried(2, [1.0, 0.5] * 4), tried(2, [1.0, 1.0] * 4)
    assert chosen_hops([first, second, tried(3, [1.0, 1.0] * 4)]) is second
    better = tried(2, [1.0, 1.0] * 4, 0.5)
    assert chosen_hops([second, better]) is better


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Films name directors, directors towns; questions name the film alone."""
    passages = []
    for n, town in enumerate(HOUSES):
        name = f"Person{n}{town}"
        passages.append(Passage(f"f{n}", f"Film{n} is a film. Its director was {name}.", f"Film{n}"))
        passages.append(Passage(f"p{n}", f"{name} was born in {town}. {name} was a painter.", name))
        passages.append(Passage(f"d{n}", f"A director and where one was born, part {n}.", "Directors"))
    folder = tmp_path / "data"
    folder.mkdir()
    Corpus.from_passages(passages).write(folder / "corpus.jsonl")
    (folder / "qrels").mkdir()
    with (folder / "queries.jsonl").open("w") as queries, (folder / "qrels" / "dev.tsv").open("w") as qrels:
        qrels.write("query-id\tcorpus-id\tscore\n")
        for n in range(len(HOUSES)):
            queries.write(
                json.dumps({"_id": f"q{n}", "text": f"Where was the director of Film{n} born?"}) + "\n"
            )
            qrels.write(f"q{n}\tf{n}\t1\nq{n}\tp{n}\t1\n")
    return folder


def test_a_folder_learns_how_many_hops_it_takes(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    BM25Retriever(Corpus.read(data)).save_pretrained(tmp_path / "bm25")
    spec = {"retriever": "../bm25", "hops": {"steps": "ranked", "max": 4}}
    create(tmp_path / "hops", "hops", spec)
    dev = DevQueries.read(str(data), "dev")
    (chosen,) = tune_folder(
        tmp_path / "hops", dev, TuneOptions(k=2, hop_temperatures=(1.0, 0.2)), Opening(), "x"
    )
    assert chosen.before < chosen.after == 1.0
    opened = load_retriever(tmp_path / "hops")
    assert isinstance(opened, RankedHops)
    assert opened.hops.max == 2
    found = opened.retrieve([Query("q", "Where was the director of Film3 born?")], 2)[0]
    assert [hit.id for hit in found] == ["f3", "p3"]
    assert "recall@2" in capsys.readouterr().out


def test_a_stored_temperature_is_tried_and_done_may_come_back(data: Path, tmp_path: Path) -> None:
    BM25Retriever(Corpus.read(data)).save_pretrained(tmp_path / "bm25")
    stored = {"steps": "ranked", "max": 1, "temperature": 0.4, "done": False}
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": stored})
    dev = DevQueries.read(str(data), "dev")
    (chosen,) = tune_folder(tmp_path / "hops", dev, TuneOptions(k=2, hop_temperatures=(1.0,)), Opening(), "x")
    assert chosen.changes["hops"]["temperature"] == 0.4
    assert chosen.after == 1.0


def test_the_first_hit_of_every_hop_counts_alike() -> None:
    hops = DevHops([Query("q", "?")] * 2, [[], []], [["a", "b"], ["b"]], True)
    assert hops.quality([["a"], ["x"]], 1).recall == hops.quality([["x"], ["b"]], 1).recall == 0.5
    assert DevHops(hops.queries, [[], []], hops.gold).quality([["a"], ["x"]], 1).recall == 0.25


def test_another_temperature_searches_only_for_new_chains(data: Path) -> None:
    corpus = Corpus.read(data)

    class Counting(BM25Retriever):
        asked = 0

        def retrieve(self, queries, k, allow=None):  # type: ignore[no-untyped-def]
            self.asked += len(queries)
            return super().retrieve(queries, k, allow)

    bm25, memory = Counting(corpus), {}
    queries = [Query("q", "Where was the director of Film3 born?")]
    RankedHops(bm25, HopOptions("ranked", max=2), memory).retrieve(queries, 3)
    first = bm25.asked
    RankedHops(bm25, HopOptions("ranked", max=2, temperature=1.9), memory).retrieve(queries, 3)
    assert bm25.asked == first
