"""Fusing searchers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from grls.api.composing import fusion_writer
from grls.api.searcher import Searcher, argument_names, member_names
from grls.data.inputs.arguments import Count, checked_options
from grls.errors import ConfigError
from grls.retrieve.fusion.fuse import Fusion, Method


@checked_options(Fusion)
def fuse(
    searchers: Sequence[Searcher | str | Path],
    *,
    method: Method = "interleave",
    weights: Sequence[float] | None = None,
    depth: Count | None = None,
    length: Literal["mean", "min", "max"] | int = "mean",
    output: str | Path | None = None,
    **options: Any,
) -> Searcher:
    """Fuse the rankings, or the chains, of several retrievers over one corpus.

    Args:
        searchers: At least two searchers; a folder, or ``"bm25"`` over the corpus of the others, may be among
            them.
        method: ``interleave``, ``rrf`` or ``sum`` (:mod:`grls.retrieve.fusion.fuse`).
        weights: The weight of each; None: equal weights.
        depth: Number of hits of each that give scores (``rrf``, ``sum``); None: 20.
        length: Length of a fused chain: ``mean``, ``min`` or ``max`` of the lengths, or the number of the
            member, from 0, whose length it has.
        output: The folder to write; None: a temporary folder.
        options: Other options of :class:`~grls.retrieve.fusion.fuse.Fusion`.

    Raises:
        ConfigError: An option cannot be used, or there is no searcher among the members.
        MismatchError: The members are over different corpora.
    """
    first = next((one for one in searchers if isinstance(one, Searcher)), None)
    if first is None or len(searchers) < 2:
        raise ConfigError(
            "fuse: searchers must be a list of at least two retrievers, one of them a searcher: open a "
            "folder with grls.load(folder)."
        )
    given = {"method": method, "weights": None if weights is None else tuple(weights), **options}
    write = fusion_writer(member_names(searchers), depth, length, given)
    held = [one for one in searchers if isinstance(one, Searcher)]
    return first.composed("fuse", write, held, output, argument_names("searchers", searchers))
