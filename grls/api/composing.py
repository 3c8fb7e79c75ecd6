"""Composite retrievers from searchers: what is written into their folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.io.counts import counted
from grls.retrieve.base import Retriever
from grls.retrieve.compose import compose_fusion, compose_hops, compose_hybrid, compose_rescored
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.generative.options import USUAL_SEARCH
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec
from grls.retrieve.registry import Opening
from grls.retrieve.rescored.options import PASSAGES, Rereading

Writer = Callable[[Path, Opening], Retriever]
"""Writes the folder of a composite retriever, and opens it."""


def hybrid_writer(
    generator: Path, priors: Sequence[str], weights: Sequence[float] | None, options: dict[str, Any]
) -> Writer:
    """A generator with priors.

    Args:
        generator: Its folder.
        priors: The folders of the retrievers that look ahead, or ``bm25``.
        weights: The weight of each; None: 1.
        options: See :class:`~grls.retrieve.hybrid.options.PriorOptions`.

    Raises:
        ConfigError: The weights are not as many as the priors, or an option cannot be used.
    """
    if weights is not None and len(weights) != len(priors):
        raise ConfigError(
            f"{counted(len(weights), 'weight')} for {counted(len(priors), 'prior')}: give one for each prior."
        )
    named = [PriorSpec(*pair) for pair in zip(priors, weights or [1.0] * len(priors), strict=True)]
    shared = PriorOptions(**options)
    return partial(_written, compose_hybrid, generator, named, shared, USUAL_SEARCH)


def hops_writer(retriever: Path, options: dict[str, Any]) -> Writer:
    """Hop by hop, with the options of :class:`~grls.retrieve.hops.options.HopOptions`.

    Raises:
        ConfigError: An option cannot be used.
    """
    return partial(_written, compose_hops, retriever, HopOptions(**options), USUAL_SEARCH)


def rescored_writer(retriever: Path, model: str, options: dict[str, Any]) -> Writer:
    """Rescored by a cross-encoder, with the options of :class:`~grls.retrieve.rescored.options.Rereading`.

    Raises:
        ConfigError: An option cannot be used.
    """
    rereading = Rereading(**{"passages": PASSAGES, **options})
    return partial(_written, compose_rescored, retriever, model, rereading, USUAL_SEARCH)


def fusion_writer(
    members: Sequence[str], depth: int | None, length: str | int, options: dict[str, Any]
) -> Writer:
    """A fusion, with the options of :class:`~grls.retrieve.fusion.fuse.Fusion`.

    Raises:
        ConfigError: An option cannot be used.
    """
    fusion = Fusion(**options)
    return partial(_written, compose_fusion, members, fusion, depth, length, USUAL_SEARCH)


def _written(compose: Callable[..., Retriever], *more: Any) -> Retriever:
    """Write with the arguments that a writer gets at the end: the folder, and how members are opened."""
    *options, folder, how = more
    return compose(folder, *options, how)
