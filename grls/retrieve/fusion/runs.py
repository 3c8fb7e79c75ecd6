"""Fusing runs that were retrieved already.

The formulas of fusion: :mod:`grls.retrieve.fusion.retriever`. Whether runs belong together:
:mod:`grls.runs.comparable`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from grls.data.types import Steps
from grls.errors import ConfigError, Option
from grls.retrieve.fusion.retriever import Fusion
from grls.runs.portions import RunInfo
from grls.runs.run import Run


def fused_run(members: Sequence[Run], fusion: Fusion, k: int | None = None) -> Run:
    """Fuse runs that hold the same queries into rankings of ``k`` passages, or else of as many as the longest
    ranking holds; the result has no manifest.
    """
    shared_steps(members)
    k = fused_depth(members, k)
    rankings = {
        query: fusion.fuse([run.rankings[query] for run in members], k) for query in members[0].rankings
    }
    return Run(rankings, score_mode=fusion.method)


def fused_depth(members: Sequence[Run], k: int | None) -> int | None:
    """The number of passages of a fused ranking; None: all members are empty."""
    longest = max((len(hits) for run in members for hits in run.rankings.values()), default=0)
    return k if k is not None else longest or None


def ensemble(
    members: Sequence[Run],
    fusion: Fusion,
    options: dict[str, Any],
    k: int | None = None,
    name: str | None = None,
) -> Run:
    """:func:`fused_run` with a manifest, which holds ``options``, too.

    ``name`` is that of reports; None: from the method and the members.
    """
    start = perf_counter()
    fused, steps = fused_run(members, fusion, k), shared_steps(members)
    infos = [run.info for run in members if run.info is not None]
    tokens = [info.computed_tokens for info in infos if info.computed_tokens is not None]
    depths = [depth for run in members if (depth := run.depth()) is not None]
    sources = {
        "runs": [run.path for run in members],
        "k": fused_depth(members, k),
        "members_depth": min(depths, default=None),
        "pool": any(run.is_ranking for run in members),
    }
    method = {"method": fusion.method, "weights": fusion.weights}
    # Empty where that of a member is unknown.
    prints = [run.info.retriever if run.info is not None else "" for run in members]
    parts = json.dumps([prints, method]).encode()
    info = RunInfo(
        system="ensemble",
        name=name or f"{fusion.method} of {' + '.join(run.name for run in members)}",
        steps=steps,
        corpus="",
        queries="",
        data="",
        split=None,
        score_mode=fusion.method,
        stages=tuple(dict.fromkeys(stage for info in infos for stage in info.stages)),
        members=tuple(run.name for run in members),
        seconds=perf_counter() - start + sum(info.seconds for info in infos),  # members' time counts
        options={**sources, **options, **method},
        retriever=hashlib.sha256(parts).hexdigest() if all(prints) else "",
        computed_tokens=sum(tokens) if len(tokens) == len(members) else None,
    )
    return replace(fused, info=info)


def shared_steps(runs: Sequence[Run]) -> Steps:
    """The steps of a fusion of runs: fixed where all are, ranked where one is, else single."""
    for run in runs:
        if run.steps == "dynamic":
            raise ConfigError(
                f"{run.path} is dynamic: chains that end by themselves are not fused. Retrieve with "
                f"{Option('hops.steps', 'ranked')}."
            )
    steps = {run.steps for run in runs}
    return "fixed" if steps == {"fixed"} else "ranked" if "ranked" in steps else "single"
