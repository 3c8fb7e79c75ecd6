"""Names in the folders of earlier versions: spans were called views, and to rescore was to assess.

New folders are written with the names of today. Both kinds of folders are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from grls.data.spans import SPANS
from grls.models.rescore_spec import RESCORE

_FILES = {SPANS: "views.json", RESCORE: "assess.json"}
_KEYS = {"spans": "views", "rescore": "assess"}


def learned_file(model: Path, name: str) -> Path:
    """The file beside a trained model under its name of today or, if there is none, under its earlier name.

    Args:
        model: Folder of the model.
        name: The name of today.
    """
    earlier = model / _FILES[name]
    return earlier if earlier.is_file() and not (model / name).is_file() else model / name


def manifest_value(manifest: Mapping[str, Any], key: Literal["spans", "rescore"]) -> Any:
    """A value of a manifest under its key of today or its earlier key; None if it has neither."""
    return manifest.get(key, manifest.get(_KEYS[key]))
