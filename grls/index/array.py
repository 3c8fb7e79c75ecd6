"""The default index: a Patricia trie over the sorted rows, in flat NumPy arrays.

Only the nodes where rows part are stored, in breadth-first order, so the edges of a node are
contiguous; between two such nodes the next token is read from the rows themselves. Legend: R rows, M
branching nodes, E edges (E = M + R - 1), S states, A allowed tokens.

A state packs (node, depth): the node in the upper 48 bits, the tokens written so far in the lower 16. A
node >= 0 is a branching node, a node < 0 the leaf of row ``~node``. The node of a state is the first one
at or below its prefix, so a prefix within an edge belongs to the node at the edge's lower end.

The naive form of every method here is :class:`grls.index.flat.FlatIndex`.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows

_DEPTH_BITS = 16
_DEPTH_MASK = (1 << _DEPTH_BITS) - 1


class ArrayIndex(Segment):
    """Branching nodes in breadth-first order.

    Args:
        rows: The sorted sequences of the corpus.
        depths: ``[M]`` tokens before the branch.
        spans: ``[M, 2]`` first row and end row of each node.
        first_edges: ``[M + 1]`` first edge of each node.
        edge_tokens: ``[E]`` the token of each edge.
        edge_nodes: ``[E]`` the node each edge leads to (leaf of row r: ``~r``).
    """

    backend = "array"

    def __init__(
        self,
        rows: Rows,
        depths: Array,
        spans: Array,
        first_edges: Array,
        edge_tokens: Array,
        edge_nodes: Array,
    ):
        super().__init__(rows)
        self._depths = depths
        self._spans = spans
        self._first_edges = first_edges
        self._edge_tokens = edge_tokens
        self._edge_nodes = edge_nodes

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:  # noqa: D102
        low, high = np.array([0]), np.array([len(rows)])
        levels: list[tuple[Array, ...]] = []
        nodes = 1
        while len(low):
            depth, child_low, child_high, fanout = _branch(low, high, shared)
            inner = child_high - child_low > 1
            child = np.where(inner, nodes + np.cumsum(inner) - 1, ~child_low)
            position = rows.offsets[child_low].astype(np.int64) + np.repeat(depth, fanout)
            levels.append((depth, low, high, fanout, rows.tokens[position], child))
            nodes += int(inner.sum())
            low, high = child_low[inner], child_high[inner]
        depths, lows, highs, fanouts, tokens, children = (
            np.concatenate(part) for part in zip(*levels, strict=True)
        )
        wide = np.int32 if max(len(rows), nodes) < 2**31 else np.int64
        return cls(
            rows,
            depths=depths.astype(np.uint16),
            spans=np.stack((lows, highs), axis=1).astype(rows.members.dtype),
            first_edges=np.concatenate(([0], np.cumsum(fanouts))).astype(wide),
            edge_tokens=tokens,
            edge_nodes=children.astype(wide),
        )

    def start(self) -> int:  # noqa: D102
        return 0

    def allowed(self, states: Ints) -> Allowed:  # noqa: D102
        node, depth = states >> _DEPTH_BITS, states & _DEPTH_MASK
        leaf = node < 0
        inner = np.where(leaf, 0, node)
        branching = ~leaf & (self._depths[inner] == depth)
        position = self._position(node, inner, leaf, depth)
        ended = leaf & (position >= self.rows.offsets[np.where(leaf, ~node, 0) + leaf])
        first = self._first_edges[inner].astype(np.int64)
        fanout = np.where(branching, self._first_edges[inner + 1] - first, 1)
        fanout[ended] = 0
        offsets = np.zeros(len(states) + 1, dtype=np.int64)
        np.cumsum(fanout, out=offsets[1:])
        tokens = np.empty(offsets[-1], dtype=np.int64)
        children = np.empty(offsets[-1], dtype=np.int64)
        forced = ~branching & ~ended
        at = offsets[:-1][forced]
        tokens[at] = self.rows.tokens[position[forced]]
        children[at] = states[forced] + 1
        self._fill_branches(branching, first, fanout, depth, offsets, tokens, children)
        return Allowed(tokens, children, offsets)

    def _position(self, node: Ints, inner: Ints, leaf: Array, depth: Ints) -> Ints:
        """Where in the row tokens the next token of each state stands, were it forced."""
        row = np.where(leaf, ~node, self._spans[inner, 0])
        return self.rows.offsets[row].astype(np.int64) + depth

    def _fill_branches(
        self,
        branching: Array,
        first: Ints,
        fanout: Ints,
        depth: Ints,
        offsets: Ints,
        tokens: Ints,
        children: Ints,
    ) -> None:
        """Write the edges of the branching states into ``tokens`` and ``children``."""
        size = fanout[branching]
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        edge = np.repeat(first[branching], size) + within
        slot = np.repeat(offsets[:-1][branching], size) + within
        tokens[slot] = self._edge_tokens[edge]
        below = self._edge_nodes[edge].astype(np.int64) << _DEPTH_BITS
        children[slot] = below | np.repeat(depth[branching] + 1, size)

    def span(self, states: Ints) -> tuple[Ints, Ints]:  # noqa: D102
        node = states >> _DEPTH_BITS
        leaf = node < 0
        spans = self._spans[np.where(leaf, 0, node)].astype(np.int64)
        return np.where(leaf, ~node, spans[:, 0]), np.where(leaf, -node, spans[:, 1])

    def arrays(self) -> dict[str, Array]:  # noqa: D102
        return {
            "depths": self._depths,
            "spans": self._spans,
            "first_edges": self._first_edges,
            "edge_tokens": self._edge_tokens,
            "edge_nodes": self._edge_nodes,
        }

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:  # noqa: D102
        return cls(rows, **arrays)


def _branch(low: Ints, high: Ints, shared: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Split every row range ``low[i]:high[i]`` where its rows part first.

    Returns:
        The depth of each branch, the ranges of all children (first row, end row), and the number of
        children of each branch. The root of an empty corpus has none, that of one row has one.
    """
    size = high - low
    if size.sum() == 0:
        nothing = np.empty(0, dtype=np.int64)
        return np.zeros(len(low), np.int64), nothing, nothing, np.zeros(len(low), np.int64)
    starts = np.cumsum(size) - size
    row = np.arange(int(size.sum())) + np.repeat(low - starts, size)
    common = shared[row]
    common[starts] = np.iinfo(np.int64).max  # a range's first row shares with a row outside of it
    depth = np.minimum.reduceat(common, starts)
    depth[size == 1] = 0
    opens = common == np.repeat(depth, size)
    opens[starts] = True
    child_low = row[opens]
    fanout = np.add.reduceat(opens.astype(np.int64), starts)
    child_high = np.append(child_low[1:], 0)
    child_high[np.cumsum(fanout) - 1] = high
    return depth, child_low, child_high, fanout
