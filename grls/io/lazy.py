"""Imports the names of a folder on first use, so that importing the folder itself loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(folder: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a folder whose names are defined in its modules.

    Args:
        folder: The folder's ``__name__``.
        places: Name -> the module of the folder that defines it. A name must differ from every module's name:
            once imported, the module would hide it.
    """

    def attribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        return getattr(import_module(f"{folder}.{places[name]}"), name)

    return attribute
