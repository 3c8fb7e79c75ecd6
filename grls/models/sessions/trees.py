"""Trees of tokens: the memory behind the fast search on a CPU.

Legend: R branches, T their tokens, S slots (queries in flight), P places a slot, m most new tokens of one
slot, H heads.

Each slot has a tree of tokens (:mod:`grls.models.sessions.forest`), whose nodes are beams. Any number of
tokens can be fed to any beam at once. How a model reads trees: :mod:`grls.models.sessions.memory`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grls.index.rows import Ints
from grls.models.sessions.forest import Branches, Forest
from grls.models.sessions.memory import SlotMemory, SlotModel


class TreeMemory(SlotMemory):
    """S queries at a time, each with a tree of tokens; see :class:`grls.models.base.TreeSession`.

    Args:
        model: The model.
        slots: S.
        longest: The longest input in tokens.
    """

    _root_is_seen = True

    def __init__(self, model: SlotModel, slots: int, longest: int):
        self._forest = Forest(slots)
        super().__init__(model, slots, longest, self._forest.places)
        self._most: int  # places of the fullest slot
        self._gather: Tensor  # [S m], see Placed.by_slot
        self._scatter: Tensor  # [T]

    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots; returns the node that each query continues."""
        self._forest.plant(slots, self._root_is_seen)
        return super().load(slots, inputs)  # type: ignore[safe-super]  # a subclass adds the reader

    @torch.inference_mode()
    def feed(self, branches: Branches) -> Ints:
        """Feed the tokens of R branches; returns the node of the last token of each branch."""
        placed = self._forest.grow(branches)
        self._most = int(self._forest.counts.max())
        if self._forest.places > self._places:
            self._make_room(self._forest.places)
        gather, scatter = placed.by_slot(self._slots)
        self._gather, self._scatter = self._tensor(gather), self._tensor(scatter)
        self._write = self._tensor(placed.slots * self._places + placed.nodes)
        # Position bias at places that a token attends to, else minus infinity, [S, H or 1, m, used].
        visible = self._tensor(placed.visible[:, : self._used, None])
        table = self._distances(int(placed.depths.max()))
        if table is None:
            bias = torch.zeros(visible.shape, device=visible.device)
        else:
            distance = placed.depths[:, None] - self._forest.depths[placed.slots, : self._used]
            bias = table[self._tensor(np.maximum(distance, 0))]
        bias = self._lay(bias.masked_fill(~visible, -torch.inf))
        self._own_bias = bias.unflatten(0, (self._slots, -1)).permute(0, 3, 1, 2).contiguous()
        hidden = self._advance(self._tensor(branches.tokens), self._tensor(placed.depths))
        self._hidden = hidden[self._tensor(placed.last)]
        return placed.nodes[placed.last]

    @property
    def _used(self) -> int:
        return self._most

    def _lay(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._gather)

    def _unlay(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._scatter)
