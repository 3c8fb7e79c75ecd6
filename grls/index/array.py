"""The default index: a Patricia trie over the sorted rows, in flat NumPy arrays.

Only branching nodes are stored, in breadth-first order, so the edges of a node are contiguous. Between two
such nodes the next token is read from the rows. Legend: R rows, M branching nodes, E edges (E = M + R - 1), S
states, A allowed tokens.

A state packs (node, depth): the node in the upper 48 bits, the tokens written so far in the lower 16. A
node >= 0 is a branching node, a node < 0 the leaf of row ``~node``. The node of a state is the first node
at or below its prefix, so a prefix within an edge belongs to the node at the edge's lower end.

The naive form of every method here is :class:`grls.index.backends.FlatIndex`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from grls.index.base import Allowed, Segment
from grls.index.rows import Array, Ints, Rows, unsigned

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
    has_tensors = True
    stored = ("depths", "spans", "first_edges", "edge_tokens", "edge_nodes")

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
        self.files: tempfile.TemporaryDirectory[str] | None = None
        """The folder of the memory-mapped arrays, if it is deleted together with the index."""
        self._depths = depths
        self._spans = spans
        self._first_edges = first_edges
        self._edge_tokens = edge_tokens
        self._edge_nodes = edge_nodes

    @classmethod
    def build(cls, rows: Rows, shared: Ints) -> Self:
        parts = list(node_arrays(len(rows), shared, partial(first_tokens, rows)))
        kinds = node_types(len(rows), rows.members.dtype, rows.tokens.dtype)
        first = {"first_edges": [np.zeros(1, dtype=np.int64)]}
        return cls(
            rows,
            **{
                name: np.concatenate([*first.get(name, []), *(part[name] for part in parts)]).astype(kind)
                for name, kind in kinds.items()
            },
        )

    def start(self) -> int:
        return 0

    def allowed(self, states: Ints) -> Allowed:
        node, depth = states >> _DEPTH_BITS, states & _DEPTH_MASK
        leaf = node < 0
        inner = np.where(leaf, 0, node)
        branching = ~leaf & (self._depths[inner] == depth)
        # The position of the next token of each state in the tokens of the rows, if it is forced.
        row = np.where(leaf, ~node, self._spans[inner, 0].astype(np.int64))
        position = np.asarray(self.rows.offsets[row] + depth, dtype=np.int64)
        ended = leaf & (position >= self.rows.offsets[np.where(leaf, ~node, 0) + leaf])
        if self.rows.form == "prefixes" and (self.rows.tokens[position[ended] - 1] != self.rows.end).any():
            self.rows.refuse_prefixes("decoding beyond the unique prefix")
        first = self._first_edges[inner].astype(np.int64)
        fanout = np.where(branching, self._first_edges[inner + 1].astype(np.int64) - first, 1)
        fanout[ended] = 0
        offsets = np.zeros(len(states) + 1, dtype=np.int64)
        np.cumsum(fanout, out=offsets[1:])
        tokens = np.empty(offsets[-1], dtype=np.int64)
        children = np.empty(offsets[-1], dtype=np.int64)
        forced = ~branching & ~ended
        at = offsets[:-1][forced]
        tokens[at] = self.rows.tokens[position[forced]]
        children[at] = states[forced] + 1
        size = fanout[branching]
        within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
        edge = np.repeat(first[branching], size) + within
        slot = np.repeat(offsets[:-1][branching], size) + within
        tokens[slot] = self._edge_tokens[edge]
        below = self._edge_nodes[edge].astype(np.int64) << _DEPTH_BITS
        children[slot] = below | np.repeat(depth[branching] + 1, size)
        return Allowed(tokens, children, offsets)

    def span(self, states: Ints) -> tuple[Ints, Ints]:
        node = states >> _DEPTH_BITS
        leaf = node < 0
        spans = self._spans[np.where(leaf, 0, node)].astype(np.int64)
        return np.where(leaf, ~node, spans[:, 0]), np.where(leaf, -node, spans[:, 1])

    @staticmethod
    def nodes(states: Ints) -> Ints:
        """The node of each state, ``[S]``; :meth:`span` needs nothing else."""
        return states >> _DEPTH_BITS

    @staticmethod
    def states(nodes: Ints, written: int) -> Ints:
        return (nodes << _DEPTH_BITS) | written

    def arrays(self) -> dict[str, Array]:
        return {name: getattr(self, f"_{name}") for name in self.stored}

    @classmethod
    def restore(cls, rows: Rows, arrays: dict[str, Array]) -> Self:
        return cls(rows, **arrays)


class BranchingNodes(NamedTuple):
    """Consecutive branching nodes, in breadth-first order, and their children.

    Attributes:
        depths: ``[m]`` tokens before each branch.
        lows: ``[m]`` first row of each node; ``highs`` the end row, ``fanouts`` the number of children.
        child_lows: ``[e]`` first row of each child; the children of a node are adjacent.
        inner: ``[e]`` whether each child branches itself.
    """

    depths: Ints
    lows: Ints
    highs: Ints
    fanouts: Ints
    child_lows: Ints
    inner: Array


def node_arrays(
    rows: int, shared: Array, tokens_of: Callable[[BranchingNodes], Array]
) -> Iterator[dict[str, Array]]:
    """The arrays of an :class:`ArrayIndex` of R sorted rows, in parts; ``first_edges`` without its first 0.

    ``shared [R]``: see :func:`branches`. ``tokens_of`` returns the token of each edge, ``[e]``.
    """
    nodes, edges = 1, 0
    for part in branches(rows, shared):
        yield {
            "depths": part.depths,
            "spans": np.stack((part.lows, part.highs), axis=1),
            "first_edges": edges + np.cumsum(part.fanouts),
            "edge_tokens": tokens_of(part),
            "edge_nodes": np.where(part.inner, nodes + np.cumsum(part.inner) - 1, ~part.child_lows),
        }
        nodes += int(part.inner.sum())
        edges += int(part.fanouts.sum())


def first_tokens(rows: Rows, part: BranchingNodes) -> Array:
    tokens: Array = rows.tokens[rows.offsets[part.child_lows] + np.repeat(part.depths, part.fanouts)]
    return tokens


def node_types(rows: int, members: Any, tokens: Any) -> dict[str, Any]:
    """The types of the arrays: at most R nodes and two edges a row."""
    kinds: list[type[np.signedinteger[Any]]] = [np.int16, np.int32, np.int64]
    signed = next(kind for kind in kinds if rows <= np.iinfo(kind).max)
    edges = unsigned(2 * rows)
    names = ArrayIndex.stored
    return dict(zip(names, (np.uint16, members, edges, tokens, signed), strict=True))


_BLOCK = 1 << 20


def branches(rows: int, shared: Array) -> Iterator[BranchingNodes]:
    """All branching nodes of R sorted rows in breadth-first order, in parts of a block of rows.

    ``shared [R]``: the length of the prefix that each row shares with the row before it. Memory: about 100
    bytes for each row of a block, one byte a row while a node covers more than a block, and the nodes of two
    levels (16 bytes a node).
    """
    kind = unsigned(rows, np.uint32)
    low: Array = np.array([0], dtype=kind)
    high: Array = np.array([rows], dtype=kind)
    while len(low):
        below: list[tuple[Array, Array]] = []
        ends = np.cumsum(high - low, dtype=np.int64)
        first = 0
        while first < len(low):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
            lows, highs = low[first:last].astype(np.int64), high[first:last].astype(np.int64)
            if int(ends[last - 1]) - before > _BLOCK:
                # One range of many rows: as _branch, with little memory.
                inside = shared[int(lows[0]) + 1 : int(highs[0])]
                depth = int(inside.min())
                opens = np.flatnonzero(inside == depth) + int(lows[0]) + 1
                child_lows, child_highs = np.concatenate((lows, opens)), np.concatenate((opens, highs))
                depths, fanouts = np.array([depth]), np.array([len(child_lows)])
            else:
                depths, child_lows, child_highs, fanouts = _branch(lows, highs, shared)
            inner = child_highs - child_lows > 1
            yield BranchingNodes(depths, lows, highs, fanouts, child_lows, inner)
            below.append((child_lows[inner].astype(kind), child_highs[inner].astype(kind)))
            first = last
        low, high = (np.concatenate(bounds) for bounds in zip(*below, strict=True))


def _branch(low: Ints, high: Ints, shared: Array) -> tuple[Ints, Ints, Ints, Ints]:
    """Split every row range ``low[i]:high[i]`` at the first token in which its rows differ.

    Returns the depth of each branch, the ranges of all children, and the number of children of each
    branch. The root of an empty corpus has no child, that of a single row one.
    """
    size = high - low
    if size.sum() == 0:
        nothing = np.empty(0, dtype=np.int64)
        return np.zeros(len(low), np.int64), nothing, nothing, np.zeros(len(low), np.int64)
    starts = np.cumsum(size) - size
    row = np.arange(int(size.sum())) + np.repeat(low - starts, size)
    common = shared[row].astype(np.int64)
    common[starts] = np.iinfo(np.int64).max  # the row before the first row is outside of the range
    depth = np.minimum.reduceat(common, starts)
    depth[size == 1] = 0
    opens = common == np.repeat(depth, size)
    opens[starts] = True
    child_low = row[opens]
    fanout = np.add.reduceat(opens.astype(np.int64), starts)
    child_high = np.append(child_low[1:], 0)
    child_high[np.cumsum(fanout) - 1] = high
    return depth, child_low, child_high, fanout
