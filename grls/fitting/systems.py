"""The systems that a run compares: what they are made of, and what their queries cost beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from grls.fitting.folders import BM25_HOPS, DENSE, DENSE_HOPS, GENERATIVE, HYBRID, RANKED
from grls.retrieve.registry import BM25

_COSTS = {BM25: 1.0, DENSE: 2.0, BM25_HOPS: 4.0, DENSE_HOPS: 20.0, GENERATIVE: 100.0, HYBRID: 200.0}
"""A decoder of a language model is slower than an encoder, and hops are several searches (those of BM25 need
no model)."""

_MEMBERS = {**{name: (of,) for name, of in RANKED.items()}, HYBRID: (GENERATIVE, DENSE, BM25)}
"""Systems that another one is made of."""

_ENCODER, _WRITER = "biencoder", "generator"
_MODELS = {
    BM25: (),
    BM25_HOPS: (),
    DENSE: (_ENCODER,),
    DENSE_HOPS: (_ENCODER,),
    GENERATIVE: (_WRITER,),
    HYBRID: (_ENCODER, _WRITER),
}
"""The models that a system searches with."""


ALIKE = ((BM25, BM25_HOPS), (DENSE, DENSE_HOPS), (GENERATIVE, HYBRID))
"""Systems of one model, or of none, the better of which is fused."""


class FittedSystem(NamedTuple):
    """A system.

    Attributes:
        name: Its name, for people and in files.
        parts: The systems whose rankings are fused; one: the system itself.
    """

    name: str
    parts: tuple[str, ...]

    @property
    def cost(self) -> float:
        """What a query costs; a fusion costs as much as its members, and a little more."""
        return sum(_COSTS[part] for part in self.parts) + 0.5 * (len(self.parts) - 1)

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the systems that it is made of."""
        if len(self.parts) > 1:
            return self.parts
        return _MEMBERS.get(self.name, ())

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it searches with, of ``biencoder`` and ``generator``."""
        used = {model for part in self.parts for model in _MODELS[part]}
        return tuple(model for model in (_ENCODER, _WRITER) if model in used)

    @property
    def folder(self) -> str:
        """The name of its folder among the members of a run."""
        return self.name if len(self.parts) == 1 else f"fusion-{'-'.join(self.parts)}"


def single_systems(names: Sequence[str]) -> list[FittedSystem]:
    """The systems that are no fusion."""
    return [FittedSystem(name, (name,)) for name in names]


def fusions(names: Sequence[str], weaker: Sequence[str]) -> list[FittedSystem]:
    """The fusions that are tried: every two systems, and all of them.

    Args:
        names: The systems.
        weaker: Systems that another one of the same model beats, which are left out.
    """
    parts = [name for name in names if name not in weaker]
    chosen = [*combinations(parts, 2)] + ([tuple(parts)] if len(parts) > 2 else [])
    return [FittedSystem(" + ".join(members), tuple(members)) for members in chosen]
