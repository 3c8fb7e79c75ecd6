"""The options of priors in hybrid decoding. The module is light to import: the command line needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grls.io.arguments import NonNegativeFloat, PositiveFloat, options
from grls.retrieve.spec import Member, recorded


@options()
class PriorSpec:
    """A prior by name.

    Args:
        retriever: A retriever over the same corpus that scores all passages: a folder (of a bi-encoder, a
            sparse or a multi-vector encoder), ``bm25``, an embedded specification, or a
            :class:`~grls.retrieve.spec.Component`.
        weight: Weight of the prior beside the generator (w).
        temperature: Temperature by which the prior's scores are divided (T); null: 0.05 for a bi-encoder of
            unit vectors, 1 for other bi-encoders, 2 for BM25.
    """

    retriever: Any
    weight: NonNegativeFloat = 1.0
    temperature: PositiveFloat | None = None


@options("hybrid")
class PriorOptions:
    """Options of all priors of a hybrid.

    Args:
        normalized: Normalize the sums of scores at every token, for a generator that was trained beside these
            priors (``--data.prior``) with these weights.
    """

    normalized: bool = False


def hybrid_spec(generator: Member, priors: Sequence[PriorSpec], options: PriorOptions) -> dict[str, Any]:
    """A generator with priors that look ahead."""
    named = [recorded(prior) for prior in priors]
    return {"kind": "hybrid", "generator": generator, "priors": named, **recorded(options)}
