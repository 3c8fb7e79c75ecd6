"""Opens the retriever to explain, and says whether its search can be explained step by step."""

from __future__ import annotations

from grls.retrieve.base import DecodesPassages, Retriever
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.registry import Opening, load_retriever


def explainable(retriever: Retriever) -> DecodesPassages | None:
    """A retriever of single steps whose search can be explained step by step; None: another one."""
    if not isinstance(retriever, DecodesPassages):
        return None
    return None if retriever.generator.spans is not None or retriever.generator.removed else retriever


def open_for_explaining(folder: str, device: str, precision: str, search: SearchOptions) -> Retriever:
    """Open a retriever with the options of search of a call.

    Args:
        folder: The retriever's folder.
        device: Device of the model.
        precision: Precision of the model.
        search: Search options; the default options stand for those of the folder.

    Raises:
        ConfigError: The kind cannot use an option.
        DataError: The folder is no retriever.
    """
    return load_retriever(folder, Opening(device, precision, None if search == USUAL_SEARCH else search))
