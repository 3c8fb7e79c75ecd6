"""Weights and cuts that are found on runs for development queries, in memory."""

from dataclasses import replace

import pytest

from grls.data.types import Hit
from grls.errors import ConfigError, DataError
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.fusion.runs import RunFusion
from grls.runs.dev_runs import DevRuns
from grls.runs.run import Run
from grls.tune.priors import cut_run, refuse_uncuttable, refuse_untunable, tune_run_weights

QUERIES = [f"q{n}" for n in range(6)]
GOOD = Run(
    {query: [Hit(f"gold-{query}", 9.0), Hit("x", 1.0), Hit("y", 0.5)] for query in QUERIES}, path="good"
)
BAD = Run({query: [Hit("z", 9.0), Hit("x", 1.0)] for query in QUERIES}, path="bad")
GOLD = {query: [f"gold-{query}"] for query in QUERIES}


def test_the_better_run_weighs_more() -> None:
    dev = DevRuns([BAD, GOOD], GOLD, "dev")
    fusion, recall = tune_run_weights(Fusion(method="sum"), dev, RunFusion.of([BAD, GOOD], None, "mean"), 1)
    assert recall == 1.0
    assert fusion.weights is not None
    assert fusion.weights[0] < fusion.weights[1]


def test_what_has_no_weights_to_find_is_refused() -> None:
    with pytest.raises(ConfigError, match="interleaving takes none"):
        refuse_untunable(Fusion())
    with pytest.raises(ConfigError, match=r"either weights or runs"):
        refuse_untunable(Fusion(method="rrf", weights=[0.5, 0.5]))


def test_rankings_end_behind_what_looks_gold() -> None:
    run = Run({"t": [Hit("a", 9.0), Hit("b", 1.0), Hit("c", 0.5)]}, score_mode="bm25", path="t.trec")
    cut = cut_run(run, DevRuns([GOOD], GOLD, "dev"))
    assert [hit.id for hit in cut.run.rankings["t"]] == ["a"]
    assert cut.run.chains["t"].done
    assert (cut.mean, cut.fitted) == (1.0, 1.0)
    assert cut.run.info is not None
    assert (cut.run.info.name, cut.run.info.score_mode, cut.run.steps) == ("t, cut", "bm25, cut", "dynamic")
    assert cut.run.info.options == {"cut": "t.trec", "tune": "good"}


def test_what_cannot_be_cut_is_refused() -> None:
    dev = DevRuns([GOOD], GOLD, "dev")
    with pytest.raises(ConfigError, match=r"q0.*are queries of the runs to tune on and of what is given"):
        cut_run(GOOD, dev)
    with pytest.raises(DataError, match="answers no query"):
        cut_run(Run({}, path="e"), dev)
    ended = cut_run(Run({"t": GOOD.rankings["q0"]}), dev).run
    with pytest.raises(ConfigError, match="its chains end by themselves"):
        refuse_uncuttable(replace(ended, path="e"))
