"""The trees of tokens behind the fast search: the ancestors and the depth of every token.

Legend: S slots (queries in flight), P nodes that fit in each, R branches, T new tokens of all branches.

A slot holds a tree of the tokens fed for one query. A beam is a node and attends to its ancestors. So
choosing beams copies and reorders nothing: a dead beam is a node without children, and two beams share
their common tokens. A branch is a run of new tokens that continues one node, so a stretch without a
decision is fed at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grls.index.rows import Ints

Mask = npt.NDArray[np.bool_]


class Branches(NamedTuple):
    """R runs of tokens; each continues one node.

    Attributes:
        slots: ``[R]`` the slot of each branch, ascending.
        parents: ``[R]`` the node that each branch continues.
        lengths: ``[R]`` tokens of each branch, at least one.
        tokens: ``[T]`` the concatenated branches.
    """

    slots: Ints
    parents: Ints
    lengths: Ints
    tokens: Ints


class Placed(NamedTuple):
    """New tokens in the trees.

    Attributes:
        slots: ``[T]`` the slot of each token, ascending.
        nodes: ``[T]`` the node of each token in the tree of its slot.
        depths: ``[T]`` the number of tokens before each token.
        visible: ``[T, P]`` the nodes that each token attends to: its ancestors and itself.
        last: ``[R]`` the last token of each branch.
    """

    slots: Ints
    nodes: Ints
    depths: Ints
    visible: Mask
    last: Ints

    def by_slot(self, slots: int) -> tuple[Ints, Ints, Ints | None]:
        """The layout of the T tokens by slot, ``[S, m]``, where m is the most tokens of one slot.

        Returns ``[S m]`` the token at each position (token 0 at unused ones), ``[T]`` the position of
        each, and the slots of the layout: None for all, or those with tokens if they are at most a
        quarter (for one long input all slots would attend from as many positions).
        """
        busy, row = np.unique(self.slots, return_inverse=True)
        few = 4 * len(busy) <= slots
        row, rows = (row, len(busy)) if few else (self.slots, slots)
        most = int(np.bincount(row).max())
        positions = row * most + np.arange(len(row)) - np.searchsorted(row, row)
        tokens = np.zeros(rows * most, dtype=np.int64)
        tokens[positions] = np.arange(len(positions))
        return tokens, positions, busy if few else None


class Forest:
    """The trees of S slots: the ancestors and the depth of every token. It doubles when it is full."""

    def __init__(self, slots: int):
        self.capacity = 64  # P
        self.counts = np.zeros(slots, dtype=np.int64)
        self.depths = np.zeros((slots, self.capacity), dtype=np.int64)
        self._ancestors: Mask = np.zeros((slots, self.capacity, self.capacity), dtype=bool)

    def plant(self, slots: Ints, seen: bool = True) -> None:
        """Start new trees in these slots; ``seen``: all other nodes attend to node 0."""
        self.counts[slots] = 1
        self.depths[slots, 0] = 0
        self._ancestors[slots, 0] = False
        self._ancestors[slots, 0, 0] = seen

    def grow(self, branches: Branches) -> Placed:
        total = len(branches.tokens)
        ends = np.cumsum(branches.lengths)
        starts = ends - branches.lengths
        within = np.arange(total) - np.repeat(starts, branches.lengths)
        slots = np.repeat(branches.slots, branches.lengths)
        first = np.searchsorted(slots, slots)  # the first new token of the same slot
        nodes = self.counts[slots] + np.arange(total) - first
        needed, old = int(nodes.max()) + 1, self.capacity
        if needed > old:
            count, new = len(self.depths), max(needed, 2 * old)
            grown = np.zeros((count, new), dtype=np.int64)
            grown[:, :old] = self.depths
            ancestors: Mask = np.zeros((count, new, new), dtype=bool)
            ancestors[:, :old, :old] = self._ancestors
            self.depths, self._ancestors, self.capacity = grown, ancestors, new
        above = self.depths[branches.slots, branches.parents] + 1
        depths = np.repeat(above, branches.lengths) + within
        inherited = self._ancestors[branches.slots, branches.parents]
        visible = np.repeat(inherited, branches.lengths, axis=0)
        columns = np.arange(self.capacity)
        run = np.repeat(nodes[starts], branches.lengths)
        visible |= (columns >= run[:, None]) & (columns <= nodes[:, None])
        self.depths[slots, nodes] = depths
        self._ancestors[slots, nodes] = visible
        self.counts += np.bincount(slots, minlength=len(self.counts))
        return Placed(slots, nodes, depths, visible, ends - 1)
