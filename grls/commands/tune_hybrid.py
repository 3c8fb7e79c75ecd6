"""``grls tune-hybrid``: the weights of priors that are best on development queries.

One prior after another, those before it at their best: not every setting of several is tried.
What is written is a config of ``grls retrieve``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from grls.commands.priors import tell_unlike_training
from grls.commands.retrieve import refuse_other_corpus
from grls.dataset import gold_passages, read_split
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.files import atomic_file
from grls.logs import quiet
from grls.models.precision import Precision
from grls.retrieve.base import check_counts
from grls.retrieve.generative import GenerativeRetriever
from grls.retrieve.hybrid import HybridRetriever, Weighed
from grls.retrieve.open import open_retriever, open_sources
from grls.retrieve.options import SearchOptions
from grls.retrieve.priors import EmptyPromptPrior, Remembering

WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
EMPTY_WEIGHTS = (0.1, 0.2, 0.4, 0.6)

Measure = Callable[[Sequence[Weighed]], float]


def tune_hybrid(
    data: str,
    retriever: str,
    output: str,
    prior: list[str] | str | None = None,
    weights: list[float] | None = None,
    temperatures: list[float] | None = None,
    empty_weights: list[float] | None = None,
    prior_normalized: bool = False,
    split: str = "dev",
    tune_k: int = 10,
    limit: int | None = None,
    beams: int = 10,
    mode: ScoreMode = "renormalized",
    batch_size: int = 32,
    truncate_queries: bool = False,
    device: str = "auto",
    precision: Precision = "float32",
) -> None:
    """Find the weights of hybrid decoding on development queries, single-step.

    Prints what each setting finds, and writes OUTPUT for `grls retrieve --config OUTPUT`. A prior that helps
    at no weight gets weight 0.

    Args:
        data: Data set folder.
        retriever: Folder of the generative retriever.
        output: The YAML file.
        prior: Folders of bi-encoders over the same corpus, or `bm25`. One, or a list.
        weights: What is tried for each of them; null: 0.25, 0.5, 1, 2, 4, 8. Weight 0 always is.
        temperatures: Factors of a prior's usual temperature that are tried with each weight; null: 1.
        empty_weights: What is tried for the score under an empty prompt; null: 0.1, 0.2, 0.4, 0.6; an empty
            list leaves it out.
        prior_normalized: As of `grls retrieve`, for a generator that was trained beside the priors.
        split: The development queries: not those that results will be reported for.
        tune_k: Cut-off of the recall that is to be high; of equal ones the smaller weight is taken.
        limit: Only so many of the queries.
        beams: Beam width; give `grls retrieve` the same.
        mode: Score mode.
        batch_size: Model inputs decoded or embedded together.
        truncate_queries: Cut queries that are too long instead of refusing them.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the generator computes.
    """
    quiet()
    check_counts(tune_k=tune_k, limit=1 if limit is None else limit)
    tried = Tried(
        _above_zero("weights", weights, WEIGHTS),
        _above_zero("temperatures", temperatures, (1.0,)),
        _above_zero("empty_weights", empty_weights, EMPTY_WEIGHTS),
    )
    names = [] if prior is None else [prior] if isinstance(prior, str) else prior
    if not names and not tried.empty:
        raise ConfigError("there is nothing to tune: give --prior, or --empty_weights.")
    queries, qrels = read_split(data, split)
    queries = queries[:limit]
    options = SearchOptions(beams, mode, None, batch_size, truncate_queries)
    opened = open_retriever(retriever, device, precision, options)
    if not isinstance(opened, GenerativeRetriever):
        raise ConfigError(f"{retriever} is no generative retriever; priors look ahead for one.")
    refuse_other_corpus(opened, data, split)
    tell_unlike_training(opened, prior_normalized)
    gold = [gold_passages(query, qrels) for query in queries]

    def measure(priors: Sequence[Weighed]) -> float:
        start = perf_counter()
        found = HybridRetriever(opened, priors, normalized=prior_normalized).retrieve(queries, tune_k)
        ids = [[hit.id for hit in hits] for hits in found]
        recall = sequence_recall(ids, gold, [tune_k])[f"recall@{tune_k}"]
        spent = 1000 * (perf_counter() - start) / len(queries)
        print(f"recall@{tune_k} {100 * recall:5.1f}  {spent:6.1f} ms a query  {_shown(priors)}", flush=True)
        return recall

    sources = [Remembering(source) for source in open_sources(opened.corpus, names, device, options)]
    start = [Weighed(source, 0.0, source.temperature) for source in sources]
    best, recall = tune(start, Weighed(EmptyPromptPrior(opened), 0.0), tried, measure)
    _write(
        output,
        retriever,
        names,
        best,
        prior_normalized,
        f"recall@{tune_k} {100 * recall:.1f} on {split} of {data}",
    )
    print(f"{output}: {_shown(best)}")


@dataclass(frozen=True)
class Tried:
    """What is tried; see :func:`tune_hybrid`."""

    weights: tuple[float, ...]
    temperatures: tuple[float, ...]
    empty: tuple[float, ...]


def tune(
    priors: Sequence[Weighed], empty: Weighed, tried: Tried, measure: Measure
) -> tuple[list[Weighed], float]:
    """The best setting, the empty prompt's prior last, and its measure.

    Args:
        priors: Tuned in this order.
        empty: Tuned after them; its weights are taken as negative.
        tried: What is tried.
        measure: How good a setting is; higher is better.
    """
    best = [*priors, empty]
    value = measure(best)
    for place, start in enumerate(best):
        last = place == len(priors)
        weights = [-w for w in tried.empty] if last else list(tried.weights)
        factors = (1.0,) if last else tried.temperatures
        for weight in sorted(weights, key=abs):
            for factor in factors:
                changed = start._replace(weight=weight, temperature=factor * start.divisor)
                setting = [*best[:place], changed, *best[place + 1 :]]
                found = measure(setting)
                if found > value:
                    best, value = setting, found
    return best, value


def _above_zero(name: str, given: list[float] | None, usual: tuple[float, ...]) -> tuple[float, ...]:
    values = usual if given is None else tuple(given)
    if not all(0 < value < math.inf for value in values):
        raise ConfigError(f"--{name} must be above 0, got {list(values)}.")
    return values


def _write(
    output: str,
    retriever: str,
    names: Sequence[str],
    best: Sequence[Weighed],
    normalized: bool,
    why: str,
) -> None:
    """A config of ``grls retrieve``; JSON's values are YAML's."""
    *priors, empty = best
    settings = {
        "retriever": retriever,
        "prior": list(names),
        "prior_weight": [prior.weight for prior in priors],
        "prior_temperature": [prior.divisor for prior in priors],
        "prior_normalized": normalized,
        "empty_weight": abs(empty.weight),
    }
    lines = [
        f"# {why}",
        *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()),
    ]
    with atomic_file(output) as stream:
        stream.write("\n".join(lines) + "\n")


def _shown(priors: Sequence[Weighed]) -> str:
    """The priors that count."""
    some = [f"{p.source.name} {p.weight:g} (T {p.divisor:g})" for p in priors if p.weight]
    return ", ".join(some) or "generator alone"
