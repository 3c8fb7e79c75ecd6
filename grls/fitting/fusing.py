"""Fusions of a run's systems: weights from the queries that tune, rankings from the runs of the members.

A fusion ranks what the runs of its members hold, so nothing is retrieved again; its folder asks each member
for as many passages, so it finds the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grls.data.corpus import Corpus
from grls.fitting.options import FitOptions
from grls.fitting.scoring import SplitGold
from grls.fitting.systems import FittedSystem
from grls.fitting.work import FitWork
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.fusion.runs import RunFusion
from grls.retrieve.registry import Opening, create
from grls.retrieve.spec import recorded
from grls.runs.asked import QuerySet, save_for
from grls.runs.dev_runs import DevRuns
from grls.runs.manifest import read_info
from grls.runs.run import Run
from grls.tune.run_weights import tune_run_weights


def system_run(work: FitWork, split: str, system: FittedSystem) -> Run:
    """The run of a system for a split."""
    return Run.load(f"{work.run(split, system.folder)}.jsonl")


def query_seconds(work: FitWork, gold: SplitGold, system: FittedSystem) -> float:
    """Seconds that ranking a query of a split took, in batches, without loading; of a fusion, all members."""
    infos = [read_info(f"{work.run(gold.split, part)}.jsonl") for part in system.parts]
    return sum(info.seconds for info in infos if info is not None) / len(gold.queries)


def tuned_fusion(usual: Fusion, runs: Sequence[Run], gold: SplitGold, options: FitOptions) -> Fusion | None:
    """The fusion with the weights that are best on a split; None: a member is better off with weight 0."""
    named = {query.id: ids for query, ids in zip(gold.queries, gold.gold(), strict=True)}
    dev = DevRuns(list(runs), named, gold.split)
    best, _ = tune_run_weights(usual, dev, RunFusion.of(runs, options.depth, "mean"), options.k)
    return best if all(best.weights or ()) else None


def save_fusion(
    work: FitWork, system: FittedSystem, fusion: Fusion, golds: Sequence[SplitGold], corpus: Corpus
) -> None:
    """Fuse the runs of the members for every split, and save them as runs."""
    for gold in golds:
        runs = [Run.load(f"{work.run(gold.split, part)}.jsonl") for part in system.parts]
        how = RunFusion.of(runs, work.options.depth, "mean")
        asked = QuerySet(work.data, gold.split, corpus, gold.queries)
        files = {
            "runs": [f"{part}.jsonl" for part in system.parts]
        }  # beside the run, wherever both are moved
        fused = how.ensemble(runs, fusion, system.name, files)
        save_for(fused, str(work.run(gold.split, system.folder)), asked)


def make_fusion_folder(work: FitWork, system: FittedSystem, fusion: Fusion) -> None:
    """The folder of a fusion."""
    folder = work.member(system.folder)
    content: dict[str, Any] = {"members": [work.named(part, folder) for part in system.parts]}
    content |= {**recorded(fusion), "depth": work.options.depth}
    create(folder, "fusion", content, Opening(work.options.device))
