"""One token of every beam at a time, decided on the device: the memory behind the search on a GPU.

Legend: S slots (queries in flight), K beams a slot, P places a slot, H heads, V vocabulary, T = S K.

A step writes S K tokens: beam k of a slot that has written t tokens takes place ``1 + (t - 1) K + k``, and
place 0 holds the start token. Which beam continues which is a tensor; choosing beams moves a row of booleans
each (whom it sees), no keys and values. The shapes of a step depend on nothing that only the device knows, so
the host never waits for it: it counts how many tokens a slot has written, and that bounds the places in use.

A step is two calls. :meth:`GridMemory.room` is the host's part: it counts and makes room. What is left,
:meth:`GridMemory.write`, is tensors alone, all of which stay where they are: it can be compiled, or captured
once and replayed, as long as :attr:`GridMemory.moved` says the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.index.rows import Ints
from grls.models.base import Room
from grls.models.sessions.memory import KeysValues, SlotMemory, SlotModel

_STEPS = 8
"""Steps for which room is made at first; it doubles when it is full."""


class _InUse(NamedTuple):
    """The parts of a memory that a step looks at.

    They are cut out by the host: their shapes and strides do not tell how large the memory is, so a compiled
    step serves every memory.

    Attributes:
        visible: ``[used, S, K]`` which places each beam sees.
        table: ``[steps + 1, H]`` the bias by distance, where the model has one.
        rooms: Of each layer, ``[S, used, H c]``.
    """

    visible: Tensor
    table: Tensor | None
    rooms: list[KeysValues]


class GridMemory(SlotMemory):
    """S queries at a time, K beams each; see :class:`grls.models.base.GridSession`.

    Args:
        model: The model.
        slots: S.
        longest: The longest input that will come, in tokens.
        beams: K.
        fixed: Let a step look at whole rooms, so that its shapes are few.
    """

    def __init__(self, model: SlotModel, slots: int, longest: int, beams: int, fixed: bool = False):
        super().__init__(model, slots, longest, 1 + _STEPS * beams)
        self._beams = beams
        self._fixed = fixed
        self._steps = np.zeros(slots, dtype=np.int64)  # tokens that a slot has written, as the host knows
        self._open = np.zeros(slots, dtype=bool)  # whether a slot has a query
        device = model.device
        self.written = torch.zeros(slots, dtype=torch.long, device=device)
        """``[S]`` tokens that every beam of a slot has written, on the model's device."""
        self.moved = 0
        """Rises when tensors of the memory have been replaced by others."""
        self._busy = torch.zeros_like(self.written)  # 1 where a slot has a query
        self._visible = torch.zeros((self._places, slots, beams), dtype=torch.bool, device=device)
        self._owner = torch.arange(slots * beams, device=device) // beams  # the slot of each token
        self._beam = torch.arange(beams, device=device)[None, :]
        self._bias_table = self._distances(_STEPS)
        self._now: _InUse  # what the next step looks at, set by room

    def begin(self) -> None:
        """Forget all queries, and read anew what was derived from the model's weights."""
        self._steps[:] = 0
        self._open[:] = False
        for some in (self.written, self._busy, self._visible):
            some.zero_()
        self._cut = None
        self._learn()

    def attending(self) -> AbstractContextManager[None]:
        """Within the block the model attends to this memory; :meth:`write` needs that."""
        within: AbstractContextManager[None] = self._model.attention(self)
        return within

    @torch.inference_mode()
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots; every beam writes on from the start token."""
        self._steps[slots] = 0
        self._open[slots] = True
        into = self._tensor(slots)
        self.written[into] = 0
        self._busy[into] = 1
        self._visible[:, into] = False
        self._visible[0, into] = True
        return super().load(slots, inputs)  # type: ignore[safe-super]  # a reader stands behind

    @torch.inference_mode()
    def release(self, slots: Ints) -> None:
        """Forget the queries of some slots."""
        self._steps[slots] = 0
        self._open[slots] = False
        into = self._tensor(slots)
        self.written[into] = self._busy[into] = 0

    @torch.inference_mode()
    def room(self) -> Room:
        """Count a step, and make room for it."""
        self._steps[self._open] += 1
        steps = max(1, int(self._steps.max()))
        fitting = _STEPS << max(0, -(-steps // _STEPS) - 1).bit_length()
        if 1 + fitting * self._beams > self._places:
            self._make_room(1 + fitting * self._beams)
        room = Room(fitting, self._longest) if self._fixed else Room(steps, self._reach)
        self.look(room)
        return room

    def look(self, room: Room) -> None:
        """Cut out what the next step looks at."""
        used = 1 + room.steps * self._beams
        self._now = _InUse(
            self._visible[:used],
            None if self._bias_table is None else self._bias_table[: room.steps + 1],
            [KeysValues(*(part[:, :used] for part in room)) for room in self._own],
        )

    def write(self, parents: Tensor, tokens: Tensor, room: Room) -> Tensor:
        """Beam k of slot s continues its beam ``parents[s, k]`` with ``tokens[s, k]``.

        Args:
            parents: ``[S, K]``, anything where a beam is dead.
            tokens: ``[S, K]``. Slots without a query write them, too, into places that nobody will see.
            room: What :meth:`room` said.

        Returns:
            Logits of every token that may follow, ``[S, K, V]`` in float32.
        """
        self.written.add_(self._busy)
        clock = self.written.clamp(min=1)[:, None]
        place = 1 + (clock - 1) * self._beams + self._beam
        before = self._now.visible
        seen = before.gather(2, parents.expand(len(before), -1, -1)).scatter(0, place[None], True)
        before.copy_(seen)
        self._write = place.flatten()
        self._own_bias = self._bias(clock, seen)
        logits = self._logits(tokens.flatten(), clock.expand(-1, self._beams).flatten(), room.reach)
        del self._own_bias, self._write  # nothing of a step outlives it
        found: Tensor = logits.unflatten(0, (self._slots, self._beams))
        return found

    @abstractmethod
    def _logits(self, tokens: Tensor, depths: Tensor, reach: int) -> Tensor:
        """Feed T tokens that have so many before them; returns the logits, ``[T, V]`` in float32."""

    @property
    @abstractmethod
    def _reach(self) -> int:
        """Tokens of the longest input that was read."""

    @property
    def _used(self) -> int:
        return len(self._now.visible)

    @property
    def _rooms(self) -> list[KeysValues]:
        return self._now.rooms

    def _lay(self, rows: Tensor) -> Tensor:
        return rows

    def _unlay(self, rows: Tensor) -> Tensor:
        return rows

    def _empty(self, like: Tensor, places: int, width: int) -> Tensor:
        """Places stand first, so that those in use have one layout, however many there are beside."""
        return like.new_zeros((places, self._slots, width)).transpose(0, 1)

    def _put(self, part: Tensor, new: Tensor) -> None:
        part.index_put_((self._owner, self._write), new)

    def _make_room(self, places: int) -> None:
        grown = self._visible.new_zeros((places, *self._visible.shape[1:]))
        grown[: self._places] = self._visible
        self._visible = grown
        super()._make_room(places)
        self._learn()
        self.moved += 1

    def _learn(self) -> None:
        """Take the bias by distance from the model, to the same place where it fits."""
        new = self._distances((self._places - 1) // self._beams)
        if new is None or self._bias_table is None:
            return
        if len(new) == len(self._bias_table):
            self._bias_table.copy_(new)
        else:
            self._bias_table = new

    def _bias(self, clock: Tensor, seen: Tensor) -> Tensor:
        """Position bias where a beam may look, minus infinity elsewhere, ``[S, H or 1, K, used]``."""
        visible, table = seen.permute(1, 2, 0)[:, None], self._now.table
        if table is None:
            return torch.zeros_like(visible, dtype=torch.float32).masked_fill(~visible, -torch.inf)
        depth = (torch.arange(len(seen), device=clock.device) + self._beams - 1) // self._beams
        bias = table[(clock - depth).clamp(min=0)].permute(0, 2, 1)[:, :, None]
        laid: Tensor = torch.where(visible, bias, -torch.inf)
        return laid
