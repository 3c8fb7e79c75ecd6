"""How many hops a ranking takes, how sharp they are, and whether DONE ends them.

A single step is one hop, so the choice between a single step and hops is one of the numbers tried. Few
development queries mislead: of two settings whose recall differs by less than chance would make it, the
simpler one is as good a guess, and costs less. So of all settings whose recall is within one standard error
of the best one's (of the paired difference, query by query; Breiman et al. 1984, section 3.4.3), the fewest
hops are chosen, and of those the highest recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from grls.evaluation.metrics.complete_recall import complete_recall
from grls.io.progress import Progress
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.ranked import RankedHops
from grls.retrieve.options import stored_hops
from grls.retrieve.spec import MANIFEST, recorded
from grls.tune.chains import inner
from grls.tune.step import TuneChoice, Tuning, earlier_choices


class TriedHops(NamedTuple):
    """A setting and what it finds.

    Attributes:
        hops: Number of hops.
        temperature: Of a hop's scores; None: the usual one.
        done: Whether DONE ends chains.
        recalls: Recall of each query.
        complete: Share of queries with all of their passages.
    """

    hops: int
    temperature: float | None
    done: bool
    recalls: list[float]
    complete: float

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
    usual = RankedHops(inner(tuning), replace(hops, done=True))
    memory: dict[Any, Any] = {}
    tried: list[TriedHops] = []
    grid = tuning.grid
    dones = (True, False) if usual.ends else (hops.done,)
    with Progress(len(grid.hop_temperatures) * len(dones), "tune with", "searches", shown=None) as bar:
        for factor in grid.hop_temperatures:
            for done in dones:
                temperature = hops.temperature if factor == 1 else factor * usual.temperature
                tried += _measured(tuning, usual.retriever, hops, memory, temperature, done)
                bar.update()
    best = chosen_hops(tried)
    chosen = replace(hops, max=best.hops, temperature=best.temperature, done=best.done)
    single = max(one.recall for one in tried if one.hops == 1)
    what = "a single step" if best.hops == 1 else f"{best.hops} hops"
    what += "" if best.temperature is None else f", temperature {best.temperature:g}"
    what += ", until DONE" if best.done and usual.ends and best.hops > 1 else ""
    return TuneChoice({"hops": recorded(chosen)}, f"recall@{grid.k}", single, best.recall, what)


def chosen_hops(tried: Sequence[TriedHops]) -> TriedHops:
    """The fewest hops within one standard error of the best recall, and of those the best.

    Among equals complete recall decides, then what was tried first.
    """
    best = max(tried, key=lambda one: (one.recall, one.complete))
    near = [one for one in tried if best.recall - one.recall <= _standard_error(best, one) + 1e-9]
    fewest = min(one.hops for one in near)
    return max((one for one in near if one.hops == fewest), key=lambda one: (one.recall, one.complete))


def _standard_error(first: TriedHops, second: TriedHops) -> float:
    """Of the mean of the paired differences."""
    differences = np.subtract(first.recalls, second.recalls)
    if len(differences) < 2:
        return 0.0
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


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

    of = {
        "step": "hops",
        "hops": recorded(how),
        "counts": counts,
        "k": k,
        "spec": earlier_choices(tuning.spec),
    }
    found = []
    for count, (recalls, complete) in zip(counts, tuning.journal.measured(of, measure), strict=True):
        found.append(TriedHops(count, temperature, done, recalls, complete))
        shown = f"recall@{k} {100 * found[-1].recall:5.1f}, complete {100 * complete:5.1f}"
        shown += f", {count} hop{'s' if count > 1 else ''}"
        shown += "" if temperature is None else f", temperature {temperature:g}"
        print(f"  {shown}{'' if done else ', without DONE'}", flush=True)
    return found


def _quality(rankings: Sequence[Sequence[Any]], gold: Sequence[Sequence[str]], k: int) -> list[Any]:
    """Recall of each query, and the share of complete ones."""
    ids = [[hit.id for hit in hits[:k]] for hits in rankings]
    recalls = [
        len(set(names) & set(wanted)) / len(set(wanted)) if wanted else 0.0
        for names, wanted in zip(ids, gold, strict=True)
    ]
    return [recalls, complete_recall(ids, gold, [k])[f"complete_recall@{k}"]]
