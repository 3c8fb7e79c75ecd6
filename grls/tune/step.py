"""What the steps of tuning share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.data.types import Hit
from grls.retrieve.base import Retriever
from grls.retrieve.options import stored_search
from grls.retrieve.registry import Opening, open_member, open_spec
from grls.retrieve.spec import MANIFEST, Member
from grls.tune.dev import DevQueries
from grls.tune.journal import Journal
from grls.tune.options import TuneOptions

CHOSEN = ("priors", "empty_weight", "search", "weights", "passages", "weight", "size")
"""The fields of ``grls.json`` that steps choose before they come to hops."""


class TuneChoice(NamedTuple):
    """What a step has chosen.

    Attributes:
        changes: Fields of the folder's ``grls.json``.
        measure: The name of the measure.
        before: Its value before, in [0, 1]: of the folder's own setting (fusion, chains), or of the ranking
            without priors, rescoring or cut.
        after: Its value with the choice.
        what: The choice, in words.
    """

    changes: dict[str, Any]
    measure: str
    before: float
    after: float
    what: str


def tell_price(known: float, ended: float, what: str) -> None:
    """Print what the end of chains or rankings costs (:mod:`grls.evaluation.price`).

    Args:
        known: Set F1 with the known number of gold passages, in [0, 1].
        ended: Set F1 with the chosen end.
        what: What ends: DONE, or the cut.
    """
    price = f"set F1 {100 * known:5.1f} with the known number of passages: price of {what}"
    print(f"  {price} {100 * (known - ended):+.1f} points", flush=True)


def paired_error(first: Sequence[float], second: Sequence[float]) -> float:
    """The standard error of the mean difference of two settings, query by query; 0 below two queries."""
    differences = np.subtract(first, second)
    if len(differences) < 2:
        return 0.0
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


class Step(NamedTuple):
    """A step of tuning, which the class of a kind names in ``tuned_by`` as ``module:name``.

    Attributes:
        name: Its name in what is printed.
        tune: Measures on the development queries, and chooses.
        applies: Whether a folder has what the step tunes.
    """

    name: str
    tune: Callable[[Tuning], TuneChoice]
    applies: Callable[[Tuning], bool] = lambda tuning: True


@dataclass
class Tuning:
    """A folder under tuning.

    Args:
        folder: The retriever folder.
        spec: What stands in its ``grls.json``, with what earlier steps have chosen.
        dev: The development queries.
        grid: What is tried.
        how: How the folder is opened.
        journal: What was measured.
        found: What hops have found, for the memory of :class:`~grls.retrieve.hops.retriever.RankedHops`.
    """

    folder: Path
    spec: dict[str, Any]
    dev: DevQueries
    grid: TuneOptions
    how: Opening
    journal: Journal
    found: dict[Any, Any] = field(default_factory=dict)

    def open(self, **search: Any) -> Retriever:
        """The retriever as it is so far, in a single step, with some options of search."""
        how = replace(self.how, hop_by_hop=False)
        spec = self.spec
        if search:
            spec = {**spec, "search": {**spec.get("search", {}), **search}}
        return open_spec(self.folder, spec, how)

    def open_member(self, member: Member, field: str, **changes: Any) -> Retriever:
        """A member as the folder asks it, with the search that the folder stores.

        Args:
            member: Its path, relative to the folder, or its specification.
            field: Where in the folder's ``grls.json`` it is named, for errors.
            changes: Other fields of how it is opened.
        """
        search = stored_search(self.spec, self.folder / MANIFEST)
        how = replace(self.how, search=self.how.search or search, **changes)
        return open_member(member, self.folder, field, how)


def earlier_choices(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of the steps before hops, which the measurements of hops depend on."""
    return {name: spec.get(name) for name in CHOSEN}


def as_pairs(hits: Sequence[Hit]) -> list[list[Any]]:
    """Hits as JSON values."""
    return [[hit.id, float(hit.score)] for hit in hits]


def as_hits(pairs: Sequence[Sequence[Any]]) -> list[Hit]:
    """Hits from JSON values."""
    return [Hit(name, score) for name, score in pairs]
