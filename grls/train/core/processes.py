"""Means over the examples of all processes of a training, so that their number changes no loss.

Legend: W processes; c_r examples (tokens, hops) of process r; C the sum of all c_r; m_r the mean of process
r.

DDP and FSDP average gradients over processes. The average of the means m_r is the mean over all examples only
where all processes have as many, which holds neither for tokens nor for the last batch of an epoch. So each
process weighs its mean by W c_r / C; the average of these is the mean over all C.

The module uses the process group of torch, also one made elsewhere, and before there is one the variables of
torchrun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, distributed

from grls.errors import ConfigError
from grls.io.locks import alone_in

T = TypeVar("T")


class Launched(NamedTuple):
    """The processes that torchrun started.

    Attributes:
        devices: Processes of this machine.
        nodes: Machines.
    """

    devices: int
    nodes: int


def launched() -> Launched | None:
    """The processes that torchrun started; None: it did not start this one."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    return Launched(devices, int(os.environ["WORLD_SIZE"]) // devices)


def is_first() -> bool:
    """Whether this process is the one that writes files and prints."""
    if processes() > 1:
        return distributed.get_rank() == 0
    return launched() is None or int(os.environ["RANK"]) == 0


_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
"""The variables by which torchrun, Lightning and SLURM number the processes of a training."""
_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK")
"""The variables that Lightning sets."""


@contextmanager
def only_training(output: str | Path) -> Iterator[None]:
    """Let one training at a time write a folder; the first of its processes holds it for all.

    Raises:
        WriteError: Another training writes it.
    """
    if any(os.environ.get(name, "0") not in ("", "0") for name in _RANKS):
        yield
        return
    with alone_in(output):
        yield


@contextmanager
def leaving_no_group() -> Iterator[None]:
    """The context of a training by Lightning: its variables of processes, and a group of one, end with it.

    Else the next training of the process, and processes that are started later, would read them: a
    bi-encoder's trainer would make a group of one, and a training on two processes wait for ever.
    """
    before, variables = _has_group(), {name: os.environ.get(name) for name in _VARIABLES}
    try:
        yield
    finally:
        if not before and _has_group() and distributed.get_world_size() == 1:
            distributed.destroy_process_group()
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _has_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def processes() -> int:
    """The number of processes W; 1 outside of a process group."""
    return distributed.get_world_size() if _has_group() else 1


def weighed(mean: Tensor, count: int) -> Tensor:
    """The mean of this process, such that the average over processes is the mean over all examples.

    All processes must call it, in the same order.

    Args:
        mean: The mean m_r over the examples of this process, a scalar.
        count: Their number c_r; 0 where the mean is 0 for want of examples.
    """
    if processes() == 1:
        return mean
    return mean * (processes() * count / max(summed(count, mean.device), 1))


def averaged(value: Tensor) -> Tensor:
    """The average of a scalar over all processes, without a gradient."""
    value = value.detach().clone()
    if processes() > 1:
        distributed.all_reduce(value)
        value /= processes()
    return value


def summed(count: int, device: torch.device) -> int:
    """The sum of a count over all processes."""
    if processes() == 1:
        return count
    total = torch.tensor(count, dtype=torch.int64, device=device)
    distributed.all_reduce(total)
    return int(total)


def by_first(work: Callable[[], T]) -> T:
    """Let the first process do something, while the others wait for its result.

    Raises:
        ConfigError: On the other processes, where the work of the first one failed; there its own error is
            raised.
    """
    if processes() == 1:
        return work()
    outcome: list[Any] = [None, None]
    failure: Exception | None = None
    if is_first():
        try:
            outcome = [work(), None]
        except Exception as error:
            failure, outcome = error, [None, str(error)]
    distributed.broadcast_object_list(outcome)
    if failure is not None:
        raise failure
    if outcome[1] is not None:
        raise ConfigError(outcome[1])
    result: T = outcome[0]
    return result


class GatheredRows(NamedTuple):
    """Rows of all processes.

    Attributes:
        rows: ``[C, …]``, those of the first process first.
        first: The place of this process's first row.
    """

    rows: Tensor
    first: int


def gathered(rows: Tensor) -> GatheredRows:
    """The rows of all processes, with gradients to all of them. Processes may have different numbers of rows.

    Args:
        rows: ``[c_r, …]`` the rows of this process.
    """
    if processes() == 1:
        return GatheredRows(rows, 0)
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(processes())]
    distributed.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = [int(count) for count in counts]
    every: Tensor = _Gather.apply(rows, sizes)
    return GatheredRows(every, sum(sizes[: distributed.get_rank()]))


class _Gather(torch.autograd.Function):
    """Concatenates the rows of all processes; the gradient of a row is the sum of what all processes have."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        distributed.all_reduce(total)
        return total.split(ctx.sizes)[distributed.get_rank()], None


def largest(counts: Sequence[int]) -> list[int]:
    """The largest count at each place over all processes; a process with fewer places has 0 there."""
    if processes() == 1:
        return list(counts)
    every: list[Any] = [None] * processes()
    distributed.all_gather_object(every, list(counts))
    return [max(place) for place in zip_longest(*every, fillvalue=0)]
