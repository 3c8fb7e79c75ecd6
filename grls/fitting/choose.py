"""The choice among candidates on the dev queries that all of them have ranked.

The best on dev is not always the best: two candidates that differ by less than chance would make it are as
good a guess. So those within one standard error of the best one stay (of the paired difference, query by
query; Breiman et al. 1984, section 3.4.3), and of these, by nDCG@10 and by the same rule, those that order as
well: recall is often level. Of what is left, the best of those that cost at most twice the cheapest is
kept. What is kept is never worse on dev than one of its members, and no candidate that was measured is left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from grls.io.progress import counted

Prefer = Literal["balanced", "quality", "speed"]

_ERRORS = {"quality": 0.0, "balanced": 1.0, "speed": 2.0}
"""What is preferred -> standard errors within which the cheaper candidate is as good."""
_AS_CHEAP = {"quality": 2.0, "balanced": 2.0, "speed": 1.0}
"""What is preferred -> how many times the cost of the cheapest candidate is as cheap."""
_TIE = 1e-9


class Candidate(NamedTuple):
    """A retriever folder and what it is worth.

    Attributes:
        values: The measure that decides, of each dev query, in an order that all candidates share; one
            that is slow has fewer.
        orders: nDCG@10 of the same queries.
        cost: Seconds of a query.
        members: Names of the candidates that it is made of.
    """

    name: str
    values: Sequence[float]
    orders: Sequence[float]
    cost: float
    members: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The mean of the measure."""
        return float(np.mean(self.values))

    @property
    def order(self) -> float:
        """The mean of nDCG@10."""
        return float(np.mean(self.orders))


def level(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates on the queries that all of them have ranked."""
    count = min(len(candidate.values) for candidate in candidates)
    return [
        candidate._replace(values=candidate.values[:count], orders=candidate.orders[:count])
        for candidate in candidates
    ]


class Choice(NamedTuple):
    """The candidate that is kept (on the queries that all have ranked), the best by the measure, and why."""

    chosen: Candidate
    best: Candidate
    why: str


def choose(candidates: Sequence[Candidate], measure: str = "recall", prefer: Prefer = "balanced") -> Choice:
    """Choose by the rule above, among candidates with at least one query each."""
    from grls.tune.step import paired_error  # what it imports takes seconds

    equal, errors = level(candidates), _ERRORS[prefer]
    best = max(equal, key=lambda candidate: (candidate.value, candidate.order, -candidate.cost))
    near = [
        candidate
        for candidate in equal
        if best.value - candidate.value <= errors * paired_error(best.values, candidate.values) + _TIE
        and not any(
            other.name in candidate.members and other.value > candidate.value + _TIE for other in equal
        )
    ]
    first = max(near, key=lambda candidate: (candidate.order, -candidate.cost))
    ordered = [
        candidate
        for candidate in near
        if first.order - candidate.order <= errors * paired_error(first.orders, candidate.orders) + _TIE
    ]
    most = _AS_CHEAP[prefer] * min(candidate.cost for candidate in ordered)
    cheap = [candidate for candidate in ordered if candidate.cost <= most]
    chosen = max(cheap, key=lambda c: (round(c.value, 9), round(c.order, 9), -c.cost))
    shown = f"{measure} {100 * chosen.value:.1f} on {counted(len(chosen.values), 'dev query')}"
    if chosen.name == best.name:
        return Choice(chosen, best, f"the best: {shown}")
    why = f"{shown}, within chance of {best.name} ({100 * best.value:.1f})"
    return Choice(chosen, best, f"{why}, and {'cheaper' if chosen.cost < best.cost else 'better ordered'}")
