"""Where chains end, and how one is chosen: the bias on DONE and the choice, tried together.

Few development queries mislead, as with the number of hops (:mod:`grls.tune.hops`). So of all settings
whose set F1 is within one standard error of the best one's (of the paired difference, query by query), the
one nearest to what the folder has is chosen: the nearest bias, and with it the folder's own choice of a
chain, if it is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from grls.data.types import Chain
from grls.errors import ConfigError
from grls.evaluation.metrics.averages import mean
from grls.evaluation.metrics.done_missing import done_missing
from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.set_f1 import set_scores
from grls.io.progress import Progress
from grls.retrieve.hops.combine import expected_f1
from grls.retrieve.hops.options import CHOICES, Choice
from grls.retrieve.hops.retriever import NEEDS_PROBABILITIES, HopsRetriever
from grls.retrieve.hops.search import HopSearch
from grls.retrieve.options import stored_hops
from grls.retrieve.spec import MANIFEST, recorded
from grls.tune.step import Step, TuneChoice, Tuning, earlier_choices, paired_error, tell_price


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
            else _measured(tuning, search, hops.done_bias, _choices([hops.choose], walk.probable))
        )
        bar.update(len(before))
        for bias in biases:
            tried += _measured(tuning, search, bias, choices)
            bar.update()
    best = chosen_end(tried, hops.done_bias, hops.choose)
    _tell_best(tried, best)
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


def _tell_best(tried: Sequence[TriedEnd], chosen: TriedEnd) -> None:
    """Print the best and the chosen setting."""
    best = _best_of(tried)
    print(f"  best: {100 * best.f1:.1f} ({best})", end="")
    if chosen != best:
        near = f"within one standard error, {100 * paired_error(best.f1s, chosen.f1s):.1f} points"
        print(f"; chosen: {100 * chosen.f1:.1f} ({chosen}), {near}", end="")
    print(flush=True)


def _measured(tuning: Tuning, search: HopSearch, bias: float, choices: Sequence[Choice]) -> list[TriedEnd]:
    """Search with a bias, and print how good the chains of each choice are."""
    gold = [set(ids) for ids in tuning.dev.gold]

    def measure() -> dict[str, list[Any]]:
        search.stop = search.stop.biased(bias)
        every = search.retrieve_chains(tuning.dev.queries)
        return {how: list(_quality([_best(chains, how) for chains in every], gold)) for how in choices}

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


def _best(chains: Sequence[Chain], how: str) -> Chain:
    return expected_f1(chains) if how == "expected-f1" else chains[0]


def _choices(given: Sequence[Choice] | None, probable: bool) -> Sequence[Choice]:
    """What is tried for how a chain is chosen.

    Raises:
        ConfigError: It needs log-probabilities of chains.
    """
    choices: Sequence[Choice] = given if given is not None else CHOICES if probable else CHOICES[:1]
    if "expected-f1" in choices and not probable:
        raise ConfigError(NEEDS_PROBABILITIES)
    return choices


def _quality(chains: Sequence[Chain], gold: Sequence[set[str]]) -> tuple[list[float], float]:
    """Set F1 of each query, and the share without DONE."""
    pairs = zip(chains, gold, strict=True)
    f1s = [set_scores({hit.id for hit in chain.hits}, wanted).f1 for chain, wanted in pairs]
    return f1s, done_missing([chain.done for chain in chains])["done_missing"]


CHAINS = Step("chains", tune_chains, ends_chains)
