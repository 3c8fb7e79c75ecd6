"""Mixes other examples into a stage, as shares of every epoch, so that the model forgets less.

Each kind of example is an endless stream: all of its examples in a random order, then all of them again in
another order. An epoch takes its share from each stream, from where the epoch before stopped. So no example
comes twice before all have come once, even if shares change, and an epoch is a function of (seed, epoch)
alone. The module does not know what is mixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grls.data.dataset import read_queries
from grls.data.types import Query
from grls.errors import ConfigError, DataError, Option, at_least
from grls.train.core.examples import Example, Examples, PassageInput

Ints = npt.NDArray[np.int64]

Shares = float | tuple[float, float]
"""A share of each epoch, or the shares of the first and the last epoch, linear between them."""


@dataclass(frozen=True)
class Mix:
    """Examples that are mixed into fine-tuning.

    Args:
        pseudo: File of pseudo-queries, written by ``grls prepare pseudo-queries``; null mixes none in.
        pseudo_share: Share of pseudo-queries among the examples of an epoch (0 to 1), or the shares of the
            first and the last epoch.
        pseudo_done: Learn DONE after the last passage of a pseudo-query. Off by default: a pseudo-query was
            written from its evidence, which need not be all that answers it.
        memorise: The model input for passages that are memorised along; null mixes none in.
        memorise_share: Share of passages to memorise among the examples of an epoch (0 to 1), or the shares
            of the first and the last epoch.
        size: Examples an epoch; null: as many as without a mix.
        epochs: Number of epochs over which shares change from first to last; null: all epochs of the run.
    """

    pseudo: str | None = None
    pseudo_share: Shares = 0.5
    pseudo_done: bool = False
    memorise: PassageInput | None = None
    memorise_share: Shares = 0.2
    size: int | None = None
    epochs: int | None = None


class MixturePart(NamedTuple):
    """Examples with their share.

    Attributes:
        examples: The examples to mix in.
        shares: Their share; see :data:`Shares`.
    """

    examples: Examples
    shares: Shares

    def share(self, progress: float) -> float:
        """The share at a point between 0, the first epoch, and 1, the last one."""
        first, last = self.shares if isinstance(self.shares, tuple) else (self.shares, self.shares)
        return first + (last - first) * progress


class Mixture:
    """The examples of a stage with other examples mixed in.

    Args:
        main: The examples of the stage; they get the share that the parts leave.
        parts: The examples to mix in.
        epochs: Number of epochs over which shares change from first to last; later epochs keep the last.
        size: Examples an epoch; None: as many as ``main`` has.
        seed: Seed of the orders.

    Raises:
        ConfigError: A share is out of range, shares sum to more than 1, a part is empty, or a count is not
            positive.
    """

    def __init__(
        self,
        main: Examples,
        parts: Sequence[MixturePart],
        epochs: int = 1,
        size: int | None = None,
        seed: int = 0,
    ):
        self.size = len(main) if size is None else size
        at_least(1, "data.mix.", size=self.size, epochs=epochs)
        for progress in (0, 1):
            shares = [part.share(progress) for part in parts]
            if min(shares, default=0) < 0 or sum(shares) > 1 + 1e-9:
                raise ConfigError(f"expected shares of a mix from 0 to 1, together at most 1, got {shares}.")
        self.parts = [*parts]
        self.members: list[Examples] = [main, *(part.examples for part in parts)]
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
        sums = np.cumsum([0, *(part.share(progress) for part in self.parts)])
        ends = np.minimum(np.round(sums * self.size), self.size).astype(int)
        return [self.size - int(ends[-1]), *np.diff(ends).tolist()]

    def draw(self, number: int, epoch: int) -> Example:  # noqa: D102
        ends = np.cumsum(self.counts(epoch))
        member = int(np.searchsorted(ends, number, side="right"))
        position = number - (int(ends[member - 1]) if member else 0) + int(self._start(epoch)[member])
        turn, row = divmod(position, len(self.members[member]))
        return self.members[member].draw(int(self._order(member, turn)[row]), turn)

    def lengths(self) -> Sequence[int]:  # noqa: D102
        return self.lengths_in(0)

    def lengths_in(self, epoch: int) -> Sequence[int]:
        """The lengths of the examples in an epoch."""
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
        """The order of a stream's examples in its turn number ``turn``."""
        if (member, turn) not in self._orders:
            if len(self._orders) >= 8 * len(self.members):
                self._orders.clear()
            rng = np.random.default_rng([self.seed, member, turn])
            self._orders[member, turn] = rng.permutation(len(self.members[member]))
        return self._orders[member, turn]


def mixed(
    main: Examples,
    mix: Mix,
    pseudo: Callable[[list[Query]], Examples],
    memorise: Callable[[PassageInput], Examples],
    epochs: int | None,
    seed: int = 0,
) -> Examples:
    """Apply the ``mix`` option to the examples of a stage; returns ``main`` where nothing is mixed in.

    Args:
        main: The examples of the stage.
        mix: The option.
        pseudo: Makes examples from pseudo-queries.
        memorise: Makes examples of passages to memorise.
        epochs: Epochs of the run (:func:`planned_epochs`); None: unknown.
        seed: Seed of the orders.

    Raises:
        ConfigError: A share is out of range, or shares change and the number of epochs is unknown.
        DataError: The pseudo-queries cannot be used.
    """
    parts = []
    if mix.pseudo is not None:
        queries = read_queries(mix.pseudo)
        without = next((query.id for query in queries if not query.evidence), None)
        if without is not None:
            raise DataError(f"the pseudo-query {without!r} has no evidence to learn.", mix.pseudo)
        parts.append(MixturePart(pseudo(queries), mix.pseudo_share))
    if mix.memorise is not None:
        parts.append(MixturePart(memorise(mix.memorise), mix.memorise_share))
    if not parts:
        return main
    epochs = mix.epochs or epochs
    if epochs is None and any(part.share(0) != part.share(1) for part in parts):
        raise ConfigError(
            f"shares that change need the number of epochs: set {Option('data.mix.epochs')}, "
            f"{Option('trainer.max_epochs')} or {Option('trainer.max_steps')}."
        )
    return Mixture(main, parts, epochs or 1, mix.size, seed)


def planned_epochs(trainer: Any, examples: int, batch_size: int) -> int | None:
    """Number of epochs of a trainer; None where nothing limits it.

    Args:
        trainer: The trainer; ``max_epochs`` and ``max_steps`` limit it; None without a trainer.
        examples: Examples an epoch.
        batch_size: Examples of a batch of all processes together.
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
