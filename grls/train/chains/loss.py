"""Learning to rescore: which passages are read to their end behind a hop, and what it costs to misjudge them.

Legend: n passages read for all rescored hops together, h rescored hops, c the most of one hop.

A hop that is rescored has its right passages, and others that retrievers propose for it: a bi-encoder's or
BM25's best ones that are not known to be right. Among them the loss is listwise, as that of rerankers that
learn from a retriever's mistakes (localized contrastive estimation, Gao et al. 2021, arXiv 2101.08751): with
a(x) the log-odds of :mod:`grls.models.rescore_spec` and G the right ones,

    loss  =  - mean over x in G of log [ exp a(x) / sum over all y of exp a(y) ].

DONE is among them where chains learn to end, right when nothing else is left.
(Who is read is :mod:`grls.train.chains.proposals`' affair.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Read(NamedTuple):
    """A passage that is read to its end.

    Attributes:
        hop: Behind which hop.
        tokens: Its tokens, the end token last.
        right: Whether it is right.
    """

    hop: int
    tokens: tuple[int, ...]
    right: bool


class Rescored(NamedTuple):
    """Passages read, as tensors.

    Attributes:
        places: ``[n]`` where the model's state behind each is found.
        hops: ``[n]`` the rescored hop of each, 0 to h - 1, ascending.
        within: ``[n]`` which passage of that hop it is.
        right: ``[n]`` whether it is right.
        tokens: ``[2]`` those whose logits are compared.
    """

    places: Tensor
    hops: Tensor
    within: Tensor
    right: Tensor
    tokens: Tensor


def as_tensors(read: Sequence[Read], places: Sequence[int], tokens: tuple[int, int]) -> Rescored:
    """What was read as tensors.

    Args:
        read: The passages, those of a hop side by side.
        places: ``[n]`` where the model's state behind each is found.
        tokens: See :func:`grls.models.rescore_spec.readout`.
    """
    owners = np.array([some.hop for some in read], dtype=np.int64)
    _, first, hops = np.unique(owners, return_index=True, return_inverse=True)
    within = np.arange(len(owners)) - first[hops] if len(owners) else owners
    return Rescored(
        torch.tensor(places, dtype=torch.long),
        torch.from_numpy(hops),
        torch.from_numpy(within),
        torch.tensor([some.right for some in read], dtype=torch.bool),
        torch.tensor(tokens),
    )


def rescore_loss(odds: Tensor, rescored: Rescored) -> Tensor:
    """Mean over hops of the listwise loss above, a scalar; 0 where nothing was rescored.

    Args:
        odds: ``[n]`` log-odds.
        rescored: What they are of.
    """
    if not len(odds):
        return odds.sum()
    hops, most = int(rescored.hops[-1]) + 1, int(rescored.within.max()) + 1
    table = odds.new_full((hops, most), float("-inf"))
    table[rescored.hops, rescored.within] = odds
    logs = table.log_softmax(-1)[rescored.hops, rescored.within]
    count = odds.new_zeros(hops).index_add(0, rescored.hops, rescored.right.to(odds.dtype))
    return -(logs * rescored.right / count[rescored.hops]).sum() / hops
