"""Opening a retriever folder as a searcher."""

from __future__ import annotations

from pathlib import Path

from grls.api.searcher import Searcher
from grls.retrieve.registry import Opening, load_retriever


def load(name: str | Path, *, device: str = "auto", precision: str = "float32") -> Searcher:
    """Open a retriever folder of any kind, with what is tuned in it.

    Args:
        name: The folder.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
        precision: Precision of its models; see :class:`~grls.retrieve.registry.Opening`.

    Raises:
        DataError: There is no retriever.
        MismatchError: The folder is damaged, or its parts do not belong together.
    """
    how = Opening(device, precision)
    return Searcher(load_retriever(name, how), name, how)
