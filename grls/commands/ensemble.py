"""``grls ensemble``: fuse runs that were retrieved already.

The paper's ensembles (arXiv 2204.13596) interleave; the weights of the other methods can be tuned on runs for
development queries. How to fuse is :mod:`grls.retrieve.fusion`'s affair, and whether runs belong together
:mod:`grls.evaluation.comparable`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

from grls.commands.output import Outcome, write_outputs
from grls.dataset import gold_passages, read_queries, read_split
from grls.errors import ConfigError, MismatchError
from grls.evaluation.comparable import (
    Asked,
    LoadedRun,
    Missing,
    complete_runs,
    examples,
    find_asked,
    load_runs,
)
from grls.evaluation.manifest import RunInfo, Steps, fingerprint_queries, info_file, write_info
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.evaluation.results import Results
from grls.evaluation.run import refuse_unknown, write_run
from grls.retrieve.ensemble import Length, chain_length, fuse_chains
from grls.retrieve.fusion import Fusion, Method, Normalization, fuse_rankings, tune_weights
from grls.types import Query


def ensemble(
    runs: list[str],
    output: str,
    method: Method = "interleave",
    normalization: Normalization = "min-max",
    weights: list[float] | None = None,
    rrf_k: float = 60,
    k: int | None = None,
    length: Literal["mean", "min", "max"] | int = "mean",
    data: str | None = None,
    split: str | None = None,
    missing: Missing = "refuse",
    tune: list[str] | None = None,
    tune_split: str | None = None,
    tune_k: int = 10,
    name: str | None = None,
) -> None:
    """Fuse runs into one: `grls ensemble RUN RUN ... --output OUT`.

    Writes OUTPUT.trec, OUTPUT.jsonl (with evidence text) and OUTPUT.info.json. Without a data set (no --data,
    and no manifest beside the runs) OUTPUT.jsonl is left out. Dynamic runs (JSONL with chains) give dynamic
    chains, and are fused with one another alone.

    Args:
        runs: Runs over one corpus for the same queries: JSONL of `grls retrieve`, or TREC runs.
        output: Path of the results without ending.
        method: interleave: one passage of each run in turn, duplicates dropped (the paper's); rrf: reciprocal
            rank fusion; sum: weighted sum of calibrated scores.
        normalization: How scores are calibrated (sum).
        weights: One a run, in their order (rrf, sum); null weighs all alike.
        rrf_k: What rrf adds to every rank.
        k: Passages a query; null keeps as many as the longest list among the runs holds.
        length: Of a fused dynamic chain: mean, min or max of the members' lengths, or the number of a run
            (from 0) that sets it.
        data: Data set folder; null takes it from the manifests.
        split: Which queries the runs answer; null takes it from the manifests. Queries that a run lacks count
            as answered with nothing, and are said.
        missing: Where nothing says which queries were asked and the runs do not answer the same: refuse, or
            take what a run lacks as empty.
        tune: Runs of the same systems, in the same order, for development queries: the weights (rrf, sum)
            with the best recall there are used. Steps of 0.1 that sum to one; of equally good ones the most
            even.
        tune_split: Which queries the runs of --tune answer; null takes it from their manifests, or else dev.
        tune_k: Cut-off of that recall.
        name: What reports call this run; null makes one from the method and the members.
    """
    if tune is not None:
        _refuse_untunable(method, weights)
    fusion = Fusion(method, normalization, None if weights is None else tuple(weights), rrf_k)
    members = load_runs(runs)
    steps = shared_steps(members)
    chain_length([0] * len(members), length)
    asked = find_asked(members, data, split)
    _refuse_to_replace(output, [*runs, *(tune or [])], asked)
    results = complete_runs(members, _ids(asked), missing)
    how = Fusing(steps, k, length)
    options: dict[str, object] = {"runs": runs, "method": method, "k": k, "rrf_k": rrf_k}
    options |= {"normalization": normalization, "length": length}
    if tune is not None:
        dev = _load_dev(tune, members, asked, tune_split)
        _refuse_shared_queries(dev, results[0])
        fusion, recall = _tune(fusion, dev, how, tune_k)
        options |= {"tune": tune, f"tuned_recall@{tune_k}": recall}
        print(f"weights {_shown(fusion.weights)}: recall@{tune_k} {100 * recall:.1f} on {dev.split}")
    start = perf_counter()
    fused = how.fuse(results, fusion)
    infos = [run.info for run in members if run.info is not None]
    info = RunInfo(
        system="ensemble",
        name=name or f"{method} of {' + '.join(run.name for run in members)}",
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
    _write(output, fused, asked, info)


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
                query: fuse_chains([member.chains[query] for member in members], fusion, self.length)
                for query in members[0].chains
            }
            return Results({query: list(c.hits) for query, c in chains.items()}, chains, fusion.score_mode)
        longest = max((len(hits) for member in members for hits in member.rankings.values()), default=0)
        k = self.k if self.k is not None else longest or None
        rankings = fuse_rankings([member.rankings for member in members], fusion, k)
        return Results(rankings, {}, fusion.score_mode)


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
            "itself cannot be fused with a ranking. Retrieve both with the same --steps."
        )
    for run in dynamic:
        if not run.results.chains and run.results.rankings:
            raise ConfigError(f"{run.path} is dynamic, and its chains stand in JSONL alone; give that file.")
    if dynamic:
        return "dynamic"
    return "fixed" if all(run.steps == "fixed" for run in runs) else "single"


def _refuse_untunable(method: Method, weights: list[float] | None) -> None:
    if method == "interleave":
        raise ConfigError(
            "--tune finds weights, and --method interleave takes none; choose --method rrf or sum, or leave "
            "--tune out."
        )
    if weights is not None:
        raise ConfigError("give either --weights or --tune.")


def _load_dev(paths: list[str], members: Sequence[LoadedRun], asked: Asked | None, split: str | None) -> Dev:
    """The runs of ``--tune`` with their gold."""
    if asked is None:
        raise ConfigError("--tune needs the gold passages of a data set: give --data DIR, too.")
    if len(paths) != len(members):
        raise ConfigError(f"--tune names {len(paths)} runs for {len(members)}; give one for each, in order.")
    runs = load_runs(paths)
    for run, dev in zip(members, runs, strict=True):
        _refuse_other_system(run, dev)
    told = any(run.info is not None for run in runs)
    dev_asked = find_asked(runs, asked.data, split if split is not None or told else "dev")
    if dev_asked is None or dev_asked.split is None or dev_asked.queries is None:
        raise ConfigError("the runs of --tune answer all queries; tune on runs for one split, such as dev.")
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
            f"{dev.path} ({_described(dev)}) is to tune the weight of {run.path} ({_described(run)}); give "
            "--tune the runs of the same systems in the same order."
        )


def _described(run: LoadedRun) -> str:
    return ", ".join([run.info.system, *run.info.stages, run.steps] if run.info is not None else [run.steps])


def _refuse_shared_queries(dev: Dev, results: Results) -> None:
    shared = dev.gold.keys() & results.rankings.keys()
    if shared:
        raise ConfigError(
            f"{examples(shared)} ({len(shared)} in all) are queries of --tune and of what is fused; "
            "tune on other queries than those reported."
        )


def _tune(fusion: Fusion, dev: Dev, how: Fusing, k: int) -> tuple[Fusion, float]:
    """The fusion with the weights that are best on dev, and its recall there."""

    def recall(tried: Fusion) -> float:
        fused = how.fuse(dev.results, tried).rankings
        ids = [[hit.id for hit in fused[query]] for query in dev.gold]
        return sequence_recall(ids, list(dev.gold.values()), [k])[f"recall@{k}"]

    return tune_weights(len(dev.results), fusion, recall)


def _refuse_to_replace(output: str, runs: Sequence[str], asked: Asked | None) -> None:
    """Refuse an output that would overwrite an input, or leave JSONL of an earlier run beside the new run."""
    for run in runs:
        if info_file(run).resolve() == Path(f"{output}.info.json").resolve():
            raise ConfigError(f"--output {output} would replace {run}, which is read; choose another name.")
    if asked is None and Path(f"{output}.jsonl").exists():
        raise ConfigError(
            f"{output}.jsonl is there already, and without a data set there is no new one to replace it; "
            "remove it, choose another name, or give --data DIR."
        )


def _ids(asked: Asked | None) -> list[str] | None:
    return None if asked is None or asked.queries is None else [query.id for query in asked.queries]


def _write(output: str, fused: Results, asked: Asked | None, info: RunInfo) -> None:
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


def _shown(weights: Sequence[float] | None) -> str:
    return " ".join(f"{weight:g}" for weight in weights or ())
