"""Ensembles: several retrievers asked the same, their answers fused.

:class:`EnsembleRetriever` is a single-step retriever made of single-step retrievers, of one kind (two seeds)
or of several (a generator and a bi-encoder). :class:`EnsembleChains` is the same for multi-step retrievers.
arXiv 2204.13596 interleaves: one passage of each member in turn, duplicates dropped, which is the default
here. The length of a fused dynamic chain is a choice of ours, by default the mean of the members' lengths.
How to fuse is :mod:`grls.retrieve.fusion.fuse`'s affair. All members must be over one corpus. Nothing here
reads or writes files; ``grls ensemble`` fuses what stands in run files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Query
from grls.errors import ConfigError, MismatchError
from grls.retrieve.base import Retriever, queries_of
from grls.retrieve.fusion.fuse import Fusion

Length = Literal["mean", "min", "max"] | int
"""How long a fused chain is: by the members' lengths (a half is rounded up), or as one member's, from 0."""


class ChainRetriever(Protocol):
    """A multi-step retriever, such as ``MultistepRetriever`` and ``AppendingMultistep``."""

    def retrieve_chains(self, queries: Sequence[Query], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first, made of allowed passages."""
        ...


class EnsembleRetriever:
    """Single-step retrieval by several retrievers.

    Args:
        members: At least two; another ensemble may be one.
        fusion: How their rankings are fused; None interleaves them.
        depth: Hits to ask of each member; None asks for k. It is never below the k asked for.

    Raises:
        ConfigError: There are fewer than two members, ``depth`` is below 1, or the weights are not as many as
            the members.
        MismatchError: Two members are over different corpora.
    """

    def __init__(self, members: Sequence[Retriever], fusion: Fusion | None = None, depth: int | None = None):
        if depth is not None and depth < 1:
            raise ConfigError(f"depth must be at least 1, got {depth}.")
        self.members = list(members)
        self.fusion = fusion or Fusion()
        self.depth = depth
        self.corpus = shared_corpus(self.members)
        _refuse_other_weights(self.fusion, len(self.members))

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query; see :class:`~grls.retrieve.base.Retriever`.

        Raises:
            ConfigError: k is below 1.
        """
        queries = queries_of(queries)
        depth = max(k, self.depth or k)
        found = [member.retrieve(queries, depth, allow) for member in self.members]
        return [self.fusion.fuse(rankings, k) for rankings in zip(*found, strict=True)]


class EnsembleChains:
    """Multi-step retrieval by several multi-step retrievers, each going its own way; best chains are fused.

    Args:
        members: At least two; the best chain of each counts.
        fusion: How the passages of the chains are fused, ranked by hop; None interleaves them.
        length: Of a fused chain (dynamic setting).

    Raises:
        ConfigError: There are fewer than two members, the weights are not as many, or ``length`` names none.
        MismatchError: Two members are over different corpora.
    """

    def __init__(
        self,
        members: Sequence[ChainRetriever],
        fusion: Fusion | None = None,
        length: Length = "mean",
    ):
        self.members = list(members)
        self.fusion = fusion or Fusion()
        self.length = length
        self.corpus = shared_corpus(self.members)
        _refuse_other_weights(self.fusion, len(self.members))
        chain_length([0] * len(self.members), length)

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """Dynamic setting: one fused chain a query, in a list of its own as elsewhere."""
        queries = queries_of(queries)
        return [
            [fuse_chains(chains, self.fusion, self.length)] for chains in self._member_chains(queries, allow)
        ]

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        """Fixed setting: the chains are rankings of their passages by hop, fused and cut to k hits.

        Raises:
            ConfigError: k is below 1.
        """
        return [
            self.fusion.fuse([chain_hits(chain) for chain in chains], k)
            for chains in self._member_chains(queries, allow)
        ]

    def _member_chains(self, queries: Sequence[Query], allow: Allow) -> list[tuple[Chain, ...]]:
        """The members' best chains, query by query."""
        none = Chain((), 0.0, False)
        beams = [member.retrieve_chains(queries, allow) for member in self.members]
        found = [[some[0] if some else none for some in member] for member in beams]
        return list(zip(*found, strict=True))


def chain_hits(chain: Chain) -> list[Hit]:
    """The passages of a chain as a ranking by hop: DONE left out, each once.

    The score is the running sum of the hop scores, kept from rising: it is the log-probability of the chain
    so far where hop scores are log-probabilities, and for other scores the hop order counts all the same.
    """
    hits: dict[str, float] = {}
    total, lowest = 0.0, math.inf
    for hit in chain.hits:
        total += hit.score
        lowest = min(lowest, total)
        if hit.id != DONE_ID:
            hits.setdefault(hit.id, lowest)
    return [Hit(*pair) for pair in hits.items()]


def fuse_chains(
    chains: Sequence[Chain],
    fusion: Fusion,
    length: Length = "mean",
    rankings: Sequence[Sequence[Hit]] | None = None,
) -> Chain:
    """Fuse the chains of one query into one.

    Args:
        chains: One a member.
        fusion: How their passages are fused, ranked by hop.
        length: See :data:`Length`; members' lengths count passages.
        rankings: The passages of each with scores to fuse by; None: those of :func:`chain_hits`. A set whose
            passages have scores of their own is no chain of hops to be added up.

    Returns:
        The first passages of the fused ranking, with their fused scores; ``Chain.score`` is their sum and no
        log-probability. ``done`` where every member wrote DONE, or the one that sets the length did. DONE is
        not among the hits.

    Raises:
        ConfigError: The weights are not as many as the chains, or ``length`` names no member.
    """
    if rankings is None:
        rankings = [chain_hits(chain) for chain in chains]
    hops = chain_length([len(hits) for hits in rankings], length)
    hits = tuple(fusion.fuse(rankings)[:hops])
    done = chains[length].done if isinstance(length, int) else all(chain.done for chain in chains)
    return Chain(hits, math.fsum(hit.score for hit in hits), done)


def chain_length(lengths: Sequence[int], how: Length) -> int:
    """The length of a fused chain.

    Raises:
        ConfigError: ``how`` names no member.
    """
    if isinstance(how, int):
        if not 0 <= how < len(lengths):
            raise ConfigError(
                f"length {how} names no member; expected mean, min, max or 0 to {len(lengths) - 1}."
            )
        return lengths[how]
    if how == "mean":
        return (2 * sum(lengths) + len(lengths)) // (2 * len(lengths))
    return min(lengths) if how == "min" else max(lengths)


def shared_corpus(members: Sequence[object]) -> Corpus | None:
    """The corpus that the members retrieve from; None where none of them tells.

    Raises:
        ConfigError: There are fewer than two members.
        MismatchError: Two members are over different corpora.
    """
    if len(members) < 2:
        raise ConfigError(f"an ensemble needs at least two members, got {len(members)}.")
    told = [(member, corpus) for member in members if (corpus := _corpus(member)) is not None]
    for member, corpus in told[1:]:
        first, other = told[0]
        if corpus.fingerprint != other.fingerprint:
            raise MismatchError(
                f"members of an ensemble retrieve from one corpus, but {type(first).__name__} is over "
                f"{other.source} ({len(other):,} passages) and {type(member).__name__} over {corpus.source} "
                f"({len(corpus):,} passages); build both from the same corpus.jsonl."
            )
    return told[0][1] if told else None


def _corpus(member: object) -> Corpus | None:
    """The corpus of a retriever, or of the one that it wraps."""
    corpus = getattr(member, "corpus", None)
    if corpus is None:
        corpus = getattr(getattr(member, "retriever", None), "corpus", None)
    return corpus if isinstance(corpus, Corpus) else None


def _refuse_other_weights(fusion: Fusion, members: int) -> None:
    if fusion.weights is not None and len(fusion.weights) != members:
        raise ConfigError(f"{len(fusion.weights)} weights for {members} members; give one a member.")
