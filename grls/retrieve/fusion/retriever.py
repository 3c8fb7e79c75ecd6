"""Fusion: several retrievers answer the same queries, and their rankings are made one.

All members are over one corpus; one that works hop by hop gives the passages of its chains. ``grls fuse``
fuses runs instead of retrievers.

Legend: R rankings of one query (one a member), w_r the weight of member r, rank_r(p) the rank of passage p in
ranking r, from 1.

- ``interleave``, the ensemble of arXiv 2204.13596: the rankings are read from the top, one passage of each in
  turn, and a passage that is in the list already is dropped (its turn is spent). No scores, no weights.
- ``rrf``, reciprocal rank fusion (Cormack et al., SIGIR 2009): score(p) = sum over the rankings r that hold p
  of w_r / (60 + rank_r(p)).
- ``sum``: score(p) = sum over the rankings r that hold p of w_r s_r(p), where s_r are the scores of r scaled
  so that the lowest is 0 and the highest 1 (min-max).

The formulas are those of ranx, the oracle of the tests; its own code takes minutes to compile and breaks ties
by the order of a hash table. We differ where its convention rewards a miss: the passages of a ranking of
equal scores get 1 under ``sum``, not 0. A ranking of weight 0 has no effect: passages that it alone holds are
left out. Ties go to the passage with the better best rank, then to the earlier member.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import FullHit, Hit, Query
from grls.errors import ConfigError, MismatchError
from grls.io.arguments import Count, NonNegativeFloat, options
from grls.io.progress import counted
from grls.retrieve.base import Description, Evidence, HopHits, Retriever
from grls.retrieve.hops.finders import found_after
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import BM25, Opening, open_member
from grls.retrieve.spec import MANIFEST, Member, check_fields, from_fields, recorded

Method = Literal["interleave", "rrf", "sum"]
_RRF = 60
"""What is added to every rank, as in the paper of rrf."""
FUSED = 20
"""Default number of hits of each member of a folder that give scores."""


@options("fusion")
class Fusion:
    """Options of fusing rankings.

    Args:
        method: ``interleave``: a passage of each ranking in turn; ``rrf``: by reciprocal ranks; ``sum``: by
            scores that are scaled to [0, 1] in each ranking.
        weights: A weight for each ranking, in their order (``rrf``, ``sum``); null: equal weights.
    """

    method: Method = "interleave"
    weights: tuple[NonNegativeFloat, ...] | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        if self.method == "interleave":
            raise ConfigError("interleaving takes no weights; choose method rrf or sum, or leave them out.")
        if not any(self.weights):
            raise ConfigError(f"one of the weights must be above 0, got {list(self.weights)}.")

    def weights_of(self, members: int) -> tuple[float, ...]:
        weights = self.weights or (1.0,) * members
        if len(weights) != members:
            raise ConfigError(
                f"{counted(len(weights), 'weight')} for {counted(members, 'member')}; give one a member."
            )
        return weights

    def fuse(self, rankings: Sequence[Sequence[Hit]], k: int | None = None) -> list[Hit]:
        """Fuse the R rankings of one query, each best first; the rank is the position, whatever the scores.

        Each passage comes once, best first, at most k (None: all). The score of ``interleave`` is 1 / rank.
        """
        pairs = zip(rankings, self.weights_of(len(rankings)), strict=True)
        heard = [(hits, weight) for hits, weight in pairs if weight > 0]
        terms = [
            [Hit(hit.id, term) for hit, term in zip(hits, self._terms(hits, weight), strict=True)]
            for hits, weight in heard
        ]
        links = {hit.id: hit.links for hits, _ in reversed(heard) for hit in hits if hit.links}
        fused = interleave(terms) if self.method == "interleave" else comb_sum(terms)
        return [FullHit.of(hit, links=links[hit.id]) if hit.id in links else hit for hit in fused[:k]]

    def _terms(self, hits: Sequence[Hit], weight: float) -> list[float]:
        """What each hit of a ranking adds to the score of its passage."""
        if self.method == "sum":
            return [weight * score for score in min_max(hits)]
        return [weight / (_RRF + rank) for rank in range(1, len(hits) + 1)]

    def fuse_first(self, rankings: Sequence[Sequence[Hit]], depth: int, k: int) -> list[Hit]:
        """The k best of the fused first ``depth`` hits of each ranking, so no score depends on their length.

        Further hits follow in turn, with the lowest score.
        """
        fused = self.fuse([hits[:depth] for hits in rankings])
        if len(fused) >= k:
            return fused[:k]
        known, pairs = {hit.id for hit in fused}, zip(rankings, self.weights_of(len(rankings)), strict=True)
        more = interleave([hits for hits, weight in pairs if weight > 0])
        return (fused + [Hit(hit.id, fused[-1].score) for hit in more if hit.id not in known])[:k]


def interleave(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    order = comb_sum([[Hit(hit.id, 0.0) for hit in hits] for hits in rankings])  # all tie
    return [Hit(hit.id, 1 / rank) for rank, hit in enumerate(order, 1)]


def comb_sum(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """CombSUM (Fox and Shaw, TREC-2): the sum of scores as they are; a missing passage adds 0.

    For scores that are 0 or more on one scale, such as probabilities. Sums are exact: equal terms in another
    order make a tie, which goes to the better best rank, then to the earlier ranking.
    """
    terms: dict[str, list[float]] = {}
    best: dict[str, tuple[int, int]] = {}
    for number, hits in enumerate(rankings):
        for rank, hit in enumerate(hits):
            terms.setdefault(hit.id, []).append(hit.score)
            best[hit.id] = min(best.get(hit.id, (rank, number)), (rank, number))
    scores = {passage: math.fsum(values) for passage, values in terms.items()}
    order = sorted(scores, key=lambda passage: (-scores[passage], best[passage]))
    return [Hit(passage, scores[passage]) for passage in order]


def min_max(hits: Sequence[Hit]) -> list[float]:
    """From 0 for the lowest score to 1 for the highest; 1 where all are equal."""
    scores = [hit.score for hit in hits]
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


class FusionRetriever:
    """Retrieval by at least two retrievers; another fusion may be one of them.

    ``depth`` hits of each member give scores (``rrf``, ``sum``; None: 20). It does not follow k, so neither
    does a score. Hits of members beyond it stand last, in turn, with the lowest score. ``fusion`` None
    interleaves.
    """

    kind = "fusion"
    tuned_by = ("grls.tune.weights:FUSION",)
    folders = ("members.*",)

    def __init__(self, members: Sequence[Retriever], fusion: Fusion | None = None, depth: int | None = None):
        if len(members) < 2:
            raise ConfigError(f"an ensemble needs at least two members, got {len(members)}.")
        self.members: list[Any] = list(members)
        self.depth = depth
        self.fusion = fusion or Fusion()
        self.corpus: Corpus = members[0].corpus
        for number, member in enumerate(members):
            if member.corpus.fingerprint != self.corpus.fingerprint:
                raise MismatchError(
                    f"members of an ensemble retrieve from one corpus, but members[0] "
                    f"{type(members[0]).__name__} is over {self.corpus.source} "
                    f"({counted(len(self.corpus), 'passage')}) and "
                    f"members[{number}] {type(member).__name__} over {member.corpus.source} "
                    f"({counted(len(member.corpus), 'passage')}); make both from the same file."
                )
        self.fusion.weights_of(len(members))

    def describe(self) -> Description:
        members = [member.describe() for member in self.members]
        names = tuple(member.name for member in members)
        options = [{"retriever": member.name, **member.options} for member in members]
        depth = {} if self.depth is None else {"depth": self.depth}
        return Description(
            "ensemble",
            self.fusion.method,
            {"members": options, **recorded(self.fusion), **depth},
            " + ".join(names),
            tuple(dict.fromkeys(stage for member in members for stage in member.stages)),
            names,
            "ranked" if any(member.steps == "ranked" for member in members) else "single",
        )

    def fingerprint(self) -> str:
        return f"{self.untuned()} {json.dumps(recorded(self.fusion))}"

    def untuned(self) -> str:
        return " ".join(member.fingerprint() for member in self.members)

    @staticmethod
    def open(folder: Path, spec: dict[str, Any], opening: Opening) -> FusionRetriever:
        """``bm25`` is over the corpus of the other members."""
        file = folder / MANIFEST
        check_fields(spec, ("members",), ("method", "weights", "depth"), file)
        fusion = from_fields(Fusion, spec, file, "fusion")
        parts = from_fields(_Members, spec, file, "fusion")
        opened = dict[int, Any]()
        # BM25 without a corpus of its own is opened last, over the corpus of the first member.
        embedded = [member if isinstance(member, dict) else {"kind": member} for member in parts.members]
        lacks = [spec.get("kind") == BM25 and "corpus" not in spec for spec in embedded]
        for number in sorted(range(len(lacks)), key=lacks.__getitem__):
            corpus = opened[min(opened)].corpus if opened else opening.corpus
            member = parts.members[number], folder, f"members[{number}]"
            opened[number] = open_member(*member, replace(opening, corpus=corpus))
        return FusionRetriever([opened[number] for number in range(len(lacks))], fusion, parts.depth)

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        queries = queries_of(queries)
        return self.fused(k, lambda member, depth: member.retrieve(queries, depth, allow))

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow = None
    ) -> list[HopHits]:
        """Each member takes the evidence in its own way."""

        def ranked(member: Any, depth: int) -> list[list[Hit]]:
            return [hop.hits for hop in found_after(member, queries, evidence, depth, allow)]

        return [HopHits(hits, None) for hits in self.fused(k, ranked)]

    def fused(self, k: int, ranked: Callable[[Any, int], list[list[Hit]]]) -> list[list[Hit]]:
        """The k best of each query, of what a member has ``ranked`` to a depth."""
        depth = k if self.fusion.method == "interleave" else self.depth or FUSED
        results = [ranked(member, max(k, depth)) for member in self.members]
        return [self.fusion.fuse_first(rankings, depth, k) for rankings in zip(*results, strict=True)]


@options()
class _Members:
    members: list[Member]
    depth: Count | None = None


def fusion_spec(members: Sequence[Member], fusion: Fusion, depth: int | None = None) -> dict[str, Any]:
    """A fusion of several retrievers over one corpus."""
    spec = {"kind": "fusion", "members": list(members), **recorded(fusion)}
    return spec | ({} if depth is None else {"depth": depth})
