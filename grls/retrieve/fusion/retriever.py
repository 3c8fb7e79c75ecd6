"""Ensembles: several retrievers answer the same queries, and their rankings are fused.

:class:`FusionRetriever` is a single-step retriever made of single-step retrievers, of one kind (two seeds)
or of several (a generator and a bi-encoder). :class:`FusedChains` is the same for multi-step retrievers.
arXiv 2204.13596 interleaves: one passage of each member in turn, duplicates dropped, which is the default
here. The length of a fused dynamic chain is an option, by default the mean of the members' lengths.
Methods of fusion: :mod:`grls.retrieve.fusion.fuse`. All members must be over one corpus. ``grls fuse`` fuses
runs instead of retrievers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.inputs.arguments import Count, checked
from grls.data.types import Chain, Hit, Query
from grls.errors import ConfigError, MismatchError, at_least
from grls.io.progress import counted
from grls.retrieve.base import Description, FindsChains, Retriever
from grls.retrieve.fusion.fuse import FUSED, Fusion
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import BM25, Opening, open_member, write_composite
from grls.retrieve.spec import MANIFEST, check_fields, made, named_from, recorded

Length = Literal["mean", "min", "max"] | int
"""Length of a fused chain: from the members' lengths (a half is rounded up), or that of member n, from 0."""


class _Fused:
    """What ensembles share: members over one corpus, and how they are fused.

    Attributes:
        own: The option that this class alone has, by its name; empty where it is not set.
    """

    kind = "fusion"
    own: dict[str, Any]

    def __init__(self, members: Sequence[Any], fusion: Fusion | None):
        self.members: list[Any] = list(members)
        self.fusion = fusion or Fusion()
        self.corpus = shared_corpus(self.members)
        weights, count = self.fusion.weights, len(self.members)
        if weights is not None and len(weights) != count:
            raise ConfigError(
                f"{counted(len(weights), 'weight')} for {counted(count, 'member')}; give one a member."
            )

    def save_pretrained(self, folder: str | Path, members: Sequence[str | Path | dict[str, Any]]) -> None:
        """Write a folder that names those of the members, or embeds their specifications."""
        named = {"members": [named_from(folder, member) for member in members]}
        write_composite(folder, self.kind, named | recorded(self.fusion) | self.own, self.corpus)

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        all_of = [member.describe() for member in self.members]
        members = [{"retriever": one.name, **one.options} for one in all_of]
        return Description(
            "ensemble",
            self.fusion.score_mode,
            {"members": members, **recorded(self.fusion), **self.own},
            " + ".join(one.name for one in all_of),
            tuple(dict.fromkeys(stage for one in all_of for stage in one.stages)),
            tuple(one.name for one in all_of),
            "ranked" if any(one.steps == "ranked" for one in all_of) else "single",
        )

    def fingerprint(self) -> str:
        """Fingerprint of the members and the fusion."""
        return f"{self.untuned()} {json.dumps(recorded(self.fusion))}"

    def untuned(self) -> str:
        """The fingerprints of the members."""
        return " ".join(member.fingerprint() for member in self.members)


class FusionRetriever(_Fused):
    """Single-step retrieval by several retrievers.

    Args:
        members: At least two; another ensemble may be one.
        fusion: How their rankings are fused; None interleaves them.
        depth: Number of hits of each member that give scores (``rrf``, ``sum``); None: 20. It does not follow
            k, so neither does a score. Hits of members beyond it stand last, in turn, with the lowest score.

    Raises:
        ConfigError: There are fewer than two members, ``depth`` is below 1, or the weights are not as many as
            the members.
        MismatchError: Two members are over different corpora.
    """

    tuned_by = ("grls.tune.priors:FUSION",)
    folders = ("members.*",)

    def __init__(self, members: Sequence[Retriever], fusion: Fusion | None = None, depth: int | None = None):
        at_least(1, depth=depth)
        self.depth = depth
        self.own = {} if depth is None else {"depth": depth}
        super().__init__(members, fusion)

    @staticmethod
    def open(folder: Path, spec: dict[str, Any], how: Opening) -> FusionRetriever | FusedChains:
        """Open a folder; see :func:`load_retriever`. Members that end chains give chains.

        ``bm25`` is over the corpus of the other members.

        Raises:
            DataError: A field cannot be, or a member is gone.
            MismatchError: Two members are over different corpora.
        """
        file = folder / MANIFEST
        check_fields(
            spec, ("members",), ("method", "normalization", "weights", "rrf_k", "depth", "length"), file
        )
        names = [one.name for one in fields(Fusion)]
        fusion = made(Fusion, {name: spec[name] for name in names if name in spec}, file, "fusion")
        parts = made(
            _Members,
            {name: spec[name] for name in ("members", "depth", "length") if name in spec},
            file,
            "fusion",
        )
        named, opened = parts.members, dict[int, Any]()
        # BM25 without a corpus of its own is opened last, over the corpus of the first member.
        specs = [{"kind": member} if isinstance(member, str) else member for member in named]
        lacks = [spec.get("kind") == BM25 and "corpus" not in spec for spec in specs]
        for number in sorted(range(len(named)), key=lacks.__getitem__):
            more = replace(how, corpus=opened[min(opened)].corpus) if opened else how
            opened[number] = open_member(named[number], folder, f"members[{number}]", more)
        members = [opened[number] for number in range(len(named))]
        if all(member.describe().steps == "dynamic" for member in members):
            return FusedChains(members, fusion, parts.length)
        return FusionRetriever(members, fusion, parts.depth)

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """The top-k passages of each query; see :class:`~grls.retrieve.base.Retriever`.

        Raises:
            ConfigError: k is below 1.
        """
        queries = queries_of(queries)
        depth = k if self.fusion.method == "interleave" else self.depth or FUSED
        results = [member.retrieve(queries, max(k, depth), allow) for member in self.members]
        return [self.fusion.fuse_first(rankings, depth, k) for rankings in zip(*results, strict=True)]


class FusedChains(_Fused):
    """Multi-step retrieval by several multi-step retrievers; their best chains are fused.

    Args:
        members: At least two; the best chain of each is used.
        fusion: How the passages of the chains are fused, ranked by hop; None interleaves them.
        length: Length of a fused chain (dynamic setting).

    Raises:
        ConfigError: There are fewer than two members, the weights are not as many, or ``length`` names none.
        MismatchError: Two members are over different corpora.
    """

    def __init__(self, members: Sequence[FindsChains], fusion: Fusion | None = None, length: Length = "mean"):
        self.length = length
        self.own = {"length": length}
        super().__init__(members, fusion)
        chain_length([0] * len(self.members), length)

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        return replace(super().describe(), steps="dynamic")

    def fingerprint(self) -> str:
        """Fingerprint of the members, the fusion and the length."""
        return f"{super().fingerprint()} {self.length}"

    @checked
    def retrieve_chains(self, queries: Any, allow: Allow = None) -> list[list[Chain]]:
        """Dynamic setting: one fused chain a query, in a list of its own as elsewhere."""
        queries = queries_of(queries)
        return [
            [fuse_chains(chains, self.fusion, self.length)] for chains in self._member_chains(queries, allow)
        ]

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """Fixed setting: the chains are rankings of their passages by hop, fused and cut to k hits.

        Raises:
            ConfigError: k is below 1.
        """
        return [
            self.fusion.fuse([chain_hits(chain) for chain in chains], k)
            for chains in self._member_chains(queries_of(queries), allow)
        ]

    def _member_chains(self, queries: Sequence[Query], allow: Allow) -> list[tuple[Chain, ...]]:
        """The members' best chains, query by query."""
        none = Chain((), 0.0, False)
        beams = [member.retrieve_chains(queries, allow) for member in self.members]
        best = [[chains[0] if chains else none for chains in member] for member in beams]
        return list(zip(*best, strict=True))


@dataclass(frozen=True)
class _Members:
    """The members in a file."""

    members: list[str | dict[str, Any]]
    depth: int | None = None
    length: Literal["mean", "min", "max"] | int = "mean"


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


def shared_corpus(members: Sequence[Retriever | FindsChains]) -> Corpus:
    """The corpus that the members retrieve from.

    Raises:
        ConfigError: There are fewer than two members.
        MismatchError: Two members are over different corpora.
    """
    if len(members) < 2:
        raise ConfigError(f"an ensemble needs at least two members, got {len(members)}.")
    first = members[0]
    for number, member in enumerate(members[1:], 1):
        if member.corpus.fingerprint != first.corpus.fingerprint:
            raise MismatchError(
                f"members of an ensemble retrieve from one corpus, but members[0] "
                f"{type(first).__name__} is over {first.corpus.source} "
                f"({counted(len(first.corpus), 'passage')}) and "
                f"members[{number}] {type(member).__name__} over {member.corpus.source} "
                f"({counted(len(member.corpus), 'passage')}); make both from the same file."
            )
    return first.corpus
