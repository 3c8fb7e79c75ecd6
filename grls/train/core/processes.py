"""Means over the examples of all processes of a training, so that their number changes no loss.

Legend: W processes; c_r examples (tokens, hops) of process r; C the sum of all c_r; m_r the mean of process
r.

DDP and FSDP average gradients over processes. The average of the means m_r is the mean over all examples only
where all processes have as many, which holds neither for tokens nor for the last batch of an epoch. So each
process weighs its mean by W c_r / C; the average of these is the mean over all C.

The module uses the process group of torch, whoever has made it.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed


def processes() -> int:
    """The number of processes W; 1 outside of a process group."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


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
