"""``grls tune-dynamic``: where chains are to end, by development queries.

The bias on DONE and how a chain is chosen (``--choose``), tried together. What a generator has found for a
chain is kept, so another bias searches only for chains that have not been met. What is written is a config of
``grls retrieve``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from grls.commands.output import write_config
from grls.commands.priors import open_hybrid, prior_options, tell_unlike_training
from grls.commands.retrieve import opened_retriever, refuse_other_corpus
from grls.data.dataset import gold_passages, own_corpus, read_split
from grls.data.types import Chain
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.metrics.done_missing import done_missing
from grls.evaluation.metrics.set_f1 import set_f1
from grls.io.files import refuse_unwritable
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.models.precision import Precision
from grls.retrieve.base import Retriever, TakesEvidence, WritesChains
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.expected_f1 import expected_f1
from grls.retrieve.hops.multistep import MultistepRetriever
from grls.retrieve.hops.options import CHOICES, Choice, HopOptions
from grls.retrieve.hops.retriever import NEEDS_PROBABILITIES, HopsRetriever
from grls.retrieve.hybrid.retriever import DONE_SHARE
from grls.retrieve.queries import check_counts


class ChainSetting(NamedTuple):
    """What is tried, and how good it is.

    Attributes:
        done_bias: See :func:`tune_dynamic`.
        choose: Likewise.
        f1: Mean set F1.
        missing: Share of the queries whose chain does not end with DONE.
    """

    done_bias: float
    choose: Choice
    f1: float
    missing: float


def tune_dynamic(
    data: str,
    retriever: str,
    output: str,
    done_biases: list[float] | None = None,
    choose: list[Choice] | None = None,
    split: str = "dev",
    limit: int | None = None,
    hops: int = 20,
    beams: int = 10,
    chains: int | None = None,
    branch: int | None = None,
    sets: bool = False,
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
    rescore: int = 0,
    rescore_weight: float = 1.0,
) -> None:
    """Find where chains are to end on development queries: the best set F1 of dynamic retrieval.

    Prints what each setting finds, and writes OUTPUT for `grls retrieve --config OUTPUT`.

    Args:
        data: Data set folder.
        retriever: Retriever folder, generative or dense.
        output: The YAML file.
        done_biases: What is tried for `--done_bias`; null: -4 to 2 for a generative retriever, with priors or
            without, 0 to 0.3 for a dense one.
        choose: What is tried for `--choose`; null: both where scores are log-probabilities, else likeliest.
        split: The development queries: not those that results will be reported for.
        limit: Only so many of the queries.
        hops: Most hops.
        beams: Beam width of each hop (generative).
        chains: Chains kept side by side; null: as of `grls retrieve`. For `expected-f1`, many are better.
        branch: Passages that continue a chain at each hop; null: as of `grls retrieve`.
        sets: As of `grls retrieve`.
        mode: Score mode (generative).
        span_temperature: As of `grls retrieve` (a generator that writes spans).
        batch_size: Model inputs decoded or embedded together.
        truncate_queries: Cut queries that are too long instead of refusing them.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the model computes.
        prior: As of `grls retrieve`.
        prior_weight: Likewise.
        prior_temperature: Likewise.
        prior_normalized: Likewise.
        empty_weight: Likewise.
        done_share: Likewise.
        rescore: As of `grls retrieve`; `grls tune-rescore` finds the weight.
        rescore_weight: Likewise.
    """
    quiet()
    check_counts(limit=1 if limit is None else limit)
    refuse_unwritable(output)
    corpus = own_corpus(data)
    queries, qrels = read_split(data, split, corpus)
    queries = queries[:limit]
    options = SearchOptions(
        beams, mode, None, batch_size, truncate_queries, span_temperature,
        rescore=rescore, rescore_weight=rescore_weight,
    )  # fmt: skip
    priors = prior_options(prior, prior_weight, prior_temperature, empty_weight, done_share, prior_normalized)
    opened = opened_retriever(data, retriever, device, precision, options, corpus=corpus)
    if priors.given:
        opened = open_hybrid(opened, priors, device, options)
    refuse_other_corpus(opened, data, split, corpus)
    tell_unlike_training(opened)
    search = HopsRetriever(opened, HopOptions("dynamic", hops, chains, branch, sets=sets)).chains
    if isinstance(search, MultistepRetriever):
        search.memory = {}
    gold = [set(gold_passages(query, qrels)) for query in queries]
    tried = []
    biases, choices = _biases(done_biases, opened), _choices(choose, search)
    start = perf_counter()
    with Progress(len(biases), "tune with", "searches", shown=None) as bar:
        for bias in biases:
            search.done_bias = bias
            found = search.retrieve_chains(queries)
            for how in choices:
                best = [expected_f1(some) if how == "expected-f1" else some[0] for some in found]
                tried.append(ChainSetting(bias, how, *_measured(best, gold)))
                print(_shown(tried[-1]), flush=True)
            bar.update()
    best_one = max(tried, key=lambda setting: (setting.f1, -abs(setting.done_bias)))
    settings = {
        "retriever": retriever, "steps": "dynamic", "hops": hops, "beams": beams, "chains": search.chains,
        "branch": search.branch, "sets": sets, "mode": mode, "done_bias": best_one.done_bias,
        "choose": best_one.choose, "truncate_queries": truncate_queries, "precision": precision,
        **({"span_temperature": span_temperature} if "span_temperature" in opened.describe().options else {}),
        **({"rescore": rescore, "rescore_weight": rescore_weight} if rescore else {}),
        **priors.told,
    }  # fmt: skip
    write_config(output, settings, f"{_shown(best_one)}, on {split} of {data}")
    print(f"{output}: {_shown(best_one)}; {len(queries):,} queries, {perf_counter() - start:.1f} s")


def _biases(given: Sequence[float] | None, opened: Retriever) -> Sequence[float]:
    """What is tried for the bias on DONE.

    Raises:
        ConfigError: Nothing is, or a value is not finite.
    """
    usual = opened.done_biases if isinstance(opened, TakesEvidence | WritesChains) else (0.0,)
    biases = usual if given is None else given
    if not biases or not all(map(math.isfinite, biases)):
        raise ConfigError(f"--done_biases must be finite numbers, at least one; got {list(biases)}.")
    return biases


def _choices(given: Sequence[Choice] | None, search: object) -> Sequence[Choice]:
    """What is tried for how a chain is chosen.

    Raises:
        ConfigError: Nothing is, or it needs probabilities of chains.
    """
    probable = isinstance(search, MultistepRetriever)
    choices: Sequence[Choice] = given if given is not None else CHOICES if probable else CHOICES[:1]
    if not choices:
        raise ConfigError("--choose is empty: give likeliest, expected-f1, or both.")
    if "expected-f1" in choices and not probable:
        raise ConfigError(NEEDS_PROBABILITIES)
    return choices


def _measured(chains: Sequence[Chain], gold: Sequence[set[str]]) -> tuple[float, float]:
    """Set F1, and the share without DONE."""
    f1 = set_f1([{hit.id for hit in chain.hits} for chain in chains], gold)["f1"]
    return f1, done_missing([chain.done for chain in chains])["done_missing"]


def _shown(setting: ChainSetting) -> str:
    return (
        f"set F1 {100 * setting.f1:5.1f}, DONE missing {100 * setting.missing:4.1f} %, "
        f"done_bias {setting.done_bias:g}, {setting.choose}"
    )
