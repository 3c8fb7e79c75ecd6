"""DONE-missing rate: the share of dynamic chains that end without DONE.

Convention: (chains that reached the hop limit, or ran out of passages, before the model wrote DONE) /
(all chains). Lower is better. The rate says whether the model stops, not whether it stops at the right place:
set F1 measures that. A judged query without a chain counts as a chain without DONE. Fixed multi-step
retrieval never writes DONE, so the rate does not apply to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from grls.evaluation.metrics.averages import mean, metric_class


def done_missing(done: Sequence[bool]) -> dict[str, float]:
    """The rate, ``{"done_missing": …}``; ``done``: whether the model ended each chain with DONE."""
    return {"done_missing": mean(not ended for ended in done)}


DoneMissing = metric_class(done_missing, __name__, predictions="bool")
