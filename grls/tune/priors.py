"""Tuning what ranks in one step: weights of priors, of rescoring, of members; where rankings end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from grls.data.types import Chain, Hit, Query
from grls.decode import ScoredPassage
from grls.errors import ConfigError, DataError, Option
from grls.evaluation.measures import RunDepth, ndcg
from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.evaluation.metrics.set_f1 import set_f1
from grls.io.files import is_temporary
from grls.io.progress import Progress, counted
from grls.retrieve.base import FindsChains, Under, WritesChains
from grls.retrieve.fusion.retriever import FUSED, Fusion, fuse_chains, tune_weights
from grls.retrieve.fusion.runs import RunFusion, SetSize
from grls.retrieve.generative.retriever import GenerativeRetriever, generator_within
from grls.retrieve.generative.search import rescored
from grls.retrieve.hybrid.priors import EmptyPromptPrior, Remembering, WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.tuning import Pool, Quality, Setting, Tried, tune_in_turn, tune_together
from grls.retrieve.queries import evidence_numbers
from grls.retrieve.rescored.options import Rereading
from grls.retrieve.rescored.retriever import rank_again
from grls.retrieve.spec import MANIFEST, from_record
from grls.runs.dev_runs import DevRuns
from grls.runs.portions import RunInfo
from grls.runs.run import Run
from grls.tune.hops import ends_chains, ranks_by_hops
from grls.tune.step import DevHops, Step, TuneChoice, Tuning, as_hits, as_pairs, tell_price

EMPTY_WEIGHTS = (0.1, 0.2, 0.4, 0.6)
_KEPT = 200
"""Most candidates of a query that are kept."""


def tune_priors(tuning: Tuning) -> TuneChoice:
    """Find the weights by a few searches (:mod:`grls.retrieve.hybrid.tuning`); a prior that helps at no
    weight gets 0.

    If the folder ranks by hops, every gold passage is a hop with the gold passages before it as evidence, and
    the first hit counts; of weights that are as good within one standard error the smallest are taken.

    Raises:
        ConfigError: There is nothing to tune.
    """
    hybrid = HybridRetriever.of(tuning.open(rescore=0))
    generator, grid = hybrid.generator, tuning.grid
    # The walk through all spans takes long, so the empty prompt must be asked for there.
    usual = () if generator.spans is not None else EMPTY_WEIGHTS
    empties = usual if grid.empty_weights is None else grid.empty_weights
    tried = Tried(grid.prior_weights, grid.prior_temperatures, empties)
    starts = [
        prior._replace(source=Remembering(prior.source), weight=0.0, temperature=prior.source.temperature)
        for prior in hybrid.priors
        if not isinstance(prior.source, EmptyPromptPrior)
    ]
    if not starts and not tried.empty:
        raise ConfigError(
            "there is nothing to tune: the folder has no prior, and grid.empty_weights is empty."
        )
    choices = tried.choices(starts, WeightedSource(EmptyPromptPrior(generator), 0.0))
    # Scores that are normalized at every token are no sums, so they do not predict those of other weights.
    by_hop = ranks_by_hops(tuning)
    dev = tuning.dev.by_hop(hybrid.corpus) if by_hop else tuning.dev.at_once()
    k = 1 if by_hop else grid.k
    asked = dev.queries, dev.gold, k, choices, dev.evidence, by_hop
    pool = None if hybrid.normalized else Pool(generator, *asked)
    # A passage that is too low in one ranking may be high under other weights.
    depth = max(k, generator.options.beams)
    alone: list[float] = []  # recall of the generator without any prior, each time that it is measured

    def measure(setting: Setting) -> Quality:
        def search() -> list[list[list[Any]]]:
            own = HybridRetriever(generator, setting, hybrid.done_share, hybrid.normalized)
            found = own.candidates(dev.queries, depth, dev.evidence)
            return [[[hit.passage, hit.score] for hit in ranking[: max(_KEPT, k)]] for ranking in found]

        named = [[prior.source.name, prior.weight, prior.divisor] for prior in setting]
        step: dict[str, Any] = {"step": "priors", "depth": depth, "setting": named}
        if any(dev.evidence):
            step["hops"] = len(dev.queries)
        kept = tuning.journal.measured(step, search)
        rankings = [[ScoredPassage(*pair) for pair in ranking] for ranking in kept]
        if pool is not None:
            pool.add(setting, rankings)
        hits = [generator.hits(ranking[:depth]) for ranking in rankings]
        quality = dev.quality([[hit.id for hit in ranking] for ranking in hits], k)
        if not any(prior.weight for prior in setting):
            alone.append(quality.recall)
        print(f"  recall@{k} {100 * quality.recall:5.1f}  {_shown(setting)}", flush=True)
        return quality

    best = tune_in_turn(choices, measure) if pool is None else tune_together(choices, measure, pool, by_hop)
    *weighed, empty = best.priors
    priors = [
        {**named, "weight": prior.weight, "temperature": prior.divisor}
        for named, prior in zip(tuning.spec["priors"], weighed, strict=True)
    ]
    changes = {"priors": priors, "empty_weight": abs(empty.weight)}
    name = f"recall@{k}{' of a hop' if by_hop else ''}"
    return TuneChoice(changes, name, alone[0], best.recall, _shown(best.priors))


def _shown(priors: Sequence[WeightedSource]) -> str:
    """The priors whose weight is not 0."""
    named = [f"{p.source.name} {p.weight:g} (T {p.divisor:g})" for p in priors if p.weight]
    return ", ".join(named) or "generator alone"


PRIORS = Step("priors", tune_priors)


# The weight of rescoring: how much the scores of passages that a generator has read to their end count.
#
# The weight holds in every hop. So if the folder ranks by hops, every gold passage is a hop with the gold
# passages before it as evidence, and the first hit counts, as for priors.


def can_rescore(tuning: Tuning) -> bool:
    """Whether the folder has a generator that has learned to rescore."""
    generator = generator_within(tuning.open(rescore=0))
    return generator is not None and generator.rescore_input is not None


def tune_rescoring(tuning: Tuning) -> TuneChoice:
    """Find the weight; one search serves all weights.

    Raises:
        ConfigError: The folder has no generator that has learned to rescore.
    """
    count, by_hop = tuning.grid.rescore_passages, ranks_by_hops(tuning)
    k = 1 if by_hop else tuning.grid.k
    opened = tuning.open(rescore=0)
    generator = generator_within(opened)
    if generator is None or not isinstance(opened, WritesChains):
        raise ConfigError("only a generator rescores passages.")
    generator.refuse_to_rescore()
    if generator.spans is None and generator.options.beams < count:  # as wide as it becomes in any case
        generator.options = replace(generator.options, beams=count)
    dev = tuning.dev.by_hop(generator.corpus) if by_hop else tuning.dev.at_once()
    priors = {name: tuning.spec.get(name) for name in ("priors", "empty_weight")}
    of = {"step": "rescoring", "passages": count, **priors, "k": k}
    of |= {"hops": len(dev.queries)} if by_hop else {}
    kept = tuning.journal.measured(of, lambda: _read(opened, generator, dev, count, max(count, k)))
    tried = []
    for weight in (0.0, *sorted(tuning.grid.rescore_weights)):
        ranked = [
            rescored([ScoredPassage(*pair) for pair in pairs], np.array(odds, np.float64), weight)
            for pairs, odds in kept
        ]
        ids = [[hit.id for hit in generator.hits(best[:k])] for best in ranked]
        tried.append((dev.quality(ids, k), -weight))
        print(f"  recall@{k} {100 * tried[-1][0].recall:5.1f}  rescore_weight {weight:g}", flush=True)
    quality, negative = max(tried)
    weight = -negative
    search_options = dict(tuning.spec.get("search", {}))
    search_options |= {"rescore": count if weight else 0, "rescore_weight": weight or 1.0}
    if weight and generator.options.beams > search_options.get("beams", 0):
        search_options["beams"] = generator.options.beams
    what = f"{counted(count, 'passage')}, weight {weight:g}" if weight else "none"
    name = f"recall@{k}{' of a hop' if by_hop else ''}"
    return TuneChoice({"search": search_options}, name, tried[0][0].recall, quality.recall, what)


def _read(
    opened: WritesChains, generator: GenerativeRetriever, dev: DevHops, count: int, k: int
) -> list[Any]:
    """The k best passages of each input, and the log-odds of the first ``count`` of them."""
    before = [tuple(evidence_numbers(generator.corpus, own)) for own in dev.evidence]
    under = [Under(n, own, (opened.done, *own)) for n, own in enumerate(before)]
    rankings = opened.next_hop(dev.queries, None)(under, 0, k)
    asked = zip(dev.queries, generator.encode(dev.queries), before, strict=True)
    inputs = [
        generator.codec.model_input(tokens, generator.evidence(query.text, own))
        for query, tokens, own in asked
    ]
    odds = generator.rescore(inputs, [[hit.passage for hit in hits[:count]] for hits in rankings])
    return [[list(map(list, hits)), own.tolist()] for hits, own in zip(rankings, odds, strict=True)]


RESCORING = Step("rescoring", tune_rescoring, can_rescore)


# How many passages a cross-encoder reads, and what its logits count beside the first retriever's scores.
#
# Both hold in every hop. So if the folder ranks by hops, every gold passage is a hop with the gold passages
# before it as evidence, and the first hit counts, as for priors.


_TOGETHER = 32
"""Queries between two points where a killed run can go on."""

Reading = tuple[list[Hit], list[float]]
"""The ranking of a query by the first retriever, and the logits of its passages."""


def tune_cross_encoder(tuning: Tuning) -> TuneChoice:
    """Find the number of passages and the weight; what is read once serves all of them.

    Of settings of equal quality the one that reads fewer passages is taken, then that of the smaller weight.
    """
    grid, by_hop = tuning.grid, ranks_by_hops(tuning)
    opened: Callable[[], Any] = cache(tuning.open)
    dev = tuning.dev.by_hop(opened().corpus) if by_hop else tuning.dev.at_once()
    k = 1 if by_hop else grid.k
    named = {name: tuning.spec[name] for name in ("passages", "weight") if name in tuning.spec}
    stored = from_record(Rereading, named, tuning.folder / MANIFEST, "rescored")
    most = k + max(map(len, dev.evidence))  # the search finds evidence again, and leaves it out at the end
    depth = max(most, stored.passages, *grid.cross_encoder_passages)
    readings = _readings(tuning, opened, dev, depth)
    weights: list[float | None] = [0.0, *sorted(grid.cross_encoder_weights)]
    weights += [] if ends_chains(tuning) else [None]  # logits alone compare with no DONE
    best: list[tuple[Quality, int, float, Rereading]] = []
    for passages in sorted(set(grid.cross_encoder_passages)):
        tried = []
        for weight in weights:
            setting = Rereading(passages, weight)
            order = -math.inf if weight is None else -weight
            tried.append((_quality(dev, k, readings, setting), -passages, order, setting))
        best.append(max(tried, key=lambda one: one[:3]))
        print(f"  recall@{k} {100 * best[-1][0].recall:5.1f}  {_shown_rereading(best[-1][3])}", flush=True)
    quality, _, _, chosen = max(best, key=lambda one: one[:3])
    before = _quality(dev, k, readings, stored).recall
    changes = {"passages": chosen.passages, "weight": chosen.weight}
    name = f"recall@{k}{' of a hop' if by_hop else ''}"
    return TuneChoice(changes, name, before, quality.recall, _shown_rereading(chosen))


def _readings(tuning: Tuning, opened: Callable[[], Any], dev: DevHops, depth: int) -> list[Reading]:
    """The first passages of every dev query or hop, read by the cross-encoder."""
    queries = dev.queries
    readings: list[Reading] = []
    with Progress(len(queries), "tune with", "queries", shown=None) as bar:
        for start in range(0, len(queries), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            asked, after = queries[part], dev.evidence[part] if dev.hops else None

            def read(asked: Sequence[Query] = asked, after: Any = after) -> list[Any]:
                return [[as_pairs(hits), logits] for hits, logits in opened().read(asked, depth, after)]

            of = {"step": "cross-encoder", "passages": depth, "queries": [start, start + len(asked)]}
            of |= {"hops": len(queries)} if dev.hops else {}
            readings += [(as_hits(pairs), logits) for pairs, logits in tuning.journal.measured(of, read)]
            bar.update(len(asked))
    return readings


def _quality(dev: DevHops, k: int, readings: Sequence[Reading], how: Rereading) -> Quality:
    """The quality of the rankings with a number of passages and a weight, without the evidence."""
    rankings = [rank_again(hits, logits[: how.passages], how.weight) for hits, logits in readings]
    hidden = [{passage.id for passage in evidence} for evidence in dev.evidence]
    left = [
        [hit.id for hit in hits if hit.id not in gone] for hits, gone in zip(rankings, hidden, strict=True)
    ]
    return dev.quality([ids[:k] for ids in left], k)


def _shown_rereading(how: Rereading) -> str:
    weight = "logits alone" if how.weight is None else f"weight {how.weight:g}"
    return f"{counted(how.passages, 'passage')}, {weight}"


CROSS_ENCODER = Step("rescoring", tune_cross_encoder)


# The weights of the members of a fusion.


def tune_fusion(tuning: Tuning) -> TuneChoice:
    """Find the weights of highest recall: steps of 0.1 that sum to one; of equal ones the most even.

    Raises:
        ConfigError: The method takes no weights.
    """
    spec, file, k = tuning.spec, tuning.folder / MANIFEST, tuning.grid.k
    names = [one.name for one in fields(Fusion)]
    fusion = from_record(Fusion, {name: spec[name] for name in names if name in spec}, file, "fusion")
    if fusion.method == "interleave":
        raise ConfigError(f"{file}: interleaving has no weights to tune; write the method rrf or sum.")
    depth = spec.get("depth") or FUSED  # what the folder fuses
    members = [_asked(tuning, n, member, max(k, depth)) for n, member in enumerate(spec["members"])]
    dynamic = all("done" in member[0] for member in members if member)

    def rankings(tried: Fusion, query: int) -> list[Hit]:
        answers = [member[query] for member in members]
        hits = [as_hits(one["hits"]) for one in answers]
        if not dynamic:
            return tried.fuse_first(hits, depth, max(k, depth))
        chains = [Chain(tuple(own), 0.0, one["done"]) for own, one in zip(hits, answers, strict=True)]
        return list(fuse_chains(chains, tried, spec.get("length", "mean")).hits)

    def quality(tried: Fusion) -> tuple[float, float]:
        ids = [[hit.id for hit in rankings(tried, query)] for query in range(len(tuning.dev.queries))]
        recall, order = tuning.dev.at_once().quality(ids, k)
        return recall, order

    before = quality(fusion)[0]
    best, (recall, _) = tune_weights(len(members), replace(fusion, weights=None), quality)
    weights = list(best.weights or ())
    shown = " ".join(f"{weight:g}" for weight in weights)
    return TuneChoice({"weights": weights}, f"recall@{k}", before, recall, f"weights {shown}")


def _asked(tuning: Tuning, number: int, member: Any, depth: int) -> list[dict[str, Any]]:
    """What a member finds for every query: hits, and of a chain whether it is done."""

    def search() -> list[dict[str, Any]]:
        corpus = tuning.dev.corpus  # of BM25 that names none
        opened = tuning.open_member(member, f"members[{number}]", corpus=corpus)
        queries = tuning.dev.queries
        if isinstance(opened, FindsChains) and opened.describe().steps == "dynamic":
            chains = [kept[0] for kept in opened.retrieve_chains(queries)]
            return [{"hits": as_pairs(chain.hits), "done": bool(chain.done)} for chain in chains]
        return [{"hits": as_pairs(hits)} for hits in opened.retrieve(queries, depth)]

    of = {"step": "fusion", "member": number, "named": member, "depth": depth}
    answers: list[dict[str, Any]] = tuning.journal.measured(of, search)
    name = member if isinstance(member, str) else member["kind"]
    print(f"  member {number}" + ("" if is_temporary(name) else f": {name}"), flush=True)
    return answers


FUSION = Step("fusion", tune_fusion)


# Where rankings end: fitted on the rankings of development queries.


def tune_cut(tuning: Tuning) -> TuneChoice:
    """Fit the cut; set F1 before is that of the whole rankings."""
    spec, dev = tuning.spec, tuning.dev
    depth = int(spec["depth"])

    def search() -> list[Any]:
        opened = tuning.open_member(spec["retriever"], "retriever")
        return [as_pairs(hits) for hits in opened.retrieve(dev.queries, depth)]

    kept = tuning.journal.measured({"step": "cut", "depth": depth, "named": spec["retriever"]}, search)
    rankings = [as_hits(pairs) for pairs in kept]
    gold = [set(ids) for ids in dev.gold]
    size = SetSize.fit(rankings, dev.gold)
    before = set_f1([{hit.id for hit in hits} for hits in rankings], gold)["f1"]
    after = set_f1([{hit.id for hit in size.cut(hits).hits} for hits in rankings], gold)["f1"]
    known = known_number([[hit.id for hit in hits] for hits in rankings], gold)["f1_known_number"]
    tell_price(known, after, "the cut")
    mean = sum(len(size.cut(hits).hits) for hits in rankings) / len(rankings)
    return TuneChoice(
        {"size": asdict(size.record())}, "set F1", before, after, f"{mean:.1f} passages a query"
    )


CUT = Step("cut", tune_cut)


# The weights of a fusion of runs: those that are best on runs for development queries.


def refuse_untunable(fusion: Fusion) -> None:
    """Refuse (ConfigError) a fusion that has no weights to find."""
    if fusion.method == "interleave":
        raise ConfigError(
            f"{Option('tune.runs')} finds weights, and interleaving takes none; choose "
            f"{Option('fusion.method', 'rrf', 'sum')}, or leave {Option('tune.runs')} out."
        )
    if fusion.weights is not None:
        raise ConfigError(f"give either {Option('fusion.weights')} or {Option('tune.runs')}.")


def tune_run_weights(fusion: Fusion, dev: DevRuns, how: RunFusion, k: int) -> tuple[Fusion, float]:
    """The fusion with the weights of highest recall@k on ``dev``, and that recall.

    Of equal recall nDCG decides, then the most even weights. Weights go in steps of 0.1 and sum to one.

    Raises:
        ConfigError: A run for development queries was cut off before ``k``.
    """
    gold = list(dev.gold.values())
    for run in dev.runs:
        RunDepth.of(run, dev.passages, gold).refuse([f"recall@{k}"], f"choose a smaller {Option('tune.k')}")

    def quality(tried: Fusion) -> tuple[float, float]:
        fused = how.fuse(dev.runs, tried).rankings
        ids = [[hit.id for hit in fused[query]] for query in dev.gold]
        return sequence_recall(ids, gold, [k])[f"recall@{k}"], ndcg(ids, gold)

    best, (recall, _) = tune_weights(len(dev.runs), fusion, quality)
    return best, recall


def shown_weights(weights: Sequence[float] | None) -> str:
    """Weights in a line."""
    return " ".join(f"{weight:g}" for weight in weights or ())


# Ending the rankings of a run where F1 is expected to be highest, as runs for development queries tell.
#
# Where that is says :mod:`grls.retrieve.fusion.runs`.


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
    info = run.info or RunInfo(  # an ensemble of the run alone
        system="ensemble", name="", steps="dynamic", corpus="", queries="", data="",
        split=None, score_mode="", members=(run.name,),
    )  # fmt: skip
    info = replace(
        info,
        name=name or f"{run.name}, cut",
        steps="dynamic",
        score_mode=f"{run.score_mode or 'unknown'}, cut",
        seconds=info.seconds + perf_counter() - start,
        options={**info.options, "cut": run.path, "tune": dev.runs[0].path},
        files={},
    )
    return CutRun(Run(kept, chains, info.score_mode, info), mean, fitted, known)
