"""How many hops a ranking takes, how sharp they are, and what ends them: DONE, the onward model, or nothing.

A single step is one hop, so the choice between a single step and hops is one of the numbers tried. Few
development queries mislead: of two settings whose recall differs by less than chance would make it, the
simpler one is as good a guess, and costs less. So of all settings whose recall is within one standard error
of the best one's (of the paired difference, query by query; Breiman et al. 1984, section 3.4.3), the fewest
hops are chosen, and of those the highest recall. The onward model is learned with the temperature of the
best setting of several hops, and tried with every number of hops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from grls.errors import ConfigError
from grls.evaluation.metrics.averages import mean
from grls.evaluation.metrics.complete_recall import complete_recall
from grls.evaluation.metrics.done_missing import done_missing
from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.set_f1 import set_scores
from grls.io.progress import Progress
from grls.retrieve.hops.combine import expected_f1
from grls.retrieve.hops.options import CHOICES, FEATURES, Choice, HopOptions
from grls.retrieve.hops.retriever import NEEDS_PROBABILITIES, HopsRetriever, RankedHops
from grls.retrieve.hops.search import HopSearch
from grls.retrieve.hops.stop import Onward, SeenHop
from grls.retrieve.options import stored_hops
from grls.retrieve.spec import MANIFEST, recorded
from grls.tune.step import Step, TuneChoice, Tuning, earlier_choices, paired_error, tell_price


class TriedHops(NamedTuple):
    """A setting and what it finds.

    Attributes:
        hops: Number of hops.
        temperature: Of a hop's scores; None: the usual one.
        done: Whether DONE ends chains.
        recalls: Recall of each query.
        complete: Share of queries with all of their passages.
        onward: The onward model, learned from all queries; None: none.
    """

    hops: int
    temperature: float | None
    done: bool
    recalls: list[float]
    complete: float
    onward: Model | None = None

    @property
    def recall(self) -> float:
        """The mean over the queries."""
        return float(np.mean(self.recalls))


def ranks_by_hops(tuning: Tuning) -> bool:
    """Whether the folder ranks by hops."""
    hops = stored_hops(tuning.spec, tuning.folder / MANIFEST)
    return hops is not None and hops.steps == "ranked"


def tune_hops(tuning: Tuning) -> TuneChoice:
    """Find number of hops, temperature and use of DONE; before is the single step."""
    hops = stored_hops(tuning.spec, tuning.folder / MANIFEST)
    assert hops is not None
    hops = replace(hops, onward=None)
    usual = RankedHops(inner(tuning), replace(hops, done=True))
    memory = tuning.found
    tried: list[TriedHops] = []
    grid = tuning.grid
    dones = (True, False) if usual.ends else (hops.done,)
    with Progress(len(grid.hop_temperatures) * len(dones), "tune with", "searches", shown=None) as bar:
        for factor in grid.hop_temperatures:
            for done in dones:
                temperature = hops.temperature if factor == 1 else factor * usual.temperature
                tried += _measured(tuning, usual.retriever, hops, memory, temperature, done)
                bar.update()
    tried += _onward(tuning, usual.retriever, hops, memory, tried)
    best = chosen_hops(tried)
    chosen = replace(hops, max=best.hops, temperature=best.temperature, done=best.done, onward=best.onward)
    single = max(one.recall for one in tried if one.hops == 1)
    what = "a single step" if best.hops == 1 else f"{best.hops} hops"
    what += "" if best.temperature is None else f", temperature {best.temperature:g}"
    until_done = best.done and usual.ends and best.hops > 1 and best.onward is None
    what += ", until DONE" if until_done else "" if best.onward is None else ", with an onward model"
    return TuneChoice({"hops": recorded(chosen)}, f"recall@{grid.k}", single, best.recall, what)


def chosen_hops(tried: Sequence[TriedHops]) -> TriedHops:
    """The fewest hops within one standard error of the best recall, and of those the best.

    Among equals complete recall decides, then what was tried first.
    """
    best = max(tried, key=lambda one: (one.recall, one.complete))
    near = [
        one for one in tried if best.recall - one.recall <= paired_error(best.recalls, one.recalls) + 1e-9
    ]
    fewest = min(one.hops for one in near)
    return max((one for one in near if one.hops == fewest), key=lambda one: (one.recall, one.complete))


def _measured(
    tuning: Tuning,
    retriever: Any,
    hops: HopOptions,
    memory: dict[Any, Any],
    temperature: float | None,
    done: bool,
) -> list[TriedHops]:
    """Search once with the most hops; the rankings after each number of them that is tried."""
    k, counts = tuning.grid.k, sorted(set(tuning.grid.hops))
    how = replace(hops, max=counts[-1], temperature=temperature, done=done)

    def measure() -> list[Any]:
        rankings = RankedHops(retriever, how, memory).retrieve_by_hops(tuning.dev.queries, k)
        return [_quality(rankings[count - 1], tuning.dev.gold, k) for count in counts]

    found = tuning.journal.measured(_setting(tuning, how, counts), measure)
    tried = [
        TriedHops(count, temperature, done, recalls, complete)
        for count, (recalls, complete) in zip(counts, found, strict=True)
    ]
    _say(tried, k, "" if done else ", without DONE")
    return tried


def _onward(
    tuning: Tuning, retriever: Any, hops: HopOptions, memory: dict[Any, Any], tried: Sequence[TriedHops]
) -> list[TriedHops]:
    """Learn the onward model, and rank with it: each query with the model of other queries."""
    k, dev = tuning.grid.k, tuning.dev
    counts = [count for count in sorted(set(tuning.grid.hops)) if count > 1]
    several = [one for one in tried if one.hops > 1]
    if not (tuning.grid.onward and several):
        return []
    temperature = max(several, key=lambda one: (one.recall, one.complete)).temperature
    how = replace(hops, max=counts[-1], temperature=temperature, done=True)

    def search(model: Model, numbers: Sequence[int]) -> list[Any]:
        ranked = RankedHops(retriever, replace(how, onward=model), memory)
        rankings = ranked.retrieve_by_hops([dev.queries[n] for n in numbers], k)
        return list(zip(*[[hits[:k] for hits in rankings[count - 1]] for count in counts], strict=True))

    def measure() -> dict[str, Any]:
        seen: list[SeenHop] = []
        watching = Onward.of(retriever, how, seen)
        RankedHops(retriever, how, memory, watching).retrieve_by_hops(dev.queries, k)
        gold = [set(ids) for ids in dev.gold]
        model, ranked = learn_onward(seen, gold), cross_validated(seen, gold, search)
        if model is None or ranked is None:
            return {"model": None}
        rankings = list(zip(*ranked, strict=True))
        return {"model": list(model), "found": [_quality(hits, dev.gold, k) for hits in rankings]}

    result = tuning.journal.measured(_setting(tuning, how, counts) | {"onward": True}, measure)
    if result["model"] is None:
        return []
    model = tuple(result["model"])
    tried_onward = [
        TriedHops(count, temperature, True, recalls, complete, model)
        for count, (recalls, complete) in zip(counts, result["found"], strict=True)
    ]
    _say(tried_onward, k, ", onward model, cross-validated")
    return tried_onward


def _setting(tuning: Tuning, how: HopOptions, counts: Sequence[int]) -> dict[str, Any]:
    """What a measurement depends on."""
    return {
        "step": "hops",
        "hops": recorded(how),
        "counts": list(counts),
        "k": tuning.grid.k,
        "spec": earlier_choices(tuning.spec),
    }


def _say(tried: Sequence[TriedHops], k: int, more: str) -> None:
    """Print what was found."""
    for one in tried:
        shown = f"recall@{k} {100 * one.recall:5.1f}, complete {100 * one.complete:5.1f}"
        shown += f", {one.hops} hop{'s' if one.hops > 1 else ''}"
        shown += "" if one.temperature is None else f", temperature {one.temperature:g}"
        print(f"  {shown}{more}", flush=True)


def _quality(rankings: Sequence[Sequence[Any]], gold: Sequence[Sequence[str]], k: int) -> list[Any]:
    """Recall of each query, and the share of complete ones."""
    ids = [[hit.id for hit in hits[:k]] for hits in rankings]
    recalls = [
        len(set(names) & set(wanted)) / len(set(wanted)) if wanted else 0.0
        for names, wanted in zip(ids, gold, strict=True)
    ]
    return [recalls, complete_recall(ids, gold, [k])[f"complete_recall@{k}"]]


HOPS = Step("hops", tune_hops, ranks_by_hops)


# Where chains end, and how one is chosen: the bias on DONE and the choice, tried together.
#
# Few development queries mislead, as with the number of hops. So of all settings whose set F1 is within one
# standard error of the best one's (of the paired difference, query by query), the one nearest to what the
# folder has is chosen: the nearest bias, and with it the folder's own choice of a chain, if it is among
# them.


def ends_chains(tuning: Tuning) -> bool:
    """Whether the folder goes hop by hop until DONE."""
    hops = stored_hops(tuning.spec, tuning.folder / MANIFEST)
    return hops is not None and hops.steps == "dynamic"


def tune_chains(tuning: Tuning) -> TuneChoice:
    """Find the bias on DONE and the choice (:func:`chosen_end`); before is the folder's own setting.

    The search remembers the chains, so another bias searches only for chains that have not been met.

    Raises:
        ConfigError: A choice needs log-probabilities of chains.
    """
    hops = stored_hops(tuning.spec, tuning.folder / MANIFEST)
    assert hops is not None
    retriever = inner(tuning)
    walk = HopsRetriever(retriever, replace(hops, choose="likeliest", done_bias=0.0))
    search = walk.search
    if walk.probable:
        search.memory = {}
    biases = search.stop.biases if tuning.grid.done_biases is None else tuning.grid.done_biases
    choices = _choices(tuning.grid.choose, walk.probable)
    stored = hops.done_bias in biases and hops.choose in choices
    tried: list[TriedEnd] = []
    with Progress(len(biases) + (not stored), "tune with", "searches", shown=None) as bar:
        before = (
            []
            if stored
            else _measured_ends(tuning, search, hops.done_bias, _choices([hops.choose], walk.probable))
        )
        bar.update(len(before))
        for bias in biases:
            tried += _measured_ends(tuning, search, bias, choices)
            bar.update()
    best = chosen_end(tried, hops.done_bias, hops.choose)
    highest = _best_of(tried)
    print(f"  best: {100 * highest.f1:.1f} ({highest})", end="")
    if best != highest:
        near = f"within one standard error, {100 * paired_error(highest.f1s, best.f1s):.1f} points"
        print(f"; chosen: {100 * best.f1:.1f} ({best}), {near}", end="")
    print(flush=True)
    _tell_price(tuning, search, best)
    was = next(one for one in before or tried if (one.bias, one.choose) == (hops.done_bias, hops.choose))
    chosen = replace(hops, done_bias=best.bias, choose=best.choose)
    return TuneChoice({"hops": recorded(chosen)}, "set F1", was.f1, best.f1, str(best))


class TriedEnd(NamedTuple):
    """A setting and what it finds.

    Attributes:
        f1s: Set F1 of each development query.
        bias: The bias on DONE.
        choose: How a chain is chosen.
    """

    f1s: list[float]
    bias: float
    choose: Choice

    @property
    def f1(self) -> float:
        """The mean over the queries."""
        return mean(self.f1s)

    def __str__(self) -> str:
        return f"done_bias {self.bias:g}, {self.choose}"


def chosen_end(tried: Sequence[TriedEnd], bias: float, choose: Choice) -> TriedEnd:
    """Of the settings within one standard error of the best set F1 the nearest to a bias and a choice.

    Of equally near ones the higher set F1 decides, then what was tried first.

    Args:
        tried: At least one.
        bias: The bias that the folder has.
        choose: Its choice.
    """
    best = _best_of(tried)
    near = [one for one in tried if best.f1 - one.f1 <= paired_error(best.f1s, one.f1s) + 1e-9]
    return min(near, key=lambda one: (abs(one.bias - bias), one.choose != choose, -one.f1))


def _best_of(tried: Sequence[TriedEnd]) -> TriedEnd:
    return max(tried, key=lambda one: (one.f1, -abs(one.bias)))


def _measured_ends(
    tuning: Tuning, search: HopSearch, bias: float, choices: Sequence[Choice]
) -> list[TriedEnd]:
    """Search with a bias, and print how good the chains of each choice are."""
    gold = [set(ids) for ids in tuning.dev.gold]

    def measure() -> dict[str, list[Any]]:
        search.stop = search.stop.biased(bias)
        every = search.retrieve_chains(tuning.dev.queries)
        measures: dict[str, list[Any]] = {}
        for how in choices:  # set F1 of each query, and the share without DONE
            best = [expected_f1(chains) if how == "expected-f1" else chains[0] for chains in every]
            pairs = zip(best, gold, strict=True)
            f1s = [set_scores({hit.id for hit in chain.hits}, wanted).f1 for chain, wanted in pairs]
            measures[how] = [f1s, done_missing([chain.done for chain in best])["done_missing"]]
        return measures

    of = {
        "step": "chains",
        "bias": bias,
        "choices": list(choices),
        "spec": _relevant(tuning.spec),
    }
    measures = tuning.journal.measured(of, measure)
    for how, (f1s, missing) in measures.items():
        shown = f"set F1 {100 * mean(f1s):5.1f}, DONE missing {100 * missing:4.1f} %"
        print(f"  {shown}, done_bias {bias:g}, {how}", flush=True)
    return [TriedEnd(measures[how][0], bias, how) for how in choices]


def _tell_price(tuning: Tuning, search: HopSearch, best: TriedEnd) -> None:
    """Print what the best end costs beside the known number of passages.

    Each query gets as many hops as it has gold passages. Hops that were met are remembered where others are.

    Args:
        tuning: The folder.
        search: Finds chains.
        best: What was chosen.
    """
    gold = [set(ids) for ids in tuning.dev.gold]

    def measure() -> float:
        search.stop, limit = search.stop.biased(search.stop.least_bias), search.hops
        chains: dict[int, list[str]] = {}
        for size in sorted({len(ids) for ids in gold} - {0}):
            places = [n for n, ids in enumerate(gold) if len(ids) == size]
            search.hops = min(size, limit)
            found = search.retrieve_chains([tuning.dev.queries[n] for n in places])
            chains |= {n: [hit.id for hit in own[0].hits] for n, own in zip(places, found, strict=True)}
        search.hops = limit
        return known_number([chains.get(n, []) for n in range(len(gold))], gold)["f1_known_number"]

    known = tuning.journal.measured({"step": "known number", "spec": _relevant(tuning.spec)}, measure)
    tell_price(known, best.f1, "DONE")


def inner(tuning: Tuning) -> Any:
    """The retriever of the hops of a folder."""
    if tuning.spec.get("kind") != "hops":
        return tuning.open()
    return tuning.open_member(tuning.spec["retriever"], "retriever", hop_by_hop=False)


def _relevant(spec: dict[str, Any]) -> dict[str, Any]:
    """What the chains depend on, beside the models."""
    hops = {name: value for name, value in spec["hops"].items() if name not in ("done_bias", "choose")}
    return {**earlier_choices(spec), "hops": hops}


def _choices(given: Sequence[Choice] | None, probable: bool) -> Sequence[Choice]:
    """What is tried for how a chain is chosen.

    Raises:
        ConfigError: It needs log-probabilities of chains.
    """
    choices: Sequence[Choice] = given if given is not None else CHOICES if probable else CHOICES[:1]
    if "expected-f1" in choices and not probable:
        raise ConfigError(NEEDS_PROBABILITIES)
    return choices


CHAINS = Step("chains", tune_chains, ends_chains)


# The onward model learned: when does one more hop find a gold passage?
#
# Legend: Q development queries, m hops of chains that were seen, f their features.
#
# A hop's label is the share of its hits that is gold and not yet in the chain. A logistic regression fits the
# labels, each hop counting alike. What the model is worth cannot be seen on the queries that it was learned
# from. So each fifth of the queries is ranked with the model of the other four.


_FOLDS = 5
"""Parts of the development queries."""

Model = tuple[float, ...]
"""A weight for each feature, then the bias."""


def learn_onward(seen: Sequence[SeenHop], gold: Sequence[Collection[str]]) -> Model | None:
    """Learn the model; None: no hop finds a gold passage, or none finds another one.

    Args:
        seen: ``[m]`` hops.
        gold: ``[Q]`` ids of the gold passages.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    golden = [sum(share for name, share in one.shares.items() if name in gold[one.query]) for one in seen]
    found = np.minimum(np.array(golden, dtype=np.float64), 1.0)
    if not 0 < found.sum() < len(found):
        return None
    features = np.array([one.features for one in seen]).reshape(-1, len(FEATURES))
    scaler = StandardScaler().fit(features)
    scaled = scaler.transform(features)
    both = np.concatenate([scaled, scaled])
    labels = np.repeat([1, 0], len(found))
    regression = LogisticRegression(max_iter=1000)
    regression.fit(both, labels, sample_weight=np.concatenate([found, 1 - found]))
    weights = regression.coef_[0] / scaler.scale_
    bias = float(regression.intercept_[0] - weights @ scaler.mean_)
    return (*(round(float(weight), 6) for weight in weights), round(bias, 6))


def cross_validated(
    seen: Sequence[SeenHop],
    gold: Sequence[Collection[str]],
    search: Callable[[Model, list[int]], list[Any]],
) -> list[Any] | None:
    """What is found for each query with a model that was learned without it.

    Args:
        seen: ``[m]`` hops.
        gold: ``[Q]`` ids of the gold passages.
        search: Finds something for the queries of these numbers with a model.

    Returns:
        ``[Q]`` what was found; None: there are too few queries, or a part has no model.
    """
    if len(gold) < 2 * _FOLDS:
        return None
    results: list[Any] = [None] * len(gold)
    for fold in range(_FOLDS):
        model = learn_onward([one for one in seen if one.query % _FOLDS != fold], gold)
        if model is None:
            return None
        numbers = list(range(fold, len(gold), _FOLDS))
        for number, result in zip(numbers, search(model, numbers), strict=True):
            results[number] = result
    return results
