"""Hybrid decoding against fusion of rankings: recall and cost.

    python -m benchmarks.hybrid data/NAME runs/NAME/generator-retriever runs/NAME/biencoder-retriever

The systems, all in the same process: generator, bi-encoder and BM25 alone; the rankings of generator and
bi-encoder fused (`sum`); and one pass of the generator with the bi-encoder, BM25, or both as priors. All
weights are tuned on the same dev queries, from a grid for each prior; fusion has a grid of eleven weights.
Times cover the whole system, including the embedding of queries. The systems take turns, so that a busy
machine slows all of them. Ratios compare processor time with the generator alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import machine, print_table, seconds
from grls.data.dataset import gold_passages, read_split
from grls.data.types import Hit, Query
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics import means, sequence_recall
from grls.retrieve.base import ScoresAll
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.retriever import Fusion
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import Remembering, WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.registry import Opening, open_kind
from grls.tune.options import USUAL_GRID
from grls.tune.priors import Pool, Setting, prior_choices, tune_together
from grls.tune.search import best, weight_grid
from grls.tune.step import Quality

KS = (1, 5, 10, 20)

Rankings = list[list[Hit]]
System = Callable[[Sequence[Query]], Rankings]


class Asked(NamedTuple):
    """Queries and their gold passages."""

    queries: list[Query]
    gold: list[list[str]]

    @classmethod
    def of(cls, data: str, split: str, limit: int | None) -> Asked:
        """The first queries of a split."""
        queries, qrels = read_split(data, split)
        return cls(queries[:limit], [gold_passages(query, qrels) for query in queries[:limit]])

    def recall(self, rankings: Rankings, ks: Sequence[int] = KS) -> list[float]:
        """Sequence recall at each cut-off, in percent."""
        measured = means(
            sequence_recall, [[hit.id for hit in hits] for hits in rankings], self.gold, ks=list(ks)
        )
        return [100 * measured[f"recall@{k}"] for k in ks]


class Bench:
    """The retrievers of one comparison; tuning maximises recall at ``k`` on the dev queries."""

    def __init__(
        self,
        generator: GenerativeRetriever,
        dense: DenseRetriever,
        dev: Asked,
        tried: Sequence[float],
        depth: int,
        k: int,
    ):
        self.generator, self.dense = generator, dense
        self.bm25 = BM25Retriever(generator.corpus)
        self.dev, self.tried, self.depth, self.k = dev, tried, depth, k

    def systems(self) -> dict[str, System]:
        """All systems by name, with tuned weights."""
        dense, words = self.dense, self.bm25
        systems: dict[str, System] = {
            "generator": lambda queries: self.generator.retrieve(queries, self.depth),
            "bi-encoder": lambda queries: self.dense.retrieve(queries, self.depth),
            "BM25": lambda queries: self.bm25.retrieve(queries, self.depth),
        }
        fused = self.fused()
        name = f"generator + bi-encoder, fused after the fact{_weights(fused.weights)}"
        systems[name] = self._fusion(fused)
        for name, sources in (
            ("bi-encoder ahead", (dense,)),
            ("BM25 ahead", (words,)),
            ("bi-encoder and BM25 ahead", (dense, words)),
        ):
            best = self.hybrid(sources)
            weights = _weights([prior.weight for prior in best])
            systems[f"generator, {name}{weights}"] = self._hybrid(best)
        return systems

    def fused(self) -> Fusion:
        """Fusion of generator and bi-encoder with the weights that are best on dev."""
        members = (self.generator, self.dense)
        lists = [member.retrieve(self.dev.queries, self.depth) for member in members]

        def recall(weights: tuple[float, ...]) -> float:
            return self.dev.recall(_fuse(Fusion("sum", weights), lists, self.depth), [self.k])[0]

        return Fusion("sum", best(recall, weight_grid(2))[0][0])

    def hybrid(self, sources: Sequence[ScoresAll]) -> list[WeightedSource]:
        """Priors with the weights that are best on dev."""
        weighted = [WeightedSource(Remembering(source), 0.0, source.temperature) for source in sources]
        choices = prior_choices(weighted, self.tried)
        pool = Pool(self.generator, *self.dev, self.k, choices)

        def recall(setting: Setting) -> Quality:
            found = HybridRetriever(self.generator, setting).candidates(self.dev.queries, self.depth)
            pool.add(setting, found)
            ranked = [self.generator.hits(candidates[: self.depth]) for candidates in found]
            ids = [[hit.id for hit in hits[: self.k]] for hits in ranked]
            return Quality(self.dev.recall(ranked, [self.k])[0], ndcg(ids, self.dev.gold))

        best = tune_together(choices, recall, pool).priors
        return [prior._replace(source=source) for prior, source in zip(best, sources, strict=True)]

    def _hybrid(self, priors: list[WeightedSource]) -> System:
        return lambda queries: HybridRetriever(self.generator, priors).retrieve(queries, self.depth)

    def _fusion(self, fusion: Fusion) -> System:
        members = self.generator, self.dense

        def fused(queries: Sequence[Query]) -> Rankings:
            lists = [member.retrieve(queries, self.depth) for member in members]
            return _fuse(fusion, lists, self.depth)

        return fused


def _fuse(fusion: Fusion, lists: Sequence[Rankings], depth: int) -> Rankings:
    return [fusion.fuse(rankings, depth) for rankings in zip(*lists, strict=True)]


def _weights(weights: Sequence[float] | None) -> str:
    return f" ({', '.join(f'{weight:g}' for weight in weights or ())})"


def measure(systems: dict[str, System], test: Asked, repeats: int) -> list[list[str]]:
    """A row a system: recall, milliseconds a query (wall clock, processor), times the first system."""
    wall: dict[str, list[float]] = {name: [] for name in systems}
    busy: dict[str, list[float]] = {name: [] for name in systems}
    found: dict[str, Rankings] = {}
    for system in systems.values():
        system(test.queries[:8])
    for _ in range(repeats):
        for name, system in systems.items():
            before = time.process_time()
            spent, found[name] = seconds(partial(system, test.queries))
            wall[name].append(spent)
            busy[name].append(time.process_time() - before)
    count = len(test.queries)
    first = float(np.median(busy[next(iter(systems))]))
    rows = []
    for name in systems:
        clock, processor = float(np.median(wall[name])), float(np.median(busy[name]))
        recalls = [f"{value:.1f}" for value in test.recall(found[name])]
        times = [f"{1000 * clock / count:.1f}", f"{1000 * processor / count:.1f}", f"{processor / first:.2f}"]
        rows.append([name, *recalls, *times])
    return rows


def main(
    data: str,
    retriever: str,
    dense: str,
    split: str = "test",
    tune_split: str = "dev",
    limit: int | None = None,
    weights: tuple[float, ...] = USUAL_GRID.prior_weights,
    beams: int = 20,
    k: int = 5,
    repeats: int = 3,
    device: str = "auto",
) -> None:
    """Measure and print a table.

    Args:
        data: Data set folder.
        retriever: Folder of the generator.
        dense: Folder of the bi-encoder.
        split: Split to report.
        tune_split: Split for tuning all weights.
        limit: Number of first queries of each split; null: all.
        weights: Weights to try for each prior.
        beams: Beam width.
        k: Cut-off of the recall that tuning maximises.
        repeats: Repeats of each system; the median counts.
        device: cpu, cuda, cuda:1, …; auto takes a GPU if there is one.
    """
    print(machine())
    generator = GenerativeRetriever.from_pretrained(retriever, device, options=SearchOptions(beams))
    biencoder = open_kind(DenseRetriever, dense, Opening(device))
    bench = Bench(generator, biencoder, Asked.of(data, tune_split, limit), weights, max(KS), k)
    test = Asked.of(data, split, limit)
    rows = measure(bench.systems(), test, repeats)
    print_table(
        f"{data}, {len(test.queries)} queries of {split}, beam {beams}; weights tuned on {tune_split}; "
        "recall in percent, time in milliseconds a query",
        ["system (weights)", *(f"R@{k}" for k in KS), "wall clock", "processor", "times the generator"],
        rows,
    )


if __name__ == "__main__":
    auto_cli(main)
