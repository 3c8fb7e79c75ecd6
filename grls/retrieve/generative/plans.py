"""Retrievals that join a generator's search while it runs.

The request of a retrieval is read, filtered and decoded when slots are free. A retrieval that fails does so
alone, and its result is that of a search of its own, with rescoring and priors. A generator that writes spans
ranks the passages of a query as soon as the search for its spans has stopped.

First hops and single steps come first: their inputs are short, and a user waits for the first passage. A
later hop has an input for each chain, with the evidence; reading those of a few retrievals takes as long as
many searches. So later hops enter a few at a time, when no first hop is in a slot, or after some turns; and a
part of the slots is reserved for first hops.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grls.data.filters import Filter
from grls.decode.beam import BeamQuery, ScoredPassage
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import Prior
from grls.errors import GrlsError
from grls.index.subset import Subset
from grls.io.locks import exclusive
from grls.models.base import check_positions
from grls.retrieve.base import DecodesPassages, Decoding, Plan, PlanSource
from grls.retrieve.generative.span_scores import Reach, SpanRanking, hidden_spans, prior_over_spans

_LEAST_SLOTS, _MOST_SLOTS = 8, 64
"""Inputs in flight of a search that others join, at first and at most; a retriever may have fewer slots."""
_LATER, _PATIENCE, _RESERVED = 4, 16, 4
"""``_LATER``: later hops that may enter at once. ``_PATIENCE``: turns that they wait while first hops are in
slots. ``_RESERVED``: one slot of so many is for first hops alone.
"""
_FILTERS = 64
"""Filters whose passages are known; a search that others join may never end."""


def run_plans(retriever: DecodesPassages, source: PlanSource) -> None:
    """Run the retrievals of a source, by a generator or one with priors, until none is left."""
    generator = retriever.generator
    if generator.options.rescore:
        generator.refuse_to_rescore()
    with exclusive(generator.model):
        generator.model.eval()
        _PlanRun(retriever, source).run()


@dataclass
class _Retrieval:
    plan: Plan[Any]
    owner: Any
    rankings: list[list[ScoredPassage]] = field(default_factory=list)  # those of the last requests
    missing: int = 0  # of these rankings
    ended: bool = False  # with a result or an error


@dataclass(eq=False)
class _Request:
    """One of the last requests of a retrieval.

    ``tokens`` is its model input, once it has entered; of spans, ``ranking`` ranks its passages.
    """

    retrieval: _Retrieval
    number: int
    decoding: Decoding
    tokens: Sequence[int] = ()
    ranking: SpanRanking | None = None

    @property
    def later(self) -> bool:
        return bool(self.decoding.passages)


class _PlanRun:
    """The retrievals of a source as queries of the decoder."""

    def __init__(self, retriever: DecodesPassages, source: PlanSource):
        self._retriever, self._source = retriever, source
        self._generator = generator = retriever.generator
        k = 1 if generator.spans is not None else max(1, generator.options.rescore)
        self._decoder: FastDecoder | DeviceDecoder = generator.slot_decoder(generator.trees, k)
        self._requests: deque[_Request] = deque()  # without a slot
        self._inside: list[_Request] = []  # in slots
        self._turns = 0  # since later hops entered
        self._decided: list[tuple[_Request, list[ScoredPassage]]] = []  # before any rescoring
        self._subsets: dict[Filter | None, Subset | None] = {}
        self._slots = 0
        self._widest = 0.0  # the widest beams that the search takes
        self._wide: list[_Request] = []  # those that wait for wider ones

    def run(self) -> None:
        codec = self._generator.codec
        longest = max(codec.limits.input, len(codec.model_input([])) + codec.limits.query)
        while wanted := self._wanted():
            slots = min(_MOST_SLOTS, self._decoder.slots)
            self._slots = min(slots, max(_LEAST_SLOTS, 1 << (wanted - 1).bit_length()))
            decoder = self._decoder.with_beams(max(map(self._width, self._wide), default=self._decoder.beams))
            self._widest = decoder.beams if isinstance(decoder, DeviceDecoder) else math.inf
            decoder.run(self, longest, self._slots, self._generator.spans is not None)

    def waiting(self) -> int:
        """The number of inputs that may join now; 0: the search ends, so that a larger one begins."""
        self._turns += 1
        wanted = self._wanted()
        if max(map(self._width, self._wide), default=0) > self._widest:
            return 0
        if self._slots < min(_MOST_SLOTS, self._decoder.slots) and wanted > self._slots:
            return 0
        return wanted - len(self._requests) + self._may_enter()

    def take(self, count: int) -> list[BeamQuery]:
        """At most so many queries; retrievals that cannot be done fail."""
        taken, self._wide = self._wide[:count], self._wide[count:]
        later = min(self._may_enter(), count - len(taken))
        while len(taken) + later < count and (new := self._source.take(count - later - len(taken))):
            for plan, owner in new:
                taken += self._go_on(_Retrieval(plan, owner))
        if later:
            taken += [self._requests.popleft() for _ in range(later)]
            self._turns = 0
        self._wide += [request for request in taken if self._width(request) > self._widest]
        taken = [request for request in taken if self._width(request) <= self._widest]
        try:
            queries = self._queries(taken)
        except GrlsError:  # one by one, so that only those fail that cannot be done
            queries = []
            for request in taken:
                try:
                    queries += self._queries([request])
                except GrlsError as error:
                    self._fail(request.retrieval, error)
        self._inside += [query.owner for query in queries]
        return queries

    def _may_enter(self) -> int:
        self._inside = [request for request in self._inside if not self.gone(request)]
        inside = sum(request.later for request in self._inside)
        first = inside < len(self._inside) or self._source.waiting() > 0
        if first and self._turns < _PATIENCE:
            return 0
        return max(0, min(len(self._requests), _LATER, self._slots - self._slots // _RESERVED - inside))

    def gone(self, owner: _Request) -> bool:
        return owner.retrieval.ended or self._source.gone(owner.retrieval.owner)

    def answer(self, owner: _Request, found: Any) -> None:
        self._inside = [request for request in self._inside if request is not owner]
        self._decided.append((owner, found if owner.ranking is None else owner.ranking(found)))

    def _wanted(self) -> int:
        """The number of waiting inputs, once decided rankings have gone to their retrievals, which request
        more.
        """
        while self._decided:
            decided, self._decided = self._decided, []
            decided = [pair for pair in decided if not self.gone(pair[0])]
            rankings = [ranking for _, ranking in decided]
            if self._generator.options.rescore and decided:
                rankings = self._generator.rescored([owner.tokens for owner, _ in decided], rankings)
            for (owner, _), ranking in zip(decided, rankings, strict=True):
                retrieval = owner.retrieval
                retrieval.rankings[owner.number] = ranking[: owner.decoding.k]
                retrieval.missing -= 1
                if not retrieval.missing:
                    self._requests += self._go_on(retrieval)
        if any(map(self.gone, (*self._requests, *self._wide))):
            self._requests = deque(request for request in self._requests if not self.gone(request))
            self._wide = [request for request in self._wide if not self.gone(request)]
        return len(self._requests) + len(self._wide) + self._source.waiting()

    def _width(self, request: _Request) -> int:
        """The beams that a request takes; those of spans do not depend on the number of passages."""
        options = self._generator.options
        if self._generator.spans is not None:
            return self._decoder.beams
        beams: int = max(request.decoding.k, options.rescore, options.beams)
        return beams

    def _go_on(self, retrieval: _Retrieval) -> list[_Request]:
        """Let a retrieval go on; returns its next requests, none where it ends."""
        plan = retrieval.plan
        try:
            decodings = plan.send(retrieval.rankings) if retrieval.rankings else next(plan)
        except StopIteration as end:
            retrieval.ended = True
            self._source.answer(retrieval.owner, end.value)
        except Exception as error:  # it belongs to this retrieval alone
            self._fail(retrieval, error)
        else:
            retrieval.rankings, retrieval.missing = [[]] * len(decodings), len(decodings)
            return [_Request(retrieval, number, decoding) for number, decoding in enumerate(decodings)]
        return []

    def _fail(self, retrieval: _Retrieval, error: Exception) -> None:
        if not retrieval.ended:
            retrieval.ended = True
            retrieval.plan.close()
            self._source.fail(retrieval.owner, error)

    def _queries(self, requests: Sequence[_Request]) -> list[BeamQuery]:
        """Tokens and priors of all requests are computed together."""
        if not requests:
            return []
        generator, options = self._generator, self._generator.options
        decodings, subsets = [request.decoding for request in requests], []
        for decoding in decodings:
            if decoding.allow not in self._subsets:
                if len(self._subsets) >= _FILTERS:
                    self._subsets.clear()
                (self._subsets[decoding.allow],) = generator.subsets([decoding.query], decoding.allow)
            subsets.append(self._subsets[decoding.allow])
        queries = [decoding.query for decoding in decodings]
        inputs = [
            generator.hop_input(decoding.query, tokens, decoding.passages)
            for tokens, decoding in zip(generator.encode(queries), decodings, strict=True)
        ]
        rows, spans = generator.index.rows, generator.spans
        check_positions(generator.model, max(map(len, inputs)), rows.longest)
        prior: Prior | None = None
        if self._retriever is not generator:
            read = generator.corpus.passages
            evidence = [read(each.passages) if each.passages else [] for each in decodings]
            prior = self._retriever.priors_of(queries, evidence)
        over = prior if prior is None or spans is None else prior_over_spans(prior, spans)
        joining = []
        for row, (request, tokens, subset) in enumerate(zip(requests, inputs, subsets, strict=True)):
            k, hidden = max(request.decoding.k, options.rescore), [*request.decoding.hidden]
            request.tokens, beams = tokens, self._width(request)
            if spans is not None:
                temperature = options.span_temperature
                reach = Reach(spans, rows, hidden, subset)
                request.ranking = SpanRanking(reach, k, temperature, prior, row)
                k, hidden = beams, hidden_spans(spans, rows, hidden, subset)
            joining.append(BeamQuery(tokens, k, hidden, subset, request, beams, over, row))
        return joining
