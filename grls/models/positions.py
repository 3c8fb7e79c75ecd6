"""How many tokens a model has positions for, by its config."""

from __future__ import annotations

from typing import Any


def positions_in(config: Any) -> int | None:
    """Most tokens of a model's input; None where its positions have no end.

    Args:
        config: Of a transformers model, or of one of its parts. XLNet's says -1, which is no limit either.
    """
    most = getattr(config, "max_position_embeddings", None)
    return int(most) if most is not None and most > 0 else None
