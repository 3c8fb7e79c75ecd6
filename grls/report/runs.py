"""Reads the runs of a report with their manifests, groups them by data set, and scores them.

A group is one data set and one split. Runs over different corpora or queries are refused, never cut to
their common queries. A run without a manifest needs the option that names the data set; its ids and query
texts are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from grls.data.dataset import read_queries
from grls.data.types import Chain, Steps
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.evaluation.evaluate import Judged, judged_runs, score_run
from grls.evaluation.measures import MEASURES, RunDepth, query_values, shared_depth
from grls.evaluation.metrics import KS, set_f1
from grls.io.jsonl import read_jsonl
from grls.runs.comparable import refuse_repeated
from grls.runs.portions import RunInfo
from grls.runs.run import Run, shared_limit

SYSTEMS = {"biencoder": "bi-encoder", "generator": "generator", "bm25": "BM25", "hybrid": "hybrid"}
"""Kind of retriever -> name on the page, in its order; others have their own names, and come last."""

STEPS: tuple[str, ...] = get_args(Steps)


@dataclass(frozen=True)
class ScoredRun:
    """A run with its name on the page and its scores.

    Attributes:
        report: Section -> metric -> value, of :func:`grls.evaluation.evaluate.score_run`; None for a metric
            that reads deeper than the run.
        chains: Ids of each judged query's hops in order, without DONE; None if it is not known or not one
            chain.
    """

    judged: Judged
    label: str
    report: dict[str, Any]
    chains: list[list[str]] | None

    @property
    def run(self) -> Run:
        return self.judged.run

    @property
    def depth(self) -> RunDepth:
        return self.judged.depth

    @property
    def retrieved(self) -> list[list[str]]:
        """Ids of each judged query's hits, best first; empty for a query without an answer."""
        return [*self.judged.ids.values()]

    @property
    def file(self) -> Path:
        return Path(self.run.path)

    @property
    def info(self) -> RunInfo | None:
        return self.run.info

    @property
    def steps(self) -> Steps | None:
        """The steps in the manifest; without one dynamic if there are chains, else unknown."""
        if self.info is not None:
            return self.info.steps
        return "dynamic" if self.run.chains else None

    @property
    def system(self) -> str:
        return "" if self.info is None else self.info.system


def rank_of(value: str | None, known: Sequence[str]) -> int:
    return known.index(value) if value in known else len(known)


@dataclass(frozen=True)
class DataGroup:
    """The scored runs of one data set and split.

    Attributes:
        split: The split of the qrels, and how many first queries of it.
        runs: The runs, by system and steps, else in the order of the command.
    """

    name: str
    split: str
    runs: list[ScoredRun]

    @property
    def gold(self) -> list[list[str]]:
        """The gold passages of each judged query; every list of values follows this order."""
        return [*self.runs[0].judged.gold.values()]

    def values(self, run: ScoredRun, measure: str) -> list[float] | None:
        """A measure of each query; None if its cut-off is deeper than the run.

        Without a cut-off it reads to the depth that all runs have.
        """
        if not run.depth.tells(measure):
            return None
        shared = shared_depth([other.depth for other in self.runs if other.depth.tells(measure)])
        ranked = {query: ids[:shared] for query, ids in run.judged.ids.items()}
        return query_values([measure], ranked, run.judged.qrels)[measure]

    def set_f1s(self, run: ScoredRun) -> list[float] | None:
        if run.chains is None:
            return None
        return [set_f1(ids, gold)["f1"] for ids, gold in zip(run.chains, self.gold, strict=True)]


def refuse_untold(groups: Sequence[DataGroup], metrics: Sequence[str]) -> None:
    """Refuse metrics, named by the user, that no run is deep enough for."""
    depths = [run.depth for group in groups for run in group.runs]
    untold = [metric for metric in metrics if not any(depth.tells(metric) for depth in depths)]
    max(depths, key=lambda depth: depth.ranks or 0).refuse(untold)


def load_groups(
    files: Sequence[str],
    data: str | None = None,
    split: str | None = None,
    labels: Mapping[str, str] | None = None,
    ks: Sequence[int] = KS,
    measures: Sequence[str] = MEASURES,
) -> list[DataGroup]:
    """Read and score JSONL or TREC runs, one group a data set, in the order of the first run of each.

    ``data`` is the folder of runs whose manifest is missing or names a missing one. ``split``: None takes
    the manifests', or ``test``. ``labels``: file -> the name on the page. ``ks``: cut-offs of the recalls.
    """
    refuse_repeated(files)
    by_name: dict[str, list[tuple[Run, Path]]] = {}
    for path in files:
        run = Run.load(path)
        info = run.info
        if info is not None and info.data and Path(info.data).is_dir():
            folder = Path(info.data)
        elif data is not None:
            folder = Path(data)
        else:
            why = "it has no manifest"
            if info is not None:
                why = f"its manifest names {info.data!r}, which is no folder here"
            raise ConfigError(
                f"{run.path}: which data set is this run of? {why}; give {Option('data', 'FOLDER')}."
            )
        by_name.setdefault(folder.resolve().name, []).append((run, folder))
    return [_group(name, placed, split, labels or {}, ks, measures) for name, placed in by_name.items()]


def _group(
    name: str,
    placed: Sequence[tuple[Run, Path]],
    split: str | None,
    labels: Mapping[str, str],
    ks: Sequence[int],
    measures: Sequence[str],
) -> DataGroup:
    runs = [run for run, _ in placed]
    folder = placed[0][1]
    for run, elsewhere in placed:
        if run.info is None and elsewhere.resolve() != folder.resolve():
            raise MismatchError(
                f"{run.path} is scored on {elsewhere}, {placed[0][0].path} on {folder}: two data sets of one "
                "name. Report on them apart, or rename one."
            )
    judged = judged_runs(runs, folder, split)
    limit = shared_limit(runs)
    foreign = [run for run in runs if run.info is None and Path(run.path).suffix == ".jsonl"]
    texts = {query.id: query.text for query in read_queries(folder)} if foreign else {}
    for run in foreign:
        for line, record in read_jsonl(Path(run.path)):  # a data set that is generated again reuses its ids
            query_id = record["query_id"]
            text = record.get("text", texts[query_id])
            if text != texts[query_id]:
                raise DataError(
                    f"query {query_id!r} is {text!r} here and {texts[query_id]!r} in {folder}; the run is of "
                    "other data, retrieve again.",
                    run.path,
                    line,
                )
    # The file is added to equal names.
    names = [labels.get(run.path, run.name) for run in runs]
    counts = Counter(names)
    paths = [Path(run.path) for run in runs]
    shown = [n if counts[n] == 1 else f"{n} ({path.stem})" for n, path in zip(names, paths, strict=True)]
    if len(set(shown)) < len(shown):
        shown = [n if counts[n] == 1 else f"{n} ({path})" for n, path in zip(names, paths, strict=True)]
    scored = []
    for each, label in zip(judged, shown, strict=True):
        # Fixed hops are written as a ranking in hop order, and so is a dynamic run in TREC form. As chains
        # they have a set F1 and a proof, but they do not say whether the model wrote DONE.
        run, hops = each.run, each
        if not run.chains and not run.is_ranking:
            chains = {query: Chain(tuple(hits), 0.0, False) for query, hits in run.rankings.items()}
            hops = replace(each, run=replace(run, chains=chains))
        report = score_run(hops, ks, measures, ordered=run.in_hop_order)
        if hops is not each:
            report.pop("done_missing", None)
        walks = [*hops.chains.values()] if hops.chains else None
        scored.append(ScoredRun(each, label, report, walks))
    scored.sort(key=lambda run: (rank_of(run.system, [*SYSTEMS]), rank_of(run.steps, STEPS)))
    one = judged[0]
    part = one.split if limit is None else f"{one.split}, the first {limit:,}"
    return DataGroup(name, part, scored)
