"""A capability of retrievers: retrievals share a search that runs, and get what they get in one of their own.

A retrieval is a plan: it asks the decoder for passages, gets them, and asks again where it goes hop by hop.
Plans of several retrievers join one search if these decode with the same retriever of single steps. So
requests in different hops share the steps of the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from grls.data.corpus import Corpus
from grls.data.filters import Filter
from grls.data.types import Hit, Query
from grls.retrieve.base import SoFar

if TYPE_CHECKING:
    from grls.decode import ScoredPassage

_Result = TypeVar("_Result")


class Decoding(NamedTuple):
    """What a plan asks the decoder for.

    Attributes:
        query: The query.
        passages: Numbers of the evidence so far.
        hidden: Numbers of passages that may not come next.
        k: Largest number of passages, DONE included.
        allow: The filter.
    """

    query: Query
    passages: tuple[int, ...]
    hidden: tuple[int, ...]
    k: int
    allow: Filter | None


Plan = Generator[Sequence[Decoding], "list[list[ScoredPassage]]", _Result]
"""A retrieval: it asks for passages, gets a list for each of what it asked for, best first, and returns its
result."""


class JoiningPlan(NamedTuple):
    """A retrieval that joins a search.

    Attributes:
        plan: The retrieval.
        owner: What the source knows it by.
    """

    plan: Plan[Any]
    owner: Any


class PlanSource(Protocol):
    """Where retrievals come from while a search runs, and where their results go."""

    def waiting(self) -> int:
        """The number of retrievals that may join now; 0 if none waits, or none shall join any more."""
        ...

    def take(self, most: int) -> Sequence[JoiningPlan]:
        """At most so many retrievals, which join now."""
        ...

    def gone(self, owner: Any) -> bool:
        """Whether nobody wants the result of a retrieval any more."""
        ...

    def answer(self, owner: Any, result: Any) -> None:
        """The result of a retrieval."""
        ...

    def fail(self, owner: Any, error: Exception) -> None:
        """A retrieval cannot be done."""
        ...


@runtime_checkable
class RunsPlans(Protocol):
    """A retriever of single steps whose search takes further retrievals while it runs."""

    @property
    def lets_join(self) -> bool:
        """Whether it does so with its options and on its device."""
        ...

    def run_plans(self, source: PlanSource) -> None:
        """Do the retrievals of a source until none is left."""
        ...


@runtime_checkable
class LetsJoin(Protocol):
    """A retriever whose retrievals can join a search."""

    @property
    def corpus(self) -> Corpus:
        """The corpus that it retrieves from."""
        ...

    @property
    def runner(self) -> RunsPlans | None:
        """The retriever that searches; None: no retrieval can join."""
        ...

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """A retrieval of the top k."""
        ...


@runtime_checkable
class PlansWalks(LetsJoin, Protocol):
    """A retriever whose retrieval hop by hop can join a search."""

    def plan_walk(self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object]) -> Plan[None]:
        """A retrieval of chains; ``tell`` is called after every hop."""
        ...


def runner_of(retriever: object) -> RunsPlans | None:
    """The retriever whose search the retrievals of a retriever join; None: they join none."""
    return retriever.runner if isinstance(retriever, LetsJoin) else None
