"""Options of an explanation: its passages, and what follows from the hops."""

from __future__ import annotations

from grls.io.arguments import options
from grls.retrieve.base import Retriever, WrapsSingleSteps
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

TEXT_ALONE = "query"
"""The id of a query that is given as a text, without an id."""


def hops_of(retriever: Retriever) -> HopOptions:
    """The hops of a retriever; single steps, where it has none."""
    hops: HopOptions = retriever.hops if isinstance(retriever, WrapsSingleSteps) else USUAL_HOPS
    return hops


def candidates_listed(hops: HopOptions) -> int:
    """The number of candidates that an explanation lists, where nothing says how many."""
    return 10 if hops.steps in ("single", "ranked") else hops.branch or 4


@options("case")
class CaseOptions:
    """What to explain.

    Args:
        gold: Ids of gold passages, separated by commas; where there are hops, in their order. Null: the gold
            passages of the data set.
    """

    gold: str | None = None


USUAL_CASE = CaseOptions()
