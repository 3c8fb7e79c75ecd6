"""Standings for the command: of one query or of a split, for searches that are not explained step by step.

They are printed, and written as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from grls.data.dataset import Qrels, gold_passages
from grls.data.types import Query
from grls.errors import ConfigError, Option
from grls.explain.options import USUAL_CASE, CaseOptions
from grls.explain.standing import GoldStanding, standings
from grls.io.terminal import visible
from grls.retrieve.base import Retriever, single_steps
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions
from grls.retrieve.options import stored_options

_Options = CaseOptions | SearchOptions | HopOptions

DEPTH = 100
"""Number of passages that are ranked, unless another one is asked for."""

_RANKS = (1, 5, 10, 20, 100, 1000)
"""The ranks up to which the summary counts gold passages."""


def refuse_stepwise(
    retriever: Retriever,
    folder: str,
    case: CaseOptions,
    search: SearchOptions,
    hops: HopOptions,
) -> None:
    """Refuse options that say nothing about where a passage stands in a ranking.

    Raises:
        ConfigError: One of these options is set.
    """
    stored = stored_options(folder)
    heeds = getattr(type(single_steps(retriever)), "heeds", None)
    searching = _changed(search, replace(USUAL_SEARCH, **stored.get("search", {})))
    changed = [f"{Option(f'case.{name}')}" for name in _changed(case, USUAL_CASE) if name != "gold"]
    changed += [
        f"{Option(f'search.{name}')}" for name in searching if heeds is not None and name not in heeds
    ]
    hopping = _changed(hops, replace(USUAL_HOPS, **stored.get("hops", {})))
    changed += [f"{Option(f'hops.{name}')}" for name in hopping]
    if changed:
        has, it = ("has", "it") if len(changed) == 1 else ("have", "them")
        raise ConfigError(
            f"{Option('retriever', folder)} is a {retriever.kind} retriever, not explained step by step: "
            f"the rank of each passage is printed, and {', '.join(changed)} {has} no meaning there; leave "
            f"{it} out."
        )


def _changed(options: _Options, usual: _Options) -> list[str]:
    """The fields whose values are not those of a call without options."""
    names = [one.name for one in fields(usual)]
    return [name for name in names if getattr(options, name) != getattr(usual, name)]


def standings_of(
    retriever: Retriever, queries: Sequence[Query], qrels: Qrels, depth: int
) -> Iterator[list[GoldStanding]]:
    """The standings of each query of a split that has gold passages."""
    for query in queries:
        if gold := gold_passages(query, qrels):
            yield standings(retriever, query, gold, depth)


def line_of(made: Sequence[GoldStanding]) -> str:
    """The standings of a query in one line: each gold passage with its rank."""
    return visible(f"{made[0].query.id}: {', '.join(f'{s.gold} {_place(s)}' for s in made)}")


def _place(s: GoldStanding) -> str:
    return "removed" if s.removed else "not found" if s.rank is None else f"rank {s.rank:,}"


def format_ranks(ranks: Sequence[int | None], depth: int) -> str:
    """How many gold passages are found at which ranks."""
    lines = [f"{len(ranks):,} gold passages, {depth:,} passages ranked for each query"]
    for top in _tops(depth):
        count = sum(rank is not None and rank <= top for rank in ranks)
        lines.append(f"  {f'rank 1 to {top:,}' if top > 1 else 'rank 1':<16}{_share(count, len(ranks))}")
    lost = sum(rank is None for rank in ranks)
    return "\n".join([*lines, f"  {'not found':<16}{_share(lost, len(ranks))}"])


def standing_record(s: GoldStanding) -> dict[str, Any]:
    """All facts of a standing, for JSON; a score that is no finite number is null."""
    above = [one._asdict() | {"score": _finite(one.score), "ahead": _finite(one.ahead)} for one in s.above]
    plain = {"query": s.query.text, "score": _finite(s.score), "above": above}
    return {"query_id": s.query.id} | s._asdict() | plain


def rank_record(made: Sequence[GoldStanding]) -> dict[str, Any]:
    """The standings of a query in few facts, for JSON: each gold passage with its rank and score."""
    gold = [{"id": s.gold, "rank": s.rank, "score": _finite(s.score), "removed": s.removed} for s in made]
    return {"query_id": made[0].query.id, "gold": gold}


def rank_counts(ranks: Sequence[int | None], depth: int) -> dict[str, Any]:
    """What :func:`format_ranks` says, for JSON; ``found_to``: rank -> gold passages up to it."""
    counts = {str(top): sum(rank is not None and rank <= top for rank in ranks) for top in _tops(depth)}
    lost = sum(rank is None for rank in ranks)
    return {"gold_passages": len(ranks), "ranked": depth, "found_to": counts, "not_found": lost}


def _finite(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def _tops(depth: int) -> list[int]:
    return [*(top for top in _RANKS if top < depth), depth]


def _share(count: int, total: int) -> str:
    return f"{count:>7,}  {count / total:.1%}"
