"""Fusing runs that were retrieved already, for ``grls fuse``.

The paper's ensembles (arXiv 2204.13596) interleave; the weights of the other methods can be tuned on runs for
development queries. How to fuse is said by :mod:`grls.retrieve.fusion.fuse`, whether runs belong
together by :mod:`grls.runs.comparable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from grls.commands.fuse import TuneRuns
from grls.commands.run_files import (
    Dev,
    asked_ids,
    load_dev,
    refuse_shared_queries,
    refuse_to_replace,
    write_fused,
)
from grls.data.types import Hit
from grls.errors import ConfigError
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.retrieve.fusion.fuse import Fusion, fuse_rankings, tune_weights
from grls.retrieve.fusion.retriever import Length, chain_hits, chain_length, fuse_chains
from grls.runs.comparable import (
    LoadedRun,
    Missing,
    complete_runs,
    find_asked,
    load_runs,
)
from grls.runs.manifest import RunInfo, Steps
from grls.runs.results import Results
from grls.runs.trec import chain_ranking


def fuse_runs(
    runs: list[str],
    output: str,
    fusion: Fusion,
    k: int | None,
    length: Length,
    data: str | None,
    split: str | None,
    missing: Missing,
    tune: TuneRuns,
    name: str | None,
) -> None:
    """Fuse runs into one; arguments as of :func:`grls.commands.fuse.fuse`."""
    if tune.runs is not None:
        _refuse_untunable(fusion)
    if len(runs) < 2:
        raise ConfigError(f"expected at least two runs, got {list(runs)}.")
    members = load_runs(runs)
    steps = shared_steps(members)
    if k is not None and steps == "dynamic":
        raise ConfigError("--k is of rankings, and these runs are chains that end: --length says where.")
    chain_length([0] * len(members), length)
    asked = find_asked(members, data, split)
    refuse_to_replace(output, [*runs, *(tune.runs or [])], asked)
    results = complete_runs(members, asked_ids(asked), missing)
    how = Fusing(steps, k, length)
    options: dict[str, object] = {"runs": runs, "k": k, "length": length}
    options |= {"method": fusion.method, "normalization": fusion.normalization, "rrf_k": fusion.rrf_k}
    if tune.runs is not None:
        dev = load_dev(tune.runs, members, asked, tune.split)
        refuse_shared_queries(dev, results[0])
        fusion, recall = _tune(fusion, dev, how, tune.k)
        options |= {"tune": tune.runs, f"tuned_recall@{tune.k}": recall}
        print(f"weights {_shown(fusion.weights)}: recall@{tune.k} {100 * recall:.1f} on {dev.split}")
    start = perf_counter()
    fused = how.fuse(results, fusion)
    infos = [run.info for run in members if run.info is not None]
    info = RunInfo(
        system="ensemble",
        name=name or f"{fusion.method} of {' + '.join(run.name for run in members)}",
        steps=steps,
        corpus="",
        queries="",
        data="",
        split=None,
        score_mode=fusion.score_mode,
        stages=tuple(dict.fromkeys(stage for info in infos for stage in info.stages)),
        members=tuple(run.name for run in members),
        seconds=perf_counter() - start + sum(info.seconds for info in infos),  # its members' time is its own
        options={**options, "weights": fusion.weights},
    )
    write_fused(output, fused, asked, info)


@dataclass(frozen=True)
class Fusing:
    """What is fused and how much of it is kept.

    Args:
        steps: Dynamic runs give chains, others rankings.
        k: Passages a query; None keeps as many as the longest list holds.
        length: Of a dynamic chain.
    """

    steps: Steps
    k: int | None
    length: Length

    def fuse(self, members: Sequence[Results], fusion: Fusion) -> Results:
        """Fuse results that hold the same queries."""
        if self.steps == "dynamic":
            chains = {
                query: fuse_chains(
                    [member.chains[query] for member in members],
                    fusion,
                    self.length,
                    [_passages(member, query) for member in members],
                )
                for query in members[0].chains
            }
            return Results({query: list(c.hits) for query, c in chains.items()}, chains, fusion.score_mode)
        longest = max((len(hits) for member in members for hits in member.rankings.values()), default=0)
        k = self.k if self.k is not None else longest or None
        rankings = fuse_rankings([member.rankings for member in members], fusion, k)
        return Results(rankings, {}, fusion.score_mode)


def _passages(results: Results, query: str) -> list[Hit]:
    """What a chain found, with scores to fuse by: of hops added up, or, of a set, each passage's own."""
    chain, ranking = results.chains[query], results.rankings[query]
    return chain_hits(chain) if ranking == chain_ranking(chain) else ranking


def shared_steps(runs: Sequence[LoadedRun]) -> Steps:
    """What a fusion of these runs is: dynamic or fixed where all are, else single.

    Raises:
        ConfigError: A dynamic run has no chains (a TREC run), or is to be fused with one that is not dynamic.
    """
    dynamic = [run for run in runs if run.steps == "dynamic"]
    others = [run for run in runs if run.steps != "dynamic"]
    if dynamic and others:
        raise ConfigError(
            f"{dynamic[0].path} is dynamic and {others[0].path} is {others[0].steps}; a chain that ends by "
            "itself cannot be fused with a ranking. Retrieve both with the same --hops.steps."
        )
    for run in dynamic:
        if not run.results.chains and run.results.rankings:
            raise ConfigError(f"{run.path} is dynamic, and its chains stand in JSONL alone; give that file.")
    if dynamic:
        return "dynamic"
    return "fixed" if all(run.steps == "fixed" for run in runs) else "single"


def _refuse_untunable(fusion: Fusion) -> None:
    if fusion.method == "interleave":
        raise ConfigError(
            "--tune.runs finds weights, and interleaving takes none; choose --fusion.method rrf or sum, or "
            "leave --tune.runs out."
        )
    if fusion.weights is not None:
        raise ConfigError("give either --fusion.weights or --tune.runs.")


def _tune(fusion: Fusion, dev: Dev, how: Fusing, k: int) -> tuple[Fusion, float]:
    """The fusion with the weights that are best on dev, and its recall there."""

    gold = list(dev.gold.values())

    def quality(tried: Fusion) -> tuple[float, float]:
        fused = how.fuse(dev.results, tried).rankings
        ids = [[hit.id for hit in fused[query]] for query in dev.gold]
        return sequence_recall(ids, gold, [k])[f"recall@{k}"], ndcg(ids, gold)

    best, (recall, _) = tune_weights(len(dev.results), fusion, quality)
    return best, recall


def _shown(weights: Sequence[float] | None) -> str:
    return " ".join(f"{weight:g}" for weight in weights or ())
