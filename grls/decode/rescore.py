"""What a model says of passages that are written already, read to their end behind its input.

Legend: Q queries, C passages of one query, T tokens fed at once, R rows.

:func:`rescore` feeds passages of a query as branches of one tree of tokens, so the input is read once for as
many as are fed together; :func:`rescore_plain` feeds them token by token, in rows, to any model: slower, and
what defines the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grls.models.base import Floats, Generator, StepRows, TreeGenerator
from grls.models.sessions.forest import Branches

_TOKENS = 2048
"""T: more are slower to lay out than they save."""

_WHOLE = 256
"""Passages of one query that are fed together have so many tokens together: attention looks at every pair of
them, though each sees its own passage alone, and beyond this that costs more than reading the input again."""


def rescore(
    model: TreeGenerator,
    inputs: Sequence[Sequence[int]],
    passages: Sequence[Sequence[Sequence[int]]],
    tokens: tuple[int, int],
) -> list[Floats]:
    """Log-odds of one token against another behind each passage.

    Args:
        model: The model.
        inputs: ``[Q]`` model inputs as token ids, none empty.
        passages: ``[Q]`` for each the C passages that are read behind it, with their end token.
        tokens: The two.

    Returns:
        ``[Q]`` log-odds (nats), ``[C]`` of each query.
    """
    pieces = [
        (query, piece) for query, some in enumerate(passages) for piece in _pieces([len(p) for p in some])
    ]
    found: list[Floats] = [np.zeros(len(some)) for some in passages]
    if not pieces:
        return found
    longest = max(sum(len(passages[query][n]) for n in piece) for query, piece in pieces)
    slots = min(len(pieces), max(1, _TOKENS // longest))
    session = model.open_trees(slots, max(len(some) for some in inputs))
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
            found[query][piece] = odds[first : first + len(piece)]
            first += len(piece)
    return found


def rescore_plain(
    model: Generator,
    inputs: Sequence[Sequence[int]],
    passages: Sequence[Sequence[Sequence[int]]],
    tokens: tuple[int, int],
) -> list[Floats]:
    """What :func:`rescore` gives, from a model that can only go on token by token; one query after
    another.
    """
    found: list[Floats] = []
    for source, some in zip(inputs, passages, strict=True):
        odds = np.zeros(len(some))
        live = np.arange(len(some))
        parents = np.zeros(len(some), dtype=np.int64)
        session = model.open([source])
        session.first()
        place = 0
        while len(live):
            session.step(parents, np.array([some[n][place] for n in live.tolist()]))
            place += 1
            ended = np.array([len(some[n]) == place for n in live.tolist()])
            if ended.any():
                odds[live[ended]] = _odds(session, len(live), tokens)[ended]
            parents = np.flatnonzero(~ended)
            live = live[~ended]
        found.append(odds)
    return found


def _pieces(lengths: Sequence[int]) -> list[list[int]]:
    """Passages of these lengths in order, so many together as have at most ``_WHOLE`` tokens."""
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
    """``[R]`` log-odds at each row."""
    every = np.repeat(np.arange(rows), 2)
    logits = model.logits(every, np.tile(np.array(tokens, dtype=np.int64), rows)).reshape(rows, 2)
    odds: Floats = (logits[:, 0] - logits[:, 1]).astype(np.float64)
    return odds
