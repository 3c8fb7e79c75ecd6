"""The choice among systems on dev queries.

The best on dev is not always the best: of two systems whose recall differs by less than chance would make
it, the simpler one is as good a guess, and faster. So of all systems within one standard error of the best
one (of the paired difference, query by query; Breiman et al. 1984, section 3.4.3) the cheapest is kept. But
what is kept is never worse on dev than one of its members: then the member itself would do. Recall alone
decides; what the choice loses in the other measures is said beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from grls.io.counts import counted

_TIE = 1e-9

_LOSS = 0.01
"""A mean that is lower by less is not worth a word."""

_NO_MEASURES: Mapping[str, float] = MappingProxyType({})


class Candidate(NamedTuple):
    """A system and what it finds.

    Attributes:
        name: Its name.
        recalls: Recall of each dev query.
        order: Mean nDCG@10, which decides where recall is level.
        cost: What a query costs, beside the other systems.
        members: Names of the systems that it is made of.
        measures: The means of the other measures, by name.
    """

    name: str
    recalls: Sequence[float]
    order: float
    cost: float
    members: tuple[str, ...] = ()
    measures: Mapping[str, float] = _NO_MEASURES

    @property
    def recall(self) -> float:
        """The mean over the queries."""
        return float(np.mean(self.recalls)) if len(self.recalls) else 0.0


class KeptSystem(NamedTuple):
    """The choice.

    Attributes:
        name: The system that is kept.
        best: The system with the highest recall.
        why: The reason, for people.
    """

    name: str
    best: str
    why: str


def choose_system(candidates: Sequence[Candidate]) -> KeptSystem:
    """Choose; the rule stands above."""
    best = max(candidates, key=lambda one: (one.recall, one.order, -one.cost))
    near = [one for one in candidates if best.recall - one.recall <= standard_error(best, one) + _TIE]
    kept = min(
        (one for one in near if not _worse_than_a_member(one, candidates)),
        key=lambda one: (one.cost, -one.recall),
    )
    shown = f"recall {100 * kept.recall:.1f} on {counted(len(kept.recalls), 'dev query')}"
    worse = _losses(kept, [one for one in candidates if one.cost < kept.cost or one is best])
    if kept.name == best.name:
        return KeptSystem(kept.name, best.name, f"the best: {shown}{worse}")
    why = f"{shown}, within one standard error of {best.name} ({100 * best.recall:.1f}), and simpler"
    return KeptSystem(kept.name, best.name, why + worse)


def _losses(kept: Candidate, others: Sequence[Candidate]) -> str:
    """In which measures the kept system is worse than a simpler one or the best; empty: in none."""

    def lost(other: Candidate) -> dict[str, float]:
        gaps = {name: other.measures.get(name, 0.0) - value for name, value in kept.measures.items()}
        return {name: gap for name, gap in gaps.items() if gap >= _LOSS}

    most = max(others, key=lambda one: sum(lost(one).values()), default=kept)
    if not lost(most):
        return ""
    pairs = [
        f"{name} {100 * kept.measures[name]:.1f}, not {100 * most.measures[name]:.1f}" for name in lost(most)
    ]
    return f"; but {most.name} ranks better there: " + "; ".join(pairs)


def _worse_than_a_member(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    members = [other for other in candidates if other.name in one.members]
    return any(member.recall > one.recall + _TIE for member in members)


def standard_error(first: Candidate, second: Candidate) -> float:
    """The standard error of the mean difference of recall; 0 for fewer than two queries."""
    differences = np.subtract(first.recalls, second.recalls)
    if len(differences) < 2:
        return 0.0
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))
