"""Folders of composite retrievers, written from the folders of their members.

Each function writes one kind, after opening it as a test, and returns the retriever. A member is the folder
of a retriever, or ``bm25`` over the corpus at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.retrieve.base import Retriever
from grls.retrieve.fusion.retriever import Fusion
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec
from grls.retrieve.registry import BM25, Opening, create
from grls.retrieve.rescored.options import Rereading
from grls.retrieve.spec import Member, named_from, recorded

Named = str | Path
"""The folder of a member, or ``bm25``."""

_FUSION, _PRIORS = Fusion(), PriorOptions()


def _member(member: Named | dict[str, Any], output: Named) -> Member:
    """A member as ``grls.json`` holds it: ``bm25``, a relative path, or its specification."""
    bm25 = str(member) == BM25 and not Path(BM25).is_dir()
    return BM25 if bm25 else named_from(output, member)


def compose_hybrid(
    output: Named,
    generator: Named,
    priors: Sequence[PriorSpec],
    options: PriorOptions = _PRIORS,
    search: SearchOptions = USUAL_SEARCH,
    opening: Opening | None = None,
) -> Retriever:
    """Write a generator with priors that look ahead.

    An earlier retriever in ``output`` is replaced. ``search``: options of decoding; the folder stores what
    differs from their defaults. ``opening``: options of opening members.
    """
    if not priors and not options.empty_weight:
        raise ConfigError("no prior is given: name a retriever that looks ahead, or set empty_weight.")
    named = [recorded(prior) | {"retriever": _member(prior.retriever, output)} for prior in priors]
    content = {"generator": _member(generator, output), "priors": named, **recorded(options)}
    return _create(output, "hybrid", content, search, opening)


def compose_hops(
    output: Named,
    retriever: Named,
    hops: HopOptions,
    search: SearchOptions = USUAL_SEARCH,
    opening: Opening | None = None,
) -> Retriever:
    """Write a retriever that retrieves hop by hop with another one; see :func:`compose_hybrid`."""
    content = {"retriever": _member(retriever, output), "hops": recorded(hops)}
    return _create(output, "hops", content, search, opening)


def compose_fusion(
    output: Named,
    members: Sequence[Named],
    fusion: Fusion = _FUSION,
    depth: int | None = None,
    length: str | int = "mean",
    search: SearchOptions = USUAL_SEARCH,
    opening: Opening | None = None,
) -> Retriever:
    """Write a fusion of several retrievers over one corpus.

    See :func:`compose_hybrid` for ``output``, ``search`` and ``opening``, and
    :class:`~grls.retrieve.fusion.retriever.FusionRetriever` for the options.
    """
    content: dict[str, Any] = {"members": [_member(member, output) for member in members], **recorded(fusion)}
    content |= {} if depth is None else {"depth": depth}
    content |= {} if length == "mean" else {"length": length}
    return _create(output, "fusion", content, search, opening)


def compose_rescored(
    output: Named,
    retriever: Named,
    model: Named,
    rereading: Rereading,
    search: SearchOptions = USUAL_SEARCH,
    opening: Opening | None = None,
) -> Retriever:
    """Write a retriever whose best passages a cross-encoder rescores; see :func:`compose_hybrid`.

    ``model`` is the folder or hub name of the cross-encoder; the folder names it and holds no copy.
    """
    from grls.retrieve.rescored.retriever import RescoredRetriever, named_model

    content: dict[str, Any] = {"retriever": _member(retriever, output)}
    content |= {"model": named_model(str(model), output), "passages": rereading.passages}
    content |= {} if rereading.weight is None else {"weight": rereading.weight}

    def fingerprint(rescored: RescoredRetriever) -> dict[str, str]:
        return {"fingerprint": rescored.encoder.fingerprint()}

    return _create(output, "rescored", content, search, opening, fingerprint)


def _create(
    output: Named,
    kind: str,
    content: dict[str, Any],
    search: SearchOptions,
    opening: Opening | None,
    more: Callable[[Any], Mapping[str, Any]] | None = None,
) -> Retriever:
    content |= {"search": stored} if (stored := recorded(search)) else {}
    return create(output, kind, content, opening, more)
