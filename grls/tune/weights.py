"""Tuning the weights of rescoring, of a cross-encoder and of a fusion's members; weights of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from grls.data.types import Hit
from grls.decode.beam import ScoredPassage
from grls.errors import ConfigError, Option
from grls.evaluation.measures import RunDepth, ndcg
from grls.evaluation.metrics import means, sequence_recall
from grls.io.files import is_temporary
from grls.io.progress import Progress, counted
from grls.retrieve.base import ChainToContinue, DecodesHops
from grls.retrieve.fusion.retriever import FUSED, Fusion
from grls.retrieve.fusion.runs import fused_run
from grls.retrieve.generative.retriever import GenerativeRetriever, generator_within, rescored
from grls.retrieve.queries import evidence_numbers
from grls.retrieve.rescored.options import Rereading
from grls.retrieve.rescored.retriever import rank_again
from grls.retrieve.spec import MANIFEST, from_fields
from grls.runs.comparable import DevRuns
from grls.tune.search import best, best_weights
from grls.tune.step import DevQueries, Quality, Step, TuneChoice, Tuning


def _pairs_of(hits: Sequence[Hit]) -> list[list[Any]]:
    return [[hit.id, float(hit.score)] for hit in hits]


def _hits_of(pairs: Sequence[Sequence[Any]]) -> list[Hit]:
    return [Hit(name, score) for name, score in pairs]


def can_rescore(tuning: Tuning) -> bool:
    generator = generator_within(tuning.open(rescore=0))
    return generator is not None and generator.rescore_input is not None


def tune_rescoring(tuning: Tuning) -> TuneChoice:
    """One search serves all weights."""
    count = tuning.grid.rescore_passages
    opened = tuning.open(rescore=0)
    generator = generator_within(opened)
    assert generator is not None  # as can_rescore has found
    assert isinstance(opened, DecodesHops)
    if generator.spans is None and generator.options.beams < count:  # as wide as it becomes in any case
        generator.options = replace(generator.options, beams=count)
    corpus = generator.corpus
    dev, k, name = tuning.inputs(lambda: corpus)
    setting = {"step": "rescoring", "passages": count, "priors": tuning.spec.get("priors"), "k": k}
    setting |= {"hops": len(dev.queries)} if dev.hops else {}
    stored = tuning.journal.measured(setting, lambda: _read(opened, generator, dev, count, max(count, k)))

    @cache
    def quality(weight: float) -> Quality:
        ranked = [
            rescored([ScoredPassage(*pair) for pair in pairs], np.array(odds, np.float64), weight)
            for pairs, odds in stored
        ]
        found = dev.quality([[hit.id for hit in generator.hits(hits[:k])] for hits in ranked], k)
        print(f"  recall@{k} {100 * found.recall:5.1f}  rescore_weight {weight:g}", flush=True)
        return found

    (weight,), after = best(quality, [0.0, *sorted(tuning.grid.rescore_weights)])
    search_options = dict(tuning.spec.get("search", {}))
    search_options |= {"rescore": count if weight else 0, "rescore_weight": weight or 1.0}
    if weight and generator.options.beams > search_options.get("beams", 0):
        search_options["beams"] = generator.options.beams
    words = f"{counted(count, 'passage')}, weight {weight:g}" if weight else "none"
    return TuneChoice({"search": search_options}, name, quality(0.0).recall, after.recall, words)


def _read(
    opened: DecodesHops, generator: GenerativeRetriever, dev: DevQueries, count: int, k: int
) -> list[Any]:
    """The k best passages of each input, and the log-odds of the first ``count`` of them."""
    evidence = [tuple(evidence_numbers(generator.corpus, passages)) for passages in dev.evidence]
    chains = [ChainToContinue(n, numbers, (opened.done, *numbers)) for n, numbers in enumerate(evidence)]
    rankings = opened.next_hop(dev.queries, None)(chains, 0, k)
    encoded = zip(dev.queries, generator.encode(dev.queries), evidence, strict=True)
    inputs = [generator.hop_input(*query) for query in encoded]
    odds = generator.rescore(inputs, [[hit.passage for hit in hits[:count]] for hits in rankings])
    return [[list(map(list, hits)), row.tolist()] for hits, row in zip(rankings, odds, strict=True)]


RESCORING = Step("rescoring", tune_rescoring, can_rescore)


LOGIT_WEIGHTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Weights of a cross-encoder's logits that are tried, beside 0."""

_TOGETHER = 32
"""Queries between two points where a killed run can go on."""

Reading = tuple[list[Hit], list[float]]
"""The ranking of a query by the first retriever, and the logits of its passages."""


def tune_cross_encoder(tuning: Tuning) -> TuneChoice:
    """Of settings of equal quality the fewest passages are taken, then the smallest weight."""
    grid = tuning.grid
    opened: Callable[[], Any] = cache(tuning.open)
    dev, k, name = tuning.inputs(lambda: opened().corpus)
    stored = from_fields(Rereading, tuning.spec, tuning.folder / MANIFEST, "rescored")
    length = k + max(map(len, dev.evidence))  # the search finds evidence again, and leaves it out at the end
    depth = max(length, stored.passages, *grid.cross_encoder_passages)
    readings = _readings(tuning, opened, dev, depth)
    weights: list[float | None] = [0.0, *LOGIT_WEIGHTS]
    weights += [] if tuning.hops.steps == "dynamic" else [None]  # logits alone compare with no DONE

    @cache
    def quality(passages: int, weight: float | None) -> Quality:
        return _quality(dev, k, readings, Rereading(passages, weight))

    counts = sorted(set(grid.cross_encoder_passages))
    for count in counts:
        setting, found = best(quality, [count], weights)
        print(f"  recall@{k} {100 * found.recall:5.1f}  {_shown_rereading(*setting)}", flush=True)
    (passages, weight), found = best(quality, counts, weights)
    changes, before = {"passages": passages, "weight": weight}, quality(stored.passages, stored.weight)
    return TuneChoice(changes, name, before.recall, found.recall, _shown_rereading(passages, weight))


def _readings(tuning: Tuning, opened: Callable[[], Any], dev: DevQueries, depth: int) -> list[Reading]:
    queries = dev.queries
    readings: list[Reading] = []
    with Progress(len(queries), "tune with", "queries", shown=None) as bar:
        for start in range(0, len(queries), _TOGETHER):
            batch = slice(start, start + _TOGETHER)

            def read(batch: slice = batch) -> list[Any]:
                evidence = dev.evidence[batch] if dev.hops else None
                pairs = opened().read(queries[batch], depth, evidence)
                return [[_pairs_of(hits), logits] for hits, logits in pairs]

            count = len(queries[batch])
            setting = {"step": "cross-encoder", "passages": depth, "queries": [start, start + count]}
            setting |= {"hops": len(queries)} if dev.hops else {}
            readings += [
                (_hits_of(pairs), logits) for pairs, logits in tuning.journal.measured(setting, read)
            ]
            bar.update(count)
    return readings


def _quality(dev: DevQueries, k: int, readings: Sequence[Reading], setting: Rereading) -> Quality:
    """The quality of the rankings with a number of passages and a weight, without the evidence."""
    ids = []
    for (hits, logits), passages in zip(readings, dev.evidence, strict=True):
        evidence = {passage.id for passage in passages}
        ranking = rank_again(hits, logits[: setting.passages], setting.weight)
        ids.append([hit.id for hit in ranking if hit.id not in evidence][:k])
    return dev.quality(ids, k)


def _shown_rereading(passages: int, weight: float | None) -> str:
    return f"{counted(passages, 'passage')}, {'logits alone' if weight is None else f'weight {weight:g}'}"


CROSS_ENCODER = Step("rescoring", tune_cross_encoder)


def tune_fusion(tuning: Tuning) -> TuneChoice:
    """The weights of highest recall, then of highest nDCG."""
    spec, file, k = tuning.spec, tuning.folder / MANIFEST, tuning.grid.k
    fusion = from_fields(Fusion, spec, file, "fusion")
    if fusion.method == "interleave":
        raise ConfigError(f"{file}: interleaving has no weights to tune; write the method rrf or sum.")
    depth = spec.get("depth") or FUSED  # what the folder fuses
    members = [_member_hits(tuning, n, member, max(k, depth)) for n, member in enumerate(spec["members"])]

    def quality(tried: Fusion) -> Quality:
        fused = (tried.fuse_first(rankings, depth, k) for rankings in zip(*members, strict=True))
        return tuning.dev.quality([[hit.id for hit in hits] for hits in fused], k)

    weights, found = best_weights(fusion, len(members), quality)
    shown, before = f"weights {shown_weights(weights)}", quality(fusion).recall
    return TuneChoice({"weights": list(weights)}, f"recall@{k}", before, found.recall, shown)


def _member_hits(tuning: Tuning, number: int, member: Any, depth: int) -> list[list[Hit]]:
    """The hits of a member for every query."""

    def search() -> list[Any]:
        corpus = tuning.dev.corpus  # of BM25 that names none
        opened = tuning.open_member(member, f"members[{number}]", corpus=corpus)
        return [_pairs_of(hits) for hits in opened.retrieve(tuning.dev.queries, depth)]

    setting = {"step": "fusion", "member": number, "named": member, "depth": depth}
    rankings = [_hits_of(pairs) for pairs in tuning.journal.measured(setting, search)]
    name = member if isinstance(member, str) else member["kind"]
    print(f"  member {number}" + ("" if is_temporary(name) else f": {name}"), flush=True)
    return rankings


FUSION = Step("fusion", tune_fusion)


def refuse_untunable(fusion: Fusion) -> None:
    if fusion.method == "interleave":
        raise ConfigError(
            f"{Option('tune.runs')} finds weights, and interleaving takes none; choose "
            f"{Option('fusion.method', 'rrf', 'sum')}, or leave {Option('tune.runs')} out."
        )
    if fusion.weights is not None:
        raise ConfigError(f"give either {Option('fusion.weights')} or {Option('tune.runs')}.")


def tune_run_weights(fusion: Fusion, dev: DevRuns, k: int, depth: int | None = None) -> tuple[Fusion, float]:
    """The fusion with the weights of highest recall@k on ``dev``, and that recall.

    Runs are fused to ``depth`` (:func:`~grls.retrieve.fusion.runs.fused_run`). Of equal recall nDCG
    decides, then the most even weights. Weights go in steps of 0.1 and sum to one.
    """
    gold = list(dev.gold.values())
    for run in dev.runs:
        RunDepth.of(run, dev.passages, gold).refuse([f"recall@{k}"], f"choose a smaller {Option('tune.k')}")

    def quality(tried: Fusion) -> tuple[float, float]:
        fused = fused_run(dev.runs, tried, depth).rankings
        ids = [[hit.id for hit in fused[query]] for query in dev.gold]
        return means(sequence_recall, ids, gold, ks=[k])[f"recall@{k}"], ndcg(ids, gold)

    weights, (recall, _) = best_weights(fusion, len(dev.runs), quality)
    return replace(fusion, weights=weights), recall


def shown_weights(weights: Sequence[float] | None) -> str:
    return " ".join(f"{weight:g}" for weight in weights or ())
