"""Tuning a system of a run on the queries that tune."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from grls.errors import MismatchError
from grls.fitting.clock import TimeIsUp
from grls.fitting.plan import Stage
from grls.fitting.work import FitWork, section, stage_tree
from grls.io.counts import counted
from grls.retrieve.base import untuned_fingerprint
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import recorded
from grls.tune.dev import DevQueries
from grls.tune.options import TuneOptions
from grls.tune.run import tune_folder
from grls.tune.step import TuneChoice

_CLEAR = 0.05
"""Recall that hops bring at least where they are clearly better than a single step."""

_LEAST = 20
"""Queries below which nothing is tuned."""


def begun_tuning(work: FitWork, stage: Stage) -> Path:
    """The file of the measurements of a tuning; it is there while the tuning is not done."""
    return Path(f"{work.member(stage.system)}.tune.jsonl")


def tuned_queries(work: FitWork, stage: Stage, share: float) -> int | None:
    """The number of queries that a system is tuned on; None: all of them.

    Args:
        work: The run.
        stage: The options of ``grls tune``.
        share: The share of the queries that there is time for, in (0, 1].
    """
    limit: int | None = stage_tree(stage).get("limit")
    if share >= 1:
        return limit
    whole = len(DevQueries.read(work.data, work.tune).queries) if limit is None else int(limit)
    return max(_LEAST, int(share * whole))


def tune_system(work: FitWork, stage: Stage, limit: int | None) -> dict[str, Any]:
    """Tune the folder of a system.

    Args:
        work: The run.
        stage: The options of ``grls tune``.
        limit: The number of queries; None: all of them.
    """
    tree, folder = stage_tree(stage), work.member(stage.system)
    dev = DevQueries.read(work.data, work.tune, limit)
    search, hops = section(SearchOptions, tree, "search"), section(HopOptions, tree, "hops")
    device, precision = tree.get("device", work.options.device), tree.get("precision", "float32")
    made_of = untuned_fingerprint(
        load_retriever(folder, Opening(device, precision, search, hop_by_hop=False))
    )
    options: dict[str, Any] = {"search": given} if (given := recorded(search)) else {}
    single = hops.steps == "single"
    options |= {} if single else {"hops": recorded(hops)}
    grid = section(TuneOptions, tree, "grid")

    def tune() -> list[TuneChoice]:
        return tune_folder(folder, dev, grid, Opening(device, precision), made_of, options, single)

    chosen = _tuned(tune, begun_tuning(work, stage))
    return {
        "queries": len(dev.queries),
        "choices": [
            {
                "measure": one.measure,
                "before": round(one.before, 4),
                "after": round(one.after, 4),
                "what": one.what,
            }
            for one in chosen
        ],
    }


def _tuned(tune: Callable[[], list[TuneChoice]], begun: Path) -> list[TuneChoice]:
    """What a tuning chooses; one that was begun with other models or queries is begun anew."""
    there = begun.is_file()
    try:
        return tune()
    except TimeIsUp:
        begun.unlink(missing_ok=True)  # this run does not come back to it
        raise
    except MismatchError:
        if not there:
            raise
    begun.unlink(missing_ok=True)
    return _tuned(tune, begun)


def tuning_line(result: dict[str, Any]) -> str:
    """What tuning has chosen, for people."""
    gains = [
        f"{one['measure']} {100 * one['before']:.1f} -> {100 * one['after']:.1f} ({one['what']})"
        for one in result["choices"]
    ]
    return f"{counted(result['queries'], 'query')}: {'; '.join(gains)}"


def gain_of_hops(result: dict[str, Any]) -> str | None:
    """What hops clearly bring, for people; None: nothing, or nothing was tuned.

    Hops are chosen only where a single step is worse by more than one standard error (:mod:`grls.tune.hops`).
    """
    gains = [one for one in result.get("choices", ()) if one["what"].partition(",")[0].endswith(" hops")]
    clear = [one for one in gains if round(one["after"] - one["before"], 4) >= _CLEAR]
    return (
        " and ".join(
            f"{one['measure']} {100 * one['before']:.1f} -> {100 * one['after']:.1f}" for one in clear
        )
        or None
    )
