"""Any retriever, hop by hop: a retriever of kind ``hops``.

Where scores are log-probabilities of passages beside DONE, hops add up (:mod:`grls.retrieve.hops.multistep`);
any other retriever gets the passages found so far with the query (:mod:`grls.retrieve.hops.appending`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from grls.data.corpus import Corpus
from grls.data.filters import Allow, one_each
from grls.data.types import Chain, Hit, Query, Steps
from grls.errors import ConfigError
from grls.retrieve.base import Description, FindsChains, Retriever, WritesChains
from grls.retrieve.hops.appending import AppendingMultistep
from grls.retrieve.hops.expected_f1 import expected_f1
from grls.retrieve.hops.multistep import MultistepRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.pool import pooled_ranking
from grls.retrieve.hops.ranked import RankedHops
from grls.retrieve.queries import check_counts, queries_of
from grls.retrieve.registry import Opening, open_member
from grls.retrieve.spec import MANIFEST, check_fields, made, named_from, recorded, write_spec

NEEDS_PROBABILITIES = (
    "hops.choose expected-f1 needs log-probabilities of chains: a generator, or one whose priors are "
    "normalized."
)


class HopsRetriever:
    """Goes hop by hop with a retriever.

    Args:
        retriever: Finds the passages of each hop; of one that goes hop by hop itself, its single steps do.
        hops: How; ``steps`` is ``fixed`` or ``dynamic`` (``ranked``: :mod:`grls.retrieve.hops.ranked`).

    Raises:
        ConfigError: The retriever cannot go so: it never writes DONE, or its scores are no probabilities.
    """

    kind = "hops"

    def __init__(self, retriever: Retriever, hops: HopOptions):
        if hops.steps not in ("fixed", "dynamic"):
            raise ConfigError(f"{hops.steps} hops make no chains: choose --hops.steps fixed or dynamic.")
        self._steps: Steps = hops.steps
        retriever = single_steps(retriever)
        self.retriever = retriever
        self.hops = hops
        self.chains = _multistep(retriever, hops)
        if hops.choose == "expected-f1" and not self.probable:
            raise ConfigError(NEEDS_PROBABILITIES)

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Retriever:
        """Open a folder; see :func:`grls.retrieve.registry.load`."""
        file = folder / MANIFEST
        check_fields(spec, ("retriever", "hops"), (), file)
        hops = made(HopOptions, spec["hops"], file, "hops")
        plain = replace(how, hop_by_hop=False)
        member = open_member(spec["retriever"], folder, "retriever", plain)
        return RankedHops(single_steps(member), hops) if hops.steps == "ranked" else cls(member, hops)

    def save_pretrained(self, folder: str | Path, retriever: str | Path | dict[str, Any]) -> None:
        """Write a folder that names the one of the retriever, or embeds its specification."""
        content = {"retriever": named_from(folder, retriever), "hops": recorded(self.hops)}
        write_spec(folder, self.kind, content)

    @property
    def probable(self) -> bool:
        """Whether scores of chains are log-probabilities."""
        return _writes_chains(self.retriever) is not None

    @property
    def corpus(self) -> Corpus:
        """What it retrieves from."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        told = self.retriever.describe()
        until = f"{self.hops.max} hops" if self.hops.steps == "fixed" else "hops until DONE"
        mode = (
            told.score_mode if self.hops.choose == "likeliest" else f"{told.score_mode}, {self.hops.choose}"
        )
        return Description(
            told.system,
            mode,
            {**told.options, **_record(self.hops, self.chains)},
            f"{told.name} in {until}",
            told.stages,
            told.members,
            self._steps,
            self.hops.choose != "likeliest",
        )

    def fingerprint(self) -> str:
        """Of the retriever, and of how it goes."""
        own = json.dumps(_record(self.hops, self.chains))
        return hashlib.sha256(f"{self.retriever.fingerprint()} {own}".encode()).hexdigest()

    def untuned(self) -> str:
        """The fingerprint of the retriever alone."""
        return self.retriever.fingerprint()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query: the best chain's in hop order, then those of the next chain.

        Chains of a fixed number of hops that hold fewer are filled up by a single step; ``Hit.score`` is
        1 / place.

        Raises:
            ConfigError: k is below 1.
        """
        check_counts(k=k)
        asked = queries_of(queries)
        chains = self.retrieve_chains(asked, allow)
        found = [pooled_ranking(some, k) for some in chains]
        short = [n for n, hits in enumerate(found) if len(hits) < k]
        if self.hops.steps == "dynamic" or not short:
            return found
        allowed = one_each(allow, len(asked))
        more = self.retriever.retrieve([asked[n] for n in short], k, [allowed[n] for n in short])
        for n, hits in zip(short, more, strict=True):
            found[n] = pooled_ranking([*chains[n], Chain(tuple(hits), 0.0, False)], k)
        return found

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first; with ``expected-f1`` the one set, as a chain."""
        found = self.chains.retrieve_chains(queries, allow)
        return [[expected_f1(some)] for some in found] if self.hops.choose == "expected-f1" else found


def single_steps(retriever: Retriever) -> Retriever:
    """What a retriever that goes hop by hop goes with; any other as it is."""
    return retriever.retriever if isinstance(retriever, _Hopping) else retriever


def hop_by_hop(retriever: Retriever, hops: HopOptions) -> Retriever:
    """A retriever that goes as the options say.

    Args:
        retriever: Any; of one that goes hop by hop already the options replace its hops.
        hops: How; ``single`` gives the retriever of its single steps.

    Raises:
        ConfigError: As of :class:`HopsRetriever`, or its members go hop by hop, or it ends rankings.
    """
    inner = single_steps(retriever)
    if hops.steps == "single":
        return inner
    if isinstance(inner, FindsChains):
        raise ConfigError(
            f"a retriever of kind {inner.kind!r} ends its chains itself: leave --hops.steps out, or make a "
            "folder of kind hops of its members."
        )
    return RankedHops(inner, hops) if hops.steps == "ranked" else HopsRetriever(inner, hops)


@runtime_checkable
class _Hopping(Protocol):
    """Goes hop by hop with another retriever."""

    hops: HopOptions
    retriever: Retriever


def _multistep(retriever: Retriever, hops: HopOptions) -> MultistepRetriever | AppendingMultistep:
    dynamic = hops.steps == "dynamic"
    writer = _writes_chains(retriever)
    if writer is not None:
        kept, branch = hops.chains or 4, hops.branch or 4
        how = (hops.max, dynamic, kept, branch, hops.done_bias)
        return MultistepRetriever(writer, *how, repeat=hops.repeat, sets=hops.sets)
    if hops.sets:
        raise ConfigError("hops.sets needs a generator, or one whose priors are normalized.")
    kept = hops.chains or 1
    how = (hops.max, dynamic, kept, hops.branch or kept, hops.done_bias)
    return AppendingMultistep(retriever, retriever.corpus, *how, repeat=hops.repeat)


def _writes_chains(retriever: Retriever) -> WritesChains | None:
    return retriever if isinstance(retriever, WritesChains) and retriever.writes_chains else None


def _record(hops: HopOptions, search: MultistepRetriever | AppendingMultistep) -> dict[str, Any]:
    """The options that are in force, for manifests."""
    return {
        "hops": hops.max,
        "chains": search.chains,
        "branch": search.branch,
        "done_bias": hops.done_bias,
        "repeat": hops.repeat,
        "sets": hops.sets,
        "choose": hops.choose,
        "pool": hops.pool,
    }
