"""Ending rankings where F1 is expected to be highest, for ``grls fuse cut``.

Where is :mod:`grls.retrieve.fusion.cut`'s to say.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from time import perf_counter

from grls.commands.run_files import asked_ids, load_dev, refuse_shared_queries, refuse_to_replace, write_fused
from grls.errors import ConfigError, DataError
from grls.evaluation.metrics.set_f1 import set_f1
from grls.retrieve.fusion.cut import SetSize
from grls.runs.comparable import complete_runs, find_asked, load_runs
from grls.runs.manifest import RunInfo
from grls.runs.results import Results


def cut_run(
    run: str,
    tune: str,
    output: str,
    data: str | None,
    split: str | None,
    tune_split: str | None,
    name: str | None,
) -> None:
    """Cut a run; arguments as of :func:`grls.commands.fuse_cut.fuse_cut`."""
    (member,) = load_runs([run])
    if member.steps == "dynamic":
        raise ConfigError(f"{run} is dynamic: its chains end by themselves. Cut a single or fixed run.")
    asked = find_asked([member], data, split)
    refuse_to_replace(output, [run, tune], asked)
    dev = load_dev([tune], [member], asked, tune_split)
    (results,) = complete_runs([member], asked_ids(asked), "refuse")
    if not results.rankings:
        raise DataError("the run answers no query, so there is nothing to cut.", run)
    refuse_shared_queries(dev, results)
    start = perf_counter()
    gold = list(dev.gold.values())
    rankings = [dev.results[0].rankings[query] for query in dev.gold]
    sizes = SetSize.fit(rankings, gold)
    fitted = set_f1([{hit.id for hit in sizes.cut(hits).hits} for hits in rankings], gold)["f1"]
    chains = {query: sizes.cut(hits) for query, hits in results.rankings.items()}
    kept = {query: hits[: len(chains[query].hits)] for query, hits in results.rankings.items()}
    mean = statistics.mean(len(chain.hits) for chain in chains.values())
    print(f"{mean:.1f} passages a query; set F1 {100 * fitted:.1f} on {dev.split}, which it was fitted to")
    mode = results.score_mode or "unknown"
    info = RunInfo(
        system="ensemble", name=f"{member.name}, cut", steps="dynamic", corpus="", queries="", data="",
        split=None, score_mode=f"{mode}, cut", members=(member.name,),
    )  # fmt: skip
    if member.info is not None:
        info = replace(member.info, steps="dynamic", name=f"{member.name}, cut", score_mode=info.score_mode)
    info = replace(
        info,
        name=name or info.name,
        seconds=info.seconds + perf_counter() - start,
        options={**info.options, "cut": run, "tune": tune},
        files={},
    )
    write_fused(output, Results(kept, chains, info.score_mode), asked, info)
