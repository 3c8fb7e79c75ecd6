"""Retrieval hop by hop with any retriever: the kind ``hops``.

Where scores are log-probabilities of passages and DONE, those of the hops are added up
(:mod:`grls.retrieve.hops.multistep`). Other retrievers get the evidence so far with the query
(:mod:`grls.retrieve.hops.appending`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter, one_each
from grls.data.inputs.arguments import Count, checked
from grls.data.types import Chain, Hit, Query, Steps
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.retrieve.base import (
    Description,
    FindsChains,
    Retriever,
    SoFar,
    WritesChains,
    single_steps,
    unended_fingerprint,
)
from grls.retrieve.hops.appending import AppendingMultistep
from grls.retrieve.hops.diverse import refuse_single_chain
from grls.retrieve.hops.expected_f1 import expected_f1
from grls.retrieve.hops.multistep import MultistepRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.pool import pooled_ranking
from grls.retrieve.hops.ranked import RankedHops
from grls.retrieve.hops.steps import decodes_hops
from grls.retrieve.joins import LetsJoin, Plan, RunsPlans
from grls.retrieve.queries import check_counts, queries_of
from grls.retrieve.registry import Opening, open_member, write_composite
from grls.retrieve.spec import MANIFEST, check_fields, made, named_from, recorded

_END = ("hops", "done_bias", "choose", "pool")
"""Options that say where a chain ends, or which one is chosen; the others are of the search for chains."""

NEEDS_PROBABILITIES = (
    "hops.choose expected-f1 needs log-probabilities of chains: a generator, or one whose priors are "
    "normalized."
)


class HopsRetriever:
    """Retrieves hop by hop with a retriever.

    Args:
        retriever: Retrieves each hop; of a retriever that works hop by hop, the retriever within it.
        hops: The options; ``steps`` is ``fixed`` or ``dynamic`` (``ranked``:
            :mod:`grls.retrieve.hops.ranked`).

    Raises:
        ConfigError: The options do not fit: the retriever never writes DONE, or its scores are not
            log-probabilities.
    """

    kind = "hops"
    folders = ("retriever",)

    def __init__(self, retriever: Retriever, hops: HopOptions):
        if hops.steps not in ("fixed", "dynamic"):
            cause = "a single step has no hops" if hops.steps == "single" else "ranked hops make no chains"
            raise ConfigError(f"{cause}: choose --hops.steps fixed or dynamic.")
        self._steps: Steps = hops.steps
        retriever = single_steps(retriever)
        self.retriever = retriever
        self.hops = hops
        self.chains = _multistep(retriever, hops)
        if hops.choose == "expected-f1" and not self.probable:
            raise ConfigError(NEEDS_PROBABILITIES)

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Retriever:
        """Open a folder; see :func:`load_retriever`."""
        file = folder / MANIFEST
        check_fields(spec, ("retriever", "hops"), (), file)
        hops = made(HopOptions, spec["hops"], file, "hops")
        plain = replace(how, hop_by_hop=False)
        member = open_member(spec["retriever"], folder, "retriever", plain)
        return RankedHops(single_steps(member), hops) if hops.steps == "ranked" else cls(member, hops)

    @classmethod
    def over(cls, retriever: Retriever, hops: HopOptions) -> Retriever:
        """:func:`hop_by_hop`, for the registry."""
        return hop_by_hop(retriever, hops)

    def save_pretrained(self, folder: str | Path, retriever: str | Path | dict[str, Any]) -> None:
        """Write a folder that names the one of the retriever, or embeds its specification."""
        content = {"retriever": named_from(folder, retriever), "hops": recorded(self.hops)}
        write_composite(folder, self.kind, content, self.corpus)

    @property
    def probable(self) -> bool:
        """Whether scores of chains are log-probabilities."""
        return _writes_chains(self.retriever) is not None

    @property
    def corpus(self) -> Corpus:
        """The corpus of the retriever."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        single = self.retriever.describe()
        until = f"{counted(self.hops.count, 'hop')}" if self.hops.steps == "fixed" else "hops until DONE"
        likeliest = self.hops.choose == "likeliest"
        mode = single.score_mode if likeliest else f"{single.score_mode}, {self.hops.choose}"
        return Description(
            single.system,
            mode,
            {**single.options, **_record(self.hops, self.chains)},
            f"{single.name} in {until}",
            single.stages,
            single.members,
            self._steps,
            not likeliest,
        )

    def fingerprint(self) -> str:
        """Fingerprint of the retriever and the options of hops."""
        record = json.dumps(_record(self.hops, self.chains))
        return hashlib.sha256(f"{self.retriever.fingerprint()} {record}".encode()).hexdigest()

    def untuned(self) -> str:
        """The fingerprint of the retriever alone."""
        return self.retriever.fingerprint()

    def unended(self) -> str:
        """The fingerprint without the number of hops, DONE, its bias, and the choice of a chain."""
        record = _record(self.hops, self.chains)
        search = {name: value for name, value in record.items() if name not in _END}
        return f"{unended_fingerprint(self.retriever)} {json.dumps(search)}"

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query: the best chain's in hop order, then those of the next chain.

        Chains of a fixed number of hops with fewer passages are filled up by a single step. ``Hit.score`` is
        1 / rank.

        Raises:
            ConfigError: k is below 1.
        """
        asked = queries_of(queries)
        chains = self.retrieve_chains(asked, allow)
        rankings = [pooled_ranking(beams, k) for beams in chains]
        short = [n for n, hits in enumerate(rankings) if len(hits) < k]
        if self.hops.steps == "dynamic" or not short:
            return rankings
        allowed = one_each(allow, len(asked))
        more = self.retriever.retrieve([asked[n] for n in short], k, [allowed[n] for n in short])
        for n, hits in zip(short, more, strict=True):
            rankings[n] = pooled_ranking([*chains[n], Chain(tuple(hits), 0.0, False)], k)
        return rankings

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first; with ``expected-f1``, one set as a chain."""
        return self._chosen(self.chains.retrieve_chains(queries, allow))

    def _chosen(self, chains: list[list[Chain]]) -> list[list[Chain]]:
        return [[expected_f1(beams)] for beams in chains] if self.hops.choose == "expected-f1" else chains

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        """:meth:`retrieve_chains`, hop by hop; see :class:`~grls.retrieve.base.WalksHops`.

        With ``expected-f1``, the set is chosen after the last hop; before it, chains are in order of their
        probability.
        """
        yield from map(self._last, self.chains.walk(queries, allow))

    @property
    def runner(self) -> RunsPlans | None:
        """The retriever whose search its hops join; None: they join none."""
        return decodes_hops(self.retriever)

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """:meth:`retrieve` of one query, for a search that others join."""
        check_counts(k=k)
        last = yield from self.chains.plan(query, allow)
        (chains,) = self._chosen(last.chains())
        hits = pooled_ranking(chains, k)
        if self.hops.steps == "dynamic" or len(hits) >= k:
            return hits
        more = yield from cast(LetsJoin, self.retriever).plan(query, k, allow)
        return pooled_ranking([*chains, Chain(tuple(more), 0.0, False)], k)

    def plan_walk(self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object]) -> Plan[None]:
        """:meth:`walk` of one query, for a search that others join."""
        yield from self.chains.plan(query, allow, lambda so_far: tell(self._last(so_far)))

    def _last(self, so_far: SoFar) -> SoFar:
        """The chains after a hop; after the last one, those that are chosen."""
        return so_far._replace(chains=partial(self._ended, so_far.chains)) if so_far.last else so_far

    def _ended(self, chains: Callable[[], list[list[Chain]]]) -> list[list[Chain]]:
        return self._chosen(chains())


def hop_by_hop(retriever: Retriever, hops: HopOptions) -> Retriever:
    """Make a retriever that works hop by hop.

    Args:
        retriever: Any retriever; the options replace those of one that works hop by hop already.
        hops: The options; ``single`` returns the retriever of single steps.

    Raises:
        ConfigError: See :class:`HopsRetriever`; or the members work hop by hop, or the retriever ends
            rankings.
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


def _multistep(retriever: Retriever, hops: HopOptions) -> MultistepRetriever | AppendingMultistep:
    dynamic = hops.steps == "dynamic"
    writer = _writes_chains(retriever)
    if writer is not None:
        kept, branch = hops.chains or 4, hops.branch or 4
        refuse_single_chain(hops.per_first, kept)
        how = (hops.count, dynamic, kept, branch, hops.done_bias)
        return MultistepRetriever(writer, *how, repeat=hops.repeat, sets=hops.sets, per_first=hops.per_first)
    if hops.sets:
        raise ConfigError("hops.sets needs a generator, or one whose priors are normalized.")
    kept = hops.chains or 1
    refuse_single_chain(hops.per_first, kept)
    how = (hops.count, dynamic, kept, hops.branch or kept, hops.done_bias)
    return AppendingMultistep(retriever, retriever.corpus, *how, repeat=hops.repeat, per_first=hops.per_first)


def _writes_chains(retriever: Retriever) -> WritesChains | None:
    return retriever if isinstance(retriever, WritesChains) and retriever.writes_chains else None


def _record(hops: HopOptions, search: MultistepRetriever | AppendingMultistep) -> dict[str, Any]:
    """The options with their values, for manifests."""
    return {
        "hops": hops.count,
        "chains": search.chains,
        "branch": search.branch,
        "done_bias": hops.done_bias,
        "repeat": hops.repeat,
        "sets": hops.sets,
        "choose": hops.choose,
        "pool": hops.pool,
        **({} if hops.per_first is None else {"per_first": hops.per_first}),
    }
