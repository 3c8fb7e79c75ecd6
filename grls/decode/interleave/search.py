"""Free text interlaced with quoted keys, in one pass: "From RAG to RICHES" (arXiv 2407.00361).

Legend: S slots (queries in flight), K beam width, R live beams, A candidates, V vocabulary, w integers of
a state.

A model writes free text until it writes the opening marker. From there to the closing marker it may write
only a key of the index. So it retrieves while it answers, without a second model or a second pass.

**Adaptive beam** (the section "Adaptive Beam Size" of the paper): free text is written greedily, keys
with the whole beam, because the first token of a key decides which keys can still be found. Let Q(y) be
the keys in an output y. The search looks for the y with the highest probability (equation 2 of the paper)

    P(y | x) = prod over keys q in Q(y) of P(q | x, before) * prod over free tokens t of P(t | x, before),

where every q is in the corpus. A beam in free text has one candidate, its best token; a beam in a key has
all candidates that the index allows. Here all candidates compete for the same K places by their whole
score, which is not divided by the length. Two ablations: ``full`` gives free text K candidates, too;
``greedy`` gives a key one candidate. A score is a sum of log-probabilities (nats), over the vocabulary in
free text, and by the score mode in keys (:mod:`grls.decode.select`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.decode.interleave.markers import Markers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.select import ragged_logsumexp, refuse_nan, select
from grls.errors import ConfigError
from grls.index.keys import Following, KeyIndex
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.models.sessions.forest import Branches
from grls.models.sessions.memory import SlotModel


class Interlaced(NamedTuple):
    """One output: its tokens with markers but without the end token, its quotes, and its score (nats).

    ``ended`` is false if the length limit ended it.
    """

    tokens: tuple[int, ...]
    spans: tuple[Span, ...]
    score: float
    ended: bool


@dataclass
class Interleaver:
    """Writes free text interlaced with keys.

    ``generator`` keeps tokens as trees. ``ends`` are the tokens that end an output. ``stop`` says, from
    the written tokens and the quotes, whether a beam in free text is done (for example after a stop
    text).
    """

    generator: SlotModel
    index: KeyIndex
    markers: Markers
    ends: Collection[int]
    options: InterleaveOptions = field(default_factory=InterleaveOptions)
    stop: Callable[[Sequence[int], Sequence[Span]], bool] = lambda tokens, spans: False
    _known: dict[frozenset[int], tuple[Ints, int]] = field(default_factory=dict, init=False)

    def write(
        self, inputs: Sequence[Sequence[int]], k: int = 1, decided: Callable[[int], object] | None = None
    ) -> list[list[Interlaced]]:
        """The ``k`` best outputs for each input (token ids), best first; at least one, and at most K.

        ``decided`` is called between two steps with the number of inputs decided since. Each step takes
        the lock of the model (:func:`grls.io.locks.exclusive`) separately, so that other threads may use
        the model meanwhile.
        """
        if not 1 <= k <= self.options.beams:
            raise ConfigError(f"k must be between 1 and the beam width {self.options.beams}, got {k}.")
        return _Run(self, inputs, k, decided).run() if inputs else []

    def after(self, live: list[LiveBeam], logits: Tensor) -> Candidates:
        """The candidates that may follow each of R beams, by beam, from logits ``[R, V]``.

        All candidates that can be among the K best of a query are there.
        """
        modes = np.array([beam.mode for beam in live])
        parts = []
        with torch.inference_mode():
            normalizer = _normalizer(logits)
            for mode, follow in ((FREE, self._in_text), (KEY, self._in_keys), (CLOSING, self._closing)):
                rows = np.flatnonzero(modes == mode)
                if len(rows):
                    parts.append(follow(rows, live, logits, normalizer))
        if len(parts) == 1:
            return parts[0]
        columns: list[Any] = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Candidates(*(column[order] for column in columns))

    def _in_text(self, rows: Ints, _: list[LiveBeam], logits: Tensor, normalizer: Floats) -> Candidates:
        free = logits[torch.from_numpy(rows).to(logits.device)]
        free[:, torch.from_numpy(self.markers.barred).to(logits.device)] = -torch.inf
        best = free.topk(min(self.options.beams, free.shape[1]) if self.options.beam == "full" else 1)
        count = best.values.shape[1]
        parents = np.repeat(rows, count)
        steps = best.values.double().flatten().cpu().numpy() - normalizer[parents]
        nothing = np.full((len(parents), self.index.width), -1)
        tokens = best.indices.flatten().cpu().numpy()
        return Candidates(parents, tokens, steps, np.zeros(len(parents), dtype=np.int64), nothing)

    def _in_keys(self, rows: Ints, live: list[LiveBeam], logits: Tensor, normalizer: Floats) -> Candidates:
        """The tokens that the index allows in beams within keys, and the closing marker."""
        states = np.stack([live[row].state for row in rows])
        closes = self._may_close(rows, live, states)
        following = self._following(rows, live, states)
        steps = _at(logits, np.repeat(rows, np.diff(following.offsets)), following.tokens)
        closing = self.markers.closing[0]
        shut = np.flatnonzero(closes)
        shutting = _at(logits, rows[shut], np.full(len(shut), closing))
        if self.options.mode == "renormalized":
            every = np.insert(steps, following.offsets[shut + 1], shutting)
            normalizer = normalizer.copy()
            normalizer[rows] = ragged_logsumexp(every, following.offsets + np.append(0, np.cumsum(closes)))
        following, steps = _best(following, steps, self.options.beams)
        # The closing marker comes after all tokens that continue a key.
        positions = following.offsets[shut + 1]
        parents = np.insert(np.repeat(rows, np.diff(following.offsets)), positions, rows[shut])
        close = np.insert(np.zeros(len(following.tokens), dtype=np.int64), positions, 1)
        tokens = np.insert(following.tokens, positions, closing)
        after = np.insert(following.states, positions, states[shut], axis=0)
        steps = np.insert(steps, positions, shutting) - normalizer[parents]
        found = Candidates(parents, tokens, steps, close, after)
        if self.options.beam != "greedy":
            return found
        best = np.lexsort((-steps, parents))
        best = best[np.flatnonzero(np.diff(parents[best], prepend=-1))]
        return Candidates._make(column[best] for column in found)

    def _following(self, rows: Ints, live: list[LiveBeam], states: Ints) -> Following:
        """The tokens that continue the keys of these beams."""
        following = self.index.follow(states)
        lengths = np.array([len(live[row].tokens) - live[row].first for row in rows])
        if len(self.markers.within) and not lengths.all():  # a quote begins at the beginning of a character
            begins = np.repeat(lengths == 0, np.diff(following.offsets))
            following = _without(following, begins & np.isin(following.tokens, self.markers.within))
        if self.options.repeat:
            return following
        # Tokens that lead only to keys quoted already are left out: few tokens, those of the quoted keys.
        gone = np.zeros(len(following.tokens), dtype=bool)
        for n, row in enumerate(rows.tolist()):
            used = quoted(live[row])
            if not used:
                continue
            part = slice(int(following.offsets[n]), int(following.offsets[n + 1]))
            wanted, total = self._tokens(used)
            tokens = following.tokens[part]  # both ascend
            positions = np.searchsorted(tokens, wanted)
            inside = positions < len(tokens)
            known = positions[inside][tokens[positions[inside]] == wanted[inside]]
            ends = following.states[part][known]
            few = self.index.count(ends) <= total
            for c, state in zip(known[few].tolist(), ends[few], strict=True):
                gone[part.start + c] = used.issuperset(self.index.keys(state, whole=False).tolist())
        return _without(following, gone) if gone.any() else following

    def _tokens(self, keys: frozenset[int]) -> tuple[Ints, int]:
        """The tokens of a set of keys: each token once, ascending, and the number of all tokens."""
        if keys not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            tokens = np.concatenate([self.index.tokens(key) for key in keys])
            self._known[keys] = np.unique(tokens), len(tokens)
        return self._known[keys]

    def _may_close(self, rows: Ints, live: list[LiveBeam], states: Ints) -> np.ndarray:
        closes = self.index.closes(states)
        if not self.options.repeat:
            for n in np.flatnonzero(closes):
                before = quoted(live[rows[n]])
                if before and not len(self.keys(states[n], before)):
                    closes[n] = False
        return closes

    def _closing(self, rows: Ints, live: list[LiveBeam], logits: Tensor, normalizer: Floats) -> Candidates:
        marker = self.markers.closing
        tokens = np.array([marker[len(live[row].tokens) - live[row].spans[-1].last] for row in rows])
        steps = _at(logits, rows, tokens) - normalizer[rows]
        if self.options.mode == "renormalized":
            steps = np.zeros_like(steps)
        nothing = np.full((len(rows), self.index.width), -1)
        return Candidates(rows, tokens, steps, np.ones(len(rows), dtype=np.int64), nothing)

    def exhausted(self, spans: Sequence[Span]) -> bool:
        """Whether all keys have been quoted and may not be repeated; an opening marker is then text."""
        if self.options.repeat or not spans:
            return False
        return len({key for span in spans for key in span.keys}) == len(self.index)

    def keys(self, state: Ints, used: frozenset[int]) -> tuple[int, ...]:
        """The keys that a quote names: the first unused keys that end with it."""
        # A key may hold a span several times, and used keys may come first.
        limit = MOST_KEYS + (self._tokens(used)[1] if used else 0)
        holding = self.index.keys(state, limit=limit).tolist()
        return tuple([key for key in holding if key not in used][:MOST_KEYS])


class _Run:
    def __init__(
        self,
        writer: Interleaver,
        inputs: Sequence[Sequence[int]],
        k: int,
        decided: Callable[[int], object] | None,
    ):
        self.writer = writer
        self.inputs = inputs
        self.k = k
        self.decided = decided
        self.results: list[list[Interlaced]] = [[] for _ in inputs]
        self.waiting = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        slots = min(self.writer.options.batch_size, len(inputs))
        longest = len(inputs[self.waiting[-1]])
        self.session = writer.generator.open_trees(slots, longest)
        self.queries = [-1] * slots
        self.beams: list[list[LiveBeam]] = [[] for _ in range(slots)]

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
            lengths, parents = np.ones(len(live), dtype=np.int64), np.array([beam.node for beam in live])
            tokens = np.array([beam.tokens[-1] for beam in live])
            fed = self.session.feed(Branches(np.array(owners), parents, lengths, tokens)).tolist()
            moved = iter([replace(beam, node=node) for beam, node in zip(live, fed, strict=True)])
            self.beams = [[next(moved) for _ in beams] for beams in self.beams]
            self._choose([slot for slot, beams in enumerate(self.beams) if beams])

    def _choose(self, slots: list[int]) -> None:
        """Continue the beams of these slots, whose rows the session has just computed in this order."""
        live = [beam for slot in slots for beam in self.beams[slot]]
        owners = np.array([slot for slot in slots for _ in self.beams[slot]])
        logits = self.session.every()
        candidates = self.writer.after(live, logits)
        scores = np.array([beam.score for beam in live])[candidates.parents] + candidates.steps
        free = np.array([beam.mode == FREE for beam in live])[candidates.parents]
        ends = np.isin(candidates.tokens, list(self.writer.ends)) & free
        chosen = select(owners[candidates.parents], scores, ends, self.writer.options.beams)
        grown: dict[int, list[LiveBeam]] = {slot: [] for slot in slots}
        for c in chosen.finished:
            beam = live[candidates.parents[c]]
            self._finish(int(owners[candidates.parents[c]]), beam, float(scores[c]), True)
        for c in chosen.live:
            slot = int(owners[candidates.parents[c]])
            beam = self._continued(live[candidates.parents[c]], candidates, int(c), float(scores[c]))
            done = beam.mode == FREE and self.writer.stop(beam.tokens, beam.spans)
            if done or len(beam.tokens) >= self.writer.options.max_new_tokens:
                self._finish(slot, beam, beam.score, done)
            else:
                grown[slot].append(beam)
        for slot, beams in grown.items():
            results = self.results[self.queries[slot]]
            worst = results[-1].score if len(results) == self.k else -np.inf
            self.beams[slot] = [beam for beam in beams if beam.score > worst]
            if not self.beams[slot]:
                self.queries[slot] = -1
                if self.decided is not None:
                    self.decided(1)

    def _continued(self, beam: LiveBeam, candidates: Candidates, c: int, score: float) -> LiveBeam:
        token, state = int(candidates.tokens[c]), candidates.states[c]
        tokens = (*beam.tokens, token)
        marker = self.writer.markers.closing
        spans, mode = beam.spans, beam.mode
        if mode == KEY and candidates.closes[c]:
            last = len(beam.tokens)
            used = frozenset() if self.writer.options.repeat else quoted(beam)
            span = Span(beam.first, last, self.writer.keys(state, used), score - beam.before, True)
            spans, mode = (*spans, span), CLOSING
        elif mode == CLOSING:
            grown = spans[-1]._replace(score=spans[-1].score + score - beam.score)
            spans = (*spans[:-1], grown)
        if mode == CLOSING and len(tokens) - spans[-1].last == len(marker):
            mode = FREE
        elif mode == FREE and self.writer.markers.opens(tokens) and not self.writer.exhausted(spans):
            state = self.writer.index.start()
            return LiveBeam(beam.node, tokens, score, spans, KEY, state, len(tokens), score)
        return LiveBeam(beam.node, tokens, score, spans, mode, state, beam.first, beam.before)

    def _finish(self, slot: int, beam: LiveBeam, score: float, ended: bool) -> None:
        spans = beam.spans
        if beam.mode == KEY:
            spans = (*spans, Span(beam.first, len(beam.tokens), (), score - beam.before, False))
        elif beam.mode == CLOSING:
            spans = (*spans[:-1], spans[-1]._replace(keys=(), closed=False))
        results = self.results[self.queries[slot]]
        results.append(Interlaced(beam.tokens, spans, score, ended))
        results.sort(key=lambda output: -output.score)
        del results[self.k :]


FREE, KEY, CLOSING = range(3)
"""The mode of a beam: in free text, in a key, or in a closing marker."""
MOST_KEYS = 100
"""Keys that a quote names, at most; only their passages are retrieved."""
_CACHED = 1000
"""The number of sets of used keys whose tokens are cached."""


class Span(NamedTuple):
    """A quote: a span of a key in the output.

    Attributes:
        first: Position of its first token in the output.
        last: Position after its last token, before the closing marker.
        keys: Numbers of the keys that end with it, at most 100; empty if it was not closed. Another quote may
            name further ones.
        score: Log-probability (nats) of its tokens and of the closing marker.
        closed: False if the length limit came first; then nothing was retrieved.
    """

    first: int
    last: int
    keys: tuple[int, ...]
    score: float
    closed: bool


@dataclass(frozen=True)
class LiveBeam:
    """One live beam.

    Attributes:
        node: The last node that was fed.
        mode: ``FREE``, ``KEY`` or ``CLOSING``.
        state: The state of the current key, ``[w]``.
        first: The position at which the current key began.
        before: The score at this position.
    """

    node: int
    tokens: tuple[int, ...] = ()
    score: float = 0.0
    spans: tuple[Span, ...] = ()
    mode: int = FREE
    state: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    first: int = 0
    before: float = 0.0


class Candidates(NamedTuple):
    """A candidates, ``[A]`` each: beam, token, log-probability, whether a key closes, state ``[A, w]``."""

    parents: Ints
    tokens: Ints
    steps: Floats
    closes: Ints
    states: Ints


def _normalizer(logits: Tensor) -> Floats:
    """Log of the sum of exponentials over the vocabulary, ``[R]``; a benchmark times it as the model's."""
    normalizer: Floats = logits.logsumexp(-1).double().cpu().numpy()
    refuse_nan(normalizer)
    return normalizer


def _at(logits: Tensor, rows: Ints, tokens: Ints) -> Floats:
    pairs = (torch.from_numpy(axis).to(logits.device) for axis in (rows, tokens))
    values: Floats = logits[tuple(pairs)].double().cpu().numpy()
    return values


def _best(following: Following, scores: Floats, most: int) -> tuple[Following, Floats]:
    """The tokens of each row that are not below its ``most``-th best score, and their scores."""
    sizes = np.diff(following.offsets)
    keep = np.ones(len(scores), dtype=bool)
    for row in np.flatnonzero(sizes > most):
        part = slice(int(following.offsets[row]), int(following.offsets[row + 1]))
        values = scores[part]
        keep[part] = values >= np.partition(values, len(values) - most)[len(values) - most]
    return (following, scores) if keep.all() else (_without(following, ~keep), scores[keep])


def quoted(beam: LiveBeam) -> frozenset[int]:
    return frozenset(key for span in beam.spans for key in span.keys)


def _without(following: Following, gone: np.ndarray) -> Following:
    keep = ~gone
    offsets = np.concatenate(([0], np.cumsum(keep)))[following.offsets]
    return Following(following.tokens[keep], following.states[keep], offsets)
