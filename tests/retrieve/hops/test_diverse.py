"""First-hop diversity: the limit on chains with the same first passage, in every chain search."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_hops import ScriptedHops
from small_data import small_retriever, write_small

from grls.data.types import Chain, Query
from grls.errors import ConfigError
from grls.retrieve.base import HopHits
from grls.retrieve.hops.combine import limit_per_first
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, RankedHops, hop_by_hop

SHARES = {
    "": {"a": 0.9, "b": 0.1},
    "a": {"c": 0.5, "d": 0.5},
    "b": {"e": 1.0},
    "ac": {"f": 1.0},
    "ad": {"f": 1.0},
    "be": {"g": 1.0},
}
"""Two continuations of a are likelier than that of b, which alone leads to g."""


def tabled() -> Any:
    return ScriptedHops(SHARES, learned=False)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())), st.integers(1, 4))
def test_the_better_chains_of_each_first_passage_stay_in_order(
    chains: list[tuple[int, int]], limit: int
) -> None:
    kept = limit_per_first(chains, lambda chain: chain[0], limit)
    assert limit_per_first(chains, lambda chain: chain[0], None) == chains
    for first in range(4):
        own = [chain for chain in chains if chain[0] == first]
        assert [chain for chain in kept if chain[0] == first] == own[:limit]
    places = iter(chains)
    assert all(any(chain == other for other in places) for chain in kept)


def test_ranked_hops_reach_what_another_first_passage_leads_to() -> None:
    found = {}
    for limit in (None, 2, 1):
        hops = HopOptions("ranked", max=3, chains=2, per_first=limit)
        (hits,) = RankedHops(tabled(), hops).retrieve(["?"], 7)
        found[limit] = {hit.id for hit in hits}
    assert "g" not in found[None]
    assert found[2] == found[None]
    assert "g" in found[1]


def test_chains_by_scores_reach_it_as_well() -> None:
    found = {}
    for limit in (None, 1):
        hops = HopOptions("fixed", max=3, chains=2, branch=2, per_first=limit)
        (chains,) = HopsRetriever(tabled(), hops).retrieve_chains(["?"])
        found[limit] = ["".join(hit.id for hit in chain.hits) for chain in chains]
    assert found == {None: ["acf", "adf"], 1: ["acf", "beg"]}


def test_chains_of_a_generator_have_as_many_first_passages(tmp_path: Path) -> None:
    """Among all chains, best first, the second of a first passage is left out."""
    retriever = small_retriever(write_small(tmp_path / "data"), beams=12)
    query = [Query("q", "is the otter kind ?")]

    def chains(count: int, limit: int | None) -> list[Chain]:
        hops = HopOptions("fixed", max=2, chains=count, branch=12, per_first=limit)
        return HopsRetriever(retriever, hops).retrieve_chains(query)[0]

    every, spread = chains(1000, None), chains(4, 1)
    firsts = [chain.hits[0].id for chain in spread]
    assert len(set(firsts)) == 4
    best = {}
    for chain in every:
        best.setdefault(chain.hits[0].id, chain)
    for chain in spread:
        assert [hit.id for hit in chain.hits] == [hit.id for hit in best[chain.hits[0].id].hits]
        assert chain.score == pytest.approx(best[chain.hits[0].id].score, abs=1e-4)


def test_a_limit_is_recorded_and_must_be_at_least_one() -> None:
    with pytest.raises(ConfigError, match="per_first must be at least 1"):
        HopOptions("ranked", per_first=0)
    for steps in ("ranked", "fixed"):
        made = [HopOptions(steps, max=2, chains=3, per_first=n) for n in (None, 1, 2)]
        over = [
            RankedHops(tabled(), hops) if steps == "ranked" else HopsRetriever(tabled(), hops)
            for hops in made
        ]
        assert len({one.fingerprint() for one in over}) == 3
        assert [one.describe().options.get("per_first") for one in over] == [None, 1, 2]


def test_a_limit_without_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hops\.per_first limits chains of hops: choose steps"):
        HopOptions(per_first=1)
    for steps in ("ranked", "fixed"):
        hops = HopOptions(steps, chains=1, per_first=1)
        with pytest.raises(ConfigError, match=r"one chain is kept: set chains above 1"):
            hop_by_hop(tabled(), hops)
    with pytest.raises(ConfigError, match="one chain is kept"):
        hop_by_hop(tabled(), HopOptions("fixed", per_first=1))


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("done_bias", [0.0, 3.0, 6.0])
def test_the_limit_is_of_what_is_returned(tmp_path: Path, limit: int, done_bias: float) -> None:
    """Chains that had ended in earlier hops were not counted."""
    retriever = small_retriever(write_small(tmp_path / "data"), beams=12)
    hops = HopOptions("dynamic", max=4, chains=6, branch=12, done_bias=done_bias, per_first=limit)
    *_, last = HopsRetriever(retriever, hops).walk([Query("q", "is the otter kind ?")])
    (chains,) = last.chains()
    firsts = Counter(chain.hits[0].id for chain in chains)
    assert len(chains) == 6
    assert max(firsts.values()) == limit


def test_an_ended_chain_takes_no_place_of_one_that_goes_on() -> None:
    """Scores are means, so a chain that goes on may end above one that ended before it."""

    class Ending(ScriptedHops):
        learned_done = True

        def retrieve_hop(self, *asked: Any, **more: Any) -> list[HopHits]:
            steps = super().retrieve_hop(*asked, **more)
            dones = [{1: math.log(0.6), 2: 0.0}.get(len(evidence)) for evidence in asked[1]]
            return [step._replace(done=done) for step, done in zip(steps, dones, strict=True)]

    hops = HopOptions("dynamic", max=3, chains=2, branch=2, per_first=1)
    (chains,) = HopsRetriever(Ending(SHARES), hops).retrieve_chains(["?"])
    assert ["".join(hit.id for hit in chain.hits) for chain in chains] == ["ac", "beg"]
