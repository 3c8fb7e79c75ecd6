"""Batches of a reranker's examples, shuffled anew each epoch, and the share of a process in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from grls.answer.ralm.reranker import RerankExample
from grls.train.core.batching import copies_of_examples
from grls.train.core.processes import processes
from grls.train.reranker.examples import RerankHops


def rerank_loader(examples: Sequence[RerankExample], size: int, seed: int | None) -> DataLoader[Any]:
    """Batches of examples, shuffled if there is a seed; ``size`` counts those of all processes together."""
    anew = isinstance(examples, RerankHops)
    order = range(len(examples)) if seed is None else _Shuffled(len(examples), seed, anew)
    batches = _Shares(order, size, drop_last=False)
    return DataLoader(examples, batch_sampler=batches, collate_fn=list)  # type: ignore[arg-type]


class _Shares(torch.utils.data.BatchSampler):
    """The share of this process in each batch; the whole batch where it is too small for all processes."""

    def copies(self, batch: int) -> int:
        """How often each example of a batch is there."""
        return copies_of_examples(len(self.sampler), self.batch_size, batch, processes())  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[int]]:
        rank, ranks = torch.distributed.get_rank() if processes() > 1 else 0, processes()
        for batch in super().__iter__():
            yield batch[rank::ranks] if rank < len(batch) else batch


class _Shuffled(torch.utils.data.Sampler[int]):
    """A new order each epoch, a function of seed and epoch alone.

    Args:
        count: Number of examples.
        seed: The seed.
        anew: Example n is another one in each epoch e, with the number n + e * ``count``.
    """

    def __init__(self, count: int, seed: int, anew: bool = False):
        self._count, self._seed, self._epoch, self._anew = count, seed, 0, anew

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that follows; Lightning calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(hash((self._seed, self._epoch)) % 2**63)
        first = self._epoch * self._count if self._anew else 0
        return iter((torch.randperm(self._count, generator=generator) + first).tolist())
