"""The choice among candidates on the dev queries that all of them have ranked.

The best on dev is not always the best: two candidates that differ by less than chance would make it are
equally good guesses. So the choice has steps (docs/fit.md). (1) Candidates within one standard error of the
best stay (of the paired difference, query by query; Breiman et al. 1984, section 3.4.3). (2) Of these, those
stay that are as near to the best nDCG@10, since recall is often level. (3) Those that cost more than twice
the cheapest go. (4) The best that is left is chosen. It is never worse on dev than one of its members.

Without labelled questions a rule chooses (:func:`choose_unmeasured`): BM25 wins on sentences that are cut out
of passages, and loses on questions. R@5 over StrategyQA's facts, on cut sentences: BM25 100.0, MiniLM 99.5;
on 458 questions 62.4 and 76.0 (``docs/start/no-questions.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import numpy as np

from grls.io.progress import counted
from grls.tune.search import as_good, paired_error

Prefer = Literal["balanced", "quality", "speed"]

_ERRORS = {"quality": 0.0, "balanced": 1.0, "speed": 2.0}
"""What is preferred -> standard errors within which the cheaper candidate is as good."""
_AS_CHEAP = {"quality": 2.0, "balanced": 2.0, "speed": 1.0}
"""What is preferred -> how many times the cost of the cheapest candidate is as cheap."""
_TIE = 1e-9
_WRITTEN = 30  # written questions below which they do not choose


class Candidate(NamedTuple):
    """A retriever folder and what it is worth.

    Attributes:
        values: The measure that decides, of each dev query, in an order that all candidates share; a slow
            candidate has fewer.
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
        return float(np.mean(self.values))

    @property
    def order(self) -> float:
        return float(np.mean(self.orders))


def level(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates on the queries that all of them have ranked."""
    count = min(len(candidate.values) for candidate in candidates)
    return [
        candidate._replace(values=candidate.values[:count], orders=candidate.orders[:count])
        for candidate in candidates
    ]


def measured(candidate: Candidate, measure: str, queries: str = "dev query") -> str:
    """The measure with Wilson's interval (1927) of two standard errors, for values from 0 to 1."""
    count, total = len(candidate.values), sum(candidate.values)
    middle, width = total + 2, 2 * np.sqrt(count * np.var(candidate.values) + 1)
    low, high = (f"{100 * end / (count + 4):.0f}" for end in (middle - width, middle + width))
    shown = f"{measure} {100 * candidate.value:.1f} on {counted(count, queries)}"
    return f"{shown} (95 % interval {low} to {high})"


class FitChoice(NamedTuple):
    """The chosen candidate (on the queries that all have ranked), the best by the measure, and why."""

    chosen: Candidate
    best: Candidate
    why: str


def choose(
    candidates: Sequence[Candidate], measure: str = "recall", prefer: Prefer = "balanced"
) -> FitChoice:
    equal, errors = level(candidates), _ERRORS[prefer]
    best = max(equal, key=lambda candidate: (candidate.value, candidate.order, -candidate.cost))
    near = [
        candidate
        for candidate in equal
        if as_good(candidate.values, best.values, errors)
        and not any(
            other.name in candidate.members and other.value > candidate.value + _TIE for other in equal
        )
    ]
    first = max(near, key=lambda candidate: (candidate.order, -candidate.cost))
    ordered = [candidate for candidate in near if as_good(candidate.orders, first.orders, errors)]
    most = _AS_CHEAP[prefer] * min(candidate.cost for candidate in ordered)
    cheap = [candidate for candidate in ordered if candidate.cost <= most]
    chosen = max(cheap, key=lambda c: (round(c.value, 9), round(c.order, 9), -c.cost))
    shown = measured(chosen, measure)
    if len(equal) == 1:
        return FitChoice(chosen, best, f"the only candidate: {shown}")
    # What chance makes: two standard errors, and one query at least.
    error = max(paired_error(chosen.values, candidate.values) for candidate in equal)
    least = 100 * max(2 * error, 1 / len(chosen.values))
    shown += f", where differences below {min(least, 100.0):.0f} points may be chance"
    ties = (c for c in equal if max(abs(c.value - chosen.value), abs(c.order - chosen.order)) < _TIE)
    same = [tie.name for tie in ties if tie.name != chosen.name]
    if chosen.name == best.name:
        why = f"level with {', '.join(same)}, and the cheapest" if same else "the best"
        return FitChoice(chosen, best, f"{why}: {shown}")
    more = "cheaper" if chosen.cost < best.cost else "better ordered"
    return FitChoice(
        chosen, best, f"within chance of {best.name} ({100 * best.value:.1f}), and {more}: {shown}"
    )


def choose_unmeasured(
    candidates: Sequence[Candidate],
    measure: str = "recall",
    trained: Collection[str] = (),
    masked: Callable[[Candidate], bool] = lambda _: True,
) -> FitChoice:
    """Choose by rule: the last fusion of most retrievers, or else hops with links, or else the first one.

    The best that has a ``trained`` member takes its place if it wins by more than one standard error on 30
    written questions or more, and if it keeps what it began with on ``masked`` names. Two retrievers have
    found these questions, so few of them are left to win.
    """
    equal = level(candidates)
    plain = [one for one in equal if {one.name, *one.members}.isdisjoint(trained)]
    last = max(reversed(plain), key=lambda candidate: len(candidate.members))
    kept = last if last.members else plain[0]
    taught = [one for one in equal if one not in plain]
    best = max(taught, key=lambda candidate: (candidate.value, candidate.order), default=kept)
    wins = not as_good(kept.values, best.values)
    if wins and len(best.values) >= _WRITTEN and masked(best):
        shown = measured(best, measure, "written question")
        return FitChoice(best, best, f"trained: {shown}, where {kept.name} has {100 * kept.value:.1f}")
    why = "by rule, since no labelled question tells which is best: give questions with their passages"
    return FitChoice(kept, kept, why)
