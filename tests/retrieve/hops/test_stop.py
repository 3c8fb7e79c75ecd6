"""Stop rules: those of the package by hand, and one of a user's in every search by hops."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_hops import SCRIPTED, ScriptedHops

from grls.data.types import Hit
from grls.errors import ConfigError
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops import stop
from grls.retrieve.hops.finders import LiveChain
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, hop_by_hop
from grls.retrieve.hops.stop import (
    DoneByLogOdds,
    DoneByScore,
    Never,
    StopRule,
    Weighed,
    register_stop,
    stop_rule,
)
from grls.retrieve.registry import create, load_retriever

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
    assert weighed.goes_on is not None
    end = -math.inf if weighed.ends is None else weighed.ends
    assert weighed.goes_on == pytest.approx(1 - math.exp(end), abs=1e-9)
    assert np.logaddexp.reduce([*weighed.scores, end]) == pytest.approx(0.0, abs=1e-6)
    if 0 < ends < 1 and abs(bias) < 10:
        odds = math.exp(end) / weighed.goes_on
        assert odds == pytest.approx(math.exp(bias) * ends / (1 - ends), rel=1e-6)


def test_by_score_the_bias_is_added_to_that_of_done() -> None:
    hits = [Hit("b", 2.0), Hit("c", 1.0)]
    assert DoneByScore(0.5).weigh(CHAIN, hits, 1.0) == Weighed(ends=1.5)
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
    with pytest.raises(ConfigError, match="log-odds: the scores of a retriever of kind 'scripted' are no"):
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
            return Weighed([], ends=0.0, goes_on=0.0)
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


@pytest.mark.usefixtures("short")
def test_names_of_rules() -> None:
    bm25 = BM25Retriever(SCRIPTED)
    register_stop("short", Short)  # a notebook's cell, run twice
    with pytest.raises(ConfigError, match="the stop rule 'never' is there already"):
        register_stop("never", Short)
    with pytest.raises(ConfigError, match=r"no stop rule is called 'long'; known are .*log-odds, never, "):
        HopsRetriever(bm25, HopOptions("dynamic", stop="long"))
    for steps in ("single", "fixed"):
        with pytest.raises(ConfigError, match=r"hops\.stop says where chains end: choose steps="):
            HopOptions(steps, stop="short")
