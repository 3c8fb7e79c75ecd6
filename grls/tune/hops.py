"""How many hops a ranking takes, how sharp they are, and what ends them: DONE, the onward model, or nothing.

A single step is one hop, so the choice between a single step and hops is one of the numbers tried. Few
development queries mislead: of two settings whose recall differs by less than chance would make it, the
simpler one is as good a guess, and costs less. So of all settings within one standard error of the best
recall (of the paired difference, query by query; Breiman et al. 1984, section 3.4.3), the fewest hops are
chosen, and of those the highest recall. The onward model is learned with the temperature of the best setting
of several hops, and tried with every number of hops.

The shares of links come first, with two hops; for chains, the bias on DONE and the choice of a chain are
tried together. Of the settings within one standard error of the best, the nearest to what the folder has is
taken. Links are added to what hops have found, which is cached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from grls.errors import ConfigError
from grls.evaluation.metrics import complete_recall, means, recall_at, set_f1
from grls.io.progress import Progress
from grls.retrieve.hops.combine import expected_f1
from grls.retrieve.hops.options import CHOICES, FEATURES, UNLABELLED, Choice, HopOptions
from grls.retrieve.hops.retriever import NEEDS_PROBABILITIES, HopsRetriever, RankedHops
from grls.retrieve.hops.search import HopSearch
from grls.retrieve.hops.stop import Onward, SeenHop, StopRule
from grls.retrieve.spec import recorded
from grls.tune.search import Tried, paired_error, simplest
from grls.tune.step import Step, TuneChoice, Tuning, earlier_choices, others

_FOLDS = 5
"""Parts of the development queries."""

Model = tuple[float, ...]
"""A weight for each feature, then the bias."""

_UNLABELLED = ", the second of the weight 0.4"


def learn_onward(seen: Sequence[SeenHop], gold: Sequence[Collection[str]]) -> Model | None:
    """Learn the onward model: a logistic regression over the features of ``[m]`` hops of chains of ``[Q]``
    queries.

    A hop's label is the share of its hits that is gold and not yet in the chain; each hop counts alike. Its
    worth cannot be seen on the queries that it was learned from (:func:`cross_validated`). None where no hop
    finds a gold passage, or none finds another one.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    shares = [sum(share for name, share in hop.shares.items() if name in gold[hop.query]) for hop in seen]
    labels = np.minimum(np.array(shares, dtype=np.float64), 1.0)
    if not 0 < labels.sum() < len(labels):
        return None
    features = np.array([hop.features for hop in seen]).reshape(-1, len(FEATURES))
    scaler = StandardScaler().fit(features)
    scaled = scaler.transform(features)
    rows = np.concatenate([scaled, scaled])
    classes = np.repeat([1, 0], len(labels))
    regression = LogisticRegression(max_iter=1000)
    regression.fit(rows, classes, sample_weight=np.concatenate([labels, 1 - labels]))
    weights = regression.coef_[0] / scaler.scale_
    bias = float(regression.intercept_[0] - weights @ scaler.mean_)
    return (*(round(float(weight), 6) for weight in weights), round(bias, 6))


def cross_validated(
    seen: Sequence[SeenHop],
    gold: Sequence[Collection[str]],
    search: Callable[[Model, list[int]], list[Any]],
) -> list[Any] | None:
    """What ``search`` finds for each query with a model that was learned from the other four fifths of the
    queries.

    None where there are too few queries, or a part has no model.
    """
    if len(gold) < 2 * _FOLDS:
        return None
    results: list[Any] = [None] * len(gold)
    for fold in range(_FOLDS):
        model = learn_onward([hop for hop in seen if hop.query % _FOLDS != fold], gold)
        if model is None:
            return None
        numbers = list(range(fold, len(gold), _FOLDS))
        for number, result in zip(numbers, search(model, numbers), strict=True):
            results[number] = result
    return results


def inner(tuning: Tuning) -> Any:
    if tuning.spec.get("kind") != "hops":
        return tuning.open()
    return tuning.open_member(tuning.spec["retriever"], "retriever", hop_by_hop=False)


def tune_hops(tuning: Tuning) -> TuneChoice:
    """Find shares of links, number of hops, temperature and use of DONE; the value before is that of a single
    step.
    """
    hops = replace(tuning.hops, onward=None)
    usual = RankedHops(inner(tuning), replace(hops, done=True))
    tried: list[Tried] = []
    grid = tuning.grid
    links = usual.hop_search.prior is not None
    if links:
        hops = _with_shares(tuning, usual.retriever, hops)
    dones = (True, False) if usual.ends else (hops.done,)
    with Progress(len(grid.hop_temperatures) * len(dones), "tune with", "searches", shown=None) as bar:
        for factor, done in product(grid.hop_temperatures, dones):
            temperature = hops.temperature if factor == 1 else factor * usual.temperature
            options = replace(hops, temperature=temperature, done=done)
            tried += _searched(tuning, usual.retriever, options, sorted(set(grid.hops)))
            if not usual.ends and 2 in grid.hops:  # as ranked hops are without tuning
                tried += _searched(tuning, usual.retriever, replace(options, onward=UNLABELLED), [2])
            bar.update()
    several = [one for one in tried if one.setting.max > 1]
    if grid.onward and several:
        temperature = max(several, key=Tried.rank).setting.temperature
        options = replace(hops, temperature=temperature, done=True)
        tried += _searched_with_onward(tuning, usual.retriever, options)
    chosen = simplest(tried, lambda setting: setting.max)
    best = chosen.setting
    single = max(one.mean for one in tried if one.setting.max == 1)
    words = "a single step" if best.max == 1 else f"{best.max} hops"
    words += "" if best.temperature is None else f", temperature {best.temperature:g}"
    until_done = best.done and usual.ends and best.max > 1 and best.onward is None
    words += ", until DONE" if until_done else _UNLABELLED if best.onward == UNLABELLED else ""
    words += "" if best.onward in (None, UNLABELLED) else ", with an onward model"
    words += f", named {hops.named:g}" if links else ""
    words += f", linked {hops.linked:g}" if links and best.max > 1 else ""
    return TuneChoice({"hops": recorded(best)}, f"recall@{grid.k}", single, chosen.mean, words)


def _with_shares(tuning: Tuning, retriever: Any, hops: HopOptions) -> HopOptions:
    grid, own = tuning.grid, (hops.named, hops.linked)
    counts = sorted({1, min(2, max(grid.hops))})
    linked = grid.linked if counts[-1] > 1 else ()
    shares = product(dict.fromkeys((own[0], *grid.named)), dict.fromkeys((own[1], *linked)))
    tried = []
    for first, later in shares:
        options = replace(hops, named=first, linked=later)
        found = _searched(tuning, retriever, options, counts, f", named {first:g}, linked {later:g}")
        tried.append(max(found, key=Tried.rank)._replace(setting=(first, later)))
    nearest = simplest(tried, lambda shares: round(math.dist(shares, own), 9))
    return replace(hops, named=nearest.setting[0], linked=nearest.setting[1])


def _searched(
    tuning: Tuning, retriever: Any, hops: HopOptions, counts: Sequence[int], note: str = ""
) -> list[Tried]:
    """Search once with the most hops; the rankings after each number of them."""
    hops = replace(hops, max=counts[-1])

    def measure() -> list[Any]:
        ranked = RankedHops(retriever, hops, tuning.memory)
        rankings = ranked.retrieve_by_hops(tuning.dev.queries, tuning.grid.k)
        return [_quality(tuning, rankings[count - 1]) for count in counts]

    qualities = tuning.journal.measured(_setting(tuning, hops, counts), measure)
    note += "" if hops.onward is None else _UNLABELLED
    return _tried(tuning, hops, counts, qualities, note if hops.done else f"{note}, without DONE")


def _searched_with_onward(tuning: Tuning, retriever: Any, hops: HopOptions) -> list[Tried]:
    """Learn the onward model, and rank with it: each query with the model of other queries."""
    k, dev = tuning.grid.k, tuning.dev
    counts = [count for count in sorted(set(tuning.grid.hops)) if count > 1]
    hops = replace(hops, max=counts[-1])

    def search(model: Model, numbers: Sequence[int]) -> list[Any]:
        ranked = RankedHops(retriever, replace(hops, onward=model), tuning.memory)
        rankings = ranked.retrieve_by_hops([dev.queries[n] for n in numbers], k)
        return list(zip(*[[hits[:k] for hits in rankings[count - 1]] for count in counts], strict=True))

    def measure() -> dict[str, Any]:
        seen: list[SeenHop] = []
        watching = Onward.of(retriever, hops, seen)
        RankedHops(retriever, hops, tuning.memory, watching).retrieve_by_hops(dev.queries, k)
        gold = [set(ids) for ids in dev.gold]
        model, ranked = learn_onward(seen, gold), cross_validated(seen, gold, search)
        if model is None or ranked is None:
            return {"model": None}
        rankings = list(zip(*ranked, strict=True))
        return {"model": list(model), "found": [_quality(tuning, hits) for hits in rankings]}

    result = tuning.journal.measured(_setting(tuning, hops, counts) | {"onward": True}, measure)
    if result["model"] is None:
        return []
    hops = replace(hops, onward=tuple(result["model"]))
    return _tried(tuning, hops, counts, result["found"], ", onward model, cross-validated")


def _setting(tuning: Tuning, hops: HopOptions, counts: Sequence[int]) -> dict[str, Any]:
    return {
        "step": "hops",
        "hops": recorded(hops),
        "counts": list(counts),
        "k": tuning.grid.k,
        "spec": earlier_choices(tuning.spec),
    }


def _tried(
    tuning: Tuning, hops: HopOptions, counts: Sequence[int], qualities: Sequence[Any], note: str
) -> list[Tried]:
    """The settings of a search, a number of hops each, with their recall; they are printed."""
    tried = []
    for count, (recalls, complete) in zip(counts, qualities, strict=True):
        tried.append(Tried(replace(hops, max=count), recalls, complete))
        line = f"recall@{tuning.grid.k} {100 * tried[-1].mean:5.1f}, complete {100 * complete:5.1f}"
        line += f", {count} hop{'s' if count > 1 else ''}"
        line += "" if hops.temperature is None else f", temperature {hops.temperature:g}"
        print(f"  {line}{note}", flush=True)
    return tried


def _quality(tuning: Tuning, rankings: Sequence[Sequence[Any]]) -> list[Any]:
    gold, k = tuning.dev.gold, tuning.grid.k
    ids = [row[:k] for row in others(tuning.dev, ([hit.id for hit in hits] for hits in rankings))]
    recalls = [recall_at(row, relevant, k) for row, relevant in zip(ids, gold, strict=True)]
    return [recalls, means(complete_recall, ids, gold, ks=[k])[f"complete_recall@{k}"]]


HOPS = Step("hops", tune_hops, lambda tuning: tuning.hops.steps == "ranked")


class ChainEnd(NamedTuple):
    """A stop rule (its bias on DONE included) and a choice of a chain."""

    stop: StopRule
    choose: Choice

    def __str__(self) -> str:
        options = (f"{name} {value:g}" for name, value in self.stop.options.items())
        return ", ".join([*options, self.choose])


def tune_chains(tuning: Tuning) -> TuneChoice:
    """Find the bias on DONE and the choice of a chain; the value before is that of the folder's own.

    Chains are cached, so another bias searches only for new ones.
    """
    hops, retriever = tuning.hops, inner(tuning)
    walk = HopsRetriever(retriever, replace(hops, choose="likeliest"))
    search = walk.hop_search
    if walk.probable:
        search.memory = {}
    own = search.stop
    biases = tuning.grid.biases_of(own)
    choices = CHOICES if walk.probable else CHOICES[:1]
    if hops.choose not in choices:
        raise ConfigError(NEEDS_PROBABILITIES)
    stored = own.bias in biases
    tried: list[Tried] = []
    with Progress(len(biases) + (not stored), "tune with", "searches", shown=None) as bar:
        before: list[Tried] = []
        if not stored:
            before = _measured_ends(tuning, search, own.bias, [hops.choose])
            bar.update()
        for bias in biases:
            tried += _measured_ends(tuning, search, bias, choices)
            bar.update()
    best = simplest(tried, lambda end: (abs(end.stop.bias - own.bias), end.choose != hops.choose))
    highest = max(tried, key=Tried.rank)
    print(f"  best: {100 * highest.mean:.1f} ({highest.setting})", end="")
    if best != highest:
        near = f"within one standard error, {100 * paired_error(highest.values, best.values):.1f} points"
        print(f"; chosen: {100 * best.mean:.1f} ({best.setting}), {near}", end="")
    print(flush=True)
    f1s = {(one.setting.stop.bias, one.setting.choose): one.mean for one in [*tried, *before]}
    end: ChainEnd = best.setting
    chosen = replace(hops, **end.stop.options, choose=end.choose)
    f1 = f1s[own.bias, hops.choose]
    return TuneChoice({"hops": recorded(chosen)}, "set F1", f1, best.mean, str(end))


def _measured_ends(tuning: Tuning, search: HopSearch, bias: float, choices: Sequence[Choice]) -> list[Tried]:
    gold = [set(ids) for ids in tuning.dev.gold]

    def measure() -> dict[str, list[Any]]:
        search.stop = search.stop.biased(bias)
        chains_of = search.retrieve_chains(tuning.dev.queries)
        measures: dict[str, list[Any]] = {}
        for choose in choices:  # set F1 of each query, and the share without DONE
            best = [expected_f1(chains) if choose == "expected-f1" else chains[0] for chains in chains_of]
            ids = others(tuning.dev, ([hit.id for hit in chain.hits] for chain in best))
            f1s = [set_f1(row, relevant)["f1"] for row, relevant in zip(ids, gold, strict=True)]
            measures[choose] = [f1s, fmean(not chain.done for chain in best)]
        return measures

    ends_alone = {*StopRule().options, "choose"}
    hops = {name: value for name, value in tuning.spec["hops"].items() if name not in ends_alone}
    spec = {**earlier_choices(tuning.spec), "hops": hops}  # what chains depend on, beside the models
    setting = {"step": "chains", "bias": bias, "choices": list(choices), "spec": spec}
    measures = tuning.journal.measured(setting, measure)
    ends = []
    for choose in choices:
        f1s, missing = measures[choose]
        end = ChainEnd(search.stop.biased(bias), choose)
        ends.append(Tried(end, f1s, -abs(bias)))
        line = f"set F1 {100 * fmean(f1s):5.1f}, DONE missing {100 * missing:4.1f} %"
        print(f"  {line}, {end}", flush=True)
    return ends


CHAINS = Step("chains", tune_chains, lambda tuning: tuning.hops.steps == "dynamic")
