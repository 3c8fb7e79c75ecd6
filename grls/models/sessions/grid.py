"""The memory behind the search on a GPU: one token of every beam at a time, decided on the device.

Legend: S slots (queries in flight), K beams a slot, P entries a slot, H heads, V vocabulary, T = S K.

A step writes S K tokens: beam k of a slot that has written t tokens takes entry ``F + (t - 1) K + k``.
The first F entries hold what all beams of the slot continue: the start token, or the input of a causal
model, which ends at entry F. Choosing beams moves one row of booleans per beam (the entries it sees), but
no keys and values. The shapes of a step never depend on results of the device, so the host need not wait
for it: it counts how many tokens a slot has written, which bounds the entries in use.

A step takes two calls. :meth:`GridMemory.room` is the part of the host: it counts and allocates.
:meth:`GridMemory.write` uses only tensors, which keep their addresses: it can be compiled, or captured
once and replayed, as long as :attr:`GridMemory.visible` is the same tensor.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.index.rows import Ints
from grls.models.base import Room
from grls.models.sessions.memory import KeysValues, SlotMemory, SlotModel

_STEPS = 8
"""The number of steps for which the memory has room at first; it doubles when it is full."""


class _InUse(NamedTuple):
    """The parts of a memory that a step reads, sliced by the host.

    Their shapes and strides do not depend on the size of the memory, so one compiled step serves all
    sizes.

    Attributes:
        first: Entries before those of the beams.
        visible: ``[used, S, K]`` the entries that each beam sees.
        table: ``[steps + 1, H]`` the bias by distance, if the model has one.
        rooms: Keys and values of each layer, ``[S, used, H c]``.
    """

    first: int
    visible: Tensor
    table: Tensor | None
    rooms: list[KeysValues]


class GridMemory(SlotMemory):
    """S queries at a time, K beams each.

    ``fixed``: a step reads all of the allocated memory, so that there are few different shapes.
    """

    def __init__(self, model: SlotModel, slots: int, longest: int, beams: int, fixed: bool):
        # F. A search that queries join opens a session for the longest possible input, and most are short.
        self._first = self._entries_of(longest if fixed else 1)
        super().__init__(model, slots, longest, self._first + _STEPS * beams)
        self._beams = beams
        self._fixed = fixed
        self._steps = np.zeros(slots, dtype=np.int64)  # tokens that a slot has written, counted by the host
        device = model.device
        self.written = torch.zeros(slots, dtype=torch.long, device=device)
        """``[S]`` tokens that every beam of a slot has written, on the device of the model."""
        self._busy = torch.zeros_like(self.written)  # 1 if a slot has a query
        self._before = torch.ones_like(self.written)  # the tokens before the first one that a slot writes
        self.visible = torch.zeros((self._capacity, slots, beams), dtype=torch.bool, device=device)
        self._owner = torch.arange(slots * beams, device=device) // beams  # the slot of each token
        self._beam = torch.arange(beams, device=device)[None, :]
        self._bias_table = self._distances(_STEPS)
        self._now: _InUse  # what the next step reads, set by room

    def begin(self) -> None:
        """Drop all queries, and compute again what depends on the weights of the model."""
        self._steps[:] = self._lengths[:] = 0
        for tensor in (self.written, self._busy, self.visible):
            tensor.zero_()
        self._cut = None
        self._learn()

    def attending(self) -> AbstractContextManager[None]:
        """The context in which the model attends to this memory; :meth:`write` needs it."""
        within: AbstractContextManager[None] = self._model.attention(self)
        return within

    def _enter(self, slots: Ints, lengths: Ints) -> Ints:
        self._steps[slots] = 0
        into = self._tensor(slots)
        before = np.array([self._entries_of(length) for length in lengths.tolist()])
        self.written[into] = 0
        self._busy[into] = 1
        self._before[into] = self._tensor(before)
        if before.max() > self._first:
            first = min(self._entries_of(self._longest), 1 << int(before.max() - 1).bit_length())
            self._make_room(self._capacity + first - self._first, first - self._first)
        entries = np.arange(self._capacity)[:, None]
        self.visible[:, into] = self._tensor((entries >= self._first - before) & (entries < self._first))[
            ..., None
        ]
        return np.zeros_like(slots)  # every beam continues the input, or the start token

    @torch.inference_mode()
    def release(self, slots: Ints) -> None:
        self._steps[slots] = self._lengths[slots] = 0
        into = self._tensor(slots)
        self.written[into] = self._busy[into] = 0

    @torch.inference_mode()
    def room(self) -> Room:
        """Count a step and allocate memory for it."""
        self._steps[self._lengths > 0] += 1
        steps = max(1, int(self._steps.max()))
        fitting = _STEPS << max(0, -(-steps // _STEPS) - 1).bit_length()
        if self._first + fitting * self._beams > self._capacity:
            self._make_room(self._first + fitting * self._beams)
        room = Room(fitting, self._longest) if self._fixed else Room(steps, int(self._lengths.max()))
        self.look(room)
        return room

    def look(self, room: Room) -> None:
        first = self._entries_of(room.longest)
        used = slice(self._first - first, self._first + room.steps * self._beams)
        self._used = first + room.steps * self._beams
        self._now = _InUse(
            first,
            self.visible[used],
            None if self._bias_table is None else self._bias_table[: room.steps + 1],
            [KeysValues(*(part[:, used] for part in layer)) for layer in self._own],
        )

    def write(self, parents: Tensor, tokens: Tensor, room: Room) -> Tensor:
        """Beam k of slot s continues its beam ``parents[s, k]`` with ``tokens[s, k]``, both ``[S, K]``.

        Returns the logits of every token that may follow, ``[S, K, V]`` in float32. ``room`` is that of
        :meth:`room`. A dead beam has any parent. Slots without a query also write tokens, to entries that
        no beam sees.
        """
        self.written.add_(self._busy)
        clock = self.written.clamp(min=1)[:, None]
        entry = self._now.first + (clock - 1) * self._beams + self._beam
        before = self._now.visible
        seen = before.gather(2, parents.expand(len(before), -1, -1)).scatter(0, entry[None], True)
        before.copy_(seen)
        self._write = self._owner, entry.flatten()
        self._own_bias = self._bias(clock, seen)
        depths = (self._before[:, None] + clock - 1).expand(-1, self._beams)
        logits = self._run(tokens.flatten(), depths.flatten(), room.longest).logits[:, 0].float()
        del self._own_bias, self._write  # release the tensors of the step
        by_slot: Tensor = logits.unflatten(0, (self._slots, self._beams))
        return by_slot

    @abstractmethod
    def _entries_of(self, length: int) -> int:
        """The entries that all beams of a slot see, for an input of ``length`` tokens."""

    @property
    def _rooms(self) -> list[KeysValues]:
        return self._now.rooms

    def _empty(self, like: Tensor, capacity: int, width: int) -> Tensor:
        """The axis of entries comes first, so that the layout of the used entries does not depend on P."""
        return like.new_zeros((capacity, self._slots, width)).transpose(0, 1)

    def _make_room(self, capacity: int, ahead: int = 0) -> None:
        grown = self.visible.new_zeros((capacity, *self.visible.shape[1:]))
        grown[ahead : ahead + self._capacity] = self.visible
        self.visible = grown
        super()._make_room(capacity, ahead)
        self._first += ahead
        self._learn()

    def _learn(self) -> None:
        """Read the bias by distance from the model, into the same tensor if it fits."""
        new = self._distances((self._capacity - self._first) // self._beams)
        if new is None or self._bias_table is None:
            return
        if len(new) == len(self._bias_table):
            self._bias_table.copy_(new)
        else:
            self._bias_table = new

    def _bias(self, clock: Tensor, seen: Tensor) -> Tensor:
        """Position bias at entries that a beam sees, else minus infinity, ``[S, H or 1, K, used]``."""
        visible, table = seen.permute(1, 2, 0)[:, None], self._now.table
        if table is None:
            return torch.zeros_like(visible, dtype=torch.float32).masked_fill(~visible, -torch.inf)
        depth = (torch.arange(len(seen), device=clock.device) + self._beams - 1) // self._beams
        bias = table[(clock - depth).clamp(min=0)].permute(0, 2, 1)[:, :, None]
        laid: Tensor = torch.where(visible, bias, -torch.inf)
        return laid
