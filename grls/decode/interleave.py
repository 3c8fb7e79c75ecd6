"""Free text interlaced with quoted keys, in one pass: "From RAG to RICHES" (arXiv 2407.00361).

Legend: S slots (queries in flight), K beam width, R live beams, A candidates, V vocabulary, w integers of a
state.

A model writes what it likes until it writes the opening marker. From there to the closing marker it may write
only a key of the index; then it is free again, as often as it likes. So it retrieves while it answers: a
quoted key is a retrieved one, and there is no second model and no second pass.

**Adaptive beam** (the paper's section on it is headed "Adaptive Beam Size"): thoughts are written greedily,
keys with the whole beam, for it is in the keys that a first token decides what can still be found. With Q(y)
the keys in an output y, the search looks for the y of the highest

    P(y | x) = prod over keys q in Q(y) of P(q | x, before) * prod over free tokens t of P(t | x, before),

every q in the corpus. A beam in free text has one continuation, its best token; a beam in a key has all that
the index allows. Here all compete for the same K places by their whole score, which is not divided by a
length. ``full`` gives free text K continuations too, ``greedy`` gives a key one: the ablations.

A score is a sum of log-probabilities (nats): over the vocabulary in free text, and in keys as the score mode
says (see :mod:`grls.decode.scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from grls.decode.markers import Markers
from grls.decode.scores import ScoreMode, check_mode, ragged_logsumexp, refuse_nan
from grls.decode.select import select
from grls.errors import ConfigError
from grls.index.keys import Following, KeyIndex
from grls.index.rows import Ints
from grls.models.base import Floats, TreeGenerator, TreeSession
from grls.models.forest import Branches

Beam = Literal["adaptive", "full", "greedy"]
_FREE, _KEY, _CLOSING = range(3)
_REMEMBERED = 1000
"""Sets of used keys whose tokens are kept at a time."""


class Span(NamedTuple):
    """A key as it was quoted.

    Attributes:
        first: Place of its first token in the output.
        last: Place after its last token (the closing marker is not in it).
        keys: Numbers of the keys that hold it, or of some of them (see ``held``); none where it was not
            closed.
        score: Log-probability (nats) of its tokens and of closing it.
        closed: False where the length limit came first: then nothing was retrieved.
        held: How many keys hold it in all, however many are named; 0 where it was not closed.
    """

    first: int
    last: int
    keys: tuple[int, ...]
    score: float
    closed: bool
    held: int = 0


class Interlaced(NamedTuple):
    """One output.

    Attributes:
        tokens: All tokens written, markers included, the end token not.
        spans: The quoted keys, in order.
        score: Log-probability (nats).
        ended: Whether the model ended it; False where the length limit did.
    """

    tokens: tuple[int, ...]
    spans: tuple[Span, ...]
    score: float
    ended: bool


@dataclass(frozen=True)
class InterleaveOptions:
    """How to write.

    Args:
        beams: K.
        beam: ``adaptive``, ``full`` or ``greedy``.
        mode: Score mode within keys.
        whole: A key may close only where it is a whole key; else anywhere.
        repeat: Whether a key may be quoted again in one output.
        max_new_tokens: Length limit of an output.
        max_key_tokens: Tokens after which a key that may close must.
        slots: Queries in flight.
        keys: Keys that are named for a span, at most; a span says how many hold it in all. Those not named
            are not quoted by it: another quote may name them.

    Raises:
        ConfigError: A count is not positive, or a name is unknown.
    """

    beams: int = 10
    beam: Beam = "adaptive"
    mode: ScoreMode = "full"
    whole: bool = True
    repeat: bool = False
    max_new_tokens: int = 256
    max_key_tokens: int = 128
    slots: int = 8
    keys: int = 100

    def __post_init__(self) -> None:
        check_mode(self.mode)
        if self.beam not in get_args(Beam):
            raise ConfigError(f"unknown beam {self.beam!r}; expected one of {', '.join(get_args(Beam))}.")
        for name in ("beams", "max_new_tokens", "max_key_tokens", "slots", "keys"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class _Beam:
    """One live beam.

    Attributes:
        node: The last node fed.
        tokens: What it has written.
        score: Log-probability (nats).
        spans: The keys closed so far.
        mode: Free, in a key, or closing one.
        state: Of the key it is in, ``[w]``.
        first: Where that key began.
        before: Its score there.
    """

    node: int
    tokens: tuple[int, ...] = ()
    score: float = 0.0
    spans: tuple[Span, ...] = ()
    mode: int = _FREE
    state: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    first: int = 0
    before: float = 0.0


class _Candidates(NamedTuple):
    """A continuations, ``[A]`` each: beam, token, log-probability, whether a key closes, state ``[A, w]``."""

    parents: Ints
    tokens: Ints
    steps: Floats
    closes: Ints
    states: Ints


@dataclass
class Interleaver:
    """Writes free text interlaced with keys.

    Args:
        generator: The model, as trees.
        index: The keys.
        markers: What opens and closes a key.
        ends: The tokens that end an output.
        options: How to write.
        stop: Tells from the tokens written and the keys quoted whether a free beam is done (by a stop text,
            say).
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
            k: Outputs an input, at most K.
            decided: Called with the number of inputs decided since the last call.

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
        slots = min(self.options.slots, len(inputs))
        longest = len(inputs[self.waiting[-1]])
        self.session: TreeSession = writer.generator.open_trees(slots, longest)
        self.queries = [-1] * slots
        self.beams: list[list[_Beam]] = [[] for _ in range(slots)]
        self._known: dict[frozenset[int], Ints] = {}

    def run(self) -> list[list[Interlaced]]:
        while True:
            self._refill()
            if not any(self.beams):
                return self.results
            self._advance()

    def _refill(self) -> None:
        """Give free slots to waiting inputs, and let these write their first token."""
        free = [slot for slot, query in enumerate(self.queries) if query < 0]
        while self.waiting and free:
            taken = [(slot, self.waiting.pop()) for slot in free[: len(self.waiting)]]
            slots = np.array([slot for slot, _ in taken])
            nodes = self.session.load(slots, [self.inputs[query] for _, query in taken])
            for (slot, query), node in zip(taken, nodes.tolist(), strict=True):
                self.queries[slot] = query
                self.beams[slot] = [_Beam(node)]
            self._choose(slots.tolist())
            free = [slot for slot, query in enumerate(self.queries) if query < 0]

    def _advance(self) -> None:
        """Feed every live beam its last token, and choose the next."""
        owners = [slot for slot, beams in enumerate(self.beams) for _ in beams]
        live = [beam for beams in self.beams for beam in beams]
        ones = np.ones(len(live), dtype=np.int64)
        tokens = np.array([beam.tokens[-1] for beam in live])
        parents = np.array([beam.node for beam in live])
        nodes = iter(self.session.feed(Branches(np.array(owners), parents, ones, tokens)).tolist())
        self.beams = [[_moved(beam, next(nodes)) for beam in beams] for beams in self.beams]
        self._choose([slot for slot, beams in enumerate(self.beams) if beams])

    def _choose(self, slots: list[int]) -> None:
        """Continue the beams of some slots, whose rows the session has just computed in this order."""
        live = [beam for slot in slots for beam in self.beams[slot]]
        owners = np.array([slot for slot in slots for _ in self.beams[slot]])
        logits = self.session.every()
        candidates = self._candidates(live, logits)
        scores = np.array([beam.score for beam in live])[candidates.parents] + candidates.steps
        free = np.array([beam.mode == _FREE for beam in live])[candidates.parents]
        ends = np.isin(candidates.tokens, list(self.writer.ends)) & free
        chosen = select(owners[candidates.parents], scores, ends, self.options.beams)
        kept: dict[int, list[_Beam]] = {slot: [] for slot in slots}
        for c in chosen.finished:
            beam = live[candidates.parents[c]]
            self._finish(int(owners[candidates.parents[c]]), beam, float(scores[c]), True)
        for c in chosen.live:
            slot = int(owners[candidates.parents[c]])
            beam = self._continued(live[candidates.parents[c]], candidates, int(c), float(scores[c]))
            done = beam.mode == _FREE and self.writer.stop(beam.tokens, beam.spans)
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

    def _candidates(self, live: list[_Beam], logits: Tensor) -> _Candidates:
        """What may follow each beam, by beam."""
        modes = np.array([beam.mode for beam in live])
        parts = []
        free = np.flatnonzero(modes == _FREE)
        with torch.inference_mode():
            normalizer = _normalizer(logits)
            if len(free):
                parts.append(self._in_text(free, logits, normalizer))
            in_key = np.flatnonzero(modes == _KEY)
            if len(in_key):
                parts.append(self._in_keys(in_key, live, logits, normalizer))
            closing = np.flatnonzero(modes == _CLOSING)
            if len(closing):
                parts.append(self._closing(closing, live, logits, normalizer))
        if len(parts) == 1:
            return parts[0]
        columns: list[Any] = [np.concatenate(some) for some in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return _Candidates(*(some[order] for some in columns))

    def _in_text(self, rows: Ints, logits: Tensor, normalizer: Floats) -> _Candidates:
        """The best tokens of free beams."""
        some = logits[torch.from_numpy(rows).to(logits.device)]
        some[:, torch.from_numpy(self.writer.markers.barred).to(logits.device)] = -torch.inf
        best = some.topk(min(self.options.beams, some.shape[1]) if self.options.beam == "full" else 1)
        count = best.values.shape[1]
        parents = np.repeat(rows, count)
        steps = best.values.double().flatten().cpu().numpy() - normalizer[parents]
        nothing = np.full((len(parents), self.index.width), -1)
        tokens = best.indices.flatten().cpu().numpy()
        return _Candidates(parents, tokens, steps, np.zeros(len(parents), dtype=np.int64), nothing)

    def _in_keys(self, rows: Ints, live: list[_Beam], logits: Tensor, normalizer: Floats) -> _Candidates:
        """What the index allows in beams within keys, and closing them."""
        states = np.stack([live[row].state for row in rows])
        following = self.index.follow(states)
        closes = self._may_close(rows, live, states)
        forced = closes & np.array(
            [len(live[row].tokens) - live[row].first >= self.options.max_key_tokens for row in rows]
        )
        if forced.any():
            following = _without(following, np.repeat(forced, np.diff(following.offsets)))
        if not self.options.repeat:
            following = self._unused(rows, live, following)
        # Closing stands after all that continues a key.
        shut = np.flatnonzero(closes)
        places = following.offsets[shut + 1]
        owners = np.insert(np.repeat(np.arange(len(rows)), np.diff(following.offsets)), places, shut)
        close = np.insert(np.zeros(len(following.tokens), dtype=np.int64), places, 1)
        tokens = np.insert(following.tokens, places, self.writer.markers.closing[0])
        after = np.insert(following.states, places, states[shut], axis=0)
        parents = rows[owners]
        place = (torch.from_numpy(some).to(logits.device) for some in (parents, tokens))
        found = logits[tuple(place)].double().cpu().numpy()
        if self.options.mode == "renormalized":
            offsets = np.searchsorted(owners, np.arange(len(rows) + 1))
            steps = found - ragged_logsumexp(found, offsets)[owners]
        else:
            steps = found - normalizer[parents]
        if self.options.beam == "greedy":
            best = np.lexsort((-steps, owners))
            best = best[np.flatnonzero(np.diff(owners[best], prepend=-1))]
            parents, tokens, close, after = (some[best] for some in (parents, tokens, close, after))
            steps = steps[best]
        return _Candidates(parents, tokens, steps, close, after)

    def _unused(self, rows: Ints, live: list[_Beam], following: Following) -> Following:
        """What follows beams within keys, less what leads only to keys that they have quoted already.

        Such a token stands in one of those keys, so few are looked at.
        """
        gone = np.zeros(len(following.tokens), dtype=bool)
        for n, row in enumerate(rows.tolist()):
            used = _quoted(live[row])
            if not used:
                continue
            part = slice(int(following.offsets[n]), int(following.offsets[n + 1]))
            theirs = self._tokens(used)
            known = np.flatnonzero(np.isin(following.tokens[part], theirs))
            states = following.states[part][known]
            few = self.index.count(states) <= len(theirs)
            for c, state in zip(known[few].tolist(), states[few], strict=True):
                gone[part.start + c] = used.issuperset(self.index.keys(state, whole=False).tolist())
        return _without(following, gone) if gone.any() else following

    def _tokens(self, keys: frozenset[int]) -> Ints:
        """The tokens of some keys, one after the other."""
        if keys not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[keys] = np.concatenate([self.index.tokens(key) for key in sorted(keys)])
        return self._known[keys]

    def _may_close(self, rows: Ints, live: list[_Beam], states: Ints) -> np.ndarray:
        """Whether each beam within a key may close it."""
        written = np.array([len(live[row].tokens) > live[row].first for row in rows])
        closes = self.index.closes(states) if self.options.whole else written
        if not self.options.repeat:
            for n in np.flatnonzero(closes):
                before = _quoted(live[rows[n]])
                if before and not len(self._keys(states[n], before)):
                    closes[n] = False
        return closes

    def _closing(self, rows: Ints, live: list[_Beam], logits: Tensor, normalizer: Floats) -> _Candidates:
        """The next token of the closing marker."""
        marker = self.writer.markers.closing
        tokens = np.array([marker[len(live[row].tokens) - live[row].spans[-1].last] for row in rows])
        place = (torch.from_numpy(some).to(logits.device) for some in (rows, tokens))
        steps = logits[tuple(place)].double().cpu().numpy() - normalizer[rows]
        if self.options.mode == "renormalized":
            steps = np.zeros_like(steps)
        nothing = np.full((len(rows), self.index.width), -1)
        return _Candidates(rows, tokens, steps, np.ones(len(rows), dtype=np.int64), nothing)

    def _continued(self, beam: _Beam, candidates: _Candidates, c: int, score: float) -> _Beam:
        """A beam with one token more."""
        token, state = int(candidates.tokens[c]), candidates.states[c]
        tokens = (*beam.tokens, token)
        marker = self.writer.markers.closing
        spans, mode = beam.spans, beam.mode
        if mode == _KEY and candidates.closes[c]:
            last = len(beam.tokens)
            held = self.index.held(state, self.options.whole)
            used = frozenset() if self.options.repeat else _quoted(beam)
            span = Span(beam.first, last, self._keys(state, used), score - beam.before, True, held)
            spans, mode = (*spans, span), _CLOSING
        elif mode == _CLOSING:
            grown = spans[-1]._replace(score=spans[-1].score + score - beam.score)
            spans = (*spans[:-1], grown)
        if mode == _CLOSING and len(tokens) - spans[-1].last == len(marker):
            mode = _FREE
        elif mode == _FREE and self.writer.markers.opens(tokens) and not self._exhausted(spans):
            return _Beam(beam.node, tokens, score, spans, _KEY, self.index.start(), len(tokens), score)
        return _Beam(beam.node, tokens, score, spans, mode, state, beam.first, beam.before)

    def _exhausted(self, spans: Sequence[Span]) -> bool:
        """Whether every key has been quoted that may be: then an opening marker is but text."""
        if self.options.repeat or not spans:
            return False
        return len({key for span in spans for key in span.keys}) == len(self.index)

    def _keys(self, state: Ints, used: frozenset[int]) -> tuple[int, ...]:
        """The keys that a span is taken for: some of those that hold it, none that is used."""
        most = self.options.keys
        # A key may hold a span several times, and the used ones may come first.
        looked = most + (len(self._tokens(used)) if used else 0)
        found = self.index.keys(state, self.options.whole, looked).tolist()
        return tuple([key for key in found if key not in used][:most])

    def _finish(self, slot: int, beam: _Beam, score: float, ended: bool) -> None:
        """Enter an output into the results of a slot's input."""
        spans = beam.spans
        if beam.mode == _KEY:
            spans = (*spans, Span(beam.first, len(beam.tokens), (), score - beam.before, False))
        elif beam.mode == _CLOSING:
            spans = (*spans[:-1], spans[-1]._replace(keys=(), closed=False, held=0))
        results = self.results[self.queries[slot]]
        results.append(Interlaced(beam.tokens, spans, score, ended))
        results.sort(key=lambda output: -output.score)
        del results[self.k :]


def _normalizer(logits: Tensor) -> Floats:
    """Log of the sum of exponentials over the vocabulary, ``[R]``.

    Raises:
        ConfigError: A logit is not a number.
    """
    found: Floats = logits.logsumexp(-1).double().cpu().numpy()
    refuse_nan(found)
    return found


def _quoted(beam: _Beam) -> frozenset[int]:
    """The keys that a beam has quoted."""
    return frozenset(key for span in beam.spans for key in span.keys)


def _without(following: Following, gone: np.ndarray) -> Following:
    """What follows, some of it left out."""
    keep = ~gone
    offsets = np.concatenate(([0], np.cumsum(keep)))[following.offsets]
    return Following(following.tokens[keep], following.states[keep], offsets)


def _moved(beam: _Beam, node: int) -> _Beam:
    """A beam whose last token is fed."""
    return _Beam(node, beam.tokens, beam.score, beam.spans, beam.mode, beam.state, beam.first, beam.before)
