"""Rescores passages that are written already: the model reads each whole passage after its input.

Legend: Q queries, C passages of one query, T tokens fed at once, R rows. :func:`rescore` feeds the
passages of a query as branches of one tree of tokens, so the input is read once for several passages.
:func:`rescore_plain` feeds them token by token, in rows, to any model: it defines the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grls.models.base import Floats, GeneratorModel, StepRows
from grls.models.sessions.forest import Branches
from grls.models.sessions.memory import SlotModel

_TOKENS = 2048
"""The limit of T: to arrange more tokens takes more time than it saves."""

_WHOLE = 256
"""The most tokens of passages of one query that are fed together. Attention computes every pair of these
tokens, though a token sees only its passage. Beyond this limit, this costs more than reading the input
again."""


def rescore(
    model: SlotModel,
    inputs: Sequence[Sequence[int]],
    passages: Sequence[Sequence[Sequence[int]]],
    tokens: tuple[int, int],
) -> list[Floats]:
    """Log-odds of one token against another after each passage.

    Args:
        inputs: ``[Q]`` model inputs as token ids, none empty.
        passages: ``[Q]`` for each input, the C passages to read after it, with their end token.
        tokens: The two tokens.

    Returns:
        ``[Q]`` log-odds (nats), ``[C]`` for each query.
    """
    pieces = [
        (query, piece) for query, rows in enumerate(passages) for piece in _pieces([len(p) for p in rows])
    ]
    scores: list[Floats] = [np.zeros(len(rows)) for rows in passages]
    if not pieces:
        return scores
    longest = max(sum(len(passages[query][n]) for n in piece) for query, piece in pieces)
    slots = min(len(pieces), max(1, _TOKENS // longest))
    session = model.open_trees(slots, max(len(source) for source in inputs))
    for start in range(0, len(pieces), slots):
        part = pieces[start : start + slots]
        nodes = session.load(np.arange(len(part)), [inputs[query] for query, _ in part])
        owner = np.repeat(np.arange(len(part)), [len(piece) for _, piece in part])
        fed = [passages[query][n] for query, piece in part for n in piece]
        lengths = np.array([len(passage) for passage in fed])
        session.feed(Branches(owner, nodes[owner], lengths, np.concatenate([np.asarray(p) for p in fed])))
        odds = _odds(session, len(fed), tokens)
        first = 0
        for query, piece in part:
            scores[query][piece] = odds[first : first + len(piece)]
            first += len(piece)
    return scores


def rescore_plain(
    model: GeneratorModel,
    inputs: Sequence[Sequence[int]],
    passages: Sequence[Sequence[Sequence[int]]],
    tokens: tuple[int, int],
) -> list[Floats]:
    """The result of :func:`rescore` from a model that reads token by token."""
    scores: list[Floats] = []
    for source, rows in zip(inputs, passages, strict=True):
        odds = np.zeros(len(rows))
        live = np.arange(len(rows))
        parents = np.zeros(len(rows), dtype=np.int64)
        session = model.open([source])
        session.first()
        position = 0
        while len(live):
            session.step(parents, np.array([rows[n][position] for n in live.tolist()]))
            position += 1
            ended = np.array([len(rows[n]) == position for n in live.tolist()])
            if ended.any():
                odds[live[ended]] = _odds(session, len(live), tokens)[ended]
            parents = np.flatnonzero(~ended)
            live = live[~ended]
        scores.append(odds)
    return scores


def _pieces(lengths: Sequence[int]) -> list[list[int]]:
    """Group passages of these lengths in order, with at most ``_WHOLE`` tokens a group."""
    pieces: list[list[int]] = []
    room = 0
    for n, length in enumerate(lengths):
        if not pieces or length > room:
            pieces.append([])
            room = _WHOLE
        pieces[-1].append(n)
        room -= length
    return pieces


def _odds(model: StepRows, rows: int, tokens: tuple[int, int]) -> Floats:
    every = np.repeat(np.arange(rows), 2)
    logits = model.logits(every, np.tile(np.array(tokens, dtype=np.int64), rows)).reshape(rows, 2)
    odds: Floats = (logits[:, 0] - logits[:, 1]).astype(np.float64)
    return odds
