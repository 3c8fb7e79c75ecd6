"""Batches of a reranker's examples, shuffled anew each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from grls.answer.ralm.reranker import RerankExample


def rerank_loader(examples: Sequence[RerankExample], size: int, seed: int | None) -> DataLoader[Any]:
    """Batches of examples, shuffled if there is a seed."""
    sampler = None if seed is None else _Shuffled(len(examples), seed)
    return DataLoader(list(examples), size, sampler=sampler, collate_fn=list)  # type: ignore[arg-type]


class _Shuffled(torch.utils.data.Sampler[int]):
    """A new order each epoch, a function of seed and epoch alone."""

    def __init__(self, count: int, seed: int):
        self._count, self._seed, self._epoch = count, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that follows; Lightning calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(hash((self._seed, self._epoch)) % 2**63)
        return iter(torch.randperm(self._count, generator=generator).tolist())
