"""Traces one passage through a beam search: the step at which its prefix left the beam, and the margin.

Legend: P passages, L tokens of a passage, A candidates of a step, K beam width. An observer records the
steps of :class:`grls.decode.beam.BeamSearch`, and a passage is followed through them. Its score is computed
by teacher forcing, with the same exclusions, so it is known even if the beam lost the passage.

A prefix can leave the beam in two ways. *Pruned*: K candidates were better, though it might have become a
result. *Beaten*: it was among the K best, but k finished passages had a higher score already, and a score
never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from grls.decode.beam import BeamStep, Decoder, ScoredPassage, continuations
from grls.decode.prior import Masses, Prior
from grls.decode.scope import Mask, Scope
from grls.decode.select import log_probabilities
from grls.index.rows import Ints
from grls.models.base import Floats

Fate = Literal["kept", "finished", "pruned", "beaten"]

_AT_ONCE = 64
"""The number of passages that are scored together."""


class SearchTrace(NamedTuple):
    """One search of one query; ``steps`` is empty if it was decided before the first step."""

    steps: tuple[BeamStep, ...]
    found: tuple[ScoredPassage, ...]
    beams: int


class Rival(NamedTuple):
    """A token that the model preferred to the token of the passage, with its log-probability (nats)."""

    token: int
    log_probability: float


class TokenScore(NamedTuple):
    """One token of a passage under teacher forcing.

    Attributes:
        log_probability: Log-probability of the token after its prefix, in the score mode (nats).
        allowed: The number of tokens that were allowed there.
        rivals: The most probable of the tokens that were better, best first.
    """

    token: int
    log_probability: float
    allowed: int
    rivals: tuple[Rival, ...]


class PassageScore(NamedTuple):
    """The score of one passage by teacher forcing, over all tokens with the end token.

    The decoder writes ``stop`` of them (all, unless it stops early).
    """

    tokens: tuple[TokenScore, ...]
    stop: int

    @property
    def score(self) -> float:
        """The score of the passage in the decoder (nats), over the tokens that it writes."""
        return sum((t.log_probability for t in self.tokens[: self.stop]), 0.0)

    @property
    def complete(self) -> float:
        return sum((t.log_probability for t in self.tokens), 0.0)


class PathStep(NamedTuple):
    """One decoding step, seen from a passage.

    Attributes:
        token: The token of the passage, with its probability and rivals.
        score: Log-probability (nats) of the prefix.
        fate: How the search treated the prefix; None after the prefix has left the beam.
        rank: The rank of the prefix, from 1: if finished among all candidates, else among the unfinished
            ones; after it has left the beam, the rank that it would have had. None after the end of the
            search.
        best: Score of the best candidate of the step; None after the end of the search.
        bar: The score that the prefix had to reach: that of the last chosen candidate, or of the k-th
            result if the prefix was beaten. None after the end of the search.
    """

    token: TokenScore
    score: float
    fate: Fate | None
    rank: int | None
    best: float | None
    bar: float | None

    @property
    def margin(self) -> float | None:
        """Nats above (or, negative, below) the bar."""
        return None if self.bar is None else self.score - self.bar


def trace(
    decoder: Decoder,
    model_input: Sequence[int],
    k: int,
    exclude: Sequence[int] = (),
    prior: Prior | None = None,
) -> SearchTrace:
    steps: list[BeamStep] = []
    hits = replace(decoder, observer=steps.append).search([model_input], k, [exclude], prior=prior)[0]
    return SearchTrace(tuple(steps), tuple(hits), decoder.beams)


def beaten(step: BeamStep) -> Ints:
    """The candidates of one query's step within the beam width that are not better than the k-th result."""
    return np.setdiff1d(step.chosen.live, step.live)


def follow(search: SearchTrace, passage: PassageScore) -> tuple[PathStep, ...]:
    """The steps of a search, seen from a passage: one for each token that the decoder writes of it."""
    path: list[PathStep] = []
    score, row = 0.0, 0
    left_beam = False
    for position, token in enumerate(passage.tokens[: passage.stop]):
        score += token.log_probability
        if position >= len(search.steps):
            path.append(PathStep(token, score, None, None, None, None))
            continue
        step = search.steps[position]
        rivals = np.ones(len(step.scores), bool) if position + 1 == passage.stop else ~step.complete
        best = float(step.scores.max())
        if left_beam:
            rank = 1 + int((step.scores[rivals] > score).sum())
            path.append(PathStep(token, score, None, rank, best, _bar(step, rivals, search.beams)))
            continue
        candidate = int(np.flatnonzero((step.parents == row) & (step.tokens == token.token))[0])
        score = float(step.scores[candidate])  # the score in the search, so that ranks and margins are exact
        fate = fate_of(step, candidate)
        bar = float(step.worst[0]) if fate == "beaten" else _bar(step, rivals, search.beams)
        before = step.scores > score  # among equals the earlier candidate comes first, as in ``select``
        before[:candidate] |= step.scores[:candidate] == score
        path.append(PathStep(token, score, fate, 1 + int((before & rivals).sum()), best, bar))
        left_beam = fate != "kept"
        row = int(np.flatnonzero(step.live == candidate)[0]) if fate == "kept" else -1
    return tuple(path)


def fate_of(step: BeamStep, candidate: int) -> Fate:
    if candidate in step.chosen.finished:
        return "finished"
    if candidate in step.live:
        return "kept"
    return "beaten" if candidate in step.chosen.live else "pruned"


def _bar(step: BeamStep, rivals: Mask, beams: int) -> float | None:
    """Score of the last rival within the beam width; None if there is no rival."""
    ranked = np.sort(step.scores[rivals])[::-1]
    return float(ranked[min(beams, len(ranked)) - 1]) if len(ranked) else None


def score_passages(
    decoder: Decoder,
    model_input: Sequence[int],
    passages: Sequence[int],
    exclude: Sequence[int] = (),
    rivals: int = 3,
    prior: Prior | None = None,
) -> list[PassageScore]:
    """The exact scores of P passages, by teacher forcing with the steps of a decoder.

    Score mode, early stop and model are those of the decoder. ``rivals``: the most to keep of each token.
    The scores of ``exclude`` are renormalized away; those of priors are included in every token.
    """
    scope = Scope(decoder.index, 1, [exclude])
    for passage in passages:
        if not scope.allows(0, passage):
            raise ValueError(f"passage {passage} is excluded, so it has no score")
    masses = None if prior is None else Masses(prior, decoder.index, scope, 1)
    if masses is not None:
        masses.load(np.zeros(1, np.int64))
    scores: list[PassageScore] = []
    for start in range(0, len(passages), _AT_ONCE):
        # The targets share one row for the first token, and then have one row each.
        targets = [decoder.index.tokens(p) for p in passages[start : start + _AT_ONCE]]
        session = decoder.generator.open([model_input])
        session.first()
        states = np.array([decoder.index.start()])
        at_start = scope.remaining(np.zeros(1, np.int64), *decoder.index.span(states))[0]
        stops = [0 if decoder.stops_early and at_start == 1 else len(target) for target in targets]
        tokens: list[list[TokenScore]] = [[] for _ in targets]
        active, rows = np.arange(len(targets)), np.zeros(len(targets), np.int64)
        while len(active):
            ways, _, remaining = continuations(decoder.index, scope, np.zeros(len(states), np.int64), states)
            steps: Floats = log_probabilities(session, ways.tokens, ways.offsets, decoder.mode)
            if masses is not None:
                steps = masses.with_priors(steps, np.zeros(len(steps), np.int64), ways.states, ways.offsets)
            candidates, continues = [], []
            for target, row in zip(active.tolist(), rows.tolist(), strict=True):
                low, high = int(ways.offsets[row]), int(ways.offsets[row + 1])
                token = targets[target][len(tokens[target])]
                candidate = low + int(np.searchsorted(ways.tokens[low:high], token))
                above = low + np.flatnonzero(steps[low:high] > steps[candidate])
                best = above[np.argsort(-steps[above], kind="stable")][:rivals]
                better = tuple(Rival(int(ways.tokens[n]), float(steps[n])) for n in best)
                tokens[target].append(
                    TokenScore(int(ways.tokens[candidate]), float(steps[candidate]), high - low, better)
                )
                candidates.append(candidate)
                if decoder.stops_early and remaining[candidate] == 1:
                    stops[target] = min(stops[target], len(tokens[target]))
                forced = decoder.mode == "renormalized" and remaining[candidate] == 1
                continues.append(token != decoder.index.rows.end and not forced)
            if not any(continues):
                break
            chosen = np.array(candidates)[continues]
            session.step(rows[continues], ways.tokens[chosen])
            active, states, rows = active[continues], ways.states[chosen], np.arange(len(chosen))
        for sequence, scored in zip(targets, tokens, strict=True):
            # Forced tokens have probability one with renormalized scores, so the model need not compute them.
            scored += [TokenScore(int(t), 0.0, 1, ()) for t in sequence[len(scored) :]]
        scores += [PassageScore(tuple(scored), stop) for scored, stop in zip(tokens, stops, strict=True)]
    return scores
