"""The weight of rescoring: how much the scores of passages that a generator has read to their end count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.retrieve.base import Under, WritesChains
from grls.retrieve.generative.rescore import rescored
from grls.retrieve.generative.within import generator_within
from grls.tune.step import TuneChoice, Tuning


def can_rescore(tuning: Tuning) -> bool:
    """Whether the folder has a generator that has learned to rescore."""
    generator = generator_within(tuning.open(rescore=0))
    return generator is not None and generator.rescore_input is not None


def tune_rescoring(tuning: Tuning) -> TuneChoice:
    """Find the weight; one search serves all weights.

    Raises:
        ConfigError: The folder has no generator that has learned to rescore.
    """
    count, k, dev = tuning.grid.rescore_passages, tuning.grid.k, tuning.dev
    opened = tuning.open(rescore=0)
    generator = generator_within(opened)
    if generator is None or not isinstance(opened, WritesChains):
        raise ConfigError("only a generator rescores passages.")
    generator.refuse_to_rescore()
    if generator.spans is None and generator.options.beams < count:  # as wide as it becomes in any case
        generator.options = replace(generator.options, beams=count)

    def search() -> list[Any]:
        under = [Under(query, (), (opened.done,)) for query in range(len(dev.queries))]
        rankings = opened.next_hop(dev.queries, None)(under, 0, max(count, k))
        inputs = [generator.codec.model_input(tokens) for tokens in generator.encode(dev.queries)]
        odds = generator.rescore(inputs, [[hit.passage for hit in hits[:count]] for hits in rankings])
        return [[list(map(list, hits)), own.tolist()] for hits, own in zip(rankings, odds, strict=True)]

    priors = {name: tuning.spec.get(name) for name in ("priors", "empty_weight")}
    of = {"step": "rescoring", "passages": count, **priors, "k": k}
    kept = tuning.journal.measured(of, search)
    tried = []
    for weight in (0.0, *sorted(tuning.grid.rescore_weights)):
        ranked = [
            rescored([ScoredPassage(*pair) for pair in pairs], _floats(odds), weight) for pairs, odds in kept
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
    return TuneChoice({"search": search_options}, f"recall@{k}", tried[0][0].recall, quality.recall, what)


def _floats(values: list[float]) -> Any:
    return np.array(values, dtype=np.float64)
