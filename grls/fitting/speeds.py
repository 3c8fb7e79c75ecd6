"""How long the parts of a fit take on a machine: the values that estimates are made of.

:mod:`grls.fitting.timing` measures them. A *step* is one optimizer step on a batch of the recipe, an *input*
one model input of a search: a query, or a query with the evidence of a hop.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class EncoderSpeeds:
    """Seconds of a bi-encoder.

    Args:
        load: To open it before it is trained.
        step: A training step.
        passage: To embed a passage.
        query: To embed a query with the evidence of a hop.
    """

    load: float
    step: float
    passage: float
    query: float


@dataclass(frozen=True)
class WriterSpeeds:
    """Seconds of a generator.

    Args:
        load: To open it before it is trained.
        step: A training step, with rescoring where the plan has it.
        search: An input of a search, without priors.
        rescored: A passage that is read to its end.
        indexed: A passage in the constraint index.
    """

    load: float
    step: float
    search: float
    rescored: float
    indexed: float


@dataclass(frozen=True)
class Speeds:
    """Seconds of all parts.

    Args:
        bm25_passage: A passage in BM25's index.
        bm25_query: A query of BM25, over a small corpus.
        encoder: Of the bi-encoder; None: there is none.
        writer: Of the generator; None: there is none, or there is no time for it.
    """

    bm25_passage: float
    bm25_query: float
    encoder: EncoderSpeeds | None = None
    writer: WriterSpeeds | None = None

    def record(self) -> dict[str, Any]:
        """The speeds as JSON values."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """The speeds of :meth:`record`.

        Raises:
            TypeError: It is no such record.
        """
        parts = {"encoder": EncoderSpeeds, "writer": WriterSpeeds}
        made = {name: None if record[name] is None else kind(**record[name]) for name, kind in parts.items()}
        return cls(**{**record, **made})


def quickest_parts(one: Speeds, other: Speeds) -> Speeds:
    """The least seconds of each part in two measurements; one may lack a model that had no time."""
    return Speeds.of_record(_least(one.record(), other.record()))


def _least(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict):
        return {name: _least(value, other[name]) for name, value in one.items()}
    return min(one, other)
