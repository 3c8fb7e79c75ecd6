"""Options of an explanation: passages, hop, and depth of the analysis."""

from __future__ import annotations

from dataclasses import dataclass

from grls.errors import ConfigError, Option, at_least
from grls.io.recipes import rare
from grls.retrieve.hops.options import HopOptions

TEXT_ALONE = "query"
"""The id of a query that is given as a text, without an id."""


def candidates_listed(hops: HopOptions) -> int:
    """The number of candidates that an explanation lists, where nothing says how many."""
    return 10 if hops.steps in ("single", "ranked") else hops.branch or 4


@dataclass(frozen=True)
class CaseOptions:
    """What to explain, and how deep.

    Args:
        gold: Ids of gold passages, separated by commas; null: the gold passages of the data set.
        evidence: Ids of the passages before this hop, separated by commas; null: by the gold order.
        hop: Explain only this hop of the gold order, from 1.
        widest: Widest beam to try for a passage that the beam lost.
        exhaustive: Score every passage, for the true rank; slow on a large corpus.
        propositions: The keys of the kind proposition that answers quote.
    """

    gold: str | None = None
    evidence: str | None = rare(None)
    hop: int | None = rare(None)
    widest: int = 128
    exhaustive: bool = rare(False)
    propositions: str | None = rare(None)

    def __post_init__(self) -> None:
        if self.evidence is not None and self.hop is not None:
            raise ConfigError(f"give {Option('case.evidence')} or {Option('case.hop')}, not both.")
        at_least(1, "case.", widest=self.widest)


USUAL_CASE = CaseOptions()
