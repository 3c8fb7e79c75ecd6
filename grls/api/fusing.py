"""Fusing searchers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grls.api.composing import fusion_writer
from grls.api.searcher import Searcher, argument_names, member_names
from grls.errors import ConfigError


def fuse(
    searchers: Sequence[Searcher | str | Path],
    *,
    method: str = "interleave",
    weights: Sequence[float] | None = None,
    depth: int | None = None,
    length: str | int = "mean",
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
    members = [searchers] if isinstance(searchers, Searcher | str) else list(searchers)
    first = next((one for one in members if isinstance(one, Searcher)), None)
    if first is None or len(members) < 2:
        raise ConfigError(
            "fuse takes a list of at least two retrievers, one of them a searcher: open a folder with "
            "grls.load(folder)."
        )
    given = {"method": method, "weights": None if weights is None else list(weights), **options}
    write = fusion_writer(member_names(members), depth, length, given)
    held = [one for one in members if isinstance(one, Searcher)]
    return first.composed("fuse", write, held, output, argument_names("searchers", members))
