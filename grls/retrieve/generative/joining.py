"""Retrievals that join a generator's search while it runs.

What a retrieval asks for is read, filtered and decoded when slots are free. A retrieval that cannot be done
fails alone. It gets what it gets alone, with rescoring and priors. A generator that writes spans ranks the
passages of a query as soon as the search for its spans has stopped.

First hops and single steps come before later hops: their inputs are short, and somebody waits for a first
passage. The input of a later hop has the evidence, and there is one for each chain, so to read those of a few
requests takes as long as many searches. They enter a few at a time, when no first hop is in a slot, or after
some turns; and a part of the slots is kept for first hops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self, cast

from grls.data.filters import Filter
from grls.data.types import Hit, Passage, Query
from grls.decode import FastDecoder, ScoredPassage
from grls.decode.joining import JoiningQuery
from grls.decode.prior import Prior
from grls.errors import ConfigError, GrlsError
from grls.index import Subset
from grls.io.files import turn
from grls.models.seq2seq.slots import check_positions
from grls.retrieve.base import DecodesPassages, Decoding, Plan, PlanSource
from grls.retrieve.generative.search import DecodedPassages, rescored
from grls.retrieve.generative.span_scores import Reach, hidden_spans, prior_over_spans
from grls.retrieve.queries import check_counts

PriorsOf = Callable[[Sequence[Query], Sequence[Sequence[Passage]]], Prior | None]
"""Queries and their evidence -> their priors; None: there are none."""

_LEAST_SLOTS, _MOST_SLOTS = 8, 64
"""Inputs in flight of a search that others join, at first and at most; a retriever may have fewer slots."""
_LATER, _PATIENCE, _KEPT = 4, 16, 4
"""Later hops that enter together; turns after which they enter beside first hops; one slot in so many is kept
for first hops."""
_FILTERS = 64
"""Filters whose passages are known; a search that others join may never end."""


class JoinsSearch:
    """A generator, or one with priors (``DecodesPassages``), whose retrievals join one search.

    Attributes:
        has_priors: Whether queries have priors.
    """

    has_priors: ClassVar[bool] = False

    def priors_of(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]]) -> Prior | None:
        """The prior over passages for queries, each with its evidence; None: there is none."""
        return None

    @property
    def lets_join(self) -> bool:
        """Whether retrievals can join its search: it decodes in slots."""
        return _generator(self).takes_queries(self.has_priors)

    @property
    def runner(self) -> Self | None:
        """The retriever whose search its retrievals join: itself; None: they join none."""
        return self if self.lets_join else None

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """The hits of one query, for a search that others join."""
        generator = _generator(self)
        (ranking,) = yield [Decoding(query, (), (generator.done,), k, allow)]
        return generator.hits(ranking)

    def run_plans(self, source: PlanSource) -> None:
        """Do the retrievals of a source, which join while the search runs, until none is left.

        Args:
            source: Where retrievals come from, and where their results go.

        Raises:
            ConfigError: Retrievals cannot join its search, or the model has not learned to rescore.
        """
        generator = _generator(self)
        decoder = generator.joining_decoder(self.has_priors) if self.lets_join else None
        if decoder is None:
            raise ConfigError("queries cannot join the search of this retriever: call retrieve instead.")
        if generator.options.rescore:
            generator.refuse_to_rescore()
        with turn(generator.model):
            generator.model.eval()
            priors_of = self.priors_of if self.has_priors else None
            _Running(generator, decoder, source, priors_of).run()


def _generator(retriever: JoinsSearch) -> DecodedPassages:
    generator: DecodedPassages = cast(DecodesPassages, retriever).generator
    return generator


@dataclass
class _InProgress:
    """A retrieval in progress.

    Attributes:
        plan: The retrieval.
        owner: What the source knows it by.
        rankings: What it got of what it asked for last.
        left: How much of that is missing.
        ended: It has a result, or failed.
    """

    plan: Plan[Any]
    owner: Any
    rankings: list[list[ScoredPassage]] = field(default_factory=list)
    left: int = 0
    ended: bool = False


class _Asked(NamedTuple):
    """What a retrieval asked for."""

    progress: _InProgress
    place: int
    what: Decoding

    @property
    def later(self) -> bool:
        """Whether it is a later hop."""
        return bool(self.what.passages)


class _Entered(NamedTuple):
    """What a retrieval asked for, with its model input."""

    asked: _Asked
    tokens: Sequence[int]


class _Running:
    """The retrievals of a source as queries of the decoder."""

    def __init__(
        self,
        generator: DecodedPassages,
        decoder: FastDecoder,
        source: PlanSource,
        priors_of: PriorsOf | None,
    ):
        self._generator, self._decoder = generator, decoder
        self._source, self._priors_of = source, priors_of
        self._asked: deque[_Asked] = deque()  # waits for a slot
        self._inside: list[_Asked] = []  # has a slot
        self._turns = 0  # since later hops entered
        self._decided: list[tuple[_Entered, list[ScoredPassage]]] = []  # before any rescoring
        self._subsets: dict[Filter | None, Subset | None] = {}
        self._slots = 0

    def run(self) -> None:
        """Search, with as many slots as are needed, until no retrieval is left."""
        codec = self._generator.codec
        longest = max(codec.limits.input, len(codec.model_input([])) + codec.limits.query)
        while wanted := self._wanted():
            most = min(_MOST_SLOTS, self._decoder.slots)
            self._slots = min(most, max(_LEAST_SLOTS, 1 << (wanted - 1).bit_length()))
            self._decoder.join(self, longest, self._slots)

    def waiting(self) -> int:
        """The number of inputs that may join now; 0: the search ends, so that a larger one begins."""
        self._turns += 1
        wanted = self._wanted()
        if self._slots < min(_MOST_SLOTS, self._decoder.slots) and wanted > self._slots:
            return 0
        return wanted - len(self._asked) + self._may_enter()

    def take(self, most: int) -> list[JoiningQuery]:
        """At most so many queries; retrievals that cannot be done fail."""
        taken: list[_Asked] = []
        later = min(self._may_enter(), most)
        while len(taken) + later < most and (new := self._source.take(most - later - len(taken))):
            for plan, owner in new:
                taken += self._go_on(_InProgress(plan, owner))
        if later:
            taken += [self._asked.popleft() for _ in range(later)]
            self._turns = 0
        try:
            queries = self._queries(taken)
        except GrlsError:  # one by one, so that only those fail that cannot be done
            queries = []
            for one in taken:
                try:
                    queries += self._queries([one])
                except GrlsError as error:
                    self._fail(one.progress, error)
        self._inside += [query.owner.asked for query in queries]
        return queries

    def _may_enter(self) -> int:
        """The number of later hops that may enter now."""
        self._inside = [one for one in self._inside if not self._unwanted(one)]
        inside = sum(one.later for one in self._inside)
        first = inside < len(self._inside) or self._source.waiting() > 0
        if first and self._turns < _PATIENCE:
            return 0
        return max(0, min(len(self._asked), _LATER, self._slots - self._slots // _KEPT - inside))

    def gone(self, owner: _Entered) -> bool:
        """Whether nobody wants the result of a query any more."""
        return self._unwanted(owner.asked)

    def answer(self, owner: _Entered, passages: list[ScoredPassage]) -> None:
        """The result of a query."""
        self._inside = [one for one in self._inside if one is not owner.asked]
        self._decided.append((owner, passages))

    def _wanted(self) -> int:
        """The number of inputs that wait, once the retrievals have what was decided, and ask for more."""
        options = self._generator.options
        while self._decided:
            decided, self._decided = self._decided, []
            decided = [(owner, ranking) for owner, ranking in decided if not self._unwanted(owner.asked)]
            rankings = [ranking for _, ranking in decided]
            if options.rescore and decided:
                first = [[hit.passage for hit in ranking[: options.rescore]] for ranking in rankings]
                odds = self._generator.rescore([owner.tokens for owner, _ in decided], first)
                weight = options.rescore_weight
                rankings = [rescored(*pair, weight) for pair in zip(rankings, odds, strict=True)]
            for (owner, _), ranking in zip(decided, rankings, strict=True):
                progress, place, what = owner.asked
                progress.rankings[place] = ranking[: what.k]
                progress.left -= 1
                if not progress.left:
                    self._asked += self._go_on(progress)
        if any(self._unwanted(one) for one in self._asked):
            self._asked = deque(one for one in self._asked if not self._unwanted(one))
        return len(self._asked) + self._source.waiting()

    def _unwanted(self, asked: _Asked) -> bool:
        """Whether a retrieval has failed, or nobody waits for it any more."""
        return asked.progress.ended or self._source.gone(asked.progress.owner)

    def _go_on(self, progress: _InProgress) -> list[_Asked]:
        """Let a retrieval ask for more, or end; returns what it asks for."""
        try:
            asked = progress.plan.send(progress.rankings) if progress.rankings else next(progress.plan)
        except StopIteration as end:
            progress.ended = True
            self._source.answer(progress.owner, end.value)
        except Exception as error:  # it belongs to this retrieval alone
            self._fail(progress, error)
        else:
            progress.rankings, progress.left = [[]] * len(asked), len(asked)
            return [_Asked(progress, place, what) for place, what in enumerate(asked)]
        return []

    def _fail(self, progress: _InProgress, error: Exception) -> None:
        if not progress.ended:
            progress.ended = True
            progress.plan.close()
            self._source.fail(progress.owner, error)

    def _queries(self, asked: Sequence[_Asked]) -> list[JoiningQuery]:
        """What retrievals asked for, as the decoder takes it; tokens and priors are computed together."""
        if not asked:
            return []
        generator, options = self._generator, self._generator.options
        wanted, subsets = [one.what for one in asked], []
        for what in wanted:
            check_counts(k=what.k)
            if what.allow not in self._subsets:
                if len(self._subsets) >= _FILTERS:
                    self._subsets.clear()
                (self._subsets[what.allow],) = generator.subsets([what.query], what.allow)
            subsets.append(self._subsets[what.allow])
        queries = [what.query for what in wanted]
        inputs = [
            generator.codec.model_input(tokens, generator.evidence(what.query.text, what.passages))
            for tokens, what in zip(generator.encode(queries), wanted, strict=True)
        ]
        rows, spans = generator.index.rows, generator.spans
        check_positions(generator.model, max(map(len, inputs)), rows.longest)
        prior: Prior | None = None
        if self._priors_of is not None:
            corpus = generator.corpus
            evidence = [corpus.passages(what.passages) if what.passages else [] for what in wanted]
            prior = self._priors_of(queries, evidence)
        over_spans = None if prior is None or spans is None else prior_over_spans(prior, spans)
        made = []
        for place, (one, tokens, subset) in enumerate(zip(asked, inputs, subsets, strict=True)):
            k, hidden, owner = max(one.what.k, options.rescore), one.what.hidden, _Entered(one, tokens)
            if spans is None:
                beams = max(k, options.beams)
                query = JoiningQuery(tokens, k, hidden, subset, owner, beams, prior, place)
            else:  # the number of spans does not depend on that of passages
                beams, without = self._decoder.beams, hidden_spans(spans, rows, hidden, subset)
                ranked = generator.span_ranking(Reach(spans, rows, hidden, subset), k, prior, place)
                rest = subset, owner, beams, over_spans, place, ranked
                query = JoiningQuery(tokens, beams, without, *rest)
            made.append(query)
        return made
