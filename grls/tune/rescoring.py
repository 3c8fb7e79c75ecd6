"""The weight of rescoring: how much the scores of passages that a generator has read to their end count.

The weight holds in every hop. So if the folder ranks by hops, every gold passage is a hop with the gold
passages before it as evidence, and the first hit counts, as for priors (:mod:`grls.tune.priors`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.retrieve.base import Under, WritesChains
from grls.retrieve.generative.rescore import rescored
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.within import generator_within
from grls.retrieve.queries import evidence_numbers
from grls.tune.dev import DevHops
from grls.tune.hops import ranks_by_hops
from grls.tune.step import Step, TuneChoice, Tuning


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


def _floats(values: list[float]) -> Any:
    return np.array(values, dtype=np.float64)


RESCORING = Step("rescoring", tune_rescoring, can_rescore)
