"""How many passages a cross-encoder reads, and what its logits count beside the first retriever's scores.

Both hold in every hop. So if the folder ranks by hops, every gold passage is a hop with the gold passages
before it as evidence, and the first hit counts, as for priors (:mod:`grls.tune.priors`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from grls.data.types import Hit, Query
from grls.io.counts import counted
from grls.io.progress import Progress
from grls.retrieve.hybrid.tuning import Quality
from grls.retrieve.rescored.options import Rereading
from grls.retrieve.rescored.rescore import rank_again
from grls.retrieve.spec import MANIFEST, made
from grls.tune.chains import ends_chains
from grls.tune.dev import DevHops
from grls.tune.hops import ranks_by_hops
from grls.tune.step import Step, TuneChoice, Tuning, as_hits, as_pairs

_TOGETHER = 32
"""Queries between two points where a killed run can go on."""

Reading = tuple[list[Hit], list[float]]
"""The ranking of a query by the first retriever, and the logits of its passages."""


def tune_cross_encoder(tuning: Tuning) -> TuneChoice:
    """Find the number of passages and the weight; what is read once serves all of them.

    Of settings of equal quality the one that reads fewer passages is taken, then that of the smaller weight.
    """
    grid, by_hop = tuning.grid, ranks_by_hops(tuning)
    opened: Callable[[], Any] = cache(tuning.open)
    dev = tuning.dev.by_hop(opened().corpus) if by_hop else tuning.dev.at_once()
    k = 1 if by_hop else grid.k
    named = {name: tuning.spec[name] for name in ("passages", "weight") if name in tuning.spec}
    stored = made(Rereading, named, tuning.folder / MANIFEST, "rescored")
    most = k + max(map(len, dev.evidence))  # the search finds evidence again, and leaves it out at the end
    depth = max(most, stored.passages, *grid.cross_encoder_passages)
    readings = _readings(tuning, opened, dev, depth)
    weights: list[float | None] = [0.0, *sorted(grid.cross_encoder_weights)]
    weights += [] if ends_chains(tuning) else [None]  # logits alone compare with no DONE
    best: list[tuple[Quality, int, float, Rereading]] = []
    for passages in sorted(set(grid.cross_encoder_passages)):
        settings = [Rereading(passages, weight) for weight in weights]
        tried = [(_quality(dev, k, readings, one), -passages, -_order(one), one) for one in settings]
        best.append(max(tried, key=lambda one: one[:3]))
        print(f"  recall@{k} {100 * best[-1][0].recall:5.1f}  {_shown(best[-1][3])}", flush=True)
    quality, _, _, chosen = max(best, key=lambda one: one[:3])
    before = _quality(dev, k, readings, stored).recall
    changes = {"passages": chosen.passages, "weight": chosen.weight}
    name = f"recall@{k}{' of a hop' if by_hop else ''}"
    return TuneChoice(changes, name, before, quality.recall, _shown(chosen))


def _readings(tuning: Tuning, opened: Callable[[], Any], dev: DevHops, depth: int) -> list[Reading]:
    """The first passages of every dev query or hop, read by the cross-encoder."""
    queries = dev.queries
    readings: list[Reading] = []
    with Progress(len(queries), "tune with", "queries", shown=None) as bar:
        for start in range(0, len(queries), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            asked, after = queries[part], dev.evidence[part] if dev.hops else None

            def read(asked: Sequence[Query] = asked, after: Any = after) -> list[Any]:
                return [[as_pairs(hits), logits] for hits, logits in opened().read(asked, depth, after)]

            of = {"step": "cross-encoder", "passages": depth, "queries": [start, start + len(asked)]}
            of |= {"hops": len(queries)} if dev.hops else {}
            readings += [(as_hits(pairs), logits) for pairs, logits in tuning.journal.measured(of, read)]
            bar.update(len(asked))
    return readings


def _quality(dev: DevHops, k: int, readings: Sequence[Reading], how: Rereading) -> Quality:
    """The quality of the rankings with a number of passages and a weight, without the evidence."""
    rankings = [rank_again(hits, logits[: how.passages], how.weight) for hits, logits in readings]
    hidden = [{passage.id for passage in evidence} for evidence in dev.evidence]
    left = [
        [hit.id for hit in hits if hit.id not in gone] for hits, gone in zip(rankings, hidden, strict=True)
    ]
    return dev.quality([ids[:k] for ids in left], k)


def _order(how: Rereading) -> float:
    return math.inf if how.weight is None else how.weight


def _shown(how: Rereading) -> str:
    weight = "logits alone" if how.weight is None else f"weight {how.weight:g}"
    return f"{counted(how.passages, 'passage')}, {weight}"


CROSS_ENCODER = Step("rescoring", tune_cross_encoder)
