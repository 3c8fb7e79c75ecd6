"""The search by hops: one loop over the chains that go on.

At each hop a finder finds what may come next in every chain, the stop rule weighs it and the end, and a
combiner makes longer chains and drops some.

The way of a hop::

    walk, plan                        send ``_run`` what it asks for (``plan`` lets other searches join)
      _run                            yields by turns:
        HopRequest                      chains that go on; what comes back are their hits and scores of DONE
        SoFar                           the chains after the hop; nothing comes back
      Finder.start, Decoding          answer a request (finders); ``memory`` answers what it knows
      LinkPrior.weighed               what links add to the hits (linked)
      StopRule.weigh                  what the hits and the end are worth (stop)
      Sum.go_on, Marginal.go_on       the chains that go on (combine)
      Marginal.go_beyond              after the first hop: a second request, for a longer ranking

In chains (``Sum``) DONE competes with the hits, and the chain that it continues is done. In ranked hops
(``Marginal``) DONE only takes probability: no chain is done, and each goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from grls.data.filters import Allow, Filter, one_each, resolved
from grls.data.types import Chain, Query
from grls.errors import MismatchError
from grls.io.timing import report_step
from grls.retrieve.base import ChainToContinue, DecodesHops, Decoding, HopHits, Plan, SoFar
from grls.retrieve.hops.combine import Marginal, NextOf, Sum
from grls.retrieve.hops.finders import Finder, HopRequest, hits_and_done
from grls.retrieve.hops.linked import LinkPrior
from grls.retrieve.hops.stop import StopRule, Weighed

Memory = dict[tuple[Query, tuple[int, ...], tuple[int, ...], Filter | None, int], HopHits]
"""A query, a chain, its hidden passages, the filter, the number of hits -> the hits that may come next."""

HopRun = Generator[HopRequest | SoFar, "list[HopHits]", None]
"""Requests the passages of a hop, gets the hits of each chain, and yields the chains after the hop."""


@dataclass
class HopSearch:
    """A search by hops.

    Args:
        finder: Finds what may come next in chains.
        stop: Says where chains end.
        make_combiner: Makes the combiner of so many queries.
        hops: Largest number of hops.
        hits: Number of passages of which a hop chooses.
        more: Ask for one passage more in each hop, since a hop may find those of its chain again.
        repeat: Allow a passage twice in a chain.
        prior: Weighs the hits of each hop by links.
        memory: Cache of hits, for the same queries with another bias or temperature and otherwise equal
            options.
    """

    finder: Finder
    stop: StopRule
    make_combiner: Callable[[int], Sum | Marginal]
    hops: int
    hits: int
    more: bool = True
    repeat: bool = False
    prior: LinkPrior | None = None
    memory: Memory | None = None

    def retrieve_chains(self, queries: Sequence[Query], allow: Allow = None) -> list[list[Chain]]:
        """The chains of each query, best first; ``allow`` is the filter of every hop, but not of DONE."""
        *_, last = self.walk(queries, allow)
        return last.chains()

    def walk(
        self,
        queries: Sequence[Query],
        allow: Allow = None,
        combiner: Sum | Marginal | None = None,
        beyond: int = 0,
    ) -> Iterator[SoFar]:
        """The chains after every hop, each with the score of its hops so far.

        ``beyond`` passages of a single step go to ``combiner`` (None: one of :attr:`make_combiner`) after the
        first hop, if these are more than the hop finds.
        """
        filters = one_each(allow, len(queries))
        if allow is not None:
            filters = resolved(filters, self.finder.retriever.corpus)
        find = self.finder.start(queries, filters)
        if self.memory is not None:
            search, memory = find, self.memory

            def remembered(request: HopRequest) -> list[HopHits]:  # searches only for new chains
                keys: list[Any] = [
                    (queries[chain.query], chain.passages, chain.hidden, filters[chain.query], request.k)
                    for chain in request.chains
                ]
                new = {
                    key: chain for key, chain in zip(keys, request.chains, strict=True) if key not in memory
                }
                if new:
                    memory.update(zip(new, search(request._replace(chains=list(new.values()))), strict=True))
                return [memory[key] for key in keys]

            find = remembered

        run = self._run(queries, filters, combiner or self.make_combiner(len(queries)), beyond)
        step = next(run, None)
        while step is not None:
            if isinstance(step, HopRequest):
                step = run.send(find(step))
            else:
                report_step()
                yield step
                step = next(run, None)

    def plan(
        self,
        query: Query,
        allow: Filter | None,
        tell: Callable[[SoFar], object] = lambda _: None,
        combiner: Sum | Marginal | None = None,
        beyond: int = 0,
    ) -> Plan[SoFar]:
        """:meth:`walk` of one query, for a search that others join, by a generator, or one with priors.

        ``tell`` is called after every hop; the chains after the last hop are returned.
        """
        writer = cast(DecodesHops, self.finder.retriever)
        filters = [allow] if self.prior is None else resolved([allow], writer.corpus)
        run = self._run([query], filters, combiner or self.make_combiner(1), beyond)
        last, step = None, next(run, None)
        while step is not None:
            if isinstance(step, HopRequest):
                width = self.finder.width(step)
                rankings = yield [
                    Decoding(query, chain.passages, chain.hidden, width, allow) for chain in step.chains
                ]
                step = run.send(hits_and_done(rankings, writer, step.k, step.known))
            else:
                tell(step)
                last, step = step, next(run, None)
        assert last is not None
        return last

    def _run(
        self,
        queries: Sequence[Query],
        filters: Sequence[Filter | None],
        combiner: Sum | Marginal,
        beyond: int,
    ) -> HopRun:
        corpus, known = self.finder.retriever.corpus, dict[str, int]()
        live = combiner.begin()
        for hop in range(self.hops):
            if live:
                may_end = self.stop.may_end(hop)
                new = list(
                    dict.fromkeys(hit.id for chain in live for hit in chain.hits if hit.id not in known)
                )
                for name, number in zip(new, corpus.numbers(new) if new else (), strict=True):
                    if number is None:
                        raise MismatchError(
                            f"the retriever returns the passage {name!r}, which is not in {corpus.source}: "
                            "give the corpus that it retrieves from."
                        )
                    known[name] = number
                to_continue = []
                for chain in live:
                    numbers = tuple([known[hit.id] for hit in chain.hits])
                    to_continue.append(
                        ChainToContinue(chain.query, numbers, self.finder.hidden(numbers, may_end))
                    )
                deep = self.stop.deep or self.memory is not None
                request = HopRequest(to_continue, hop, self.hits + hop * self.more, known, deep)
                weighed: list[NextOf] = []
                for chain, asked, step in zip(live, to_continue, (yield request), strict=True):
                    taken = () if self.repeat else {hit.id for hit in chain.hits}
                    hits = [hit for hit in step.hits if hit.id not in taken]
                    if self.prior is not None:
                        query = queries[chain.query].text
                        hits = self.prior.weighed(query, asked.passages, hits, filters[chain.query])
                    if hits and not chain.hits:
                        chain = chain._replace(first=hits[0].score)
                    worth = self.stop.weigh(chain, hits, step.done) if may_end else Weighed()
                    weighed.append((chain, hits, worth))
                live = combiner.go_on(weighed)
                if isinstance(combiner, Marginal) and live and not hop and beyond > request.k:
                    combiner.go_beyond((yield request._replace(k=beyond)))
            last = not live or hop + 1 == self.hops
            yield SoFar(hop + 1, last, combiner.so_far(live, last))
            if last:
                return
