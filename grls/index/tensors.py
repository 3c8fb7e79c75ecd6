"""The default index as tensors: the tokens that may follow a prefix, computed on the device of the model.

Legend: S slots, K beams a slot, C candidates of a slot at most, M branching nodes, E edges, R rows.

Arrays and nodes are those of :class:`grls.index.array.ArrayIndex`. All beams of a slot have as many
tokens, so a state is just a node. Only the device knows how many candidates a slot has. The host does not
wait for this number: it allocates the maximum for K different prefixes of this length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.index.array import ArrayIndex
from grls.index.rows import MAX_LENGTH, Array, Ints


class Children(NamedTuple):
    """The candidates that may follow the beams of S slots, ``[S, C]`` each.

    Attributes:
        beams: The beam that a candidate continues; ascending within a slot.
        tokens: The token of the candidate.
        valid: False where there is no candidate.
        splits: Whether the prefix branches, so that its edge leads to the next node; None: none does.
        edges: That edge.
    """

    beams: Tensor
    tokens: Tensor
    valid: Tensor
    splits: Tensor | None = None
    edges: Tensor | None = None

    def at(self, columns: Tensor) -> Children:
        """The candidates of some columns, ``[S, n]``."""
        beams, tokens, valid = (part.gather(1, columns) for part in self[:3])
        if self.splits is None or self.edges is None:
            return Children(beams, tokens, valid)
        return Children(beams, tokens, valid, self.splits.gather(1, columns), self.edges.gather(1, columns))


class _Column:
    """Integers on a device, stored in as few bytes as on the host, read as 64-bit integers."""

    def __init__(self, array: Array, device: torch.device):
        size = array.dtype.itemsize
        signed = array.dtype.kind != "u" or size == 8 or not (array >> (8 * size - 1)).any()
        self._mask = None if signed else (1 << 8 * size) - 1
        self._values = torch.from_numpy(np.array(array).view(f"i{size}")).to(device)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def bytes(self) -> int:
        return self._values.nbytes

    def __getitem__(self, positions: Tensor | slice) -> Tensor:
        part = self._values[positions] if isinstance(positions, slice) else self._values.take(positions)
        values = part.long()
        return values if self._mask is None else values & self._mask


class TensorIndex:
    def __init__(self, index: ArrayIndex, device: torch.device):
        self.device = device
        arrays = index.arrays()
        self._host = arrays["depths"], arrays["first_edges"]
        self._depths = _Column(arrays["depths"], device)
        self._low = _Column(arrays["spans"][:, 0], device)
        self._high = _Column(arrays["spans"][:, 1], device)
        self._first_edges = _Column(arrays["first_edges"], device)
        self._edge_tokens = _Column(arrays["edge_tokens"], device)
        self._edge_nodes = _Column(arrays["edge_nodes"], device)
        self._tokens = _Column(index.rows.tokens, device)
        offsets = index.rows.offsets
        self._blocks = _Column(offsets.blocks, device)
        self._within = _Column(offsets.within, device) if len(offsets.within) else None
        self._shift = offsets.shift
        self._rows = len(index.rows)
        self.shortest = int(index.rows.lengths().min(initial=MAX_LENGTH))
        """The tokens of the shortest row."""
        self._length = self.shortest if self.shortest == index.rows.longest else None
        self._by_level: list[tuple[slice, slice]] | None = None
        self._most: dict[int, Ints] = {}

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in vars(self).values() if isinstance(part, _Column))

    def most(self, beams: int, written: int) -> int:
        """The most candidates that K different prefixes of ``written`` tokens can have."""
        if beams not in self._most:
            self._most[beams] = _widest(*self._host, beams)
        widest = self._most[beams]
        return int(widest[written]) if written < len(widest) else beams

    def children(self, nodes: Tensor, written: Tensor, alive: Tensor, width: int) -> Children:
        """The candidates that may follow each beam, of nodes ``[S, K]`` and ``written [S]`` tokens.

        ``alive [S, K]`` is false for beams without a candidate. ``width`` is C, at least :meth:`most`.
        """
        slots, count = nodes.shape
        inner = nodes.clamp(min=0)
        # The token after those written of the first row of a node (any token if the row ends there).
        rows = torch.where(nodes < 0, ~nodes, self._low[inner])
        if self._length is not None:
            begins = rows * self._length
        else:
            begins = self._blocks[rows if self._within is None else rows >> self._shift]
            if self._within is not None:
                begins = begins + self._within[rows]
        forced = self._tokens[(begins + written[:, None]).clamp(max=len(self._tokens) - 1)]
        columns = torch.arange(width, device=nodes.device)
        if width == count:  # no prefix of these lengths branches
            return Children(columns.expand(slots, -1), forced, alive)
        branching = alive & (self._depths[inner] == written[:, None])  # leaves are deeper than the root
        first = self._first_edges[inner]
        fanout = torch.where(branching, self._first_edges[inner + 1] - first, alive.long())
        ends = fanout.cumsum(1)
        # Column c belongs to the beam before which as many end at or before c.
        closed = nodes.new_zeros((slots, width + 1)).scatter_add_(1, ends, torch.ones_like(ends))
        beams = closed[:, :-1].cumsum(1).clamp(max=count - 1)
        edges = ((first - ends + fanout).gather(1, beams) + columns).clamp(max=len(self._edge_nodes) - 1)
        splits = branching.gather(1, beams)
        tokens = torch.where(splits, self._edge_tokens[edges], forced.gather(1, beams))
        return Children(beams, tokens, columns < ends[:, -1:], splits, edges)

    def after(self, nodes: Tensor, children: Children) -> Tensor:
        """The node after each candidate."""
        below = nodes.gather(1, children.beams)
        if children.splits is None or children.edges is None:
            return below
        return torch.where(children.splits, self._edge_nodes[children.edges], below)

    def span(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """First row and end row of each node."""
        leaf = nodes < 0
        inner = nodes.clamp(min=0)
        return (
            torch.where(leaf, ~nodes, self._low[inner]),
            torch.where(leaf, -nodes, self._high[inner]),
        )

    @property
    def places(self) -> int:
        return len(self._depths) + self._rows

    def place(self, nodes: Tensor) -> Tensor:
        """The place of each node in a table of all: branching nodes first, then the leaves."""
        return torch.where(nodes < 0, len(self._depths) + ~nodes, nodes)

    def under(self, rows: Tensor) -> Tensor:
        """The sum of the values of rows under each node, from ``[n, R]`` to ``[n, M + R]``.

        Sums of positive numbers over children lose no digits, as differences of cumulative sums would.
        """
        table = rows.new_zeros((len(rows), self.places))
        table[:, len(self._depths) :] = rows
        for nodes, edges in reversed(self._levels()):
            first = self._first_edges[slice(nodes.start, nodes.stop + 1)]
            numbers = torch.arange(nodes.start, nodes.stop, device=rows.device)
            owners = numbers.repeat_interleave(first.diff(), output_size=edges.stop - edges.start)
            values = table[:, self.place(self._edge_nodes[edges])]
            table.scatter_reduce_(1, owners.expand_as(values), values, "sum")
        return table

    def _levels(self) -> list[tuple[slice, slice]]:
        """The branching nodes of each distance from the root, with their edges."""
        if self._by_level is None:
            self._by_level, start, stop = [], 0, min(1, len(self._depths))
            while start < stop:
                edges = slice(*(int(n) for n in self._host[1][[start, stop]]))
                self._by_level.append((slice(start, stop), edges))
                start, stop = stop, stop + int((self._edge_nodes[edges] >= 0).sum())
        return self._by_level


def _widest(depths: Array, first_edges: Array, beams: int) -> Ints:
    """The most candidates of ``beams`` different prefixes of each length, ``[deepest + 1]``.

    A prefix at a branching node has a candidate for each edge, any other prefix one.
    """
    depth = depths.astype(np.int64)
    extra = np.diff(first_edges.astype(np.int64)) - 1
    order = np.lexsort((-extra, depth))
    depth, extra = depth[order], extra[order]
    among = np.arange(len(depth)) - np.searchsorted(depth, depth) < beams
    sums = np.bincount(depth[among], weights=np.maximum(extra[among], 0))
    return beams + sums.astype(np.int64)
