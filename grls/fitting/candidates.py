"""The candidates of a run: their folders, what they rank for dev and test, and the best of them so far.

``members`` holds a folder for each candidate, ``runs/SPLIT`` what each of them ranks, and ``grls.json`` is a
link to the best one (docs/fit.md lists all files).

Dev queries come in portions, ``dev-1``, ``dev-2``, …, in an order that is drawn once. A slow candidate ranks
only the first of them, and candidates are compared on those that all have ranked.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from grls.data.dataset import Qrels, qrels_lines
from grls.data.inputs.splits import DEV
from grls.data.types import Hit, Query
from grls.errors import ConfigError
from grls.evaluation.measures import query_values
from grls.fitting.choose import Candidate, FitChoice, choose, choose_unmeasured, level, measured
from grls.fitting.models import Machine
from grls.fitting.options import AUTO, FitOptions
from grls.fitting.splits import LINKS, SplitData
from grls.io.files import atomic_file
from grls.io.seal import seal
from grls.retrieve.base import Retriever
from grls.retrieve.fusion.retriever import Fusion, fusion_spec
from grls.retrieve.fusion.runs import ensemble
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.registry import BM25, Opening, load_retriever, with_languages
from grls.retrieve.run import RetrieverRun
from grls.retrieve.spec import FORMAT, MANIFEST, Member, read_spec, write_link
from grls.runs.portions import fingerprint_queries, save_retrieved
from grls.runs.run import Run
from grls.tune.search import as_good, best_weights

PORTIONS = (30, 60, 120, 200)
"""Dev queries after each portion; a candidate has ranked the first portion at least."""

ORDER = "nDCG@10"
_TIMED = 8  # queries that tell the cost of hops that have found in tuning what they rank
_RANKED_BEFORE = 1e-5  # a query that took fewer seconds was read from a run that was killed
_FUSION = Fusion("sum")
_UNMEASURED = (0.3, 0.7)
"""Weights of BM25 and an encoder where no question tells (docs/start/no-questions.md)."""
_TRAINED = ("hybrid", "rescored", "dense", "dense-hops")  # what contains another stands before it


@dataclass(frozen=True)
class JudgedQueries:
    split: str
    queries: list[Query]
    qrels: Qrels


def values_of(
    golds: Sequence[JudgedQueries], measures: Sequence[str], rankings: Iterable[Sequence[Hit]]
) -> dict[str, list[float]]:
    """Measure of ir_measures -> its values of the queries of several splits, one after another."""
    qrels = {query.id: gold.qrels[query.id] for gold in golds for query in gold.queries}
    ids = [[hit.id for hit in hits] for hits in rankings]
    return query_values(measures, dict(zip(qrels, ids, strict=True)), qrels)


@dataclass
class System:
    """A candidate on disk.

    Attributes:
        folder: The name of its folder below ``members``.
        parts: The systems whose rankings are fused; none: it is no fusion.
        models: Base models that it searches with.
        portions: Portions of dev that it has ranked.
        cost: Seconds of a query, in batches and without loading.
        more: Further systems that it contains, and may not be worse than.
    """

    name: str
    folder: str
    parts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    portions: int = 0
    cost: float = 0.0
    weights: tuple[float, ...] = ()
    more: tuple[str, ...] = ()
    links: bool = False

    def __post_init__(self) -> None:
        for name in ("parts", "models", "weights", "more"):  # lists in JSON
            setattr(self, name, tuple(getattr(self, name)))


class FitCandidates:
    """All candidates of a run.

    Where dev queries are cut out of passages weights are fixed, and a rule chooses.
    """

    def __init__(self, data: SplitData, output: Path, options: FitOptions, machine: Machine):
        self.data, self.output, self.options = data, output, options
        self.precision = machine.precision if options.precision == AUTO else options.precision
        self.systems: dict[str, System] = {}
        self.place = str(output / "data")
        """The data set folder."""

    def folder(self, name: str) -> Path:
        return self.output / "members" / name

    def run_file(self, split: str, folder: str) -> Path:
        return self.output / "runs" / split / f"{folder}.jsonl"

    def gold(self, split: str) -> JudgedQueries:
        qrels = self.data.qrels[split]
        return JudgedQueries(split, [query for query in self.data.queries if query.id in qrels], qrels)

    def drawn(self, split: str, first: int, last: int, name: str) -> JudgedQueries:
        """A part of the queries of a split, in an order that is drawn once; it is written as a split."""
        order, whole = sorted(self.data.qrels[split]), self.gold(split)
        random.Random(self.options.seed).shuffle(order)
        chosen = set(order[first:last])
        qrels = {query: grades for query, grades in whole.qrels.items() if query in chosen}
        if not (file := Path(self.place) / "qrels" / f"{name}.tsv").is_file():
            with atomic_file(file) as stream:
                stream.writelines(qrels_lines(qrels))
        return JudgedQueries(name, [query for query in whole.queries if query.id in chosen], qrels)

    @cached_property
    def portions(self) -> list[JudgedQueries]:
        count = len(self.gold(DEV).queries)
        cuts = sorted({0, *(min(end, count) for end in PORTIONS)})
        if len(cuts) > 2 and cuts[-1] - cuts[-2] < PORTIONS[0] // 2:  # no portion of a few queries
            del cuts[-2]
        return [self.drawn(DEV, *ends, f"{DEV}-{n}") for n, ends in enumerate(pairwise(cuts), 1)]

    @cached_property
    def sizes(self) -> list[int]:
        return list(accumulate(len(gold.queries) for gold in self.portions))

    def run(self, split: str, folder: str) -> Run:
        return Run.load(self.run_file(split, folder))

    def rankings(self, name: str, golds: Sequence[JudgedQueries]) -> list[list[Hit]]:
        runs = [(gold, self.run(gold.split, self.systems[name].folder)) for gold in golds]
        return [run.rankings.get(query.id, []) for gold, run in runs for query in gold.queries]

    def rank(self, system: System, found: dict[Any, Any] | None = None) -> None:
        """Let a system rank the next portion of dev, and measure its cost; it is a candidate from then on.

        The hops that tuning has ``found`` are not searched again, once the cost is measured.
        """
        gold = self.portions[system.portions]
        if system.parts:
            self.rank_fusion(system, gold)
        else:
            retriever, timed = self.opened(system), gold.queries
            begun = perf_counter()
            if found is None or not isinstance(retriever, RankedHops):
                self.save_run(retriever, gold, system)
                seconds = perf_counter() - begun
            else:
                timed = timed[:_TIMED]
                retriever.retrieve(timed, self.options.depth)
                seconds = perf_counter() - begun
                retriever.hop_search.memory = found
                self.save_run(retriever, gold, system)
            if seconds / len(timed) > _RANKED_BEFORE:
                system.cost = seconds / len(timed)
        system.portions += 1
        self.systems[system.name] = system

    def opened(self, system: System) -> Retriever:
        return load_retriever(self.folder(system.folder), Opening(self.options.device, self.precision))

    def save_run(self, retriever: Retriever, gold: JudgedQueries, system: System) -> None:
        RetrieverRun(
            retriever, gold.queries, self.place, gold.split, self.options.depth,
            self.precision, own=self.data.own & gold.qrels.keys(),
        ).save(str(self.run_file(gold.split, system.folder).with_suffix("")), system.name)  # fmt: skip

    def means(self, golds: Sequence[JudgedQueries], rankings: Iterable[Sequence[Hit]]) -> tuple[float, float]:
        values = values_of(golds, (self.options.decides, ORDER), rankings)
        return fmean(values[self.options.decides]), fmean(values[ORDER])

    def candidate(self, system: System) -> Candidate:
        golds, decides = self.portions[: system.portions], self.options.decides
        values = values_of(golds, (decides, ORDER), self.rankings(system.name, golds))
        members = (*system.parts, *system.more)
        return Candidate(system.name, values[decides], values[ORDER], system.cost, members)

    def compared(self, *names: str) -> list[Candidate]:
        return level([self.candidate(self.systems[name]) for name in names])

    def best(self, names: Sequence[str]) -> str:
        return max(self.compared(*names), key=lambda candidate: (candidate.value, candidate.order)).name

    def choose(self) -> FitChoice:
        candidates = [self.candidate(system) for system in self.systems.values()]
        if self.data.unlabelled:
            return choose_unmeasured(candidates, self.options.decides, _TRAINED, self._masked)
        return choose(candidates, self.options.decides, self.options.prefer)

    def _masked(self, candidate: Candidate) -> bool:
        """Whether the trained member of a candidate loses no masked names that what it began with finds."""
        if LINKS not in self.data.qrels:
            return True
        taught = next(name for name in _TRAINED if name in (candidate.name, *candidate.members))
        name = taught.removesuffix("-hops")  # masked names are found in a single step
        both = name, "base" if name != "hybrid" and "base" in self.systems else BM25
        if not all(self.run_file(LINKS, name).is_file() for name in both):
            return False  # its time was up
        gold, decides = [self.gold(LINKS)], self.options.decides
        after, before = (values_of(gold, [decides], self.rankings(name, gold))[decides] for name in both)
        return as_good(after, before, 2.0)

    def link(self, name: str) -> None:
        write_link(self.output, self.folder(self.systems[name].folder))

    def is_there(self, system: System) -> bool:
        runs = [self.run_file(gold.split, system.folder) for gold in self.portions[: system.portions]]
        return all(file.is_file() for file in (self.folder(system.folder) / "grls.json", *runs))

    def system(self, name: str) -> System:
        """The system that the user names (ConfigError where there is none)."""
        if name not in self.systems:
            there = f"there are {', '.join(self.systems)}" if self.systems else "none is made yet"
            raise ConfigError(f"keep: there is no candidate {name!r}; {there}.")
        return self.systems[name]

    def keep(self, name: str, best: FitChoice) -> FitChoice:
        system = self.system(name)
        chosen, _ = level([self.candidate(system), best.chosen])
        why = f"as was asked: {measured(chosen, self.options.decides, self.data.dev_kind)}"
        return FitChoice(chosen, best.best, why)

    def rank_dev(self) -> JudgedQueries:
        """Save, as one run, what each system ranks for the dev queries that all have ranked; return these
        queries.
        """
        count = min(system.portions for system in self.systems.values())
        size = self.sizes[count - 1]
        gold = self.drawn(DEV, 0, size, f"{DEV}-first-{size}")
        ids = [query.id for portion in self.portions[:count] for query in portion.queries]
        for name, system in self.systems.items():
            info = self.run(self.portions[0].split, system.folder).info
            assert info is not None
            hits = dict(zip(ids, self.rankings(name, self.portions[:count]), strict=True))
            self._save(Run.of(hits, info=replace(info, name=name, seconds=system.cost * size)), gold, system)
        return gold

    def _save(self, run: Run, gold: JudgedQueries, system: System) -> None:
        assert run.info is not None
        info = replace(
            run.info,
            corpus=self.data.corpus.fingerprint,
            queries=fingerprint_queries(gold.queries),
            data=self.place,
            split=gold.split,
            limit=None,
        )
        results = list(run.retrieved(query.id for query in gold.queries))
        output = self.run_file(gold.split, system.folder).with_suffix("")
        save_retrieved(str(output), gold.queries, self.data.corpus, results, info)

    def fuse(self, names: Sequence[str]) -> list[System]:
        """Fuse every two of some systems, and all of them.

        Weights are the best ones on the saved rankings of what all have ranked; on cut sentences BM25 and
        an encoder have fixed ones. A fusion in which a member has the weight 0 is left out.
        """
        fused = []
        for parts in (*combinations(names, 2), *([tuple(names)] if len(names) > 2 else [])):
            systems = [self.systems[name] for name in parts]
            golds = self.portions[: min(system.portions for system in systems)]
            members = [self.rankings(name, golds) for name in parts]

            def quality(fusion: Fusion, members: Any = members, golds: Any = golds) -> tuple[float, float]:
                return self.means(
                    golds, [fusion.fuse(hits, self.options.depth) for hits in zip(*members, strict=True)]
                )

            weights: tuple[float, ...] = _UNMEASURED
            if not self.data.unlabelled:
                weights, _ = best_weights(_FUSION, len(parts), quality)
            if not all(weights):
                continue
            models = tuple(dict.fromkeys(model for system in systems for model in system.models))
            place = "-".join(("fusion", *(part.folder for part in systems)))
            links = any(system.links for system in systems)
            system = System(" + ".join(parts), place, parts, models, weights=weights, links=links)
            self.write(place, self._fused(system))
            for _ in golds:
                self.rank(system)
            fused.append(system)
        return fused

    def rank_fusion(self, system: System, gold: JudgedQueries) -> None:
        """Fuse what the members rank for a split, and save the run; the cost is that of all members."""
        folders = [self.systems[part].folder for part in system.parts]
        system.cost = sum(self.systems[part].cost for part in system.parts)
        runs = [self.run(gold.split, folder) for folder in folders]
        files = {"runs": [f"{folder}.jsonl" for folder in folders]}
        fusion = replace(_FUSION, weights=system.weights)
        fused = ensemble(runs, fusion, files, self.options.depth, name=system.name)
        self._save(fused, gold, system)

    def named(self, name: str) -> Member:
        """A system as a member of another; BM25 is over the corpus of that one."""
        system = self.systems[name]
        if system.parts:
            return self._fused(system)  # no folder: in a later call it may have other weights
        if name != BM25:
            return f"../{system.folder}"
        return {"kind": BM25, "analyzer": read_spec(self.folder(name)).get("analyzer", {})}

    def _fused(self, system: System) -> dict[str, Any]:
        fusion = replace(_FUSION, weights=system.weights)
        return fusion_spec([*map(self.named, system.parts)], fusion, self.options.depth)

    def write(self, folder: str, spec: dict[str, Any]) -> None:
        """Write a composite, whose folder holds its specification alone."""
        place = self.folder(folder)
        place.mkdir(parents=True, exist_ok=True)
        complete = with_languages({"format": FORMAT, **spec}, place, self.data.corpus)
        seal(place / MANIFEST, complete)
