"""The options of rescoring with a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.io.arguments import Count, NonNegativeFloat, options
from grls.retrieve.spec import Member

PASSAGES = 100
"""Default number of passages that are rescored."""


@options()
class Rereading:
    """Options of rescoring with a cross-encoder.

    Args:
        passages: Number of best passages that the cross-encoder reads (n).
        weight: Weight of its logit beside the score of the first retriever (w); null: the logit replaces the
            score.
    """

    passages: Count
    weight: NonNegativeFloat | None = None


def rescored_spec(retriever: Member, model: str, rereading: Rereading) -> dict[str, Any]:
    """A retriever whose best passages a cross-encoder, a folder or hub name, rescores."""
    from grls.models.load.opening import refuse_missing_folder  # loads libraries that BM25 needs not

    refuse_missing_folder(model)
    path = Path(model).expanduser()
    named = str(path.absolute()) if path.is_dir() else model
    weight = {} if rereading.weight is None else {"weight": rereading.weight}
    return {
        "kind": "rescored", "retriever": retriever, "model": named, "passages": rereading.passages, **weight,
    }  # fmt: skip
