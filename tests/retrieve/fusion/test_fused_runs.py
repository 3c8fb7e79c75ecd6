"""Runs in memory are fused as their steps allow."""

from dataclasses import replace

import pytest

from grls.data.types import Chain, Hit
from grls.errors import ConfigError
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.fusion.runs import RunFusion, shared_steps
from grls.runs.manifest import RunInfo, Steps
from grls.runs.run import Run

INFO = RunInfo("bm25", "one", "single", "c", "q", "data", "test", "bm25", stages=("retrieve",), seconds=2.0)
FIRST = replace(Run.of({"q": [Hit("a", 2.0), Hit("b", 1.0)]}, info=INFO), path="one.jsonl")
SECOND = Run({"q": [Hit("c", 9.0)]}, path="two.trec")
CHAINS = Run.of(chains={"q": Chain((Hit("a", -0.5), Hit("DONE", -0.5)), -1.0, True)})


def test_rankings_are_interleaved_and_the_manifest_says_of_what() -> None:
    runs = [FIRST, SECOND]
    fused = RunFusion.of(runs, None, "mean").ensemble(runs, Fusion(), None, {"tune": ["x"]})
    assert [hit.id for hit in fused.rankings["q"]] == ["a", "c"]
    assert fused.info is not None
    assert (fused.info.name, fused.info.members) == ("interleave of one + two", ("one", "two"))
    assert (fused.info.system, fused.info.steps, fused.info.stages) == ("ensemble", "single", ("retrieve",))
    assert fused.info.seconds >= 2.0
    assert list(fused.info.options) == [
        "runs", "k", "members_depth", "pool", "length", "method", "normalization", "rrf_k", "tune", "weights"
    ]  # fmt: skip
    assert fused.info.options["runs"] == ["one.jsonl", "two.trec"]


def test_a_fusion_of_rankings_that_were_cut_off_is_no_deeper_than_they_are() -> None:
    def ranking(ids: str, k: int | None, steps: Steps = "single", pool: bool = False) -> Run:
        hits = [Hit(letter, -float(n)) for n, letter in enumerate(ids)]
        options = {"k": k, "pool": pool}
        return Run.of({"q": hits}, info=replace(INFO, steps=steps, options=options))

    def depth(*runs: Run, k: int | None = None, passages: int | None = None) -> int | None:
        fused = RunFusion.of(runs, k, "mean").ensemble(runs, Fusion(), None, {})
        return fused.depth(passages)

    short, deep, whole = ranking("abc", 3), ranking("defghi", 6), ranking("xyzuv", 10)
    assert (short.depth(), deep.depth(), whole.depth()) == (3, 6, None)
    assert depth(short, deep) == depth(short, deep, k=5) == 3
    assert depth(short, deep, k=2) == 2
    assert depth(deep, whole) == depth(deep, whole, k=20) == 6
    assert depth(deep, whole, passages=6) is None  # the whole corpus
    assert depth(whole, whole) == 5  # as many as the longest list, and the lists held more together
    assert depth(whole, whole, k=20) is None
    hops, pooled = ranking("abc", 3, "fixed"), ranking("abc", 3, "fixed", pool=True)
    assert depth(hops, hops) is None  # chains
    assert depth(hops, pooled) == 3


def test_chains_give_a_chain_and_take_no_k() -> None:
    fused = RunFusion.of([CHAINS, CHAINS], None, "max").fuse([CHAINS, CHAINS], Fusion())
    assert [hit.id for hit in fused.chains["q"].hits] == ["a"]
    assert fused.chains["q"].done
    with pytest.raises(ConfigError, match="k is of rankings"):
        RunFusion.of([CHAINS, CHAINS], 3, "mean")


def test_steps_are_those_of_all_members() -> None:
    fixed = Run({}, info=replace(INFO, steps="fixed"))
    assert shared_steps([fixed, fixed]) == "fixed"
    assert shared_steps([fixed, FIRST]) == "single"
    ranked = Run({}, info=replace(INFO, steps="ranked"))
    assert shared_steps([ranked, FIRST]) == shared_steps([fixed, ranked]) == "ranked"
    assert shared_steps([CHAINS, CHAINS]) == "dynamic"
    with pytest.raises(ConfigError, match=r"is dynamic and one\.jsonl is single"):
        shared_steps([CHAINS, FIRST])
    without = Run({"q": [Hit("a", 1.0)]}, info=replace(INFO, steps="dynamic"), path="d.trec")
    with pytest.raises(ConfigError, match=r"d\.trec is dynamic, and its chains stand in JSONL alone"):
        shared_steps([without, without])


def test_a_fusion_is_known_by_its_members_whatever_ends_them() -> None:
    def fused(steps: Steps, *members: str, weights: tuple[float, ...] | None = None) -> str:
        chains = CHAINS.chains if steps == "dynamic" else {}
        runs = [
            replace(FIRST, chains=chains, info=replace(INFO, steps=steps, retriever=one)) for one in members
        ]
        made = RunFusion.of(runs, None, "max").ensemble(runs, Fusion("rrf", weights=weights), None, {})
        assert made.info is not None
        return made.info.retriever

    assert fused("dynamic", "a", "b") == fused("fixed", "a", "b") != ""
    others = {
        fused("fixed", "a", "c"),
        fused("fixed", "b", "a"),
        fused("fixed", "a", "b", weights=(1.0, 2.0)),
    }
    assert len(others | {fused("fixed", "a", "b")}) == 4
    assert fused("fixed", "a", "") == ""
