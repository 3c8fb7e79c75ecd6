"""What commands that make runs of runs have in common: their development runs, and what they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from grls.commands.output import Outcome, write_outputs
from grls.data.dataset import gold_passages, read_queries, read_split
from grls.data.types import Query
from grls.errors import ConfigError, MismatchError
from grls.io.files import refuse_unwritable
from grls.runs.comparable import LoadedRun, QuerySet, complete_runs, find_asked, load_runs, some_ids
from grls.runs.manifest import RunInfo, fingerprint_queries, info_file, write_info
from grls.runs.results import Results
from grls.runs.trec import refuse_unknown, write_run


class Dev(NamedTuple):
    """Development queries to tune on.

    Attributes:
        results: Of every member, for the same queries.
        gold: Query id -> gold passages.
        split: Where the queries are from.
    """

    results: list[Results]
    gold: dict[str, list[str]]
    split: str


def load_dev(
    paths: list[str], members: Sequence[LoadedRun], asked: QuerySet | None, split: str | None
) -> Dev:
    """Runs for development queries, with their gold.

    Args:
        paths: One for each of ``members``, in their order.
        members: What they tune.
        asked: What the members answer; None where nothing says.
        split: Which queries the runs to tune on answer; None: as their manifests say, or else dev.

    Raises:
        ConfigError: There is no gold, the runs are not as many, or answer no split.
        MismatchError: A run is of another system than its member.
    """
    if asked is None:
        raise ConfigError("runs to tune on need the gold passages of a data set: give --data DIR, too.")
    if len(paths) != len(members):
        raise ConfigError(
            f"{len(paths)} runs to tune on for {len(members)} members; give one for each, in order."
        )
    runs = load_runs(paths)
    for run, dev in zip(members, runs, strict=True):
        _refuse_other_system(run, dev)
    told = any(run.info is not None for run in runs)
    dev_asked = find_asked(runs, asked.data, split if split is not None or told else "dev")
    if dev_asked is None or dev_asked.split is None or dev_asked.queries is None:
        raise ConfigError("the runs to tune on answer all queries; take runs for one split, such as dev.")
    _, qrels = read_split(asked.data, dev_asked.split, asked.corpus)
    gold = {query.id: gold_passages(query, qrels) for query in dev_asked.queries}
    return Dev(complete_runs(runs, list(gold), "refuse"), gold, dev_asked.split)


def _refuse_other_system(run: LoadedRun, dev: LoadedRun) -> None:
    """Refuse runs for tuning that are not of the system whose weight they tune, where manifests tell."""
    if run.steps != dev.steps or (
        run.info is not None
        and dev.info is not None
        and (run.info.system, run.info.stages) != (dev.info.system, dev.info.stages)
    ):
        raise MismatchError(
            f"{dev.path} ({_described(dev)}) is to tune the weight of {run.path} ({_described(run)}); tune "
            "on runs of the same systems, in the same order."
        )


def _described(run: LoadedRun) -> str:
    return ", ".join([run.info.system, *run.info.stages, run.steps] if run.info is not None else [run.steps])


def refuse_shared_queries(dev: Dev, results: Results) -> None:
    """Refuse (ConfigError) to tune on queries that are reported."""
    shared = dev.gold.keys() & results.rankings.keys()
    if shared:
        raise ConfigError(
            f"{some_ids(shared)} ({len(shared)} in all) are queries of the runs to tune on and of what is "
            "given, too; tune on other queries than those reported."
        )


def refuse_own_output(output: str, runs: Sequence[str]) -> None:
    """Refuse (ConfigError) an output that would overwrite a run that is read, or that can be no name."""
    refuse_unwritable(output)
    for run in runs:
        if info_file(run).resolve() == Path(f"{output}.info.json").resolve():
            raise ConfigError(f"--output {output} would replace {run}, which is read; choose another name.")


def refuse_to_replace(output: str, runs: Sequence[str], asked: QuerySet | None) -> None:
    """Refuse an output that would overwrite an input, or leave JSONL of an earlier run beside the new run."""
    refuse_own_output(output, runs)
    if asked is None and Path(f"{output}.jsonl").exists():
        raise ConfigError(
            f"{output}.jsonl is there already, and without a data set there is no new one to replace it; "
            "remove it, choose another name, or give --data DIR."
        )


def asked_ids(asked: QuerySet | None) -> list[str] | None:
    """Ids of the queries that were asked, where that is known."""
    return None if asked is None or asked.queries is None else [query.id for query in asked.queries]


def write_fused(output: str, fused: Results, asked: QuerySet | None, info: RunInfo) -> None:
    """Write results and manifest; without a data set no texts, so a TREC run alone.

    Args:
        output: Path without ending.
        fused: The results.
        asked: What they answer; fingerprints, data and split of the manifest are taken from it.
        info: The rest of the manifest.
    """
    if asked is None:
        write_run(f"{output}.trec", fused.rankings)
        write_info(output, info, endings=[".trec"])
        print(f"{output}.trec: {len(fused.rankings):,} queries, score mode {info.score_mode}, no texts")
        return
    queries = asked.queries if asked.queries is not None else _find_queries(asked.data, fused)
    info = replace(
        info,
        corpus=asked.corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=asked.data,
        split=asked.split,
    )
    chains = [fused.chains[query.id] for query in queries] if fused.chains else None
    outcome = Outcome([fused.rankings[query.id] for query in queries], chains)
    write_outputs(output, queries, asked.corpus, outcome, info)


def _find_queries(data: str, fused: Results) -> list[Query]:
    """The queries that were answered, where only the runs say which."""
    every = read_queries(data)
    refuse_unknown(fused.rankings, [query.id for query in every], "query", f"{data}/queries.jsonl")
    return [query for query in every if query.id in fused.rankings]
