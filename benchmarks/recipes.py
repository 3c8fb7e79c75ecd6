"""The recipes of `benchmarks.seeds`: stages of training, runs and ensembles.

The weights were tuned on dev for the first seed. The module runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Stage(NamedTuple):
    """A stage of training (:mod:`benchmarks.trainings`), and the stage whose model it starts with."""

    config: str
    after: str | None = None


class Recipe(NamedTuple):
    """Trainings and measurements.

    Attributes:
        stages: Stages in order; the last one makes the retriever.
        runs: Name of a run on test -> its options.
        beside: Name of a run that does not depend on the seed -> its retriever and options; for ensembles.
        ensembles: Name of an ensemble -> its members; the weights are tuned on dev.
        by: Name of a run -> the stage that makes its retriever, if it is not the last stage.
        data: The data set, ``data/DATA``; None: the data set of the recipe's name.
        across: Name of an ensemble over all seeds -> its members; the runs of a member are fused over the
            seeds first, with equal weights.
        priors: Name of a run with priors -> retriever -> weight.
    """

    stages: tuple[Stage, ...]
    runs: Mapping[str, tuple[str, ...]]
    beside: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ensembles: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    by: Mapping[str, str] = MappingProxyType({})
    data: str | None = None
    across: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    priors: Mapping[str, Mapping[str, float]] = MappingProxyType({})


_SPANS = ("--k", "100", "--search.beams", "20", "--search.truncate_queries", "true")
_CHAINS = (
    *("--hops.steps", "dynamic", "--hops.max", "10", "--hops.chains", "4", "--hops.branch", "4"),
    *("--hops.sets", "true", "--search.beams", "10"),
)
_FIVE_HOPS = (
    *("--hops.steps", "fixed", "--hops.max", "5", "--hops.chains", "1", "--hops.branch", "1"),
    *("--search.beams", "10", "--search.truncate_queries", "true"),
)


def _beside(dense: str) -> Mapping[str, tuple[str, ...]]:
    """BM25 and a bi-encoder, with long rankings for fusion."""
    return {"bm25": ("bm25", "--k", "100"), "biencoder": (dense, "--k", "100")}


def _ahead(dense: str, weight: float, bm25: float) -> Mapping[str, float]:
    """Bi-encoder and BM25 as priors, with these weights."""
    return {dense: weight, "bm25": bm25}


def _rescored(weight: str, passages: str = "40") -> tuple[str, ...]:
    """Options that rescore the best passages."""
    return ("--search.rescore", passages, "--search.rescore_weight", weight)


_STRATEGYQA = "runs/strategyqa/biencoder-retriever"
_WORLDTREE_PRIORS = _ahead("runs/entailmentbank-wt/biencoder-retriever", 4, 1)
_WORLDTREE = (*_SPANS, *_rescored("5"))
_ENSEMBLES = {"bm25 + biencoder": ("bm25", "biencoder"), "all": ("bm25", "biencoder", "single")}
_TWO_STAGES = (Stage("memorise"), Stage("retrieve", "memorise"))
RECIPES = {
    "ruletaker-paper": Recipe(_TWO_STAGES, {"dynamic": ("--hops.steps", "dynamic", "--hops.max", "10")}),
    "strategyqa": Recipe(
        (Stage("spans"),),
        {"single": _SPANS},
        _beside(_STRATEGYQA),
        _ENSEMBLES,
    ),
    "strategyqa-rescore": Recipe(
        (Stage("spans-rescore"),),
        {
            "single": (*_SPANS, *_rescored("5")),
            "hybrid": (*_SPANS, *_rescored("5", "20")),
        },
        {
            **_beside(_STRATEGYQA),
            "hops": (_STRATEGYQA, "--hops.steps", "fixed", "--hops.max", "10"),
        },
        {
            "bm25 + biencoder": ("bm25", "biencoder"),
            "bm25 + biencoder + hops": ("bm25", "biencoder", "hops"),
            "all": ("bm25", "biencoder", "hops", "hybrid"),
        },
        data="strategyqa",
        priors={"hybrid": _ahead(_STRATEGYQA, 4, 4)},
    ),
    "nq": Recipe((Stage("spans"),), {"single": _SPANS}, _beside("runs/nq/default/dense"), _ENSEMBLES),
    "explagraphs": Recipe(
        (Stage("spans"), Stage("spans-hops", "spans")),
        {
            "single": _SPANS,
            "hybrid": _SPANS,
            "dynamic": (*_CHAINS, "--hops.done_bias", "-1", "--hops.choose", "expected-f1"),
        },
        _beside("runs/explagraphs/biencoder-retriever"),
        _ENSEMBLES,
        priors={"hybrid": _ahead("runs/explagraphs/biencoder-retriever", 0.25, 1)},
    ),
    "explagraphs-rescore": Recipe(
        (Stage("spans-rescore"),),
        {
            "unrescored": _SPANS,
            "single": (*_SPANS, *_rescored("1.5")),
            "hybrid": (*_SPANS, *_rescored("3")),
        },
        _beside("runs/explagraphs/biencoder-retriever"),
        {"bm25 + biencoder": _ENSEMBLES["bm25 + biencoder"]},
        data="explagraphs",
        priors={"hybrid": _ahead("runs/explagraphs/biencoder-retriever", 0.25, 2)},
    ),
    "entailmentbank": Recipe(
        (Stage("spans"),),
        {
            "single": _SPANS,
            "hybrid": _SPANS,
        },
        _beside("runs/entailmentbank/biencoder-retriever"),
        {**_ENSEMBLES, "all": ("bm25", "biencoder", "single", "hybrid")},
        priors={"hybrid": _ahead("runs/entailmentbank/biencoder-retriever", 2, 0.5)},
    ),
    "entailmentbank-wt": Recipe(
        (Stage("spans-rescore"), Stage("hops-rescore", "spans-rescore")),
        {
            "unrescored": _SPANS,
            "single": (*_SPANS, *_rescored("0.7")),
            "hybrid": _WORLDTREE,
            "hops-hybrid": _WORLDTREE,
            "fixed": (*_FIVE_HOPS, *_rescored("0.7", "12")),
            "fixed-hybrid": (*_FIVE_HOPS, *_rescored("5", "12")),
        },
        _beside("runs/entailmentbank-wt/biencoder-retriever"),
        {
            **_ENSEMBLES,
            "all": ("bm25", "biencoder", "single", "hybrid"),
            "pass + hops": ("hops-hybrid", "fixed-hybrid"),
        },
        {"unrescored": "spans-rescore", "single": "spans-rescore", "hybrid": "spans-rescore"},
        across={"pass + hops": ("hops-hybrid", "fixed-hybrid")},
        priors=dict.fromkeys(("hybrid", "hops-hybrid", "fixed-hybrid"), _WORLDTREE_PRIORS),
    ),
}
