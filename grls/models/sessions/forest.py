"""The trees of tokens behind the fast search: who descends from whom.

Legend: S slots (queries in flight), P places (tokens kept a slot), R branches, T new tokens of all branches.

A slot holds one query and a tree of the tokens fed so far. A beam is a node of that tree; what it attends to
are its ancestors. So nothing is copied or reordered when beams are chosen: a beam that dies is a node without
children, and two beams share the tokens they have in common. New tokens come in branches, each a run of
tokens that continues one node, so a stretch without a decision is fed at once. The module knows nothing of
models.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grls.index.rows import Ints

Mask = npt.NDArray[np.bool_]


class Branches(NamedTuple):
    """R runs of tokens, each of which continues one node.

    Attributes:
        slots: ``[R]`` ascending.
        parents: ``[R]`` the node each continues.
        lengths: ``[R]`` tokens of each, at least one.
        tokens: ``[T]`` one branch after another.
    """

    slots: Ints
    parents: Ints
    lengths: Ints
    tokens: Ints


class Placed(NamedTuple):
    """Where new tokens stand.

    Attributes:
        slots: ``[T]`` ascending.
        nodes: ``[T]`` place of each in its slot's tree.
        depths: ``[T]`` tokens before it.
        visible: ``[T, P]`` which places it attends to: its ancestors and itself.
        last: ``[R]`` which of the tokens ends each branch.
    """

    slots: Ints
    nodes: Ints
    depths: Ints
    visible: Mask
    last: Ints

    def by_slot(self, slots: int) -> tuple[Ints, Ints]:
        """How the T tokens are laid out by slot, ``[S, m]``, m the most of one slot, and back.

        Returns:
            ``[S m]`` the token that stands there (places to spare repeat one), and ``[T]`` where each stands.
        """
        most = int(np.bincount(self.slots).max())
        within = np.arange(len(self.slots)) - np.searchsorted(self.slots, self.slots)
        places = self.slots * most + within
        tokens = np.zeros(slots * most, dtype=np.int64)
        tokens[places] = np.arange(len(places))
        return tokens, places


class Forest:
    """The trees of all slots: who descends from whom, and how deep.

    Args:
        slots: S.
        places: Tokens a slot for which room is made at first; it doubles when it is full.
    """

    def __init__(self, slots: int, places: int = 64):
        self.counts = np.zeros(slots, dtype=np.int64)
        self.depths = np.zeros((slots, places), dtype=np.int64)
        self._ancestors: Mask = np.zeros((slots, places, places), dtype=bool)

    @property
    def places(self) -> int:
        """P."""
        return self.depths.shape[1]

    def plant(self, slots: Ints, seen: bool = True) -> None:
        """Begin the trees of some slots anew, with node 0.

        Args:
            slots: Which.
            seen: Whether a token stands there, which the others attend to.
        """
        self.counts[slots] = 1
        self.depths[slots, 0] = 0
        self._ancestors[slots, 0] = False
        self._ancestors[slots, 0, 0] = seen

    def grow(self, branches: Branches) -> Placed:
        """Add the tokens of R branches."""
        total = len(branches.tokens)
        ends = np.cumsum(branches.lengths)
        starts = ends - branches.lengths
        within = np.arange(total) - np.repeat(starts, branches.lengths)
        slots = np.repeat(branches.slots, branches.lengths)
        first = np.searchsorted(slots, slots)  # the first new token of the same slot
        nodes = self.counts[slots] + np.arange(total) - first
        self._make_room(int(nodes.max()) + 1)
        above = self.depths[branches.slots, branches.parents] + 1
        depths = np.repeat(above, branches.lengths) + within
        inherited = self._ancestors[branches.slots, branches.parents]
        visible = np.repeat(inherited, branches.lengths, axis=0)
        places = np.arange(self.places)
        run = np.repeat(nodes[starts], branches.lengths)
        visible |= (places >= run[:, None]) & (places <= nodes[:, None])
        self.depths[slots, nodes] = depths
        self._ancestors[slots, nodes] = visible
        self.counts += np.bincount(slots, minlength=len(self.counts))
        return Placed(slots, nodes, depths, visible, ends - 1)

    def _make_room(self, needed: int) -> None:
        if needed <= self.places:
            return
        slots, old = self.depths.shape
        new = max(needed, 2 * old)
        depths = np.zeros((slots, new), dtype=np.int64)
        depths[:, :old] = self.depths
        ancestors: Mask = np.zeros((slots, new, new), dtype=bool)
        ancestors[:, :old, :old] = self._ancestors
        self.depths, self._ancestors = depths, ancestors
