"""The options of recipes as values, for a training of a few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grls.io.recipes import config_file, read_options


def recipe(names: Sequence[str]) -> dict[str, Any]:
    """The options of recipes, each over those before it.

    Args:
        names: The names of the recipes (``default/chains``).
    """
    options: dict[str, Any] = {}
    for name in names:
        options = laid_over(options, read_options(config_file(name)))
    return options


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Options over others, nested objects entry by entry."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[name] = laid_over(known, value) if both and isinstance(known, Mapping) else value
    return merged
