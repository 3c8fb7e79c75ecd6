"""Tuning: ends of chains, the number of hops, the onward model, and weights and cuts of runs."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from composite_specs import create
from hypothesis import given
from hypothesis import strategies as st

from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.retrieve.base import Description, HopHits
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops.options import FEATURES, UNLABELLED, HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.hops.stop import SeenHop, onward_probability
from grls.retrieve.registry import Opening, load_retriever
from grls.tune.hops import cross_validated, learn_onward
from grls.tune.options import TuneOptions
from grls.tune.run import tune_folder
from grls.tune.search import Tried, best, paired_error, simplest, weight_grid
from grls.tune.step import DevQueries

HOUSES = ("Tallow", "Brind", "Corvey", "Dunmore", "Elstow", "Farrow", "Gannet", "Hollin")


def test_the_grid_is_every_weight_once_the_most_even_first() -> None:
    assert weight_grid(2, 4) == [(0.5, 0.5), (0.75, 0.25), (0.25, 0.75), (1.0, 0.0), (0.0, 1.0)]
    three = weight_grid(3)
    assert len(set(three)) == len(three) == 66
    assert all(sum(weights) == pytest.approx(1) and len(weights) == 3 for weights in three)
    assert three[0] == (0.4, 0.3, 0.3)


def test_the_best_setting_is_taken_and_of_equal_ones_the_first() -> None:
    assert best(lambda weights: -abs(weights[0] - 0.3), weight_grid(2)) == (((0.3, 0.7),), 0.0)
    assert best(lambda weights: float(weights[0] > 0.5), weight_grid(2))[0] == ((0.6, 0.4),)
    assert best(lambda a, b: a * b, [1, 2, 2], [3, 0]) == ((2, 3), 6)


values = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4)
several = st.lists(st.builds(Tried, st.integers(0, 3), values, st.sampled_from([0.0, 1.0])), min_size=1)


@given(several)
def test_the_least_costly_of_those_near_the_best_is_taken_and_of_these_the_best(tried: list[Tried]) -> None:
    chosen, highest = simplest(tried, abs), max(tried, key=Tried.rank)
    assert highest.mean - chosen.mean <= paired_error(highest.values, chosen.values) + 1e-9
    for other in tried:
        if highest.mean - other.mean <= paired_error(highest.values, other.values) + 1e-9:
            assert (chosen.setting, *(-one for one in chosen.rank())) <= (
                other.setting, *(-one for one in other.rank()),
            )  # fmt: skip


def test_a_gain_on_one_query_of_few_moves_nothing() -> None:
    """One query of n gains all: 1 / n better, and so is the standard error."""
    for n in range(2, 60):
        own, lucky = Tried(1, [1.0] * (n - 1) + [0.0]), Tried(2, [1.0] * n)
        assert paired_error(lucky.values, own.values) == pytest.approx(1 / n)
        assert simplest([lucky, own], abs) is own
    clear = Tried(1, [1.0] * 6 + [0.0] * 4)
    assert simplest([clear, Tried(2, [1.0] * 10)], abs).setting == 2


@pytest.fixture
def data(tmp_path: Path) -> Path:
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
    assert {hit.id for hit in found} == {"f3", "p3"}
    assert "recall@2" in capsys.readouterr().out


def test_other_shares_search_only_for_new_chains(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    retrieve = BM25Retriever.retrieve

    def counting(self: BM25Retriever, queries: Sequence[Query], *more: object, **options: object) -> object:
        searched.extend(query.text for query in queries)
        return retrieve(self, queries, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(BM25Retriever, "retrieve", counting)
    BM25Retriever(Corpus.read(data)).save_pretrained(tmp_path / "bm25")
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": {"steps": "ranked", "max": 2}})
    dev, grid = DevQueries.read(str(data), "dev"), TuneOptions(k=2, hops=(1, 2), hop_temperatures=(1.0,))
    tune_folder(tmp_path / "hops", dev, grid, Opening(), "x")
    assert searched
    assert len(searched) == len(set(searched))


def test_a_stored_temperature_is_tried_and_done_may_come_back(data: Path, tmp_path: Path) -> None:
    BM25Retriever(Corpus.read(data)).save_pretrained(tmp_path / "bm25")
    stored = {"steps": "ranked", "max": 1, "temperature": 0.4, "done": False}
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": stored})
    dev = DevQueries.read(str(data), "dev")
    (chosen,) = tune_folder(tmp_path / "hops", dev, TuneOptions(k=2, hop_temperatures=(1.0,)), Opening(), "x")
    assert chosen.changes["hops"]["temperature"] == 0.4
    assert chosen.after == 1.0


def test_the_first_hit_of_every_hop_counts_alike() -> None:
    hops = DevQueries([Query("q", "?")] * 2, [["a", "b"], ["b"]], hops=True)
    assert hops.quality([["a"], ["x"]], 1).recall == hops.quality([["x"], ["b"]], 1).recall == 0.5
    assert DevQueries(hops.queries, hops.gold).quality([["a"], ["x"]], 1).recall == 0.25


PAIRS = 12
"""Questions of each kind."""


def seen_hops(queries: int) -> tuple[list[SeenHop], list[set[str]]]:
    seen = []
    for n in range(queries):
        entropy = 0.5 + 0.01 * n if n % 2 == 0 else 2.0 + 0.01 * n
        features = (0.0, 0.0, entropy, 0.0, -1.0, -1.0)
        seen.append(SeenHop(n, features, {"second": 0.9, "other": 0.1}))
    return seen, [{"first", "second"} if n % 2 == 0 else {"first"} for n in range(queries)]


def test_the_model_tells_hops_that_find_something_from_others() -> None:
    seen, gold = seen_hops(20)
    model = learn_onward(seen, gold)
    assert model is not None
    assert len(model) == len(FEATURES) + 1
    for one in seen:
        likely = onward_probability(model, one.features)
        assert likely > 0.6 if one.query % 2 == 0 else likely < 0.3


def test_there_is_no_model_where_nothing_can_be_learned() -> None:
    seen, gold = seen_hops(20)
    assert learn_onward(seen, [{"first"}] * 20) is None
    assert learn_onward([], gold) is None
    sure = [one._replace(shares={"second": 1.0}) for one in seen]
    assert learn_onward(sure, [{"second"}] * 20) is None
    few, own = seen_hops(9)
    assert cross_validated(few, own, lambda model, numbers: [None for _ in numbers]) is None


def test_no_query_is_judged_by_a_model_that_has_seen_it() -> None:
    seen, gold = seen_hops(20)
    results = cross_validated(seen, gold, lambda model, numbers: [(n, model) for n in numbers])
    assert results is not None
    assert [number for number, _ in results] == list(range(20))
    for number, model in results:
        changed = [one if one.query != number else one._replace(shares={"other": 1.0}) for one in seen]
        again = cross_validated(changed, gold, lambda model, numbers: [(n, model) for n in numbers])
        assert again is not None
        assert again[number][1] == model
        if number % 2 == 0:
            assert learn_onward(changed, gold) != learn_onward(seen, gold)


class Mixed:
    """Questions of two kinds, in turn; two gold passages each.

    Of the first kind one hop finds gold ``a`` and the next, sharp, gold ``b``. Of the second kind one hop
    finds both, ``c`` and ``d``, and the next two wrong passages that would stand above ``d``.
    """

    kind, learned_done, done, a = "mixed", False, None, 0.6
    corpus = Corpus.from_passages(
        [Passage(f"{letter}{n}", f"text {letter} {n}") for n in range(2 * PAIRS) for letter in "abcdxyz"]
    )

    def describe(self) -> Description:
        return Description("mixed", "log-probability")

    def fingerprint(self) -> str:
        return "mixed"

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int, allow: object = None
    ) -> list[HopHits]:
        steps = []
        for query, passages in zip(queries, evidence, strict=True):
            n, after = int(query.id), bool(passages)
            if n % 2 == 0:
                row = {f"b{n}": 0.97, f"y{n}": 0.03} if after else {f"a{n}": self.a, f"x{n}": 1 - self.a}
            else:
                row = {f"y{n}": 0.5, f"z{n}": 0.5} if after else {f"c{n}": 0.55, f"d{n}": 0.45}
            steps.append(HopHits([Hit(name, math.log(p)) for name, p in row.items()], None))
        return steps


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ranked hops whose retriever is :class:`Mixed`."""
    BM25Retriever(Mixed.corpus).save_pretrained(tmp_path / "bm25")
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": {"steps": "ranked", "max": 2}})
    monkeypatch.setattr("grls.tune.hops.inner", lambda tuning: Mixed())
    return tmp_path / "hops"


QUERIES = [Query(str(n), "?") for n in range(2 * PAIRS)]
GOLD = [[f"a{n}", f"b{n}"] if n % 2 == 0 else [f"c{n}", f"d{n}"] for n in range(2 * PAIRS)]
DEV = DevQueries(QUERIES, GOLD, Mixed.corpus)
GRID = TuneOptions(k=2, hops=(1, 2), hop_temperatures=(1.0,))


def test_a_folder_learns_which_questions_take_one_more_hop(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (chosen,) = tune_folder(folder, DEV, GRID, Opening(), "x")
    assert chosen.before == pytest.approx(0.75)
    assert chosen.after == 1.0
    assert chosen.words == "2 hops, with an onward model"
    assert "recall@2  75.0, complete  50.0, 2 hops\n" in capsys.readouterr().out
    spec = json.loads((folder / "grls.json").read_text())["hops"]
    assert len(spec["onward"]) == len(FEATURES) + 1
    ranked = RankedHops(Mixed(), HopOptions(**spec | {"onward": tuple(spec["onward"])}))  # type: ignore[arg-type]
    found = ranked.retrieve(QUERIES, 2)
    assert [{hit.id for hit in hits} for hits in found] == [set(own) for own in GOLD]


def test_names_that_mislead_lose_their_shares(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question names a wrong passage."""
    titled = [passage._replace(title=f"Number {passage.id} of all") for passage in Mixed.corpus]
    monkeypatch.setattr(Mixed, "corpus", Corpus.from_passages(titled))
    asked = [Query(query.id, f"What is number z{query.id} of all?") for query in QUERIES]
    dev, grid = replace(DEV, queries=asked, corpus=Mixed.corpus), replace(GRID, onward=False)
    (own,) = tune_folder(folder, dev, replace(grid, named=(), linked=()), Opening(), "x")
    assert own.words == "a single step, named 0.5"
    (chosen,) = tune_folder(folder, dev, grid, Opening(), "x")
    assert own.after < chosen.after == pytest.approx(0.75)
    assert chosen.words == "a single step, named 0.3"  # the nearest that finds as much as 0
    assert json.loads((folder / "grls.json").read_text())["hops"]["named"] == 0.3


def test_what_the_queries_cannot_tell_is_not_learned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = DevQueries(QUERIES[:8], GOLD[:8], Mixed.corpus)
    tune_folder(folder, few, GRID, Opening(), "x")
    tune_folder(folder, DEV, replace(GRID, onward=False), Opening(), "x")
    assert "onward" not in capsys.readouterr().out
    assert "onward" not in (folder / "grls.json").read_text()


def test_two_hops_as_without_tuning_are_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mixed, "a", 0.9)  # 0.4 of the second hop is more than x has, and less than d
    (chosen,) = tune_folder(folder, DEV, replace(GRID, onward=False), Opening(), "x")
    assert chosen.after == 1.0
    assert chosen.words == "2 hops, the second of the weight 0.4"
    spec = json.loads((folder / "grls.json").read_text())["hops"]
    assert (spec["max"], tuple(spec["onward"])) == (2, UNLABELLED)


def test_a_tuned_folder_is_tuned_again_as_the_first_time(folder: Path) -> None:
    first, second = (tune_folder(folder, DEV, GRID, Opening(), "x")[0] for _ in range(2))
    assert first == second
