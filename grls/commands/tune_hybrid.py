"""``grls tune-hybrid``: the weights of priors that are best on development queries.

What is written is a config of ``grls retrieve``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from grls.commands.output import write_config
from grls.commands.priors import tell_unlike_training
from grls.commands.retrieve import refuse_other_corpus
from grls.data.dataset import gold_passages, own_corpus, read_split
from grls.data.words import USUAL, Analyzer
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.io.files import refuse_unwritable
from grls.io.logs import quiet
from grls.models.precision import Precision
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hybrid.priors import EmptyPromptPrior, Remembering, open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever, WeightedSource
from grls.retrieve.hybrid.tuning import Pool, Quality, Setting, Tried, tune, tune_in_turn
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import as_generator, open_retriever

WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
EMPTY_WEIGHTS = (0.1, 0.2, 0.4, 0.6)


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
    span_temperature: float = 3.0,
    batch_size: int = 32,
    truncate_queries: bool = False,
    device: str = "auto",
    precision: Precision = "float32",
    analyzer: Analyzer = USUAL,
) -> None:
    """Find the weights of hybrid decoding on development queries, single-step.

    Searches with a few settings, and ranks what they have found under all combinations of the weights to
    choose the next one. Prints what each search finds, and writes OUTPUT for `grls retrieve --config OUTPUT`.
    A prior that helps at no weight gets weight 0.

    Args:
        data: Data set folder.
        retriever: Folder of the generative retriever.
        output: The YAML file.
        prior: Folders of bi-encoders over the same corpus, or `bm25`. One, or a list.
        weights: What is tried for each of them; null: 0.25, 0.5, 1, 2, 4, 8, 16. Weight 0 always is.
        temperatures: Factors of a prior's usual temperature that are tried with each weight; null: 1.
        empty_weights: What is tried for the score under an empty prompt; null: 0.1, 0.2, 0.4, 0.6
            (of a generator that writes spans: nothing, since a walk through all of them takes long); an empty
            list leaves it out.
        prior_normalized: As of `grls retrieve`, for a generator that was trained beside the priors; then
            every setting that is tried is a search, one prior after another.
        split: The development queries: not those that results will be reported for.
        tune_k: Cut-off of the recall that is to be high; where it is level nDCG decides, then the smaller
            weight.
        limit: Only so many of the queries.
        beams: Beam width. With priors a wide one finds more: what they favour is kept until the generator has
            read on.
        mode: Score mode.
        span_temperature: As of `grls retrieve` (a generator that writes spans).
        batch_size: Model inputs decoded or embedded together.
        truncate_queries: Cut queries that are too long instead of refusing them.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the generator computes.
        analyzer: How BM25 splits texts into words: language, stemming and function words.
    """
    quiet()
    refuse_unwritable(output)
    check_counts(tune_k=tune_k, limit=1 if limit is None else limit)
    tried = Tried(
        _above_zero("weights", weights, WEIGHTS),
        _above_zero("temperatures", temperatures, (1.0,)),
        _above_zero("empty_weights", empty_weights, EMPTY_WEIGHTS),
    )
    names = [] if prior is None else [prior] if isinstance(prior, str) else prior
    if not names and not tried.empty:
        raise ConfigError("there is nothing to tune: give --prior, or --empty_weights.")
    corpus = own_corpus(data)
    queries, qrels = read_split(data, split, corpus)
    queries = queries[:limit]
    if not queries:
        raise DataError(f"the split {split!r} holds no query to tune on; give another --split.", data)
    options = SearchOptions(beams, mode, None, batch_size, truncate_queries, span_temperature)
    some = open_retriever(retriever, device, precision, options)
    opened = as_generator(some, "priors look ahead for a generator")
    if opened.spans is not None and empty_weights is None:
        tried = replace(tried, empty=())  # the walk through all spans takes long, so it must be asked for
        if not names:
            raise ConfigError(
                "a generator that writes spans has nothing to tune: give --prior, or --empty_weights."
            )
    refuse_other_corpus(opened, data, split, corpus)
    tell_unlike_training(opened, prior_normalized)
    gold = [gold_passages(query, qrels) for query in queries]

    sources = [
        Remembering(source) for source in open_sources(opened.corpus, names, device, options, analyzer)
    ]
    starts = [WeightedSource(source, 0.0, source.temperature) for source in sources]
    choices = tried.choices(starts, WeightedSource(EmptyPromptPrior(opened), 0.0))
    # Scores that are normalized at every token are no sums, so nothing can be told of other weights.
    depth = max(tune_k, beams)  # what is too low in one ranking may be high under other weights
    pool = None if prior_normalized else Pool(opened, queries, gold, tune_k, choices)

    def measure(setting: Setting) -> Quality:
        start = perf_counter()
        hybrid = HybridRetriever(opened, setting, normalized=prior_normalized)
        found = hybrid.candidates(queries, depth)
        spent = 1000 * (perf_counter() - start) / len(queries)
        if pool is not None:
            pool.add(setting, found)
        ids = [[hit.id for hit in opened.hits(some[:depth])] for some in found]
        recall = sequence_recall(ids, gold, [tune_k])[f"recall@{tune_k}"]
        print(f"recall@{tune_k} {100 * recall:5.1f}  {spent:6.1f} ms a query  {_shown(setting)}", flush=True)
        return Quality(recall, ndcg([some[:tune_k] for some in ids], gold))

    best = tune_in_turn(choices, measure) if pool is None else tune(choices, measure, pool)
    found = f"recall@{tune_k} {100 * best.recall:.1f} on {split} of {data}"
    *weighed, empty = best.priors
    settings = {
        "retriever": retriever,
        "prior": names,
        "prior_weight": [some.weight for some in weighed],
        "prior_temperature": [some.divisor for some in weighed],
        "prior_normalized": prior_normalized,
        "empty_weight": abs(empty.weight),
        "beams": beams,
        "mode": mode,
        **({} if opened.spans is None else {"span_temperature": span_temperature}),
        "truncate_queries": truncate_queries,
        "precision": precision,
        **({"analyzer": vars(analyzer)} if analyzer != USUAL else {}),
    }
    write_config(output, settings, found)
    print(f"{output}: {_shown(best.priors)}")


def _above_zero(name: str, given: list[float] | None, usual: tuple[float, ...]) -> tuple[float, ...]:
    values = usual if given is None else tuple(given)
    if not all(0 < value < math.inf for value in values):
        raise ConfigError(f"--{name} must be above 0, got {list(values)}.")
    return values


def _shown(priors: Sequence[WeightedSource]) -> str:
    """The priors that count."""
    some = [f"{p.source.name} {p.weight:g} (T {p.divisor:g})" for p in priors if p.weight]
    return ", ".join(some) or "generator alone"
