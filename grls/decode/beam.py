"""Constrained beam search over a batch of queries.

Legend: B queries, K beam width, R live beams of all queries together (R <= B K), A allowed tokens of all live
beams. Step 0 has one beam a query. A beam is its state in the index, its score, and its row in the session of
the model. The prefix is not stored, because a passage is identified by its id.

The search does less work than a plain beam search: it drops beams that cannot enter the results any more,
decided queries leave the batch, and a prefix with one passage left is a result at once (see ``early_stop``).
It approximates the ranking of all passages by log p(passage | input) = sum over positions i of
log p(token i | tokens before i, input), with p normalized according to the score mode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from grls.data.types import ScoreMode
from grls.decode.frontier import Frontier, Gathering
from grls.decode.prior import Masses, Prior, PriorMasses
from grls.decode.scope import Mask, Scope, finished
from grls.decode.select import Selection, log_probabilities, select
from grls.errors import ConfigError
from grls.index.base import Allowed, ConstraintIndex
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.io.timing import PartTimer
from grls.models.base import Floats, GeneratorModel, Session


class ScoredPassage(NamedTuple):
    """One passage in the results of a search.

    Attributes:
        passage: The number of the passage in the index.
        score: Log-probability (nats) in the score mode of the decoder, including the scores of priors.
    """

    passage: int
    score: float


class BeamStep(NamedTuple):
    """The candidates and the decisions of one step of the search, for an observer.

    Attributes:
        queries: ``[A]`` the query of each candidate, ascending.
        parents: ``[A]`` the beam that each candidate continues: its number in ``live`` of the step before (at
            the first step: the number of the query among the undecided queries).
        tokens: ``[A]`` the token of each candidate.
        states: ``[A]`` the state of each candidate in the index.
        scores: ``[A]`` log-probability (nats) of the candidate's prefix, including the scores of priors.
        complete: ``[A]`` whether each candidate is finished.
        chosen: The candidates within beam width K.
        live: The candidates of ``chosen.live`` that still exceed ``worst`` and become the next beams.
        worst: ``[B]`` the score of each query's k-th result; ``-inf`` if it has fewer.
    """

    queries: Ints
    parents: Ints
    tokens: Ints
    states: Ints
    scores: Floats
    complete: Mask
    chosen: Selection
    live: Ints
    worst: Floats


class BeamQuery(NamedTuple):
    """A query of a search.

    Attributes:
        tokens: The model input as token ids.
        k: Distinct passages, at most the beam width.
        exclude: Numbers of the passages that it may not find.
        subset: The passages that it may find; None: all.
        owner: What its source knows it by, of any type; of a list, its place.
        beams: Its beam width in a search by slots; None: that of the decoder, the largest on a device.
        prior: Its priors. All queries of a search have priors, with the same weights, or none has.
        number: Its number in the priors.
    """

    tokens: Sequence[int]
    k: int
    exclude: Sequence[int]
    subset: Subset | None
    owner: Any
    beams: int | None = None
    prior: Prior | None = None
    number: int = 0


class _Beams(NamedTuple):
    """The live beams: query (ascending), state and score of each, ``[R]``."""

    queries: Ints
    states: Ints
    scores: Floats


@dataclass
class BeamSearch(ABC):
    """Finds the passages that a model gives the highest probability, by constrained beam search.

    Args:
        generator: The model.
        index: The constraint index.
        beams: Beam width K.
        mode: Score mode, ``renormalized`` or ``full``.
        early_stop: Stop a prefix when one passage is left under it; None: only with ``renormalized`` scores,
            with which it is exact. With ``full`` scores, the score of a stopped passage lacks its last
            tokens.
        threshold: Where a frontier is gathered, drop a beam that is so many nats below the best prefix of
            its query (relative threshold pruning: Freitag and Al-Onaizan 2017, arXiv 1702.01806); None: none.
    """

    generator: Any
    index: ConstraintIndex
    beams: int = 5
    mode: ScoreMode = "renormalized"
    early_stop: bool | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not self.stops_early:
            self.index.rows.refuse_prefixes("decoding without early stop")

    @property
    def stops_early(self) -> bool:
        """Whether a unique prefix ends a beam."""
        return self.mode == "renormalized" if self.early_stop is None else self.early_stop

    @abstractmethod
    def decode(
        self,
        queries: Sequence[BeamQuery],
        decided: Callable[[int], object] | None = None,
        frontiers: bool = False,
    ) -> list[Any]:
        """The k best passages of each query, or its frontier; see :meth:`search`."""

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int | None = None,
        exclude: Sequence[Sequence[int]] = (),
        subsets: Sequence[Subset | None] = (),
        decided: Callable[[int], object] | None = None,
        prior: Prior | None = None,
    ) -> list[list[ScoredPassage]]:
        """Decode a batch; a search by slots decodes any number of queries.

        Args:
            inputs: B model inputs as token ids.
            k: Distinct passages per query, at most the beam width; None: the beam width. Passages with equal
                tokens have equal scores, and each of them counts.
            exclude: For each query, the numbers of passages that it may not find.
            subsets: For each query, the passages that it may find; None: all. Probabilities are then relative
                to these passages.
            decided: Called with the number of queries decided since the last call.
            prior: Priors, whose scores are added to those of the model at every token (see
                :mod:`grls.decode.prior`). Scores are then no log-probabilities any more, unless they are
                normalized.

        Returns:
            For each query at most k passages, best first; fewer if the beam ran out of passages.
        """
        k = self.beams if k is None else k
        if not 1 <= k <= self.beams:
            raise ConfigError(f"k must be between 1 and the beam width {self.beams}, got {k}.")
        return self.decode(_queries(inputs, k, exclude, subsets, prior), decided) if inputs else []

    def frontier(
        self,
        inputs: Sequence[Sequence[int]],
        exclude: Sequence[Sequence[int]] = (),
        subsets: Sequence[Subset | None] = (),
        decided: Callable[[int], object] | None = None,
        prior: Prior | None = None,
    ) -> list[Frontier]:
        """The frontier of the search for each query; the arguments are those of :meth:`search`."""
        queries = _queries(inputs, self.beams, exclude, subsets, prior)
        return self.decode(queries, decided, frontiers=True) if queries else []


def _queries(
    inputs: Sequence[Sequence[int]],
    k: int,
    exclude: Sequence[Sequence[int]],
    subsets: Sequence[Subset | None],
    prior: Prior | None,
) -> list[BeamQuery]:
    hidden, within = exclude or [()] * len(inputs), subsets or [None] * len(inputs)
    columns = enumerate(zip(inputs, hidden, within, strict=True))
    return [BeamQuery(tokens, k, out, some, n, None, prior, n) for n, (tokens, out, some) in columns]


@dataclass
class Decoder(BeamSearch):
    """The search in its plain form, for any model.

    Args:
        observer: Called with every step, after its decisions; None: nobody observes.
    """

    generator: GeneratorModel
    observer: Callable[[BeamStep], object] | None = None

    def decode(
        self,
        queries: Sequence[BeamQuery],
        decided: Callable[[int], object] | None = None,
        frontiers: bool = False,
    ) -> list[Any]:
        hidden, within = [query.exclude for query in queries], [query.subset for query in queries]
        run = _PlainRun(self, Scope(self.index, len(queries), hidden, within), len(queries), queries[0].k)
        if frontiers:
            run.gathering = Gathering(self.index, run.scope, len(queries))
        if queries[0].prior is not None:
            run.masses = run.open_masses(queries[0].prior)
        found = run.run([query.tokens for query in queries])
        if decided is not None:
            decided(len(queries))
        return found


def continuations(
    index: ConstraintIndex, scope: Scope, queries: Ints, states: Ints
) -> tuple[Allowed, Ints, Ints]:
    """The tokens that may follow each of R beams and lead to a passage that its query may find.

    Args:
        index: The constraint index.
        scope: The passages that each query may find.
        queries: ``[R]`` the query of each beam.
        states: ``[R]`` the state of each beam.

    Returns:
        The allowed tokens, ``[A]`` the beam of each token, and ``[A]`` the rows left under each token.
    """
    allowed = index.allowed(states)
    rows = np.repeat(np.arange(len(states)), np.diff(allowed.offsets))
    remaining = scope.remaining(queries[rows], *index.span(allowed.states))
    if remaining.all():
        return allowed, rows, remaining
    keep = remaining > 0
    sizes = np.bincount(rows[keep], minlength=len(states))
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return Allowed(allowed.tokens[keep], allowed.states[keep], offsets), rows[keep], remaining[keep]


class BeamRun:
    """What one run of every search does in the same way; S slots, each of one query.

    Attributes:
        k_of_slot: ``[S]`` the number of passages that each slot's query wants.
        results: ``[S]`` the finished prefixes of each slot's query, (score, state), best first.
        masses: The priors; None: there is none.
        gathering: Collects the candidates that are not continued; None: nobody wants them.
    """

    def __init__(self, decoder: BeamSearch, scope: Scope, slots: int, k: int):
        self.decoder: Any = decoder
        self.index, self.scope = decoder.index, scope
        self.k_of_slot = [k] * slots
        self.results: list[list[tuple[float, int]]] = [[] for _ in range(slots)]
        self.masses: Any = None
        self.gathering: Gathering | None = None

    def open_masses(self, prior: Prior) -> PriorMasses:
        """The masses of priors for the queries in the slots."""
        return Masses(prior, self.index, self.scope, len(self.results))

    def undecided(self, slots: Ints) -> Ints:
        """The slots whose queries may find several passages; an only passage is a result."""
        states, early = np.full(len(slots), self.index.start(), dtype=np.int64), self.decoder.stops_early
        remaining = self.scope.remaining(slots, *self.index.span(states))
        alone = slots[remaining == 1] if early else slots[:0]
        for slot in alone.tolist():
            self.results[slot] = [(0.0, self.index.start())]
        if self.gathering is not None:
            nothing = np.zeros(len(alone))
            self.gathering.add(alone, states[: len(alone)], nothing, nothing)
        return slots[remaining > (1 if early else 0)]

    def outcome(self, slot: int) -> Any:
        """The frontier of a slot's query, or its k best passages; the slot forgets them."""
        results, self.results[slot] = self.results[slot], []
        if self.gathering is not None:
            return self.gathering.take(slot)
        k, states = self.k_of_slot[slot], np.array([state for _, state in results], dtype=np.int64)
        passages = self.scope.passages(np.full(len(states), slot), states, k)
        scored = zip(results, passages, strict=True)
        return [ScoredPassage(number, score) for (score, _), same in scored for number in same][:k]

    def cut(
        self, slots: Ints, states: Ints, scores: Floats, complete: Mask, beams: int | Ints
    ) -> tuple[Selection, Ints, Floats]:
        """Add the finished ones of A candidates to the results, and choose those that become beams.

        A beam is cut if it is not among the K best, or if it cannot exceed its query's k-th result any more.

        Args:
            slots: ``[A]`` ascending; the slot of each candidate.
            states: ``[A]`` its state in the index.
            scores: ``[A]`` its log-probability (nats), including the scores of priors.
            complete: ``[A]`` whether it is finished.
            beams: K, or ``[S]`` the K of each slot.

        Returns:
            The candidates within beam width K, those of them that become beams, and ``[S]`` the score of each
            k-th result.
        """
        chosen = select(slots, scores, complete, beams)
        for candidate in chosen.finished:  # the k best are kept; among equals, the earlier one comes first
            slot = int(slots[candidate])
            results = self.results[slot]
            results.append((float(scores[candidate]), int(states[candidate])))
            results.sort(key=itemgetter(0), reverse=True)
            del results[self.k_of_slot[slot] :]
        pairs = zip(self.results, self.k_of_slot, strict=True)
        worst = np.array([r[-1][0] if len(r) == k else -np.inf for r, k in pairs])
        live = chosen.live
        exceeds = scores[live] > worst[slots[live]]  # scores never rise
        if self.gathering is not None and self.decoder.threshold is not None:
            best = np.array([results[0][0] if results else -np.inf for results in self.results])
            np.maximum.at(best, slots[live], scores[live])
            exceeds &= scores[live] >= best[slots[live]] - self.decoder.threshold
        live = live[exceeds]
        if self.gathering is not None:  # the candidates that are not continued
            left = np.setdiff1d(np.arange(len(scores)), live, assume_unique=True)
            owners, ends, plain = slots[left], states[left], scores[left]
            if self.masses is not None:
                plain = plain - self.masses.added(owners, ends)
            self.gathering.add(owners, ends, scores[left], plain)
        return chosen, live, worst


class _PlainRun(BeamRun):
    """A query has the slot of its number."""

    def run(self, inputs: Sequence[Sequence[int]]) -> list[Any]:
        queries = self.undecided(np.arange(len(inputs)))
        if self.masses is not None:
            self.masses.load(queries)
        if len(queries):
            wanted = [inputs[query] for query in queries.tolist()]
            with PartTimer("encoder", sum(map(len, wanted))):
                session = self.decoder.generator.open(wanted)
                session.first()
            beams = _Beams(queries, np.full(len(queries), self.index.start()), np.zeros(len(queries)))
            while True:
                beams, parents, tokens = self._advance(beams, session)
                if not len(parents):
                    break
                with PartTimer("decoder", len(tokens)):
                    session.step(parents, tokens)
        return [self.outcome(query) for query in range(len(inputs))]

    def _advance(self, beams: _Beams, session: Session) -> tuple[_Beams, Ints, Ints]:
        """One step: the new beams, the row that each continues, and its token."""
        with PartTimer("constraint") as block:
            allowed, rows, remaining = continuations(self.index, self.scope, beams.queries, beams.states)
            block.tokens = len(rows)
        queries = beams.queries[rows]
        with PartTimer("decoder"):
            steps: Floats = log_probabilities(session, allowed.tokens, allowed.offsets, self.decoder.mode)
        if self.masses is not None:
            steps = self.masses.with_priors(steps, queries, allowed.states, allowed.offsets)
        scores = beams.scores[rows] + steps
        complete = finished(allowed.tokens, remaining, self.index.rows.end, self.decoder.stops_early)
        chosen, live, worst = self.cut(queries, allowed.states, scores, complete, self.decoder.beams)
        if self.decoder.observer is not None:
            self.decoder.observer(
                BeamStep(queries, rows, allowed.tokens, allowed.states, scores, complete, chosen, live, worst)
            )
        return _Beams(queries[live], allowed.states[live], scores[live]), rows[live], allowed.tokens[live]
