"""A ranking by hops: every passage by the probability that a chain of hops holds it.

Legend: C chains kept a query, S a set of evidence passages, d a passage, n hits a hop.

Chains answer "which passages together?". For a ranking the best chain has too few passages. To rank all its
passages before those of the second chain is wrong: a passage in many chains is likelier than the last passage
of the best chain. With p(d | S) the probability of the next hop, a softmax over the scores of the n best hits
(divided by a temperature) and DONE (if the retriever scores the probability of DONE itself, the hits share
what it leaves),

    P(d) = sum over hops h and sets S of h - 1 passages of P(S) p(d | S),

a sum of probabilities of events that exclude each other, since a chain holds a passage once. P(S) is the sum
over the orders of S that the C kept chains reach. The probability of dropped chains is shared out among the
kept ones, so that later hops do not weigh less. DONE ends a chain: its share goes to no passage. This is the
marginal of retrieval as a latent variable (RAG-Token, arXiv 2005.11401, equation 2, has it for documents and
words), over chains instead of single passages. An onward model (:mod:`grls.retrieve.hops.onward`) takes the
place of DONE: it says what a hop leaves to its hits, and ends the hops of a query. ``per_first`` limits the
kept chains that begin with the same passage (:mod:`grls.retrieve.hops.diverse`).

n is 20 in the first hop, and in hop h 20 to 19 + h: of 19 + h passages those of the evidence are left out.
It does not depend on the number k of passages that are asked for, so neither does P(d), and a ranking for a
smaller k is the beginning of that for a larger one. Where hops find no more passages than there are hops and
nothing ends chains, every chain holds every passage: each P(d) is 1, and equal ones keep the order of the
first hop. Where k exceeds the passages of all hops, those that a single step ranks next follow
(:mod:`grls.retrieve.hops.tail`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from grls.data.corpus import Corpus
from grls.data.evidence import excerpt
from grls.data.filters import Allow, Filter, one_each, resolved
from grls.data.inputs.arguments import Count, checked
from grls.data.types import IN_CHAINS, Hit, Passage, Query
from grls.decode import ScoredPassage
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.retrieve.base import (
    DecodesPassages,
    Description,
    HopHits,
    Retriever,
    SoFar,
    TakesEvidence,
    Under,
    WritesChains,
    untuned_fingerprint,
)
from grls.retrieve.hops.appending import found_after, written_after
from grls.retrieve.hops.diverse import refuse_single_chain
from grls.retrieve.hops.onward import ENDS_BELOW, SeenHop
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.ranked_chains import RankedChain, Sets, as_chains
from grls.retrieve.hops.shares import HopShares
from grls.retrieve.hops.steps import (
    AskedHop,
    Steps,
    as_decodings,
    decodes_hops,
    hits_and_done,
    planned,
    walked,
)
from grls.retrieve.hops.tail import after_hops, shares_beyond
from grls.retrieve.hops.temperature import usual_temperature
from grls.retrieve.joins import Plan, RunsPlans
from grls.retrieve.queries import check_counts, queries_of

_HITS = 20
"""Number of hits in the first hop, among which probability is shared out; each further hop has one more."""

_CHAINS = 5
"""Default number of chains kept for a query."""

_LATER = ("per_first", "onward")
"""Options that earlier versions did not have: they are recorded where they are set."""


AskedBefore = tuple[Query, tuple[int, ...], Filter | None, int]
"""The query, evidence, filter and number of hits of a hop."""


class _After(NamedTuple):
    """What is there after a hop.

    Attributes:
        mass: For each query, the probability of its passages so far.
        so_far: The chains; None after the last hop that found anything.
        beyond: For each query, the passages of a single step, for a ranking of more than the hops find.
    """

    mass: list[dict[str, float]]
    so_far: SoFar | None
    beyond: Sequence[Sequence[Hit]]

    def rankings(self, k: int) -> list[list[Hit]]:
        """At most k passages of each query, the likeliest first."""
        return [after_hops(own, more, k) for own, more in zip(self.mass, self.beyond, strict=True)]


@dataclass
class RankedHops:
    """Ranks passages by the probability that a chain of hops holds them.

    Args:
        retriever: Retrieves the passages of a hop.
        hops: The options ``max``, ``chains`` (null: 5), ``per_first``, ``temperature``, ``done_bias``,
            ``evidence``, ``done`` and ``onward``.
        memory: Cache of the hits of hops, for the same queries with another temperature and otherwise equal
            options; None: no cache.
        seen: Filled with what the hops show, for learning the onward model; None: not kept.

    Raises:
        ConfigError: The retriever has no default temperature, and none is set.
    """

    retriever: Retriever
    hops: HopOptions
    memory: dict[AskedBefore, HopHits] | None = None
    seen: list[SeenHop] | None = None

    kind = "hops"

    def __post_init__(self) -> None:
        if self.hops.evidence and isinstance(self.retriever, WritesChains):
            raise ConfigError(
                "hops.evidence: a generator reads as much evidence as in training (limits.evidence of its "
                "index): leave hops.evidence out."
            )
        self.chains = self.hops.chains or _CHAINS
        refuse_single_chain(self.hops.per_first, self.chains)
        ends = knows = False
        if isinstance(self.retriever, DecodesPassages):
            written = isinstance(self.retriever, WritesChains) and self.retriever.writes_chains
            ends, knows = True, written or self.retriever.generator.spans is not None
        elif isinstance(self.retriever, TakesEvidence):
            ends = self.retriever.learned_done is not False
        self.ends = ends and self.hops.done
        self.temperature = self.hops.temperature or usual_temperature(self.retriever)
        self._shares = HopShares(self.hops, self.temperature, self.ends, ends, knows, self.seen)

    @property
    def corpus(self) -> Corpus:
        """The corpus of the retriever."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """The description of a ranking by the same system."""
        one = self.retriever.describe()
        return Description(
            one.system,
            IN_CHAINS,
            {**one.options, **self._record()},
            f"{one.name} ranked by {counted(self.hops.count, 'hop')}",
            one.stages,
            one.members,
            "ranked",
        )

    def fingerprint(self) -> str:
        """Fingerprint of the retriever and the options of hops."""
        record = json.dumps(self._record())
        return hashlib.sha256(f"{self.retriever.fingerprint()} {record}".encode()).hexdigest()

    def untuned(self) -> str:
        """Fingerprint of the retriever without what tuning changes."""
        return untuned_fingerprint(self.retriever)

    def _record(self) -> dict[str, Any]:
        return {
            "steps": "ranked",
            "hops": self.hops.count,
            "chains": self.chains,
            "temperature": self.temperature,
            "done_bias": self.hops.done_bias,
            "evidence": self.hops.evidence,
            "done": self.ends,
            **{name: value for name in _LATER if (value := getattr(self.hops, name)) is not None},
        }

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query, the likeliest first.

        Args:
            queries: The queries.
            k: Largest number of hits for a query.
            allow: The filter of every hop; see :class:`~grls.retrieve.base.Retriever`.

        Returns:
            Hits with the score P(d) to nine digits, between 0 and 1 except for the share of dropped chains.
            It is the same for every k. Passages that are not among the best (20, in hop h up to 19 + h) of
            any hop stand last, in the order of a single step.
        """
        return self.retrieve_by_hops(queries, k, allow)[-1]

    def retrieve_by_hops(
        self, queries: Sequence[Query | str], k: int, allow: Allow = None
    ) -> list[list[list[Hit]]]:
        """The rankings of :meth:`retrieve` after 1, 2, … hops, of one search."""
        check_counts(k=k)
        return [after.rankings(k) for after in self._walked(queries, k, allow)]

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        """The C likeliest chains of each query after every hop; see :class:`~grls.retrieve.base.WalksHops`.

        The score of a hit is its probability given those before it, and that of a chain is their product.
        Where a hop finds nothing, the chains are those of the hop before.
        """
        for after in self._walked(queries, 1, allow):
            if after.so_far is None:
                return
            yield after.so_far

    @property
    def runner(self) -> RunsPlans | None:
        """The retriever whose search its hops join; None: they join none."""
        return decodes_hops(self.retriever)

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """:meth:`retrieve` of one query, for a search that others join."""
        check_counts(k=k)
        return (yield from self._planned(query, k, allow)).rankings(k)[0]

    def plan_walk(self, query: Query, allow: Filter | None, tell: Callable[[SoFar], object]) -> Plan[None]:
        """:meth:`walk` of one query, for a search that others join."""
        yield from self._planned(query, 1, allow, tell)

    def _planned(
        self, query: Query, k: int, allow: Filter | None, tell: Callable[[SoFar], object] = lambda _: None
    ) -> Plan[_After]:
        done = cast(WritesChains, self.retriever).done

        def got(hop: AskedHop, rankings: list[list[ScoredPassage]]) -> list[HopHits]:
            return [hits_and_done(ranking, self.corpus, done, hop.k) for ranking in rankings]

        asked = partial(as_decodings, query=query, allow=allow, more=1)

        def report(after: _After) -> None:
            if after.so_far is not None:
                tell(after.so_far)

        return planned(self._steps(1, k), asked, got, report)

    def _walked(self, queries: Sequence[Query | str], k: int, allow: Allow) -> Iterator[_After]:
        asked = queries_of(queries)
        filters = resolved(one_each(allow, len(asked)), self.corpus)
        return walked(self._steps(len(asked), k), partial(self._find, asked, filters))

    def _steps(self, queries: int, k: int) -> Steps[_After]:
        """The hops of these queries; each asks for the hits of its chains."""
        mass: list[dict[str, float]] = [{} for _ in range(queries)]
        live = [RankedChain(place, (), 1.0) for place in range(queries)]
        best: list[list[RankedChain]] = [[] for _ in range(queries)]
        beyond: list[list[Hit]] = [[] for _ in range(queries)]
        for hop in range(self.hops.count):
            so_far = None
            if live or not hop:
                asked = AskedHop(self._under(live), hop, _HITS + hop)
                live = self._hop(live, (yield asked), mass) if live else live
                if not hop and live and k > _HITS:
                    single = [step.hits for step in (yield asked._replace(k=k))]
                    beyond = list(map(partial(shares_beyond, self.temperature), single, mass))
                longer = [[chain for chain in live if chain.query == place] for place in range(queries)]
                best = [own or before for own, before in zip(longer, best, strict=True)]
                last = not live or hop + 1 == self.hops.count
                so_far = SoFar(hop + 1, last, partial(as_chains, best))
            yield _After(mass, so_far, beyond)

    def _under(self, live: Sequence[RankedChain]) -> list[Under]:
        """The chains, by the numbers of their passages; a generator writes none of these again."""
        ids = list(dict.fromkeys(name for chain in live for name in chain.ids))
        known = dict(zip(ids, self.corpus.numbers(ids), strict=True)) if ids else {}
        done = (self.retriever.done,) if isinstance(self.retriever, WritesChains) else ()
        chains = []
        for chain in live:
            numbers = tuple(number for name in chain.ids if (number := known[name]) is not None)
            chains.append(Under(chain.query, numbers, numbers or done))
        return chains

    def _hop(
        self, live: Sequence[RankedChain], steps: Sequence[HopHits], mass: list[dict[str, float]]
    ) -> list[RankedChain]:
        """Add the hits of a hop to ``mass``; returns the chains that the next hop continues."""
        longer: dict[int, Sets] = {}
        for chain, step in zip(live, steps, strict=True):
            hits = [hit for hit in step.hits if hit.id not in chain.ids]
            sets = longer.setdefault(chain.query, Sets())
            if not hits:
                continue
            if not chain.ids:
                chain = chain._replace(first=hits[0].score)
            own, among = self._shares.of(chain, hits, step.done)
            sets.total += chain.weight * float(own.sum())
            for hit, given, log_share in zip(hits, own.tolist(), among.tolist(), strict=True):
                one = _longer(chain, hit.id, given, log_share)
                mass[chain.query][hit.id] = mass[chain.query].get(hit.id, 0.0) + one.weight
                sets.add(one)
        ends = 0.0 if self.hops.onward is None else ENDS_BELOW
        going = [sets for sets in longer.values() if sets.total >= ends]
        return [chain for sets in going for chain in sets.likeliest(self.chains, self.hops.per_first)]

    def _find(
        self, queries: Sequence[Query], filters: Sequence[Filter | None], hop: AskedHop
    ) -> list[HopHits]:
        """The hits of each chain's next hop; only hops that are not in the memory are retrieved."""
        live, width = hop.live, hop.k
        if self.memory is None:
            return self._searched(queries, filters, live, width)
        keys = [(queries[chain.query], chain.passages, filters[chain.query], width) for chain in live]
        new = {key: chain for key, chain in zip(keys, live, strict=True) if key not in self.memory}
        steps = self._searched(queries, filters, list(new.values()), width)
        self.memory.update(zip(new, steps, strict=True))
        return [self.memory[key] for key in keys]

    def _searched(
        self, queries: Sequence[Query], filters: Sequence[Filter | None], live: Sequence[Under], width: int
    ) -> list[HopHits]:
        if not live:
            return []
        asked = [queries[chain.query] for chain in live]
        allow = [filters[chain.query] for chain in live]
        evidence = self._evidence(queries, live)
        if isinstance(self.retriever, WritesChains):
            return written_after(self.retriever, asked, evidence, width, allow)
        return found_after(self.retriever, asked, evidence, width, allow)

    def _evidence(self, queries: Sequence[Query], live: Sequence[Under]) -> list[list[Passage]]:
        """The passages of each chain."""
        numbers = list(dict.fromkeys(number for chain in live for number in chain.passages))
        passages = dict(zip(numbers, self.corpus.passages(numbers), strict=True)) if numbers else {}
        words = self.hops.evidence
        return [
            [excerpt(queries[chain.query].text, passages[number], words) for number in chain.passages]
            for chain in live
        ]


def _longer(chain: RankedChain, name: str, given: float, log_share: float) -> RankedChain:
    """A chain with one more passage."""
    return chain._replace(
        ids=(*chain.ids, name),
        weight=chain.weight * given,
        shares=(*chain.shares, given),
        among=(*chain.among, log_share),
    )
