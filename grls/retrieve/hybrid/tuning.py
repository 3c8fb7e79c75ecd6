"""Weights of priors that are best on development queries, from few searches.

Legend: Q queries, M passages of the query that has most in the pool, F priors with each temperature.

What hybrid decoding finds scores log p(x | query) + sum_i w_i log P_i(x | query), and the priors' share
of it is known. So a passage that one search has found can be ranked under any other weights without the
model. :func:`tune_together` searches with a few settings, ranks what they have found under every setting of
a grid, searches with the one that looks best, which adds what it finds, and so on until the one that looks
best has been searched with: the n-best lists that grow from round to round of minimum error rate training
(Och 2003, ACL), there for translation. A search is a beam search of all queries, a setting of the grid a sum.

A generator that is normalized beside its priors at every token has no such sum; :func:`tune_in_turn` searches
with every setting that it tries, one prior after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from grls.data.types import Query
from grls.decode import ScoredPassage
from grls.decode.prior import Masses, Prior
from grls.decode.scope import Scope
from grls.errors import ConfigError
from grls.index.rows import Ints, SortedRows
from grls.io.progress import Progress
from grls.models.base import Floats
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import log_shares
from grls.retrieve.hybrid.weighted import WeightedSource, prior_of

ROUNDS = 8
"""Most searches after the first three."""

SETTINGS = 25_000
"""Most settings of a grid."""

_POOLED = 200
"""Most passages that a search adds to the pool of a query; of spans a search knows thousands."""

Setting = tuple[WeightedSource, ...]
"""Priors with their weights, that of the empty prompt last."""


class Quality(NamedTuple):
    """How good what a search finds is; compared as it stands, so the second decides where the first is level.

    Attributes:
        recall: Recall@k.
        order: How high the gold passages stand (nDCG), in [0, 1].
    """

    recall: float
    order: float = 0.0


Measure = Callable[[Setting], Quality]


@dataclass(frozen=True)
class Tried:
    """What is tried beside weight 0.

    Attributes:
        weights: Of every prior, above 0.
        temperatures: Factors of a prior's usual temperature, with each weight.
        empty: Of the score under an empty prompt, which is taken back, above 0.
    """

    weights: tuple[float, ...]
    temperatures: tuple[float, ...] = (1.0,)
    empty: tuple[float, ...] = ()

    def choices(self, priors: Sequence[WeightedSource], empty: WeightedSource) -> list[list[WeightedSource]]:
        """Each prior as it is with everything that is tried of it, weight 0 first, then ascending.

        Args:
            priors: Retrievers as priors, with their usual temperatures; weights are not read.
            empty: The score under an empty prompt.
        """
        tried = [(weight, factor) for weight in self.weights for factor in self.temperatures]
        tried.sort(key=lambda some: some[0] / some[1])  # what a passage's own score counts
        made = [
            [start._replace(weight=weight, temperature=factor * start.divisor) for weight, factor in tried]
            for start in priors
        ]
        made.append([empty._replace(weight=-weight) for weight in sorted(self.empty)])
        return [
            [start._replace(weight=0.0), *some] for start, some in zip([*priors, empty], made, strict=True)
        ]


class Tuned(NamedTuple):
    """What tuning has chosen.

    Attributes:
        priors: The priors with their weights, that of the empty prompt last.
        recall: What was found with them.
    """

    priors: Setting
    recall: float


def check_grid(choices: Sequence[Sequence[WeightedSource]]) -> None:
    """Refuse a grid of more than :data:`SETTINGS` settings.

    Raises:
        ConfigError: It has more.
    """
    size = math.prod(map(len, choices))
    if size > SETTINGS:
        counts = " x ".join(str(len(some)) for some in choices)
        raise ConfigError(
            f"{counts} settings of the priors are {size:,}, more than {SETTINGS:,}: try fewer weights or "
            "temperatures."
        )


def tune_together(choices: Sequence[Sequence[WeightedSource]], measure: Measure, pool: Pool) -> Tuned:
    """A setting that is good along with those beside it in the grid, as far as a few searches tell.

    A setting is worth what it finds and what its neighbours find, half of each, one step away in one prior's
    choices: the best of many on a few queries is the luckiest, too, and luck does not extend to neighbours.
    Among those with the same recall the neighbours do not decide, for an edge of the grid has fewer of them:
    the order does, then the smaller weights.

    Args:
        choices: What is tried of each prior (:meth:`Tried.choices`); the grid is all their combinations.
        measure: How good what a search finds with a setting is; it adds that to the pool.
        pool: What searches have found.

    Returns:
        The best of those searched with; of those with its recall that of the highest order, of these that of
        the smallest weights.

    Raises:
        ConfigError: The grid is too large (:func:`check_grid`).
    """
    check_grid(choices)
    shape = tuple(len(some) for some in choices)
    grid = list(np.ndindex(shape))

    def setting(places: Sequence[int]) -> Setting:
        return tuple(some[place] for some, place in zip(choices, places, strict=True))

    settings = [setting(places) for places in grid]
    order = sorted(range(len(grid)), key=lambda n: sum(abs(prior.weight) for prior in settings[n]))
    measured: dict[int, Quality] = {}

    def ask(place: int) -> None:
        if place not in measured:
            measured[place] = measure(settings[place])
            bar.update()

    def best(places: Sequence[int]) -> int:
        """Of some settings; of those not measured yet what the pool promises counts."""
        every = [measured[n] if n in measured else pool.quality(some) for n, some in enumerate(settings)]
        worth = beside(np.reshape([one.recall for one in every], shape)).ravel().round(9)
        first = max(places, key=lambda n: worth[n])
        level = [n for n in places if round(every[n].recall - every[first].recall, 9) == 0]
        return max(level, key=lambda n: round(every[n].order, 9))  # of equal ones the first

    parts = 0.0, 0.5, 1.0  # no priors, each with its middle weight, each with its largest one
    with Progress(len(parts) + ROUNDS, "tune with at most", "searches", shown=None) as bar:
        for part in parts:
            ask(grid.index((*(math.ceil(part * (len(some) - 1)) for some in choices[:-1]), 0)))
        for _ in range(ROUNDS):
            place = best(order)
            if place in measured:
                break
            ask(place)
    chosen = best([place for place in order if place in measured])
    return Tuned(settings[chosen], measured[chosen].recall)


def beside(values: Floats) -> Floats:
    """Each value of a grid, and the mean of its neighbours (one step away along one axis), half of each."""
    total, count = np.zeros(values.shape), np.zeros(values.shape)
    for axis in range(values.ndim):
        for here, there in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
            to = (slice(None),) * axis + (here,)
            total[to] += values[(slice(None),) * axis + (there,)]
            count[to] += 1
    return np.where(count > 0, (values + total / np.maximum(count, 1)) / 2, values)


def tune_in_turn(choices: Sequence[Sequence[WeightedSource]], measure: Measure) -> Tuned:
    """The best of each prior's choices, one prior after another, those before it at their best.

    Args:
        choices: As of :func:`tune_together`.
        measure: How good what a search finds with a setting is; of equal ones the first is taken.
    """
    best = tuple(some[0] for some in choices)
    with Progress(1 + sum(len(some) - 1 for some in choices), "tune with", "searches", shown=None) as bar:
        value = measure(best)
        bar.update()
        for place, some in enumerate(choices):
            for changed in some[1:]:
                setting = (*best[:place], changed, *best[place + 1 :])
                found = measure(setting)
                bar.update()
                if found > value:
                    best, value = setting, found
    return Tuned(best, value.recall)


@dataclass
class _Known:
    """What is known of one query's passages.

    Attributes:
        places: Their numbers in the index to places in the other lists.
        own: What the generator gives each (nats).
        logs: ``[F]`` what the priors give each (nats).
    """

    places: dict[int, int] = field(default_factory=dict)
    own: list[float] = field(default_factory=list)
    logs: list[Floats] = field(default_factory=list)


class Pool:
    """All that searches have found for some queries, and what its scores are made of.

    Args:
        generator: What writes.
        queries: Q queries.
        gold: The gold passages of each.
        k: Cut-off of the recall.
        choices: Every prior with the temperatures that settings may have.

    Raises:
        ConfigError: The grid of the choices is too large (:func:`check_grid`).
        DataError: A query is empty or too long.
    """

    def __init__(
        self,
        generator: GenerativeRetriever,
        queries: Sequence[Query],
        gold: Sequence[Sequence[str]],
        k: int,
        choices: Sequence[Sequence[WeightedSource]],
    ):
        check_grid(choices)  # before all queries are embedded
        self._gold = [_numbers(generator, some) for some in gold]
        self._k = k
        weighed = [prior for some in choices for prior in some if prior.weight]
        columns = {_column(prior): prior._replace(weight=1.0) for prior in weighed}
        self._columns = {key: place for place, key in enumerate(columns)}
        prior = prior_of([*columns.values()], queries, [()] * len(queries), generator.done)
        hidden = [[generator.done]] * len(queries)
        self._said: Callable[[int, Ints], Floats]
        if generator.spans is None:
            scope = Scope(generator.index, len(queries), hidden, generator.subsets(queries, None))
            self._said = _OfRows(prior.open(generator.index, scope, 1), generator.index.rows)
        else:
            gone = sorted({*generator.removed, generator.done})
            self._said = _OfPassages(prior, np.setdiff1d(np.arange(generator.done + 1), gone))
        self._known = [_Known() for _ in queries]
        longest = np.cumsum(1 / np.log2(np.arange(2, max(map(len, self._gold), default=0) + 3)))
        self._ideal: Floats = np.array([longest[max(len(some), 1) - 1] for some in self._gold])

    def add(self, setting: Setting, found: Sequence[Sequence[ScoredPassage]]) -> None:
        """Take in the candidates of a search with a setting (:meth:`HybridRetriever.candidates`).

        What the generator gives a passage that was known already is what it gives it now: of spans a search
        knows those best that its priors favour.
        """
        weights = self._weights(setting)
        for query, (known, hits) in enumerate(zip(self._known, found, strict=True)):
            hits = hits[:_POOLED]
            new = [hit.passage for hit in hits if hit.passage not in known.places]
            if new:
                for number, row in zip(new, self._said(query, np.array(new)), strict=True):
                    known.places[number] = len(known.own)
                    known.own.append(0.0)
                    known.logs.append(row)
            for hit in hits:
                place = known.places[hit.passage]
                known.own[place] = hit.score - float(known.logs[place] @ weights)
        self._stack()

    def quality(self, setting: Setting) -> Quality:
        """Recall and nDCG of the k best of each query's pool under a setting."""
        scores: Floats = self._own + self._logs @ self._weights(setting)
        k = min(self._k, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1), axis=1)
        right = np.take_along_axis(self._right, best, axis=1)
        gains: Floats = (right > 0) @ (1 / np.log2(np.arange(2, k + 2)))
        return Quality(float(right.sum(axis=1).mean()), float((gains / self._ideal).mean()))

    def _stack(self) -> None:
        """What is known as arrays ``[Q, M]`` and ``[Q, M, F]``, and what each passage adds to recall."""
        shape = len(self._known), max(1, *(len(known.own) for known in self._known))
        self._own = np.full(shape, -np.inf)
        self._logs = np.zeros((*shape, len(self._columns)))
        self._right = np.zeros(shape)
        for query, (known, gold) in enumerate(zip(self._known, self._gold, strict=True)):
            count = len(known.own)
            if not count:
                continue
            self._own[query, :count] = known.own
            self._logs[query, :count] = known.logs
            right = np.isin([*known.places], list(gold))
            self._right[query, :count][right] = 1 / max(len(gold), 1)

    def _weights(self, setting: Setting) -> Floats:
        """``[F]``."""
        weights = np.zeros(len(self._columns))
        for prior in setting:
            if prior.weight:
                weights[self._columns[_column(prior)]] += prior.weight
        return weights


@dataclass(frozen=True)
class _OfRows:
    """What priors say of passages (``[n, F]``, nats), those that share a row together."""

    masses: Masses
    rows: SortedRows

    def __call__(self, query: int, numbers: Ints) -> Floats:
        self.masses.load(np.array([0]), np.array([query]))
        return self.masses.shares(0, self.rows.row_of[numbers].astype(np.int64))


@dataclass(frozen=True)
class _OfPassages:
    """What priors say of passages (``[n, F]``, nats), each as it is."""

    prior: Prior
    allowed: Ints

    def __call__(self, query: int, numbers: Ints) -> Floats:
        shares = [log_shares(part, query, self.allowed)[numbers] for part in self.prior.parts]
        return np.stack(shares, axis=1)


def _numbers(generator: GenerativeRetriever, ids: Sequence[str]) -> set[int]:
    """The numbers of gold passages; one that the corpus does not hold counts as not found."""
    found = generator.corpus.numbers(list(dict.fromkeys(ids)))
    return {-1 - n if number is None else number for n, number in enumerate(found)}


def _column(prior: WeightedSource) -> tuple[int, float]:
    return id(prior.source), prior.divisor
