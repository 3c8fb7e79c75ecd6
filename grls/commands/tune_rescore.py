"""``grls tune-rescore``: what a rescore is to count beside the score, on development queries.

What is written is a config of ``grls retrieve``. One search serves all weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from grls.commands.output import write_config
from grls.commands.priors import open_hybrid, prior_options, tell_unlike_training
from grls.commands.retrieve import refuse_other_corpus
from grls.data.dataset import gold_passages, own_corpus, read_split
from grls.data.types import Query
from grls.decode import ScoredPassage
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError, DataError
from grls.evaluation.measures import ndcg
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.io.files import refuse_unwritable
from grls.io.logs import quiet
from grls.models.precision import Precision
from grls.retrieve.base import Under, WritesChains
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.rescore import rescored
from grls.retrieve.hybrid.retriever import DONE_SHARE
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import as_generator, open_retriever

WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


def tune_rescore(
    data: str,
    retriever: str,
    output: str,
    rescore: int = 50,
    weights: list[float] | None = None,
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
    prior: list[str] | str | None = None,
    prior_weight: list[float] | float | None = None,
    prior_temperature: list[float] | float | None = None,
    prior_normalized: bool = False,
    empty_weight: float = 0.0,
    done_share: float = DONE_SHARE,
) -> None:
    """Find the weight of rescores on development queries, single-step.

    Prints what each weight finds, and writes OUTPUT for `grls retrieve --config OUTPUT`. What `grls
    tune-hybrid` has written can be given by `--config`, so that priors come first.

    Args:
        data: Data set folder.
        retriever: Folder of a generative retriever that has learned to rescore (`--data.rescore`).
        output: The YAML file.
        rescore: Passages of each query that are rescored.
        weights: What is tried; null: 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10. Weight 0 always is.
        split: The development queries: not those that results will be reported for.
        tune_k: Cut-off of the recall that is to be high; where it is level nDCG decides, then the smaller
            weight.
        limit: Only so many of the queries.
        beams: Beam width; that of a generator that writes whole passages is ``rescore`` at least.
        mode: Score mode.
        span_temperature: As of `grls retrieve` (a generator that writes spans).
        batch_size: Model inputs decoded together.
        truncate_queries: Cut queries that are too long instead of refusing them.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the generator computes.
        prior: As of `grls retrieve`.
        prior_weight: Likewise.
        prior_temperature: Likewise.
        prior_normalized: Likewise.
        empty_weight: Likewise.
        done_share: Likewise.
    """
    quiet()
    refuse_unwritable(output)
    check_counts(rescore=rescore, tune_k=tune_k, limit=1 if limit is None else limit)
    tried = WEIGHTS if weights is None else tuple(weights)
    if not all(0 < value < math.inf for value in tried):
        raise ConfigError(f"--weights must be above 0, got {list(tried)}.")
    corpus = own_corpus(data)
    queries, qrels = read_split(data, split, corpus)
    queries = queries[:limit]
    if not queries:
        raise DataError(f"the split {split!r} holds no query to tune on; give another --split.", data)
    options = SearchOptions(beams, mode, None, batch_size, truncate_queries, span_temperature)
    priors = prior_options(prior, prior_weight, prior_temperature, empty_weight, done_share, prior_normalized)
    some = open_retriever(retriever, device, precision, options)
    opened = as_generator(some, "nothing else rescores passages")
    opened.refuse_to_rescore()
    if opened.spans is None and beams < rescore:  # as wide as it becomes, whatever weight is found
        beams = rescore
        opened.options = replace(options, beams=beams)
    searching = open_hybrid(opened, priors, device, options) if priors.given else None
    refuse_other_corpus(opened, data, split, corpus)
    tell_unlike_training(searching or opened)
    gold = [gold_passages(query, qrels) for query in queries]

    start = perf_counter()
    found = _found(searching or opened, queries, max(rescore, tune_k))
    searched = perf_counter()
    inputs = [opened.codec.model_input(tokens) for tokens in opened.encode(queries)]
    odds = opened.rescore(inputs, [[hit.passage for hit in some[:rescore]] for some in found])
    spent = [1000 * seconds / len(queries) for seconds in (searched - start, perf_counter() - searched)]
    print(f"{spent[0]:.1f} ms a query to search, {spent[1]:.1f} to rescore {rescore} passages")
    best, quality = 0.0, (-1.0, 0.0)
    for weight in (0.0, *sorted(tried)):
        ranked = [rescored(some, own, weight) for some, own in zip(found, odds, strict=True)]
        ids = [[hit.id for hit in opened.hits(some[:tune_k])] for some in ranked]
        own = sequence_recall(ids, gold, [tune_k])[f"recall@{tune_k}"]
        order = ndcg(ids, gold)
        print(f"recall@{tune_k} {100 * own:5.1f}  rescore_weight {weight:g}")
        if (own, order) > quality:
            best, quality = weight, (own, order)
    settings = {
        "retriever": retriever,
        "rescore": rescore if best else 0,
        "rescore_weight": best or 1.0,
        **priors.told,
        "beams": beams,
        "mode": mode,
        **({} if opened.spans is None else {"span_temperature": span_temperature}),
        "truncate_queries": truncate_queries,
        "precision": precision,
    }
    write_config(output, settings, f"recall@{tune_k} {100 * quality[0]:.1f} on {split} of {data}")
    print(f"{output}: rescore_weight {best:g}")


def _found(opened: WritesChains, queries: Sequence[Query], k: int) -> list[list[ScoredPassage]]:
    """The k best passages of each query, by their scores alone."""
    under = [Under(query, (), (opened.done,)) for query in range(len(queries))]
    return opened.next_hop(queries, None)(under, 0, k)
