"""How many hops a ranking takes, how sharp they are, and what ends them: DONE, the onward model, or nothing.

A single step is one hop, so the choice between a single step and hops is one of the numbers tried. Few
development queries mislead: of two settings whose recall differs by less than chance would make it, the
simpler one is as good a guess, and costs less. So of all settings whose recall is within one standard error
of the best one's (of the paired difference, query by query; Breiman et al. 1984, section 3.4.3), the fewest
hops are chosen, and of those the highest recall. The onward model (:mod:`grls.tune.onward`) is learned with
the temperature of the best setting of several hops, and tried with every number of hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from grls.evaluation.metrics.complete_recall import complete_recall
from grls.io.progress import Progress
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.hops.stop import Onward, SeenHop
from grls.retrieve.options import stored_hops
from grls.retrieve.spec import MANIFEST, recorded
from grls.tune.chains import inner
from grls.tune.onward import Model, cross_validated, learn_onward
from grls.tune.step import Step, TuneChoice, Tuning, earlier_choices, paired_error


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
