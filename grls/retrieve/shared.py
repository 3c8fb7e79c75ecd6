"""Folders that several members of a composite name are opened once, with their models and passages.

Two members may have other options of search, so a kind that can share has two methods:

- ``shared_by(folder, spec, how)``: what its model and passages depend on, beside the class; None: it cannot
  be shared in this place;
- ``reopened(folder, how)``: the same retriever with the options of search of another opening; what is large
  is shared.

What is opened is known within one opening alone (:attr:`grls.retrieve.registry.Opening.opened`).
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from grls.retrieve.base import Retriever


def opened_once(kind: Any, folder: Path, spec: dict[str, Any], how: Any) -> Retriever:
    """Open a folder, or share what an earlier member opened.

    Args:
        kind: The class of its kind.
        folder: The folder.
        spec: Its specification.
        how: The options of opening (:class:`grls.retrieve.registry.Opening`).
    """
    shared_by = getattr(kind, "shared_by", None)
    key: Hashable | None = None
    if how.opened is not None and shared_by is not None:
        key = shared_by(folder, spec, how)
    if key is None:
        alone: Retriever = kind.open(folder, spec, how)
        return alone
    known: Any = how.opened.get((kind, key))
    if known is not None:
        again: Retriever = known.reopened(folder, how)
        return again
    made: Retriever = kind.open(folder, spec, how)
    how.opened[kind, key] = made
    return made


def folder_key(folder: Path, spec: dict[str, Any], how: Any) -> Hashable | None:
    """What the model and the passages of a folder depend on; None: it has members of its own."""
    return None if "retriever" in spec else (folder.resolve(), how.device, how.precision, how.verify)
