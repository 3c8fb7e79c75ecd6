"""Examples that are mixed into fine-tuning, as shares of each epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.train.core.examples import Examples
from grls.train.options import Shares


def share_at(shares: Shares, progress: float) -> float:
    """The share at a point between 0, the first epoch, and 1, the last one."""
    first, last = shares if isinstance(shares, tuple) else (shares, shares)
    return first + (last - first) * progress


class Mixture:
    """The examples of a stage with other examples mixed in, so that the model forgets less.

    Each kind of example is an endless stream: all of its examples in a random order, then all again in
    another one. An epoch takes its share from each stream, from where the epoch before stopped. So no
    example comes twice before all have come once, and an epoch is a function of (seed, epoch) alone.

    Args:
        main: The examples of the stage; they get the share that the parts leave.
        parts: Other examples with their share.
        epochs: Number of epochs over which shares change from first to last; later epochs keep the last.
        size: Examples an epoch; None: as many as ``main`` has.
    """

    def __init__(
        self,
        main: Examples,
        parts: Sequence[tuple[Examples, Shares]],
        epochs: int = 1,
        size: int | None = None,
        seed: int = 0,
    ):
        self.size = len(main) if size is None else size
        for progress in (0, 1):
            now = [share_at(shares, progress) for _, shares in parts]
            if min(now, default=0) < 0 or sum(now) > 1 + 1e-9:
                raise ConfigError(f"expected shares of a mix from 0 to 1, together at most 1, got {now}.")
        self.shares = [shares for _, shares in parts]
        self.members: list[Examples] = [main, *(examples for examples, _ in parts)]
        if not all(map(len, self.members)):
            raise ConfigError("a part of the mix has no example; leave it out.")
        self.epochs = epochs
        self.seed = seed
        self._orders: dict[tuple[int, int], Ints] = {}
        self._starts = [np.zeros(len(self.members), dtype=np.int64)]
        self._lengths = [np.asarray(member.lengths()) for member in self.members]

    def __len__(self) -> int:
        return self.size

    def counts(self, epoch: int) -> list[int]:
        """Number of examples of each kind in an epoch, ``main`` first."""
        progress = min(epoch / (self.epochs - 1), 1) if self.epochs > 1 else 0
        sums = np.cumsum([0, *(share_at(shares, progress) for shares in self.shares)])
        ends = np.minimum(np.round(sums * self.size), self.size).astype(int)
        return [self.size - int(ends[-1]), *np.diff(ends).tolist()]

    def draw(self, number: int, epoch: int) -> Any:
        ends = np.cumsum(self.counts(epoch))
        member = int(np.searchsorted(ends, number, side="right"))
        position = number - (int(ends[member - 1]) if member else 0) + int(self._start(epoch)[member])
        turn, row = divmod(position, len(self.members[member]))
        return self.members[member].draw(int(self._order(member, turn)[row]), turn)

    def lengths(self) -> Sequence[int]:
        return self.lengths_in(0)

    def lengths_in(self, epoch: int) -> Sequence[int]:
        lengths: list[int] = []
        for member, count in enumerate(self.counts(epoch)):
            turns, rows = np.divmod(np.arange(count) + self._start(epoch)[member], len(self.members[member]))
            for turn in np.unique(turns).tolist():
                order = self._order(member, turn)
                lengths += self._lengths[member][order[rows[turns == turn]]].tolist()
        return lengths

    def _start(self, epoch: int) -> Ints:
        """Number of examples that earlier epochs took from each stream."""
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + np.array(self.counts(len(self._starts) - 1)))
        return self._starts[epoch]

    def _order(self, member: int, turn: int) -> Ints:
        if (member, turn) not in self._orders:
            if len(self._orders) >= 8 * len(self.members):
                self._orders.clear()
            rng = np.random.default_rng([self.seed, member, turn])
            self._orders[member, turn] = rng.permutation(len(self.members[member]))
        return self._orders[member, turn]


def planned_epochs(trainer: Any, examples: int, batch_size: int) -> int | None:
    """Number of epochs of a trainer; None where nothing limits it.

    ``batch_size`` counts the examples of all processes together.
    """
    if trainer is None:
        return None
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        limits.append(int(trainer.max_epochs))
    if trainer.max_steps > 0:
        batches = math.ceil(examples / batch_size)
        limit = trainer.limit_train_batches
        batches = max(1, min(batches, limit) if isinstance(limit, int) else int(batches * limit))
        limits.append(math.ceil(trainer.max_steps / math.ceil(batches / trainer.accumulate_grad_batches)))
    return min(limits, default=None)
