"""``grls fuse``: fuse runs that were retrieved already.

The paper's ensembles (arXiv 2204.13596) interleave; the weights of the other methods can be tuned on runs for
development queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grls.retrieve.fusion.fuse import Fusion


@dataclass(frozen=True)
class TuneRuns:
    """Runs that weights are tuned on.

    Args:
        runs: Runs of the same systems, in the same order, for development queries: the weights (rrf, sum)
            with the best recall there are used. Steps of 0.1 that sum to one; where recall is level nDCG
            decides, then the most even.
        split: Which queries they answer; null takes it from their manifests, or else dev.
        k: Cut-off of that recall.
    """

    runs: list[str] | None = None
    split: str | None = None
    k: int = 10


UNTUNED = TuneRuns()
INTERLEAVED = Fusion()


def fuse(
    runs: list[str],
    *,
    output: str,
    fusion: Fusion = INTERLEAVED,
    k: int | None = None,
    length: Literal["mean", "min", "max"] | int = "mean",
    data: str | None = None,
    split: str | None = None,
    missing: Literal["refuse", "empty"] = "refuse",
    tune: TuneRuns = UNTUNED,
    name: str | None = None,
) -> None:
    """Fuse runs into one: `grls fuse RUN RUN ... --output OUT`.

    Writes OUTPUT.trec, OUTPUT.jsonl (with evidence text) and OUTPUT.info.json. Without a data set (no --data,
    and no manifest beside the runs) OUTPUT.jsonl is left out. Dynamic runs (JSONL with chains) give dynamic
    chains, and are fused with one another alone.

    Args:
        runs: Runs over one corpus for the same queries: JSONL of `grls retrieve`, or TREC runs.
        output: Path of the results without ending.
        fusion: How rankings are fused.
        k: Passages a query; null keeps as many as the longest list among the runs holds. Not of dynamic runs.
        length: Of a fused dynamic chain: mean, min or max of the members' lengths, or the number of a run
            (from 0) that sets it.
        data: Data set folder; null takes it from the manifests.
        split: Which queries the runs answer; null takes it from the manifests. Queries that a run lacks count
            as answered with nothing, and are said.
        missing: Where nothing says which queries were asked and the runs do not answer the same: refuse, or
            take what a run lacks as empty.
        tune: Runs to tune the weights on.
        name: What reports call this run; null makes one from the method and the members.
    """
    from grls.commands.fusing import fuse_runs

    fuse_runs(runs, output, fusion, k, length, data, split, missing, tune, name)
