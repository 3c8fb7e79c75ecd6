"""The onward model: what it reads of a hop, what it leaves to the hits, and when a query goes no further."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_hops import SCRIPTED, ScriptedHops

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops.options import FEATURES, HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.hops.stop import Onward, SeenHop, hop_features, onward_probability
from grls.retrieve.registry import create, load_retriever


def always(probability: float) -> tuple[float, ...]:
    """The model of one probability, whatever the hop shows."""
    return (*[0.0] * len(FEATURES), math.log(probability / (1 - probability)))


TABLE = {
    "": {"a": 0.75, "b": 0.25},
    "a": {"c": 0.5, "b": 0.3, "DONE": 0.2},
    "b": {"d": 1.0},
    "ac": {"e": 1.0},
    "ab": {"e": 1.0},
    "bd": {"f": 1.0},
}


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


def test_what_hops_show_does_not_depend_on_the_model() -> None:
    seen: dict[float, list[SeenHop]] = {0.9: [], 0.5: []}
    for probability, hops in seen.items():
        options = HopOptions("ranked", max=3, onward=always(probability))
        retriever: Any = ScriptedHops(TABLE)
        watching = Onward.of(retriever, options, hops)
        RankedHops(retriever, options, stop=watching).retrieve(["?"], 6)
    first, second = seen.values()
    assert first == second
    assert [one.query for one in first] == [0] * len(first)
    assert first[0].shares == pytest.approx({"c": 0.625, "b": 0.375})


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
    with pytest.raises(DataError, match=r"hops\.onward: expected 6 weights and the bias"):
        create(tmp_path / "short", "hops", spec)


def test_a_model_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hops\.onward: expected 6 weights"):
        HopOptions("ranked", onward=(math.nan, *[0.0] * len(FEATURES)))
    with pytest.raises(ConfigError, match=r"onward are for steps=.ranked"):
        HopOptions("fixed", onward=always(0.5))
