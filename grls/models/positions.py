"""The number of positions of a model, from its config."""

from __future__ import annotations

from typing import Any


def positions_in(config: Any) -> int | None:
    """The longest input of a model in tokens; None if its positions have no limit.

    Args:
        config: The config of a transformers model, or of a part of it. XLNet has -1, which means no limit.
    """
    most = getattr(config, "max_position_embeddings", None)
    return int(most) if most is not None and most > 0 else None
