"""The retriever whose misses are explained: one that decodes passages, alone, with priors or hop by hop."""

from __future__ import annotations

from grls.errors import ConfigError
from grls.retrieve.base import DecodesPassages
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.retriever import single_steps
from grls.retrieve.registry import Opening, load


def open_for_explaining(folder: str, device: str, precision: str, search: SearchOptions) -> DecodesPassages:
    """Open a retriever without its hops: each is explained by itself.

    Args:
        folder: Its folder.
        device: Of the model.
        precision: Of the model.
        search: How to search; as usual: as the folder says.

    Raises:
        ConfigError: It does not decode passages, writes spans, or has removed passages.
        DataError: The folder is no retriever.
    """
    how = Opening(device, precision, None if search == USUAL_SEARCH else search)
    opened = single_steps(load(folder, how))
    if not isinstance(opened, DecodesPassages):
        raise ConfigError(
            f"--retriever {folder} is a {opened.kind} retriever; only one that decodes passages step by step "
            "can be explained: give a folder of kind generative, or of kind hybrid or hops over one."
        )
    if opened.generator.spans is not None:
        raise ConfigError(
            f"--retriever {folder} writes spans of passages, which cannot be explained; give one that writes "
            "passages from their beginning."
        )
    if opened.generator.removed:
        raise ConfigError(
            f"--retriever {folder} has removed passages, which the searches repeated here would find: merge "
            f"it first (`grls index update {folder} --merge true`)."
        )
    return opened
