"""Retrieval hop by hop with any retriever: the kind ``hops``.

:class:`HopsRetriever` returns chains, :class:`RankedHops` rankings. Where scores are log-probabilities of
passages and DONE, a generator writes the hops; other retrievers get the evidence so far with the query.

A search returns the best chain (:func:`grls.retrieve.hits.search_hits`), and measures read it. Fusions and
readers of answers need rankings of k passages, and the chains hold more passages than the best of them. So
:meth:`~grls.retrieve.base.Retriever.retrieve` pools the chains (:func:`pooled_ranking`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter, one_each, resolved
from grls.data.types import IN_CHAINS, Chain, Hit, Query
from grls.errors import ConfigError, Option
from grls.io.progress import counted
from grls.retrieve.base import (
    DecodesHops,
    Description,
    LetsJoin,
    Plan,
    Retriever,
    SoFar,
    has_log_probabilities,
    runner_of,
    single_steps,
    untuned_fingerprint,
)
from grls.retrieve.hops.combine import Marginal, Mean, Sum
from grls.retrieve.hops.finders import OF_RANKS, Finder, SearchesAgain, Writes, usual_temperature
from grls.retrieve.hops.linked import LinkPrior
from grls.retrieve.hops.options import UNLABELLED, HopOptions
from grls.retrieve.hops.search import HopSearch, Memory
from grls.retrieve.hops.stop import StopRule, scores_done, stop_rule
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import Opening, open_member
from grls.retrieve.spec import MANIFEST, check_fields, from_record

_HITS = 20
"""Number of hits in the first ranked hop, which share its probability; each further hop has one more."""

_CHAINS = 5
"""Default number of chains for a ranking."""

NEEDS_PROBABILITIES = (
    f"{Option('hops.choose', 'expected-f1')} needs log-probabilities of chains: a generator, or one "
    "whose priors are normalized."
)


class _HopByHop:
    """The base of retrievers that work hop by hop: ``hop_search`` retrieves each hop with ``retriever``."""

    kind = "hops"
    retriever: Retriever
    hops: HopOptions
    hop_search: HopSearch

    @property
    def corpus(self) -> Corpus:
        return self.retriever.corpus

    def _groups(self, queries: Any, allow: Allow) -> Iterator[tuple[list[Query], Allow]]:
        queries = queries_of(queries)
        size = self.hop_search.finder.together if len(queries) > 1 else None
        if size is None or len(queries) <= size:
            yield queries, allow
            return
        filters = resolved(one_each(allow, len(queries)), self.corpus)
        for start in range(0, len(queries), size):
            yield queries[start : start + size], filters[start : start + size]

    def record(self) -> dict[str, Any]:
        raise NotImplementedError

    def fingerprint(self) -> str:
        record = json.dumps(self.record())
        return hashlib.sha256(f"{self.retriever.fingerprint()} {record}".encode()).hexdigest()

    @property
    def runner(self) -> Any:
        return runner if (runner := runner_of(self.retriever)) is self.retriever else None

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        """The chains of each query after every hop; see :class:`~grls.retrieve.base.WalksHops`.

        Ranked hops give the C likeliest chains: the score of a hit is its probability given the hits before
        it, that of a chain the product of these, and a hop without hits leaves the chains unchanged. With
        ``expected-f1``, the set is chosen after the last hop.
        """
        return self.hop_search.walk(queries_of(queries), allow)

    def plan_walk(self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object]) -> Plan[SoFar]:
        return (yield from self.hop_search.plan(query, allow, tell))


def in_hops(retriever: Retriever, hops: HopOptions) -> Retriever:
    """Make a retriever that works hop by hop; ``single`` steps are refused.

    The options replace those of one that works hop by hop already.
    """
    return RankedHops(retriever, hops) if hops.steps == "ranked" else HopsRetriever(retriever, hops)


def hop_by_hop(retriever: Retriever, hops: HopOptions) -> Retriever:
    """:func:`in_hops`; of ``single`` steps the retriever of single steps."""
    return single_steps(retriever) if hops.steps == "single" else in_hops(retriever, hops)


class HopsRetriever(_HopByHop):
    """Retrieves chains hop by hop with a retriever.

    Args:
        retriever: Retrieves each hop; of a retriever that works hop by hop, the retriever within it. Dynamic
            hops need one that writes DONE; ``sets`` and ``expected-f1`` need log-probabilities.
        hops: The options; ``steps`` is ``fixed`` or ``dynamic`` (``ranked``: :class:`RankedHops`).
    """

    folders = ("retriever",)
    over = staticmethod(hop_by_hop)

    def __init__(self, retriever: Retriever, hops: HopOptions):
        if hops.steps not in ("fixed", "dynamic"):
            cause = "a single step has no hops" if hops.steps == "single" else "ranked hops make no chains"
            raise ConfigError(f"{cause}: choose {Option('hops.steps', 'fixed', 'dynamic')}.")
        self.retriever = retriever = single_steps(retriever)
        self.hops = hops
        finder: Finder = (
            Writes(retriever, hops.repeat) if has_log_probabilities(retriever) else SearchesAgain(retriever)
        )
        self.probable = isinstance(finder, Writes)
        self.best_chain = hops.choose == "likeliest" and not hops.pool
        self.chains = hops.chains or (4 if self.probable else 1)
        self.branch = hops.branch or (4 if self.probable else self.chains)
        if hops.sets and not self.probable:
            raise ConfigError(f"{Option('hops.sets')} needs a generator, or one whose priors are normalized.")
        if hops.choose == "expected-f1" and not self.probable:
            raise ConfigError(NEEDS_PROBABILITIES)
        make_combiner = partial(
            Mean if hops.steps == "dynamic" and not self.probable else Sum,
            chains=self.chains,
            branch=self.branch,
            sets=hops.sets,
            bounded=self.probable,
            choose=hops.choose,
        )
        self.hop_search = HopSearch(
            finder,
            stop_rule(retriever, hops),
            make_combiner,
            hops.count,
            self.branch,
            more=not (self.probable or hops.repeat),
            repeat=hops.repeat,
        )

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Retriever:
        file = folder / MANIFEST
        check_fields(spec, ("retriever", "hops"), (), file)
        hops = from_record(HopOptions, spec["hops"], file, "hops")
        plain = replace(opening, hop_by_hop=False)
        member = open_member(spec["retriever"], folder, "retriever", plain)
        return in_hops(member, hops)

    def describe(self) -> Description:
        single = self.retriever.describe()
        end = self.hops.stop or "DONE"
        until = counted(self.hops.count, "hop") if self.hops.steps == "fixed" else f"hops until {end}"
        likeliest = self.hops.choose == "likeliest"
        return replace(
            single,
            score_mode=single.score_mode if likeliest else f"{single.score_mode}, {self.hops.choose}",
            options={**single.options, **self.record()},
            label=f"{single.name} in {until}",
            steps=self.hops.steps,
            sets=not likeliest,
        )

    def record(self) -> dict[str, Any]:
        return {
            "hops": self.hops.count,
            "chains": self.chains,
            "branch": self.branch,
            **self.hops.record(),
        }

    def untuned(self) -> str:
        return self.retriever.fingerprint()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query: the best chain's in hop order, then those of the next chain.

        Chains of a fixed number of hops with fewer passages are filled up by a single step, but not with
        ``pool``. ``Hit.score`` is 1 / rank.
        """
        queries = queries_of(queries)
        chains = self.retrieve_chains(queries, allow)
        rankings = [pooled_ranking(own_chains, k) for own_chains in chains]
        short = [n for n, hits in enumerate(rankings) if len(hits) < k]
        if self.hops.steps == "dynamic" or self.hops.pool or not short:
            return rankings
        filters = one_each(allow, len(queries))
        more = self.retriever.retrieve([queries[n] for n in short], k, [filters[n] for n in short])
        for n, hits in zip(short, more, strict=True):
            rankings[n] = pooled_ranking([*chains[n], Chain(tuple(hits), 0.0, False)], k)
        return rankings

    def retrieve_chains(self, queries: Sequence[Query | str], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first; with ``expected-f1``, one set as a chain."""
        search = self.hop_search
        return [chains for group in self._groups(queries, allow) for chains in search.retrieve_chains(*group)]

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """:meth:`retrieve` of one query, for a search that others join."""
        last = yield from self.hop_search.plan(query, allow)
        (chains,) = last.chains()
        hits = pooled_ranking(chains, k)
        if self.hops.steps == "dynamic" or self.hops.pool or len(hits) >= k:
            return hits
        more = yield from cast(LetsJoin, self.retriever).plan(query, k, allow)
        return pooled_ranking([*chains, Chain(tuple(more), 0.0, False)], k)


@dataclass
class RankedHops(_HopByHop):
    """Ranks passages by the probability that a chain of hops holds them; see :class:`Marginal`.

    A hop has n = 20 hits, and hop h 20 to 19 + h: of 19 + h passages those of the evidence are left out. n
    does not depend on k, so neither does P(d), and a ranking for a smaller k is the beginning of that for a
    larger one. Further passages come from a single step (:func:`~grls.retrieve.hops.combine.after_hops`).

    Args:
        retriever: Retrieves the passages of a hop.
        hops: The options ``max``, ``chains`` (null: 5), ``temperature``, ``evidence``,
            ``done``, ``onward``, ``stop`` and the bias on DONE.
        memory: Cache of the hits of hops, for the same queries with another temperature and otherwise equal
            options.
        stop: The stop rule; None: that of the options.
    """

    retriever: Retriever
    hops: HopOptions
    memory: InitVar[Memory | None] = None
    stop: InitVar[StopRule | None] = None

    def __post_init__(self, memory: Memory | None, stop: StopRule | None) -> None:
        self.retriever, hops = single_steps(self.retriever), self.hops
        retriever = self.retriever
        if hops.evidence and isinstance(retriever, DecodesHops):
            raise ConfigError(
                f"{Option('hops.evidence')}: a generator reads as much evidence as in training "
                f"({Option('limits.evidence')} of its index): leave {Option('hops.evidence')} out."
            )
        self.chains = hops.chains or _CHAINS
        self.ends = hops.done and scores_done(retriever)
        usual = usual_temperature(retriever)
        self.temperature = hops.temperature or usual or OF_RANKS
        if (stop, hops.max, hops.onward, hops.stop) == (None,) * 4 and not self.ends:
            self.hops = hops = replace(hops, max=2, onward=UNLABELLED)
        rule = stop or stop_rule(retriever, hops)
        finder: Finder = SearchesAgain(retriever, hops.evidence, by_rank=usual is None)
        if isinstance(retriever, DecodesHops):  # scores need not be log-probabilities: a softmax is over them
            finder = Writes(retriever, beside=True)
        self.make_combiner = partial(
            Marginal,
            chains=self.chains,
            temperature=self.temperature,
            least=rule.least,
            distinct=finder.distinct,
        )
        prior = None
        if hops.links and retriever.corpus.links(hops.names):
            prior = LinkPrior(retriever, self.temperature, hops.named, hops.linked, hops.names)
        self.hop_search = HopSearch(
            finder, rule, self.make_combiner, hops.count, _HITS, prior=prior, memory=memory
        )

    def describe(self) -> Description:
        single = self.retriever.describe()
        return replace(
            single,
            score_mode=IN_CHAINS,
            options={**single.options, **self.record()},
            label=f"{single.name} ranked by {counted(self.hops.count, 'hop')}",
            steps="ranked",
            sets=False,
        )

    def untuned(self) -> str:
        return untuned_fingerprint(self.retriever)

    def record(self) -> dict[str, Any]:
        return {
            "steps": "ranked",
            "hops": self.hops.count,
            "chains": self.chains,
            "temperature": self.temperature,
            **self.hops.record(),
            "done": self.ends,
        }

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query, the likeliest first; ``allow`` is the filter of every hop.

        The score P(d) has nine digits and is the same for every k. It is between 0 and 1 except for the share
        of dropped chains.
        """
        groups = self._groups(queries, allow)
        return [hits for some, own in groups for hits in self.retrieve_by_hops(some, k, own)[-1]]

    def retrieve_by_hops(
        self, queries: Sequence[Query], k: int, allow: Allow = None
    ) -> list[list[list[Hit]]]:
        """The rankings of :meth:`retrieve` after 1, 2, … hops, of one search."""
        counts = self._allowed_counts(one_each(allow, len(queries)))
        combiner = self.make_combiner(len(queries), allowed_counts=counts)
        rankings = [combiner.rankings(k) for _ in self.hop_search.walk(queries, allow, combiner, k)]
        return rankings + rankings[-1:] * (self.hops.count - len(rankings))

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        combiner = self.make_combiner(1, allowed_counts=self._allowed_counts([allow]))
        yield from self.hop_search.plan(query, allow, combiner=combiner, beyond=k)
        return combiner.rankings(k)[0]

    def _allowed_counts(self, filters: Sequence[Filter | None]) -> list[int]:
        numbered = resolved(filters, self.corpus)
        return [len(self.corpus if rule is None else rule.numbers(self.corpus)) for rule in numbered]


def pooled_ranking(chains: Iterable[Chain], k: int) -> list[Hit]:
    """The first k distinct passages of the chains of a query: those of the best chain first, in hop order.

    The score is 1 / rank, since the order comes from the chains and not from scores of hops.
    """
    ids = list(dict.fromkeys(hit.id for chain in chains for hit in chain.hits))
    return [Hit(passage, 1.0 / rank) for rank, passage in enumerate(ids[:k], 1)]
