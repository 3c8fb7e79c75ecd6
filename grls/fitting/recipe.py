"""The options of recipes as values, for a training of a few steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from grls.io.recipes import config_file


def recipe(names: Sequence[str]) -> dict[str, Any]:
    """The options of recipes, each over those before it.

    Args:
        names: The names of the recipes (``default/chains``).
    """
    options: dict[str, Any] = {}
    for name in names:
        layer = yaml.safe_load(Path(config_file(name)).read_text(encoding="utf-8"))
        options = _over(options, layer)
    return options


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        both = isinstance(known, dict) and isinstance(value, dict)
        merged[name] = _over(known, value) if both and isinstance(known, dict) else value
    return merged
