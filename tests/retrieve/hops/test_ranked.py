"""Passages ranked by the probability that a chain holds them, the onward model, and stop rules."""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from composite_specs import create
from hypothesis import given
from hypothesis import strategies as st
from models_small import small_llama
from scripted_hops import SCRIPTED, ScriptedHops
from small_data import scratch, small_retriever

from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.decode.beam import ScoredPassage
from grls.errors import ConfigError, DataError
from grls.models.causal.slots import CausalTreeSession, Prefixes
from grls.retrieve.base import ChainToContinue
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops import finders, stop
from grls.retrieve.hops.combine import Sets
from grls.retrieve.hops.finders import LiveChain
from grls.retrieve.hops.options import FEATURES, HopOptions
from grls.retrieve.hops.retriever import RankedHops, hop_by_hop
from grls.retrieve.hops.stop import (
    DoneByLogOdds,
    DoneByScore,
    Never,
    Onward,
    SeenHop,
    StopRule,
    Weighed,
    hop_features,
    onward_probability,
    register_stop,
    stop_rule,
)
from grls.retrieve.registry import load_retriever
from grls.runs.trec import read_run, write_run


def ranked(retriever: ScriptedHops, k: int = 6, **options: object) -> dict[str, float]:
    hops = HopOptions("ranked", **options)  # type: ignore[arg-type]
    (hits,) = RankedHops(retriever, hops).retrieve([Query("q", "?")], k)  # type: ignore[arg-type]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return {hit.id: hit.score for hit in hits}


def test_a_passage_has_the_probabilities_of_all_hops() -> None:
    table = {"": {"a": 0.6, "b": 0.4}, "a": {"c": 0.5, "b": 0.5}, "b": {"c": 0.75, "a": 0.25}}
    found = ranked(ScriptedHops(table), max=2)
    assert found == pytest.approx({"a": 0.6 + 0.4 * 0.25, "b": 0.4 + 0.6 * 0.5, "c": 0.6 * 0.5 + 0.4 * 0.75})


def wide_corpus() -> Corpus:
    """Passages of which a hop leaves many out: all hold the word of the query, some more often."""
    words = ["river"] + [f"w{n}" for n in range(9)]
    texts = [" ".join(words[(n * step) % 10] for step in range(1, 5 + n % 7)) for n in range(120)]
    return Corpus.from_passages(
        [Passage(f"p{n}", f"river {text}", f"t{n % 13}") for n, text in enumerate(texts)]
    )


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_neither_score_nor_order_depends_on_k(hops: int) -> None:
    """Where probability was shared out among k hits, every score fell with k above 20."""
    bm25 = BM25Retriever(wide_corpus())
    retriever = RankedHops(bm25, HopOptions("ranked", max=hops, evidence=4, temperature=0.5, chains=2))
    query = Query("q", "river w1 w4")
    (full,) = retriever.retrieve([query, Query("o", "river w2")], 120)[:1]
    assert len(full) == 120
    assert [hit.score for hit in full] == sorted((hit.score for hit in full), reverse=True)
    assert len({hit.id for hit in full}) == 120
    for k in (1, 2, 5, 20, 21, 40, 100, 119):
        assert retriever.retrieve([query], k)[0] == full[:k]
    after = retriever.retrieve_by_hops([query], 40)
    assert [len(one[0]) for one in after] == [40] * hops


def test_the_end_of_a_ranking_is_that_of_a_single_step() -> None:
    bm25 = BM25Retriever(wide_corpus())
    (hits,) = RankedHops(bm25, HopOptions("ranked", max=1)).retrieve([Query("q", "river w1 w4")], 60)
    (single,) = bm25.retrieve([Query("q", "river w1 w4")], 60)
    assert [hit.id for hit in hits] == [hit.id for hit in single]
    assert sum(hit.score for hit in hits[:20]) == pytest.approx(1.0)
    assert hits[40].score / hits[0].score == pytest.approx(
        math.exp((single[40].score - single[0].score) / bm25.temperature)
    )


@pytest.mark.parametrize("temperature", [0.1, 0.5, 3.0])
def test_a_ranking_deeper_than_its_hops_is_a_run(temperature: float, tmp_path: Path) -> None:
    """One score of eighteen rounded above the last one of the hops, and no run was written."""
    bm25 = BM25Retriever(wide_corpus())
    retriever = RankedHops(bm25, HopOptions("ranked", max=2, temperature=temperature))
    queries = [Query(f"q{n}-{m}", f"river w{n} w{m} t{n + m}") for n in range(9) for m in range(4)]
    found = retriever.retrieve(queries, 120)
    rankings = {query.id: hits for query, hits in zip(queries, found, strict=True)}
    write_run(tmp_path / "run.trec", rankings)
    written = read_run(tmp_path / "run.trec")
    assert {name: [hit.id for hit in hits] for name, hits in written.items()} == {
        name: [hit.id for hit in hits] for name, hits in rankings.items()
    }


@pytest.fixture(scope="module")
def copies(data: Path) -> GenerativeRetriever:
    one = small_retriever(data)
    texts = ["the otter is calm .", "the lynx is quick .", "the otter is kind .", "the lynx is proud ."]
    corpus = Corpus.from_passages([Passage(f"p{n}", texts[n % 4]) for n in range(7)])
    options = SearchOptions(beams=8)
    return GenerativeRetriever.assemble(one.model, one.codec.tokenizer, corpus, options=options)


@pytest.mark.parametrize("done", [False, True])
def test_as_many_hops_as_different_passages_rank_as_a_single_step(
    copies: GenerativeRetriever, done: bool
) -> None:
    """A chain holds one of two copies, so each of them had a part of what the others have."""
    names = [f"p{n}" for n in range(7)]
    allow = [set(ids) for size in (3, 4, 5) for ids in combinations(names, size)]
    queries = [Query(str(n), "is the otter kind ?") for n in range(len(allow))]
    hops = RankedHops(copies, HopOptions("ranked", max=3, done=done))
    single = RankedHops(copies, HopOptions("ranked", max=1))
    pairs = zip(hops.retrieve(queries, 7, allow), single.retrieve(queries, 7, allow), allow, strict=True)
    few = [(hits, once) for hits, once, ids in pairs if len({int(name[1]) % 4 for name in ids}) <= 3]
    assert len(few) > 30
    as_once = [[hit.id for hit in hits] == [hit.id for hit in once] for hits, once in few]
    certain = [{hit.score for hit in hits} == {1.0} for hits, _ in few]
    assert all(as_once) is all(certain) is (not done)


def test_equal_probabilities_keep_the_order_of_the_first_hop() -> None:
    """0.1 + 0.2 is more than 0.3 by rounding alone."""
    table = {"": {"c": 0.3, "a": 0.1, "b": 0.6}, "b": {"a": 0.2 / 0.6, "d": 0.4 / 0.6}}
    found = ranked(ScriptedHops(table), max=2)
    assert found["c"] == found["a"] == 0.3
    assert list(found) == ["b", "d", "c", "a"]


def test_a_memory_keeps_hops_of_other_numbers_of_hits_apart() -> None:
    bm25, memory = BM25Retriever(wide_corpus()), {}
    for k in (5, 60, 5):
        hops = RankedHops(bm25, HopOptions("ranked", max=2, temperature=0.5), memory)
        alone = RankedHops(bm25, HopOptions("ranked", max=2, temperature=0.5))
        assert hops.retrieve(["river w1 w4"], k) == alone.retrieve(["river w1 w4"], k)


def test_nothing_follows_from_done() -> None:
    table = {"": {"a": 1.0}, "a": {"b": 0.2, "DONE": 0.8}, "ab": {"c": 1.0}}
    assert ranked(ScriptedHops(table), max=3) == pytest.approx({"a": 1.0, "b": 0.2, "c": 0.2})
    assert ranked(ScriptedHops(table, learned=False), max=3) == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0})
    biased = ranked(ScriptedHops(table), max=3, done_bias=math.log(0.25))  # 0.2 against 0.2
    assert biased == pytest.approx({"a": 1.0, "b": 0.5, "c": 0.5})


def test_orders_of_one_set_are_one_chain_in_the_likelier_order() -> None:
    table = {
        "": {"a": 0.7, "b": 0.3}, "a": {"b": 1.0}, "b": {"a": 1.0}, "ab": {"c": 1.0},
    }  # fmt: skip
    retriever = ScriptedHops(table)
    assert ranked(retriever, max=3) == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0})
    assert "ba" not in retriever.asked


def test_of_three_orders_the_likeliest_one_is_kept_and_not_the_first() -> None:
    """The third is likelier than each of the others, though not than both together."""
    sets = Sets()
    for order, weight in (("abc", 0.2), ("bac", 0.15), ("cab", 0.3)):
        sets.add(LiveChain(0, tuple(Hit(name, 0.0) for name in order), weight))
    sets.total = 0.65
    (kept,) = sets.likeliest(2, 0.0)
    assert ("".join(hit.id for hit in kept.hits), kept.total) == ("cab", pytest.approx(0.65))


def test_a_chain_far_less_likely_than_the_best_goes_no_further() -> None:
    """Its own probability stays; what would follow it is shared out among the others."""
    table = {
        "": {"a": 0.7, "b": 0.27, "c": 0.03}, "a": {"b": 0.5, "c": 0.5}, "b": {"c": 1.0}, "c": {"d": 1.0}
    }  # fmt: skip
    retriever = ScriptedHops(table)
    found = ranked(retriever, max=2)
    assert "c" not in retriever.asked
    share = 1 / 0.97  # of each chain that goes on
    assert found == pytest.approx(
        {"a": 0.7, "b": 0.27 + 0.35 * share, "c": 0.03 + (0.35 + 0.27) * share}, abs=1e-6
    )
    table[""] = {"a": 0.7, "b": 0.26, "c": 0.04}
    retriever = ScriptedHops(table)
    assert "d" in ranked(retriever, max=2)
    assert "c" in retriever.asked


def test_a_set_has_the_probability_of_all_its_orders() -> None:
    """Of a and b in both orders 0.4, of any other two 0.3: the one set that is kept goes on."""
    table = {
        "": {"a": 0.5, "b": 0.5}, "a": {"b": 0.4, "c": 0.6}, "b": {"a": 0.4, "d": 0.6}, "ab": {"e": 1.0},
        "ba": {"e": 1.0}, "ac": {"f": 1.0}, "bd": {"f": 1.0},
    }  # fmt: skip
    retriever = ScriptedHops(table)
    hops = RankedHops(retriever, HopOptions("ranked", max=3, chains=2))
    hops.retrieve([Query("q", "?")], 6)
    assert set(retriever.asked[3:]) & {"ab", "ba"}
    assert len(retriever.asked) == 5  # of three sets of two passages two are kept


def test_chains_that_are_not_kept_leave_their_share_to_those_that_are() -> None:
    table = {"": {"a": 0.5, "b": 0.3, "c": 0.2}, "a": {"d": 1.0}}
    found = ranked(ScriptedHops(table), max=2, chains=1)
    assert found == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2, "d": 1.0})


def test_a_hop_reads_excerpts_of_its_evidence() -> None:
    texts = [
        "Red rivers run. Green hills stand. Snow falls.", "Snow on hills.",
        *(f"Train {n}." for n in range(5)),
    ]  # fmt: skip
    corpus = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)])

    class Recording(BM25Retriever):
        def retrieve(self, queries, k, allow=None):  # type: ignore[no-untyped-def]
            asked.extend(query.text for query in queries)
            return super().retrieve(queries, k, allow)

    asked: list[str] = []
    hops = RankedHops(Recording(corpus), HopOptions("ranked", max=2, evidence=6, chains=1))
    hops.retrieve([Query("q", "red snow")], 2)
    assert asked == ["red snow", "red snow Red rivers run. Snow falls."]


def test_behind_a_filter_of_few_passages_no_set_of_them_is_dropped(data: Path) -> None:
    retriever = small_retriever(data, beams=20)
    names = [passage.id for passage in retriever.corpus][:6]
    allow = [set(ids) for ids in combinations(names, 4)]
    queries = [Query(str(n), "is the otter kind ?") for n in range(len(allow))]
    few, every = (
        RankedHops(retriever, HopOptions("ranked", max=4, chains=chains)).retrieve(queries, 4, allow)
        for chains in (5, 1000)
    )
    assert few == every


@pytest.mark.parametrize("filtered", [False, True])
def test_removed_passages_are_not_counted(data: Path, filtered: bool) -> None:
    """Where six passages are left, no set of them is dropped."""
    retriever = small_retriever(data, beams=20)
    names = [passage.id for passage in retriever.corpus]
    retriever.remove(names[8 if filtered else 6 :])
    few, every = (
        RankedHops(retriever, HopOptions("ranked", max=4, chains=chains)).retrieve(
            ["is the otter kind ?"], 6, set(names[:6]) if filtered else None
        )
        for chains in (1, 1000)
    )
    assert few == every


def test_equal_queries_keep_their_own_filters() -> None:
    bm25 = BM25Retriever(Corpus.from_passages([Passage("a", "red river"), Passage("b", "red hill")]))
    query = Query("q", "red")
    for memory in (None, {}):
        hops = RankedHops(bm25, HopOptions("ranked", max=1), memory)
        found = hops.retrieve([query, query], 2, [{"a"}, {"b"}])
        assert [[hit.id for hit in hits] for hits in found] == [["a"], ["b"]]


hidden: list[tuple[int, ...]] = []
"""What each hop of a :class:`Writing` may not find."""


class Writing(ScriptedHops):
    """Decodes: its scores are log-probabilities, and so is that of DONE."""

    scores_are_log_probabilities, widest, done = True, 10, len(SCRIPTED)
    rows = SimpleNamespace(row_of=range(8))
    index = SimpleNamespace(rows=rows)
    generator = SimpleNamespace(reads_on=False, spans=None, index=index, removed=())

    def priors_of(self, queries: Any, evidence: Any) -> None:
        return None

    def next_hop(self, queries: Sequence[Query], allow: object) -> object:
        def find(live: Sequence[ChainToContinue], hop: int, k: int) -> list[list[ScoredPassage]]:
            found = []
            for chain in live:
                hidden.append(chain.hidden)
                row = self.table["".join(SCRIPTED.ids(chain.passages))]
                numbers = {name: n for n, name in enumerate(SCRIPTED.ids(range(len(SCRIPTED))))}
                scored = [
                    ScoredPassage(numbers.get(name, self.done), math.log(share))
                    for name, share in row.items()
                ]
                found.append([hit for hit in scored if hit.passage not in chain.hidden][:k])
            return found

        return find


def test_a_generator_knows_the_probability_of_done() -> None:
    """The bias is one on its log-odds; the hits share the rest, at any temperature."""
    table = {"": {"a": 0.75, "DONE": 0.25}, "a": {"b": 0.3, "c": 0.2, "DONE": 0.5}}
    found = ranked(Writing(table), max=2)
    assert found == pytest.approx({"a": 1.0, "b": 0.3, "c": 0.2})
    sharp = ranked(Writing(table), max=2, temperature=0.5)
    assert sharp["b"] + sharp["c"] == pytest.approx(0.5)
    assert sharp["b"] / sharp["c"] == pytest.approx(1.5**2)
    biased = ranked(Writing(table), max=2, done_bias=math.log(3))
    assert biased["b"] + biased["c"] == pytest.approx(0.25)
    without = ranked(Writing(table), max=2, done=False)
    assert without["b"] + without["c"] == pytest.approx(1.0)


def always(probability: float) -> tuple[float, ...]:
    return (*[0.0] * len(FEATURES), math.log(probability / (1 - probability)))


TABLE = {
    "": {"a": 0.75, "b": 0.25}, "a": {"c": 0.5, "b": 0.3, "DONE": 0.2}, "b": {"d": 1.0}, "ac": {"e": 1.0},
    "ab": {"e": 1.0}, "bd": {"f": 1.0},
}  # fmt: skip


def probabilities(retriever: ScriptedHops, **options: object) -> dict[str, float]:
    hops = RankedHops(retriever, HopOptions("ranked", **options))  # type: ignore[arg-type]
    return {hit.id: hit.score for hit in hops.retrieve(["?"], 6)[0]}


def test_features_by_hand() -> None:
    logits = np.log([0.5, 0.25, 0.25]) + 3.0
    found = hop_features(logits, 2.0, 4.0, [math.log(0.5), math.log(0.25)])
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    best = 3.0 + math.log(0.5)
    assert found == pytest.approx(
        (math.log(2), 2.0 - best, entropy, best - 4.0, math.log(0.25), math.log(0.125))
    )
    assert hop_features(logits, None, 4.0, [0.0])[1] == 0.0


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    st.none() | st.floats(-1e6, 1e6),
    st.floats(-1e6, 1e6),
    st.lists(st.floats(-1e6, 0.0), min_size=1, max_size=4),
    st.lists(st.floats(-100.0, 100.0), min_size=len(FEATURES) + 1, max_size=len(FEATURES) + 1),
)
def test_any_scores_give_finite_features_and_a_probability(
    scores: list[float], done: float | None, first: float, among: list[float], model: list[float]
) -> None:
    features = hop_features(np.array(sorted(scores, reverse=True)), done, first, among)
    assert all(map(math.isfinite, features))
    assert 0.0 <= onward_probability(model, features) <= 1.0


def test_the_hits_of_later_hops_share_what_the_model_gives_them() -> None:
    found = probabilities(ScriptedHops(TABLE), max=2, onward=always(0.4))
    assert found == pytest.approx(
        {"a": 0.75, "b": 0.25 + 0.75 * 0.4 * 0.375, "c": 0.75 * 0.4 * 0.625, "d": 0.25 * 0.4}
    )


def test_it_takes_the_place_of_done() -> None:
    done = probabilities(ScriptedHops(TABLE), max=2)
    assert done["c"] == pytest.approx(0.75 * 0.5)
    certain = probabilities(ScriptedHops(TABLE), max=2, onward=always(1 - 1e-12))
    assert certain == pytest.approx(probabilities(ScriptedHops(TABLE), max=2, done=False))


def test_a_done_that_a_hop_does_not_reach_is_below_its_hits() -> None:
    """It had counted as one that is as likely as the best hit."""

    def of_done(retriever: ScriptedHops) -> list[float]:
        seen: list[SeenHop] = []
        hops = HopOptions("ranked", max=2)
        watching = Onward.of(retriever, hops, seen)  # type: ignore[arg-type]
        RankedHops(retriever, hops, stop=watching).retrieve(["?"], 6)  # type: ignore[arg-type]
        return [one.features[1] for one in seen]

    assert of_done(ScriptedHops(TABLE)) == pytest.approx([math.log(0.2 / 0.5), 0.0])
    unreached = {**TABLE, "a": {"c": 0.5, "b": 0.3}}
    assert of_done(ScriptedHops(unreached)) == pytest.approx([math.log(0.3 / 0.5), 0.0])
    never = ScriptedHops(unreached)
    never.learned_done = False  # type: ignore[assignment]
    assert of_done(never) == [0.0, 0.0]


def test_a_query_ends_where_little_probability_goes_on() -> None:
    going, ending = ScriptedHops(TABLE), ScriptedHops(TABLE)
    probabilities(going, max=3, onward=always(0.2))
    found = probabilities(ending, max=3, onward=always(0.05))
    assert {"ac", "ab", "bd"} & set(going.asked)
    assert set(ending.asked) == {"", "a", "b"}
    assert found["d"] == pytest.approx(0.25 * 0.05)  # the hop that was made counts
    assert "e" not in found


def test_without_a_number_of_hops_a_second_one_has_a_smaller_weight() -> None:
    untaught: Any = ScriptedHops(TABLE, learned=False)
    found = probabilities(untaught)
    assert found == pytest.approx({"a": 0.75, "b": 0.25 + 0.3 * 0.375, "c": 0.3 * 0.625, "d": 0.1})
    assert set(untaught.asked) == {"", "a", "b"}
    ranked = [RankedHops(untaught, HopOptions("ranked", max=most)) for most in (None, 2, 4)]
    assert len({one.fingerprint() for one in ranked}) == 3
    assert ranked[0].describe().label == "scripted ranked by 2 hops"
    assert probabilities(untaught, max=2)["d"] == 0.25
    assert probabilities(ScriptedHops(TABLE)) == probabilities(ScriptedHops(TABLE), max=4)  # DONE ends them


def test_queries_do_not_end_one_another() -> None:
    """A sharp first hop ends its query; the other query of the batch goes on, as alone."""
    corpus = Corpus.from_passages(
        [Passage(f"p{n}", f"river {'stone' if n == 0 else f'w{n % 3}'} w{n}") for n in range(12)]
    )
    model = (0.0, 0.0, 3.0, 0.0, 0.0, 0.0, -6.0)
    hops = RankedHops(BM25Retriever(corpus), HopOptions("ranked", max=3, temperature=0.3, onward=model))
    asked = [Query("x", "stone river"), Query("y", "w1 w2"), Query("z", "river")]
    together = hops.retrieve(asked, 12)
    for query, hits in zip(asked, together, strict=True):
        assert hops.retrieve([query], 12)[0] == hits


def test_a_folder_holds_the_model(tmp_path: Path) -> None:
    BM25Retriever(SCRIPTED).save_pretrained(tmp_path / "bm25")
    prints = set()
    for name, onward in (("plain", None), ("one", always(0.4)), ("two", always(0.5))):
        hops = {"steps": "ranked", "max": 2} | ({} if onward is None else {"onward": list(onward)})
        create(tmp_path / name, "hops", {"retriever": "../bm25", "hops": hops})
        opened = load_retriever(tmp_path / name)
        assert isinstance(opened, RankedHops)
        assert opened.hops.onward == onward
        prints.add(opened.fingerprint())
    assert len(prints) == 3
    spec = {"retriever": "../bm25", "hops": {"steps": "ranked", "onward": [1.0]}}
    with pytest.raises(DataError, match="hops: onward: expected 6 weights and the bias"):
        create(tmp_path / "short", "hops", spec)


CHAIN = LiveChain(0, (Hit("a", -1.0),), -1.0)


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5),
    st.floats(0.0, 1.0),
    st.sampled_from([0.0, -2.0, 3.0, -800.0, 800.0]),
)
def test_by_log_odds_probabilities_still_sum_to_one(shares: list[float], ends: float, bias: float) -> None:
    """Of chains (scores and end) and of rankings (what goes on), for any bias."""
    total = sum(shares) / (1 - ends) if ends < 1 else math.inf
    hits = [Hit(str(n), math.log(share / total) if ends < 1 else -math.inf) for n, share in enumerate(shares)]
    weighed = DoneByLogOdds(bias).weigh(CHAIN, hits, math.log(ends) if ends else None)
    assert weighed.scores is not None
    assert weighed.continue_probability is not None
    end = -math.inf if weighed.end_score is None else weighed.end_score
    assert weighed.continue_probability == pytest.approx(1 - math.exp(end), abs=1e-9)
    assert np.logaddexp.reduce([*weighed.scores, end]) == pytest.approx(0.0, abs=1e-6)
    if 0 < ends < 1 and abs(bias) < 10:
        odds = math.exp(end) / weighed.continue_probability
        assert odds == pytest.approx(math.exp(bias) * ends / (1 - ends), rel=1e-6)


def test_by_score_the_bias_is_added_to_that_of_done() -> None:
    hits = [Hit("b", 2.0), Hit("c", 1.0)]
    assert DoneByScore(0.5).weigh(CHAIN, hits, 1.0) == Weighed(end_score=1.5)
    assert DoneByScore(0.5).weigh(CHAIN, hits, None) == Never().weigh(CHAIN, hits, 9.0) == Weighed()


def test_the_options_choose_the_rule() -> None:
    scripted: Any = ScriptedHops({})
    untaught: Any = ScriptedHops({}, learned=False)
    model = (0.0,) * 7
    chosen = [
        stop_rule(retriever, hops)
        for retriever, hops in (
            (scripted, HopOptions("fixed", done_bias=2.0)),
            (scripted, HopOptions("dynamic", done_bias=2.0)),
            (scripted, HopOptions("ranked", done_bias=2.0)),
            (scripted, HopOptions("ranked", done=False)),
            (untaught, HopOptions("ranked")),
            (scripted, HopOptions("ranked", onward=model)),
        )
    ]
    by_score = DoneByScore(2.0)
    assert chosen[:-1] == [Never(), by_score, by_score, Never(hides=False), Never(hides=False)]
    assert isinstance(chosen[-1], stop.Onward)
    assert chosen[-1].least == stop.ENDS_BELOW
    with pytest.raises(ConfigError, match=r'log-odds": the scores of a retriever of kind .scripted. are no'):
        stop_rule(scripted, HopOptions("dynamic", stop="log-odds"))
    with pytest.raises(ConfigError, match="there is no model; `grls tune` learns it"):
        stop_rule(scripted, HopOptions("ranked", stop="onward"))


class Short(StopRule):
    """Ends a chain of so many passages, as many as hops.chains says."""

    def __init__(self, most: int):
        self.most = most

    @classmethod
    def of(cls, retriever: Any, hops: HopOptions) -> "Short":
        return cls(hops.chains or 1)

    def weigh(self, chain: LiveChain, hits: Sequence[Hit], done: float | None) -> Weighed:
        if len(chain.hits) >= self.most:
            return Weighed([], end_score=0.0, continue_probability=0.0)
        return Weighed()


@pytest.fixture
def short() -> Iterator[None]:
    register_stop("short", Short)
    yield
    del stop.RULES["short"]


@pytest.mark.usefixtures("short")
def test_a_rule_of_a_users_ends_every_search(tmp_path: Path) -> None:
    """BM25 knows no DONE; a folder keeps the name of the rule."""
    BM25Retriever(SCRIPTED).save_pretrained(tmp_path / "bm25")
    hops = {"steps": "dynamic", "max": 5, "chains": 2, "stop": "short"}
    create(tmp_path / "hops", "hops", {"retriever": "../bm25", "hops": hops})
    assert json.loads((tmp_path / "hops" / "grls.json").read_text())["hops"] == hops
    opened: Any = load_retriever(tmp_path / "hops")
    for chains in opened.retrieve_chains(["text", "text b"]):
        assert {(len(chain.hits), chain.done) for chain in chains} == {(2, True)}
    assert opened.describe().options["stop"] == "short"
    ranked = hop_by_hop(opened, HopOptions("ranked", max=5, chains=2, stop="short"))
    (hits,) = ranked.retrieve(["text b"], 7)
    assert sum(hit.score for hit in hits) == pytest.approx(2.0)  # of the two hops that count
    plain = hop_by_hop(opened, HopOptions("ranked", max=5, chains=2))
    assert ranked.fingerprint() != plain.fingerprint()
    assert "stop" not in plain.describe().options


def test_queries_of_a_causal_model_hop_a_few_at_a_time_and_read_only_what_is_new(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = scratch(data).load().tokenizer
    model = small_llama()
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    generator = GenerativeRetriever.assemble(model, tokenizer, Corpus.read(data), Limits())
    assert generator.reads_on
    hops = RankedHops(generator, HopOptions("ranked", max=3, chains=2, temperature=2.0))
    asked = [Query(str(n), f"is the otter {name} ?") for n, name in enumerate(("kind", "calm", "quick"))]
    read: list[int] = []
    load = CausalTreeSession.load

    def counted(session: Any, slots: Any, inputs: Any) -> Any:
        read.append(len(inputs))
        return load(session, slots, inputs)

    monkeypatch.setattr(CausalTreeSession, "load", counted)
    fed: list[int] = []
    feed = CausalTreeSession.feed

    def tokens_fed(session: Any, branches: Any) -> Any:
        fed.append(len(branches.tokens))
        return feed(session, branches)

    monkeypatch.setattr(CausalTreeSession, "feed", tokens_fed)
    forward = CausalTreeSession._forward

    def tokens_read(session: Any, inputs: Any, known: Any, new: Any) -> Any:
        fed.append(int(new.sum()))
        return forward(session, inputs, known, new)

    monkeypatch.setattr(CausalTreeSession, "_forward", tokens_read)
    together = hops.retrieve(asked, 5)
    assert read == [3, 6, 3]  # all queries, hop by hop
    with_known, fed[:] = sum(fed), []
    monkeypatch.setattr(finders, "_TOGETHER", 2)
    monkeypatch.setattr(Prefixes, "longest", lambda *_: ([], 0))
    read.clear()
    for hits, others in zip(hops.retrieve(asked, 5), together, strict=True):
        assert [hit.id for hit in hits] == [hit.id for hit in others]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=1e-5)
    assert (sum(read), len(read)) == (12, 6)
    assert with_known < 0.7 * sum(fed)
