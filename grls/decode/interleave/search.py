"""Free text interlaced with quoted keys, in one pass: "From RAG to RICHES" (arXiv 2407.00361).

Legend: S slots (queries in flight), K beam width, R live beams, A candidates, V vocabulary, w integers of a
state.

A model writes free text until it writes the opening marker. From there to the closing marker it may write
only a key of the index; then it writes free text again, and so on. So it retrieves while it answers: a quoted
key is a retrieved key, without a second model or a second pass.

**Adaptive beam** (the section "Adaptive Beam Size" of the paper): free text is written greedily, keys with
the whole beam, because the first token of a key decides which keys can still be found. Let Q(y) be the keys
in an output y. The search looks for the y with the highest probability (equation 2 of the paper)

    P(y | x) = prod over keys q in Q(y) of P(q | x, before) * prod over free tokens t of P(t | x, before),

where every q is in the corpus. A beam in free text has one candidate, its best token; a beam in a key has all
candidates that the index allows. Here all candidates compete for the same K places by their whole score,
which is not divided by the length. Two ablations: ``full`` gives free text K candidates, too; ``greedy``
gives a key one candidate.

A score is a sum of log-probabilities (nats), over the vocabulary in free text, and according to the score
mode in keys (see :mod:`grls.decode.select`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from grls.decode.interleave.continuations import (
    CLOSING,
    FREE,
    KEY,
    Candidates,
    Continuations,
    LiveBeam,
    Span,
    quoted,
)
from grls.decode.interleave.markers import Markers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.select import select
from grls.errors import ConfigError
from grls.index.keys import KeyIndex
from grls.models.base import TreeGenerator, TreeSession
from grls.models.sessions.forest import Branches


class Interlaced(NamedTuple):
    """One output.

    Attributes:
        tokens: All written tokens, with markers, without the end token.
        spans: The quotes, in order.
        score: Log-probability (nats).
        ended: True if the model ended the output, False if the length limit did.
    """

    tokens: tuple[int, ...]
    spans: tuple[Span, ...]
    score: float
    ended: bool


@dataclass
class Interleaver:
    """Writes free text interlaced with keys.

    Args:
        generator: The model, which keeps tokens as trees.
        index: The keys.
        markers: The markers that open and close a key.
        ends: The tokens that end an output.
        options: The options of decoding.
        stop: Returns, from the written tokens and the quotes, whether a beam in free text is done (for
            example after a stop text).
    """

    generator: TreeGenerator
    index: KeyIndex
    markers: Markers
    ends: Collection[int]
    options: InterleaveOptions = field(default_factory=InterleaveOptions)
    stop: Callable[[Sequence[int], Sequence[Span]], bool] = lambda tokens, spans: False

    def write(
        self, inputs: Sequence[Sequence[int]], k: int = 1, decided: Callable[[int], object] | None = None
    ) -> list[list[Interlaced]]:
        """Write outputs for any number of inputs.

        Args:
            inputs: Model inputs as token ids.
            k: Outputs per input, at most K.
            decided: Called between two steps with the number of inputs decided since the last call. Each step
                takes the turn of the model (:mod:`grls.io.turns`) separately, so other threads may use
                the model during this call, unless the caller holds its turn.

        Returns:
            For each input its best outputs, best first; at least one.

        Raises:
            ConfigError: k is not between 1 and the beam width.
        """
        if not 1 <= k <= self.options.beams:
            raise ConfigError(f"k must be between 1 and the beam width {self.options.beams}, got {k}.")
        return _Run(self, inputs, k, decided).run() if inputs else []


class _Run:
    """One run over all inputs."""

    def __init__(
        self,
        writer: Interleaver,
        inputs: Sequence[Sequence[int]],
        k: int,
        decided: Callable[[int], object] | None,
    ):
        self.writer = writer
        self.options = writer.options
        self.index = writer.index
        self.inputs = inputs
        self.k = k
        self.decided = decided
        self.results: list[list[Interlaced]] = [[] for _ in inputs]
        self.waiting = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        slots = min(self.options.batch_size, len(inputs))
        longest = len(inputs[self.waiting[-1]])
        self.session: TreeSession = writer.generator.open_trees(slots, longest)
        self.queries = [-1] * slots
        self.beams: list[list[LiveBeam]] = [[] for _ in range(slots)]
        self.continuations = Continuations(writer.index, writer.markers, writer.options)

    def run(self) -> list[list[Interlaced]]:
        while True:
            free = [slot for slot, query in enumerate(self.queries) if query < 0]
            while self.waiting and free:  # waiting inputs take free slots, and write their first token
                taken = [(slot, self.waiting.pop()) for slot in free[: len(self.waiting)]]
                slots = np.array([slot for slot, _ in taken])
                nodes = self.session.load(slots, [self.inputs[query] for _, query in taken])
                for (slot, query), node in zip(taken, nodes.tolist(), strict=True):
                    self.queries[slot] = query
                    self.beams[slot] = [LiveBeam(node)]
                self._choose(slots.tolist())
                free = [slot for slot, query in enumerate(self.queries) if query < 0]
            if not any(self.beams):
                return self.results
            # Every live beam is fed its last token, and chooses the next.
            owners = [slot for slot, beams in enumerate(self.beams) for _ in beams]
            live = [beam for beams in self.beams for beam in beams]
            ones, parents = np.ones(len(live), dtype=np.int64), np.array([beam.node for beam in live])
            tokens = np.array([beam.tokens[-1] for beam in live])
            fed = self.session.feed(Branches(np.array(owners), parents, ones, tokens)).tolist()
            moved = iter([
                LiveBeam(node, b.tokens, b.score, b.spans, b.mode, b.state, b.first, b.before)
                for b, node in zip(live, fed, strict=True)
            ])  # fmt: skip
            self.beams = [[next(moved) for _ in beams] for beams in self.beams]
            self._choose([slot for slot, beams in enumerate(self.beams) if beams])

    def _choose(self, slots: list[int]) -> None:
        """Continue the beams of these slots, whose rows the session has just computed in this order."""
        live = [beam for slot in slots for beam in self.beams[slot]]
        owners = np.array([slot for slot in slots for _ in self.beams[slot]])
        logits = self.session.every()
        candidates = self.continuations.after(live, logits)
        scores = np.array([beam.score for beam in live])[candidates.parents] + candidates.steps
        free = np.array([beam.mode == FREE for beam in live])[candidates.parents]
        ends = np.isin(candidates.tokens, list(self.writer.ends)) & free
        chosen = select(owners[candidates.parents], scores, ends, self.options.beams)
        kept: dict[int, list[LiveBeam]] = {slot: [] for slot in slots}
        for c in chosen.finished:
            beam = live[candidates.parents[c]]
            self._finish(int(owners[candidates.parents[c]]), beam, float(scores[c]), True)
        for c in chosen.live:
            slot = int(owners[candidates.parents[c]])
            beam = self._continued(live[candidates.parents[c]], candidates, int(c), float(scores[c]))
            done = beam.mode == FREE and self.writer.stop(beam.tokens, beam.spans)
            if done or len(beam.tokens) >= self.options.max_new_tokens:
                self._finish(slot, beam, beam.score, done)
            else:
                kept[slot].append(beam)
        for slot, beams in kept.items():
            results = self.results[self.queries[slot]]
            worst = results[-1].score if len(results) == self.k else -np.inf
            self.beams[slot] = [beam for beam in beams if beam.score > worst]
            if not self.beams[slot]:
                self.queries[slot] = -1
                if self.decided is not None:
                    self.decided(1)

    def _continued(self, beam: LiveBeam, candidates: Candidates, c: int, score: float) -> LiveBeam:
        """A beam with one more token."""
        token, state = int(candidates.tokens[c]), candidates.states[c]
        tokens = (*beam.tokens, token)
        marker = self.writer.markers.closing
        spans, mode = beam.spans, beam.mode
        if mode == KEY and candidates.closes[c]:
            last = len(beam.tokens)
            held = self.index.held(state, self.options.whole)
            used = frozenset() if self.options.repeat else quoted(beam)
            span = Span(
                beam.first, last, self.continuations.keys(state, used), score - beam.before, True, held
            )
            spans, mode = (*spans, span), CLOSING
        elif mode == CLOSING:
            grown = spans[-1]._replace(score=spans[-1].score + score - beam.score)
            spans = (*spans[:-1], grown)
        if mode == CLOSING and len(tokens) - spans[-1].last == len(marker):
            mode = FREE
        elif mode == FREE and self.writer.markers.opens(tokens) and not self.continuations.exhausted(spans):
            return LiveBeam(beam.node, tokens, score, spans, KEY, self.index.start(), len(tokens), score)
        return LiveBeam(beam.node, tokens, score, spans, mode, state, beam.first, beam.before)

    def _finish(self, slot: int, beam: LiveBeam, score: float, ended: bool) -> None:
        """Add an output to the results of the slot's input."""
        spans = beam.spans
        if beam.mode == KEY:
            spans = (*spans, Span(beam.first, len(beam.tokens), (), score - beam.before, False))
        elif beam.mode == CLOSING:
            spans = (*spans[:-1], spans[-1]._replace(keys=(), closed=False, held=0))
        results = self.results[self.queries[slot]]
        results.append(Interlaced(beam.tokens, spans, score, ended))
        results.sort(key=lambda output: -output.score)
        del results[self.k :]
