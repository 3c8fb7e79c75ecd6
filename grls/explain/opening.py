"""Opens the retriever to explain: a retriever that decodes passages, alone, with priors or hop by hop."""

from __future__ import annotations

from grls.errors import ConfigError
from grls.retrieve.base import DecodesPassages, Retriever, single_steps
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.registry import Opening, load_retriever


def explainable(retriever: Retriever) -> DecodesPassages | None:
    """A retriever of single steps whose search can be explained step by step; None: another one."""
    if not isinstance(retriever, DecodesPassages):
        return None
    return None if retriever.generator.spans is not None or retriever.generator.removed else retriever


def open_for_explaining(folder: str, device: str, precision: str, search: SearchOptions) -> DecodesPassages:
    """Open a retriever without its hops: each hop is explained by itself.

    Args:
        folder: The retriever's folder.
        device: Device of the model.
        precision: Precision of the model.
        search: Search options; the default options stand for those of the folder.

    Raises:
        ConfigError: The retriever does not decode passages, writes spans, or has removed passages.
        DataError: The folder is no retriever.
    """
    how = Opening(device, precision, None if search == USUAL_SEARCH else search)
    opened = single_steps(load_retriever(folder, how))
    if not isinstance(opened, DecodesPassages):
        raise ConfigError(
            f"--retriever {folder} is a {opened.kind} retriever; this command explains only one that "
            "decodes passages step by step: kind generative, or hybrid or hops over it. In Python "
            f"`grls.load({folder!r}).explain(QUERY, gold=[…])` explains this one, too: the rank of each gold "
            "passage and what stands above it."
        )
    if opened.generator.spans is not None:
        raise ConfigError(
            f"--retriever {folder} writes spans of passages, which cannot be explained; give a retriever "
            "that writes whole passages."
        )
    if opened.generator.removed:
        raise ConfigError(
            f"--retriever {folder} has removed passages, which the repeated searches would find: merge it "
            f"first (`grls index update {folder} --merge true`)."
        )
    return opened
