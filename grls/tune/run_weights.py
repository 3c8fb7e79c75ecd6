"""The weights of a fusion of runs: those that are best on runs for development queries."""

from __future__ import annotations

from collections.abc import Sequence

from grls.errors import ConfigError, Option
from grls.evaluation.depth import RunDepth
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.retrieve.fusion.fuse import Fusion, tune_weights
from grls.retrieve.fusion.runs import RunFusion
from grls.runs.dev_runs import DevRuns


def refuse_untunable(fusion: Fusion) -> None:
    """Refuse (ConfigError) a fusion that has no weights to find."""
    if fusion.method == "interleave":
        raise ConfigError(
            f"{Option('tune.runs')} finds weights, and interleaving takes none; choose "
            f"{Option('fusion.method', 'rrf', 'sum')}, or leave {Option('tune.runs')} out."
        )
    if fusion.weights is not None:
        raise ConfigError(f"give either {Option('fusion.weights')} or {Option('tune.runs')}.")


def tune_run_weights(fusion: Fusion, dev: DevRuns, how: RunFusion, k: int) -> tuple[Fusion, float]:
    """The fusion with the weights of highest recall@k on ``dev``, and that recall.

    Of equal recall nDCG decides, then the most even weights. Weights go in steps of 0.1 and sum to one.

    Raises:
        ConfigError: A run for development queries was cut off before ``k``.
    """
    gold = list(dev.gold.values())
    for run in dev.runs:
        RunDepth.of(run, dev.passages, gold).refuse([f"recall@{k}"], f"choose a smaller {Option('tune.k')}")

    def quality(tried: Fusion) -> tuple[float, float]:
        fused = how.fuse(dev.runs, tried).rankings
        ids = [[hit.id for hit in fused[query]] for query in dev.gold]
        return sequence_recall(ids, gold, [k])[f"recall@{k}"], ndcg(ids, gold)

    best, (recall, _) = tune_weights(len(dev.runs), fusion, quality)
    return best, recall


def shown_weights(weights: Sequence[float] | None) -> str:
    """Weights in a line."""
    return " ".join(f"{weight:g}" for weight in weights or ())
