"""Tuning the weights of priors on development queries, with few searches.

Legend: Q queries, M largest number of passages of a query in the pool, F priors.

Hybrid decoding scores passages by log p(x | query) + sum_i w_i log P_i(x | query), and the priors' part of
the sum is known. So the passages of one search can be ranked under other weights without the model, at the
cost of a sum. :func:`tune_together` searches with a few settings and collects their passages in a pool. It
ranks the pool under every setting of a grid, searches with the best setting, adds its passages, and repeats
until it has searched with the best setting. (Minimum error rate training for translation grows n-best lists
in this way; Och 2003, ACL.)

A generator whose scores with its priors are normalized at every token has no such sum: :func:`tune_in_turn`
searches with every setting that it tries, one prior after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np

from grls.data.types import Query
from grls.decode.beam import ScoredPassage
from grls.decode.prior import Masses
from grls.decode.scope import Scope
from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.io.progress import Progress
from grls.models.base import Floats
from grls.retrieve.base import Evidence
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import log_shares
from grls.retrieve.hybrid.priors import Remembering, WeightedSource, prior_of
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.queries import evidence_numbers
from grls.tune.search import as_good, best
from grls.tune.step import Quality, Step, TuneChoice, Tuning

_CANDIDATES = 200
"""Most candidates of a query in the journal."""

ROUNDS = 8
"""Largest number of searches after the first three."""

SETTINGS = 25_000
"""Largest number of settings of a grid."""

_POOLED = 200
"""Largest number of passages that a search adds to the pool of a query (with spans it scores thousands)."""

Setting = tuple[WeightedSource, ...]
"""Priors with their weights."""

Measure = Callable[[Setting], Quality]


def tune_priors(tuning: Tuning) -> TuneChoice:
    """Find the weights by a few searches; a prior that helps at no weight gets 0.

    If the folder ranks by hops, of weights that are as good within one standard error the smallest are taken.
    """
    hybrid = cast(HybridRetriever, tuning.open(rescore=0))  # whose class names this step
    generator, grid = hybrid.generator, tuning.grid
    starts = [
        prior._replace(source=Remembering(prior.source), weight=0.0, temperature=prior.source.temperature)
        for prior in hybrid.priors
    ]
    choices = prior_choices(starts, grid.prior_weights)
    dev, k, name = tuning.inputs(lambda: hybrid.corpus)
    # Scores that are normalized at every token are no sums, so they do not predict scores of other weights.
    pool = None
    if not hybrid.normalized:
        pool = Pool(generator, dev.queries, dev.gold, k, choices, dev.evidence, dev.hops)
    # A passage that is too low in one ranking may be high under other weights.
    depth = max(k, generator.options.beams)
    alone: list[float] = []  # recall of the generator without any prior, each time that it is measured

    def measure(setting: Setting) -> Quality:
        def search() -> list[list[list[Any]]]:
            weighed = HybridRetriever(generator, setting, hybrid.normalized)
            rankings = weighed.candidates(dev.queries, depth, dev.evidence)
            size = max(_CANDIDATES, k)
            return [[[hit.passage, hit.score] for hit in ranking[:size]] for ranking in rankings]

        named = [[prior.name, prior.weight, prior.divisor] for prior in setting]
        step: dict[str, Any] = {"step": "priors", "depth": depth, "setting": named}
        if any(dev.evidence):
            step["hops"] = len(dev.queries)
        stored = tuning.journal.measured(step, search)
        rankings = [[ScoredPassage(*pair) for pair in ranking] for ranking in stored]
        if pool is not None:
            pool.add(setting, rankings)
        hits = [generator.hits(ranking[:depth]) for ranking in rankings]
        quality = dev.quality([[hit.id for hit in ranking] for ranking in hits], k)
        if not any(prior.weight for prior in setting):
            alone.append(quality.recall)
        print(f"  recall@{k} {100 * quality.recall:5.1f}  {_shown(setting)}", flush=True)
        return quality

    tuned = (
        tune_in_turn(choices, measure) if pool is None else tune_together(choices, measure, pool, dev.hops)
    )
    priors = [
        {**fields, "weight": prior.weight, "temperature": prior.divisor}
        for fields, prior in zip(tuning.spec["priors"], tuned.priors, strict=True)
    ]
    return TuneChoice({"priors": priors}, name, alone[0], tuned.recall, _shown(tuned.priors))


def _shown(priors: Sequence[WeightedSource]) -> str:
    named = [f"{p.name} {p.weight:g} (T {p.divisor:g})" for p in priors if p.weight]
    return ", ".join(named) or "generator alone"


PRIORS = Step("priors", tune_priors)


def prior_choices(priors: Sequence[WeightedSource], weights: Sequence[float]) -> list[list[WeightedSource]]:
    """The choices of each prior: weight 0 first, then ascending."""
    return [[prior._replace(weight=weight) for weight in (0.0, *sorted(weights))] for prior in priors]


class Tuned(NamedTuple):
    """The priors with their weights, and the recall with these."""

    priors: Setting
    recall: float


def tune_together(
    choices: Sequence[Sequence[WeightedSource]], measure: Measure, pool: Pool, lightest: bool = False
) -> Tuned:
    """Find a setting of the grid that is good together with its neighbours, with few searches.

    The value of a setting is the mean of its own recall and the mean recall of its neighbours, one step away
    in the choices of one prior. (The best of many settings on few queries is also the luckiest, and luck does
    not extend to neighbours.) Among settings of equal recall the neighbours do not decide, since an edge of
    the grid has fewer: the higher ``order`` wins, then the smaller weights.

    Args:
        choices: The choices of each prior; the grid is all their combinations.
        measure: Searches with a setting, adds the passages to the pool, and returns the quality.
        pool: The passages of all searches.
        lightest: Take the smallest weights whose recall is within one standard error of the best (of the mean
            of the paired differences), if a search with them confirms it: few queries cannot tell them apart,
            and large weights leave nothing to the generator.
    """
    shape = tuple(len(values) for values in choices)
    grid = list(np.ndindex(shape))
    settings = [tuple(values[n] for values, n in zip(choices, index, strict=True)) for index in grid]
    order = sorted(range(len(grid)), key=lambda n: sum(prior.weight for prior in settings[n]))
    measured: dict[int, Quality] = {}

    def ask(number: int) -> None:
        if number not in measured:
            measured[number] = measure(settings[number])
            bar.update()

    def promising(numbers: Sequence[int]) -> int:
        """The best of these settings; the pool estimates the settings that were not measured."""
        qualities = [measured.get(n) or pool.quality(setting) for n, setting in enumerate(settings)]
        values = beside(np.reshape([quality.recall for quality in qualities], shape)).ravel().round(9)
        first = max(numbers, key=lambda n: values[n])
        level = [n for n in numbers if round(qualities[n].recall - qualities[first].recall, 9) == 0]
        return max(level, key=lambda n: round(qualities[n].order, 9))  # the first of equal settings

    parts = 0.0, 0.5, 1.0  # no priors, each with its middle weight, each with its largest one
    with Progress(len(parts) + ROUNDS, "tune with at most", "searches", shown=None) as bar:
        for part in parts:
            ask(grid.index(tuple(math.ceil(part * (len(values) - 1)) for values in choices)))
        for _ in range(ROUNDS):
            number = promising(order)
            if number in measured:
                break
            ask(number)
        chosen = promising([number for number in order if number in measured])
        if lightest:
            light = next(n for n in order if pool.as_good(settings[n], settings[chosen]))
            ask(light)
            chosen = light if pool.as_good(settings[light], settings[chosen]) else chosen
    return Tuned(settings[chosen], measured[chosen].recall)


def beside(values: Floats) -> Floats:
    """The mean of each value of a grid and the mean of its neighbours (one step away along one axis)."""
    total, count = np.zeros(values.shape), np.zeros(values.shape)
    for axis in range(values.ndim):
        for here, there in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
            to = (slice(None),) * axis + (here,)
            total[to] += values[(slice(None),) * axis + (there,)]
            count[to] += 1
    return np.where(count > 0, (values + total / np.maximum(count, 1)) / 2, values)


def tune_in_turn(choices: Sequence[Sequence[WeightedSource]], measure: Measure) -> Tuned:
    """Find the best choice of each prior, one after another, with earlier priors at their best.

    Among equal qualities the first wins.
    """
    measure = cache(measure)
    setting = tuple(values[0] for values in choices)
    for axis, values in enumerate(choices):
        before, after = setting[:axis], setting[axis + 1 :]
        (prior,), _ = best(lambda prior, b=before, a=after: measure((*b, prior, *a)), values)
        setting = (*before, prior, *after)
    return Tuned(setting, measure(setting).recall)


class Pool:
    """The passages of all searches for Q queries, with the parts of their scores.

    ``k`` is the cut-off of the recall; ``capped``: it is the share of the gold passages that k hits can hold.
    ``choices`` are those of each prior.
    """

    def __init__(
        self,
        generator: GenerativeRetriever,
        queries: Sequence[Query],
        gold: Sequence[Sequence[str]],
        k: int,
        choices: Sequence[Sequence[WeightedSource]],
        evidence: Evidence = (),
        capped: bool = False,
    ):
        counts = [len(values) for values in choices]
        if math.prod(counts) > SETTINGS:  # before all queries are embedded
            shown = " x ".join(map(str, counts))
            raise ConfigError(
                f"{shown} settings of the priors are more than {SETTINGS:,}: try fewer weights."
            )
        self._gold: list[set[int]] = []
        for ids in gold:  # a passage that is not in the corpus gets a negative number
            numbers = enumerate(generator.corpus.numbers(list(dict.fromkeys(ids))))
            self._gold.append({-1 - n if number is None else number for n, number in numbers})
        self._k = k
        self._limits = [max(1, min(k, len(ids)) if capped else len(ids)) for ids in self._gold]
        weighed = [prior for values in choices for prior in values if prior.weight]
        columns = {id(prior.source): prior._replace(weight=1.0) for prior in weighed}
        self._columns = {key: column for column, key in enumerate(columns)}
        before = evidence or [()] * len(queries)
        prior = prior_of([*columns.values()], queries, before, generator.done)
        # The same as in each search, or the priors' part of a score is off by a constant per query.
        hidden = [[generator.done, *evidence_numbers(generator.corpus, passages)] for passages in before]
        if generator.spans is None:  # passages of one row count together
            index, subsets = generator.index, generator.subsets(queries, None)

            def log_weights(query: int, numbers: Ints) -> Floats:
                scope = Scope(index, 1, [hidden[query]], [subsets[query]])
                masses = Masses(prior.among([query]), index, scope, 1)
                masses.load(np.array([0]))
                return masses.shares(0, index.rows.row_of[numbers].astype(np.int64))

        else:
            every = np.arange(generator.done)

            def log_weights(query: int, numbers: Ints) -> Floats:
                allowed = np.setdiff1d(every, hidden[query])
                return np.stack([log_shares(part, query, allowed)[numbers] for part in prior.parts], axis=1)

        self._log_weights = log_weights  # of a query and n passages: the priors' scores, [n, F] (nats)
        # Of each query: passage -> score of the generator, and [F] scores of the priors (nats).
        self._passages: list[dict[int, tuple[float, Floats]]] = [{} for _ in queries]
        longest = np.cumsum(1 / np.log2(np.arange(2, max(map(len, self._gold), default=0) + 3)))
        self._ideal: Floats = np.array([longest[max(len(numbers), 1) - 1] for numbers in self._gold])

    def add(self, setting: Setting, rankings: Sequence[Sequence[ScoredPassage]]) -> None:
        """Add the candidates of a search with a setting (:meth:`HybridRetriever.candidates`).

        The newest score of the generator replaces earlier ones: with spans, a search knows those spans best
        that its priors favour.
        """
        weights = self._weights(setting)
        for query, (passages, hits) in enumerate(zip(self._passages, rankings, strict=True)):
            hits = hits[:_POOLED]
            new = [hit.passage for hit in hits if hit.passage not in passages]
            logs = dict(zip(new, self._log_weights(query, np.array(new)), strict=True)) if new else {}
            for hit in hits:
                row = logs[hit.passage] if hit.passage in logs else passages[hit.passage][1]
                passages[hit.passage] = hit.score - float(row @ weights), row
        # The pool as arrays [Q, M] and [Q, M, F], and the recall of each passage.
        shape = len(self._passages), max(1, *map(len, self._passages))
        self._own = np.full(shape, -np.inf)
        self._logs = np.zeros((*shape, len(self._columns)))
        self._right = np.zeros(shape)
        pool = zip(self._passages, self._gold, self._limits, strict=True)
        for query, (passages, gold, limit) in enumerate(pool):
            if passages:
                count = len(passages)
                self._own[query, :count] = [own for own, _ in passages.values()]
                self._logs[query, :count] = [row for _, row in passages.values()]
                self._right[query, :count][np.isin([*passages], list(gold))] = 1 / limit

    def as_good(self, setting: Setting, best: Setting) -> bool:
        """By the pool, whether a setting's recall is within one standard error of that of ``best``."""
        return as_good(self._right_of(setting).sum(axis=1), self._right_of(best).sum(axis=1))

    def quality(self, setting: Setting) -> Quality:
        """Recall and nDCG of the k best of each query's pool."""
        right = self._right_of(setting)
        gains: Floats = (right > 0) @ (1 / np.log2(np.arange(2, right.shape[1] + 2)))
        return Quality(float(right.sum(axis=1).mean()), float((gains / self._ideal).mean()))

    def _right_of(self, setting: Setting) -> Floats:
        """``[Q, k]`` the recall that each of a query's k best passages under a setting adds."""
        scores: Floats = self._own + self._logs @ self._weights(setting)
        k = min(self._k, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1), axis=1)
        return np.take_along_axis(self._right, best, axis=1)

    def _weights(self, setting: Setting) -> Floats:
        weights = np.zeros(len(self._columns))
        for prior in setting:
            if prior.weight:
                weights[self._columns[id(prior.source)]] += prior.weight
        return weights
