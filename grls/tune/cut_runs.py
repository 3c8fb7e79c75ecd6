"""Ending the rankings of a run where F1 is expected to be highest, as runs for development queries tell.

Where that is says :mod:`grls.retrieve.fusion.cut`.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

from grls.errors import ConfigError, DataError
from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.set_f1 import set_f1
from grls.retrieve.fusion.cut import SetSize
from grls.runs.dev_runs import DevRuns
from grls.runs.manifest import RunInfo
from grls.runs.run import Run


class CutRun(NamedTuple):
    """A run whose rankings end.

    Attributes:
        run: The run, dynamic: its rankings are chains that are done.
        mean: Passages a query.
        fitted: Set F1 on the development queries that the cut was fitted to.
        known: Set F1 on them with the known number of gold passages.
    """

    run: Run
    mean: float
    fitted: float
    known: float


def refuse_uncuttable(run: Run) -> None:
    """Refuse (ConfigError) a run whose chains end already."""
    if run.steps == "dynamic":
        raise ConfigError(f"{run.path} is dynamic: its chains end by themselves. Cut a single or fixed run.")


def cut_run(run: Run, dev: DevRuns, name: str | None = None) -> CutRun:
    """Fit a cut to the run for development queries, and cut with it.

    Args:
        run: The run.
        dev: The run of the same system for development queries.
        name: What reports call the result; None: the name of the run, cut.

    Raises:
        ConfigError: Queries of the run are among those for development.
        DataError: The run answers no query.
    """
    if not run.rankings:
        raise DataError("the run answers no query, so there is nothing to cut: retrieve again.", run.path)
    dev.refuse_shared_queries(run)
    start = perf_counter()
    gold = list(dev.gold.values())
    rankings = [dev.runs[0].rankings[query] for query in dev.gold]
    sizes = SetSize.fit(rankings, gold)
    fitted = set_f1([{hit.id for hit in sizes.cut(hits).hits} for hits in rankings], gold)["f1"]
    known = known_number([[hit.id for hit in hits] for hits in rankings], gold)["f1_known_number"]
    chains = {query: sizes.cut(hits) for query, hits in run.rankings.items()}
    kept = {query: hits[: len(chains[query].hits)] for query, hits in run.rankings.items()}
    mean = statistics.mean(len(chain.hits) for chain in chains.values())
    info = _info(run, dev, name, perf_counter() - start)
    return CutRun(Run(kept, chains, info.score_mode, info), mean, fitted, known)


def _info(run: Run, dev: DevRuns, name: str | None, seconds: float) -> RunInfo:
    """That of the run, where it has one, else of an ensemble of it alone."""
    info = run.info or RunInfo(
        system="ensemble", name="", steps="dynamic", corpus="", queries="", data="",
        split=None, score_mode="", members=(run.name,),
    )  # fmt: skip
    return replace(
        info,
        name=name or f"{run.name}, cut",
        steps="dynamic",
        score_mode=f"{run.score_mode or 'unknown'}, cut",
        seconds=info.seconds + seconds,
        options={**info.options, "cut": run.path, "tune": dev.runs[0].path},
        files={},
    )
