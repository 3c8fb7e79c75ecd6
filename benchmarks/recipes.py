"""What `benchmarks.seeds` trains and measures: stages, runs, ensembles and cuts of each recipe.

Weights stand here as dev chose them for the first seed. The module runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Stage(NamedTuple):
    """A stage of training.

    Attributes:
        config: Its name among the trainings of the data set (:mod:`benchmarks.trainings`).
        after: Begins with the model of that stage.
    """

    config: str
    after: str | None = None


class Recipe(NamedTuple):
    """What is trained and measured.

    Attributes:
        stages: In order; the last one makes the retriever.
        runs: Options of each run of a retriever on test, by its name.
        beside: Options of each run that no seed changes, by its name; for ensembles.
        ensembles: Members of each ensemble, by its name; the weights are tuned on dev.
        by: The stages that make the retrievers of those ``runs`` that are not the last one's, by run.
        data: The data set, ``data/DATA``; None: that of the recipe's name.
        cuts: Those of ``runs``, ``beside`` and ``ensembles`` that are also cut where F1 is expected to be
            highest, by dev.
        across: Ensembles of ``runs`` over all seeds, by name: those of each kind are fused alike first.
    """

    stages: tuple[Stage, ...]
    runs: Mapping[str, tuple[str, ...]]
    beside: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ensembles: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    by: Mapping[str, str] = MappingProxyType({})
    data: str | None = None
    cuts: tuple[str, ...] = ()
    across: Mapping[str, tuple[str, ...]] = MappingProxyType({})


_VIEWS = ("--steps", "single", "--k", "100", "--beams", "20", "--truncate_queries", "true")
_CHAINS = (
    *("--steps", "dynamic", "--hops", "10", "--beams", "10", "--chains", "4", "--branch", "4"),
    *("--sets", "true"),
)
_FIVE_HOPS = (
    *("--steps", "fixed", "--hops", "5", "--beams", "10", "--chains", "1", "--branch", "1"),
    *("--truncate_queries", "true", "--rescore", "12"),
)


def _beside(dense: str) -> Mapping[str, tuple[str, ...]]:
    """BM25 and a bi-encoder, their lists long, as fusion wants them."""
    single = ("--steps", "single", "--k", "100")
    return {"bm25": ("--bm25", "true", *single), "biencoder": ("--retriever", dense, *single)}


def _priors(dense: str, *weights: str) -> tuple[str, ...]:
    """Bi-encoder and BM25 ahead, with these weights."""
    return ("--prior", f"[{dense}, bm25]", "--prior_weight", f"[{', '.join(weights)}]")


def _ahead(dense: str, *weights: str) -> tuple[str, ...]:
    """One pass of a generator that writes spans, bi-encoder and BM25 ahead with these weights."""
    return (*_VIEWS, *_priors(dense, *weights))


def _rescored(weight: str, passages: str = "40") -> tuple[str, ...]:
    """The best of what is found rescored."""
    return ("--rescore", passages, "--rescore_weight", weight)


_STRATEGYQA = "runs/strategyqa/biencoder-retriever"
_WORLDTREE_PRIORS = _priors("runs/entailmentbank-wt/biencoder-retriever", "4", "1")
_WORLDTREE = (*_VIEWS, *_WORLDTREE_PRIORS, *_rescored("5"))
_ENSEMBLES = {"bm25 + biencoder": ("bm25", "biencoder"), "all": ("bm25", "biencoder", "single")}
_TWO_STAGES = (Stage("memorise"), Stage("retrieve", "memorise"))
RECIPES = {
    "ruletaker-paper": Recipe(_TWO_STAGES, {"dynamic": ("--steps", "dynamic", "--hops", "10")}),
    "strategyqa": Recipe(
        (Stage("spans"),),
        {"single": _VIEWS},
        _beside(_STRATEGYQA),
        _ENSEMBLES,
    ),
    "strategyqa-rescore": Recipe(
        (Stage("spans-rescore"),),
        {
            "single": (*_VIEWS, *_rescored("5")),
            "hybrid": (*_ahead(_STRATEGYQA, "4", "4"), *_rescored("5", "20")),
        },
        {
            **_beside(_STRATEGYQA),
            "hops": ("--retriever", _STRATEGYQA, "--steps", "fixed", "--hops", "10"),
        },
        {
            "bm25 + biencoder": ("bm25", "biencoder"),
            "bm25 + biencoder + hops": ("bm25", "biencoder", "hops"),
            "all": ("bm25", "biencoder", "hops", "hybrid"),
        },
        data="strategyqa",
        cuts=("biencoder", "hops", "bm25 + biencoder + hops", "hybrid", "all"),
    ),
    "nq": Recipe((Stage("spans"),), {"single": _VIEWS}, _beside("runs/nq/default/dense"), _ENSEMBLES),
    "explagraphs": Recipe(
        (Stage("spans"), Stage("spans-hops", "spans")),
        {
            "single": _VIEWS,
            "hybrid": _ahead("runs/explagraphs/biencoder-retriever", "0.25", "1"),
            "dynamic": (*_CHAINS, "--done_bias", "-1", "--choose", "expected-f1"),
        },
        _beside("runs/explagraphs/biencoder-retriever"),
        _ENSEMBLES,
    ),
    "explagraphs-rescore": Recipe(
        (Stage("spans-rescore"),),
        {
            "unassessed": _VIEWS,
            "single": (*_VIEWS, *_rescored("1.5")),
            "hybrid": (*_ahead("runs/explagraphs/biencoder-retriever", "0.25", "2"), *_rescored("3")),
        },
        _beside("runs/explagraphs/biencoder-retriever"),
        {"bm25 + biencoder": _ENSEMBLES["bm25 + biencoder"]},
        data="explagraphs",
        cuts=("single", "hybrid", "bm25", "biencoder"),
    ),
    "entailmentbank": Recipe(
        (Stage("spans"), Stage("spans-memories", "spans")),
        {
            "memories": _VIEWS,
            "single": _VIEWS,
            "hybrid": _ahead("runs/entailmentbank/biencoder-retriever", "2", "0.5"),
        },
        _beside("runs/entailmentbank/biencoder-retriever"),
        {**_ENSEMBLES, "all": ("bm25", "biencoder", "single", "hybrid")},
        {"single": "spans", "hybrid": "spans"},
    ),
    "entailmentbank-wt": Recipe(
        (Stage("spans-rescore"), Stage("hops-rescore", "spans-rescore")),
        {
            "unassessed": _VIEWS,
            "single": (*_VIEWS, *_rescored("0.7")),
            "hybrid": _WORLDTREE,
            "hops-hybrid": _WORLDTREE,
            "fixed": (*_FIVE_HOPS, "--rescore_weight", "0.7"),
            "fixed-hybrid": (*_FIVE_HOPS, *_WORLDTREE_PRIORS, "--rescore_weight", "5"),
        },
        _beside("runs/entailmentbank-wt/biencoder-retriever"),
        {
            **_ENSEMBLES,
            "all": ("bm25", "biencoder", "single", "hybrid"),
            "pass + hops": ("hops-hybrid", "fixed-hybrid"),
        },
        {"unassessed": "spans-rescore", "single": "spans-rescore", "hybrid": "spans-rescore"},
        cuts=("single", "hybrid", "hops-hybrid", "pass + hops", "bm25", "biencoder"),
        across={"pass + hops": ("hops-hybrid", "fixed-hybrid")},
    ),
}
