"""The weights of priors, and of the score under an empty prompt, in hybrid decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.retrieve.hybrid.priors import EmptyPromptPrior, Remembering
from grls.retrieve.hybrid.retriever import HybridRetriever, as_hybrid
from grls.retrieve.hybrid.tuning import Pool, Quality, Setting, Tried, tune_in_turn, tune_together
from grls.retrieve.hybrid.weighted import WeightedSource
from grls.tune.dev import DevHops
from grls.tune.hops import ranks_by_hops
from grls.tune.step import Step, TuneChoice, Tuning

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
    hybrid = as_hybrid(tuning.open(rescore=0))
    generator, k = hybrid.generator, tuning.grid.k
    tried = _tried(tuning, hybrid)
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
    k = 1 if by_hop else k
    asked = dev.queries, dev.gold, k, choices, dev.evidence, by_hop
    pool = None if hybrid.normalized else Pool(generator, *asked)
    measure = _Measure(tuning, hybrid, pool, dev, k)
    best = tune_in_turn(choices, measure) if pool is None else tune_together(choices, measure, pool, by_hop)
    *weighed, empty = best.priors
    priors = [
        {**named, "weight": prior.weight, "temperature": prior.divisor}
        for named, prior in zip(tuning.spec["priors"], weighed, strict=True)
    ]
    changes = {"priors": priors, "empty_weight": abs(empty.weight)}
    name = f"recall@{k}{' of a hop' if by_hop else ''}"
    return TuneChoice(changes, name, measure.alone[0], best.recall, _shown(best.priors))


class _Measure:
    """Measures settings on dev.

    Args:
        tuning: The step; a setting that its journal knows is not searched with again.
        hybrid: The generator, and how its priors are taken together.
        pool: Where the passages of each search are collected; None: nowhere.
        dev: The dev queries, or their hops.
        k: Cut-off of the recall.

    Attributes:
        alone: Recall of the generator without any prior, of each time that it was measured.
    """

    def __init__(self, tuning: Tuning, hybrid: HybridRetriever, pool: Pool | None, dev: DevHops, k: int):
        self.tuning = tuning
        self.dev = dev
        self.k = k
        self.hybrid = hybrid
        self.pool = pool
        self.alone: list[float] = []
        # A passage that is too low in one ranking may be high under other weights.
        self.depth = max(k, hybrid.generator.options.beams)

    def __call__(self, setting: Setting) -> Quality:
        """Recall and more with a setting."""
        rankings, k = self._rankings(setting), self.k
        if self.pool is not None:
            self.pool.add(setting, rankings)
        hits = [self.hybrid.generator.hits(ranking[: self.depth]) for ranking in rankings]
        quality = self.dev.quality([[hit.id for hit in ranking] for ranking in hits], k)
        if not any(prior.weight for prior in setting):
            self.alone.append(quality.recall)
        print(f"  recall@{k} {100 * quality.recall:5.1f}  {_shown(setting)}", flush=True)
        return quality

    def _rankings(self, setting: Setting) -> list[list[ScoredPassage]]:
        """The candidates of each dev query, from the journal where it has them."""

        def search() -> list[list[list[Any]]]:
            own = HybridRetriever(
                self.hybrid.generator, setting, self.hybrid.done_share, self.hybrid.normalized
            )
            rankings = own.candidates(self.dev.queries, self.depth, self.dev.evidence)
            return [
                [[hit.passage, hit.score] for hit in ranking[: max(_KEPT, self.k)]] for ranking in rankings
            ]

        step: dict[str, Any] = {"step": "priors", "depth": self.depth, "setting": _key(setting)}
        if any(self.dev.evidence):
            step["hops"] = len(self.dev.queries)
        kept = self.tuning.journal.measured(step, search)
        return [[ScoredPassage(*pair) for pair in ranking] for ranking in kept]


def _tried(tuning: Tuning, hybrid: HybridRetriever) -> Tried:
    grid = tuning.grid
    empty = EMPTY_WEIGHTS if grid.empty_weights is None else grid.empty_weights
    tried = Tried(grid.prior_weights, grid.prior_temperatures, empty)
    if hybrid.generator.spans is not None and grid.empty_weights is None:
        tried = replace(tried, empty=())  # the walk through all spans takes long, so it must be asked for
    return tried


def _key(setting: Setting) -> list[list[Any]]:
    return [[prior.source.name, prior.weight, prior.divisor] for prior in setting]


def _shown(priors: Sequence[WeightedSource]) -> str:
    """The priors whose weight is not 0."""
    named = [f"{p.source.name} {p.weight:g} (T {p.divisor:g})" for p in priors if p.weight]
    return ", ".join(named) or "generator alone"


PRIORS = Step("priors", tune_priors)
