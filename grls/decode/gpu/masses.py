"""Priors for the search on the device: the masses of all nodes of the index, looked up by tensors only.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, I priors, R rows of the
index.

What masses are: :mod:`grls.decode.prior`, which computes those of the rows, too. Here a prefix is a node, so
the masses of all nodes are summed up once a query (:meth:`grls.index.tensors.TensorIndex.under`), and a step
only looks them up.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from grls.decode.prior import Masses, Prior
from grls.decode.scope import Mask, Scope
from grls.index.array import ArrayIndex
from grls.index.rows import Ints
from grls.index.tensors import TensorIndex
from grls.models.base import Floats

NOTHING = -torch.inf
"""The score where there is no beam or result."""


class NodeMasses(Masses):
    """The masses of the queries in flight, as a table on the device: by prior, slot and node of the index.

    ``old``: masses of the same kind, whose tensors are used again.

    Memory: 8 bytes times nodes (at most 2 R) per slot and prior; twice that if a weight is negative.
    """

    def __init__(
        self,
        prior: Prior,
        index: ArrayIndex,
        scope: Scope,
        slots: int,
        tensors: TensorIndex,
        old: NodeMasses | None = None,
    ):
        super().__init__(prior, index, scope, slots)
        self._tensors, self._array = tensors, index
        weights = torch.tensor([part.weight for part in self._parts], dtype=torch.float64)
        shape = len(weights), slots, tensors.places
        falls = any(part.weight < 0 for part in self._parts)
        if old is None or old.logs.shape != shape or (old.bottom is not None) != falls:
            old = None
        self.weights: Tensor = weights.to(tensors.device)[:, None, None] if old is None else old.weights
        self.weights.copy_(weights[:, None, None])
        self.logs: Tensor = self.weights.new_zeros(shape) if old is None else old.logs
        """``[I, S, nodes]`` log-masses in each of I priors."""
        self.bottom: Tensor | None = old.bottom if old is not None else self.logs.clone() if falls else None
        """The log-mass of the least likely row under each node."""
        first = index.nodes(index.allowed(np.array([index.start()])).states)
        self._first = tensors.place(torch.from_numpy(first).to(tensors.device))

    def _put(
        self, part: int, slots: Ints, masses: list[Floats], scoped: list[tuple[Ints | None, Mask]]
    ) -> None:
        rows = np.zeros((len(slots), len(self._array.rows)))
        for row, mass, (held, _) in zip(rows, masses, scoped, strict=True):
            row[slice(None) if held is None else held] = mass
        into, leaves = (torch.from_numpy(some).to(self.logs.device) for some in (slots, rows))
        self.logs[part, into] = self._tensors.under(leaves).log()
        if self.bottom is not None:
            leaves = leaves.masked_fill(leaves == 0, torch.inf)
            self.bottom[part, into] = self._tensors.under(leaves, least=True).log()

    def with_masses(self, steps: Tensor, nodes: Tensor, beams: Tensor, valid: Tensor, count: int) -> Tensor:
        """``[S, C]`` the scores of candidates including those of priors, as :meth:`Masses.with_priors`."""
        places = self._tensors.place(nodes).expand(len(self.logs), -1, -1)
        logs = self.logs.gather(2, places).masked_fill(~valid, NOTHING)
        of_all = log_sums(logs, beams.expand_as(logs), count).gather(2, beams.expand_as(logs))
        scores = steps + (self.weights * (logs - of_all)).sum(0)
        if not self.normalized:
            return scores
        scores = scores.masked_fill(~valid, NOTHING)
        return scores - log_sums(scores, beams, count).gather(1, beams)

    def rises(self, nodes: Tensor) -> Tensor | float:
        """``[S, K]`` the most by which the score of each beam can rise, as :meth:`Masses.rise`."""
        if self.bottom is None or self.normalized:
            return 0.0
        places = self._tensors.place(nodes).expand(len(self.logs), -1, -1)
        spans = self.logs.gather(2, places) - self.bottom.gather(2, places)
        return (-self.weights.clamp(max=0.0) * spans).sum(0)

    def table(self, slots: Ints, low: Ints, high: Ints) -> Tensor:  # type: ignore[override]  # noqa: D102
        logs = self.logs[:, slots]
        shares = logs[..., self._first] - logs[..., :1]
        return (self.weights * shares).masked_fill(shares == NOTHING, 0.0).sum(0)

    def added(self, slots: Ints, states: Ints) -> Floats:  # noqa: D102
        if self.normalized:
            return np.zeros(len(states))
        return self._weighted(self.weights, self._at(self.logs, slots, states) - self.logs[:, slots, 0])

    def rise(self, slots: Ints, states: Ints) -> Floats:  # noqa: D102
        if self.bottom is None or self.normalized:
            return np.zeros(len(states))
        spans = self._at(self.logs, slots, states) - self._at(self.bottom, slots, states)
        return self._weighted(-self.weights.clamp(max=0.0), spans)

    def _at(self, table: Tensor, slots: Ints, states: Ints) -> Tensor:
        """``[I, n]`` the values of a table for states of the queries in slots."""
        nodes = torch.from_numpy(self._array.nodes(states)).to(table.device)
        return table[:, torch.from_numpy(slots).to(table.device), self._tensors.place(nodes)]

    @staticmethod
    def _weighted(weights: Tensor, values: Tensor) -> Floats:
        sums: Floats = (weights[..., 0] * values).sum(0).cpu().numpy()
        return sums


def log_sums(values: Tensor, beams: Tensor, count: int) -> Tensor:
    """``[..., K]`` the log of the sum of exponentials of each beam's candidates, from ``[..., C]``."""
    nothing = values.new_full((*values.shape[:-1], count), NOTHING)
    top = nothing.scatter_reduce(-1, beams, values, "amax")
    top = top.masked_fill(top == NOTHING, 0.0)  # for a beam without a candidate
    shares = (values - top.gather(-1, beams)).exp()
    return top + torch.zeros_like(top).scatter_add(-1, beams, shares).log()
