"""Scores of hops: hits of each, path match, exact sets and exact chains.

What a run stores decides. Chains are stored as they are. The ranking of a fixed number of hops begins with
the passages of its best chain; without that number it has hits of hops alone. Passages that do not stand in
hop order (:attr:`grls.runs.run.Run.in_hop_order`) have neither hits of hops nor paths; of a chain of such
passages the exact set remains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from grls.data.dataset import any_order, proofs_of
from grls.data.types import Query
from grls.evaluation.metrics.exact_chain import exact_chain
from grls.evaluation.metrics.hop_hits import hop_hits
from grls.evaluation.metrics.path_match import Accepted, path_match
from grls.runs.run import Run


class FoundByHops(NamedTuple):
    """What the hops of each query found.

    Attributes:
        ids: Passage ids in hop order, without DONE.
        gold: Gold passage ids.
        paths: The accepted paths; None for a query without a known order.
        ordered: Whether the ids are in hop order.
        whole: Whether the ids are the whole chain and nothing else.
        most: Largest number of hops; None: the length of the longest chain.
    """

    ids: Sequence[Sequence[str]]
    gold: Sequence[Collection[str]]
    paths: Sequence[Accepted | None]
    ordered: bool = True
    whole: bool = True
    most: int | None = None

    def scores(self, places: Iterable[int] | None = None) -> dict[str, float]:
        """``H1``, ``H2``, …, ``exact_set`` and ``exact_chain``, as far as they are known.

        Args:
            places: The queries; None: all.
        """
        numbers = list(range(len(self.ids)) if places is None else places)
        ids, gold = [self.ids[n] for n in numbers], [self.gold[n] for n in numbers]
        paths = [self.paths[n] for n in numbers] if self.ordered else []
        uses = [[] if path is None else path.paths[0] for path in paths]  # of passages, as often as used
        wanted = [[*path, *(set(names) - set(path))] for path, names in zip(uses, gold, strict=False)]
        hits = hop_hits(ids, wanted, self.most) if self.ordered else {}
        return {**hits, **(exact_chain(ids, gold, paths) if self.whole else {})}


def found_by_hops(
    run: Run,
    ids: Sequence[Sequence[str]],
    chains: Sequence[Sequence[str]] | None,
    gold: Sequence[Collection[str]],
    paths: Sequence[Accepted | None],
    ordered: bool,
) -> FoundByHops | None:
    """What the hops of a run found; None where it has none, or does not say.

    Args:
        run: The run.
        ids: Passage ids of each query's ranking.
        chains: Passage ids of each query's chain; None: the run holds no chains.
        gold: Gold passage ids.
        paths: See :func:`accepted_paths`.
        ordered: Whether passages stand in hop order.
    """
    if chains is not None:
        return FoundByHops(chains, gold, paths, ordered)
    if run.steps != "fixed" or run.info is None or not ordered:
        return None
    hops = run.info.options.get("hops")
    return FoundByHops([list(one)[:hops] for one in ids], gold, paths, whole=hops is not None, most=hops)


def accepted_paths(
    queries: Sequence[Query], gold: Sequence[Collection[str]], repeats: bool = False
) -> list[Accepted | None]:
    """Of each query the gold evidence, and the equally good proofs in the metadata; None without evidence.

    Args:
        queries: The queries.
        gold: The gold passages of each.
        repeats: Whether hops may repeat a passage. Else a passage that a proof uses again stands once.
    """
    paths: list[Accepted | None] = []
    for query, wanted in zip(queries, gold, strict=True):
        evidence = [passage for passage in query.evidence if passage in set(wanted)]
        proofs = [evidence, *proofs_of(query)]
        accepted = proofs if repeats else [list(dict.fromkeys(proof)) for proof in proofs]
        paths.append(Accepted(accepted, any_order(query)) if query.evidence else None)
    return paths


def matched_paths(
    ids: Sequence[Sequence[str]], paths: Sequence[Accepted | None]
) -> dict[str, float | int] | None:
    """Path match over the queries that have evidence; None if no path is longer than one passage."""
    known = [(one, path) for one, path in zip(ids, paths, strict=True) if path is not None]
    if not any(len(path) > 1 for _, accepted in known for path in accepted.paths):
        return None
    values = path_match([one for one, _ in known], [accepted for _, accepted in known])
    return {**values, "queries": len(known)}
