"""Batches of examples: similar lengths together, shards for processes, resuming mid-epoch.

The order of an epoch is a function of (seed, epoch) alone. So a resumed run needs no saved random state: it
skips the batches it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from torch.utils.data import Dataset, Sampler

from grls.train.core.examples import Example, Examples

Draw = tuple[int, int]
"""Example number, epoch."""

_Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Numbers of examples."""


class DrawnExamples(Dataset[Example]):
    """Examples as a torch data set; an item is indexed by (number, epoch).

    Args:
        examples: What to draw from.
    """

    def __init__(self, examples: Examples):
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, draw: Draw) -> Example:
        return self.examples.draw(*draw)


def copies_of_examples(examples: int, batch_size: int, batch: int, ranks: int) -> int:
    """How often each example of a batch in file order is there: once, or by each rank that has no share.

    Args:
        examples: All examples.
        batch_size: Examples of a batch of all ranks together.
        batch: The number of the batch.
        ranks: Number of processes.
    """
    size = min(batch_size, examples - batch * batch_size)
    return max(1, 1 + ranks - size)


class LengthBucketedSampler(Sampler[list[Draw]]):
    """Batches of similar length in random order, sharded over ranks.

    The batches do not depend on the number of ranks: each rank gets a share of each batch. A rank for which a
    last batch is too small takes the whole batch, as all ranks without a share do, so that the mean over the
    examples of all ranks stays the same (all of them are there once, or all of them as often).

    Args:
        lengths: The length of each example.
        batch_size: Examples of a batch, of all ranks together.
        seed: Seed of the order.
        shuffle: Draw a new order each epoch; otherwise every pass is epoch 0, in file order.
        rank: The rank of this process.
        ranks: Number of processes.
        pool: Batches that are sorted by length together; 1 mixes all lengths.
        lengths_in: Gives the lengths in an epoch, where they vary from epoch to epoch.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        ranks: int = 1,
        pool: int = 50,
        lengths_in: Callable[[int], Sequence[int]] | None = None,
    ):
        self.lengths = np.asarray(lengths)
        self.lengths_in = lengths_in
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.rank = rank
        self.ranks = ranks
        self.pool = pool
        self.epoch = 0
        self.skip = 0

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def resume(self, epoch: int, batches: int) -> None:
        """Start the next pass in ``epoch``, after its first ``batches`` batches."""
        self.epoch, self.skip = epoch, batches

    def __iter__(self) -> Iterator[list[Draw]]:
        # The epoch is counted before the loop: Lightning asks for no batch after the last one of an epoch, so
        # code after the loop would never run.
        epoch, skip = self.epoch, self.skip
        self.epoch, self.skip = epoch + self.shuffle, 0
        for batch in self._batches(epoch)[skip:]:
            yield [(int(n), epoch) for n in self._share(batch)]

    def _share(self, batch: _Numbers) -> _Numbers:
        """The examples of this rank."""
        return batch[self.rank :: self.ranks] if self.rank < len(batch) else batch

    def _batches(self, epoch: int) -> list[_Numbers]:
        """The batches of an epoch, each for all ranks together."""
        rng = np.random.default_rng([self.seed, epoch])
        count, step = len(self.lengths), self.batch_size
        order = rng.permutation(count) if self.shuffle else np.arange(count)
        if not self.shuffle:
            return [order[i : i + step] for i in range(0, len(order), step)]
        lengths = self.lengths if self.lengths_in is None else np.asarray(self.lengths_in(epoch))
        batches = []
        for start in range(0, len(order), step * self.pool):
            pool = order[start : start + step * self.pool]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[i : i + step] for i in range(0, len(pool), step)]
        return [batches[i] for i in rng.permutation(len(batches))]
