"""One token of every beam at a time, decided on the device: the memory behind the search on a GPU.

Legend: S slots (queries in flight), K beams a slot, P places a slot, H heads, d model width.

A step writes S K tokens: beam k of a slot that has written t tokens takes place ``1 + (t - 1) K + k``, and
place 0 holds the start token. Which beam continues which is a tensor; choosing beams moves a row of booleans
each (whom it sees), no keys and values. The shapes of a step depend on nothing that only the device knows, so
the host never waits for it: it counts how many tokens a slot has written, and that bounds the places in use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from grls.index.rows import Ints
from grls.models.slots import SlotMemory, SlotModel

_STEPS = 8
"""Steps for which room is made at first; it doubles when it is full."""


class GridMemory(SlotMemory):
    """S queries at a time, K beams each; see :class:`grls.models.base.GridSession`.

    Args:
        model: The model.
        slots: S.
        longest: The longest input that will come, in tokens.
        beams: K.
    """

    def __init__(self, model: SlotModel, slots: int, longest: int, beams: int):
        super().__init__(model, slots, longest, 1 + _STEPS * beams)
        self._beams = beams
        self._steps = np.zeros(slots, dtype=np.int64)  # tokens that a slot has written, as the host knows
        self._open = np.zeros(slots, dtype=bool)  # whether a slot has a query
        device = model.device
        self.written = torch.zeros(slots, dtype=torch.long, device=device)
        """``[S]`` tokens that every beam of a slot has written, on the model's device."""
        self._busy = torch.zeros_like(self.written)  # 1 where a slot has a query
        self._visible = torch.zeros((slots, beams, self._places), dtype=torch.bool, device=device)
        self._base = torch.arange(slots, device=device)[:, None]
        self._beam = torch.arange(beams, device=device)[None, :]

    @torch.inference_mode()
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots; every beam writes on from the start token."""
        self._steps[slots] = 0
        self._open[slots] = True
        into = self._tensor(slots)
        self.written[into] = 0
        self._busy[into] = 1
        self._visible[into] = False
        self._visible[into, :, 0] = True
        return super().load(slots, inputs)  # type: ignore[safe-super]  # a reader stands behind

    @torch.inference_mode()
    def release(self, slots: Ints) -> None:
        """Forget the queries of some slots."""
        self._steps[slots] = 0
        self._open[slots] = False
        into = self._tensor(slots)
        self.written[into] = self._busy[into] = 0

    @torch.inference_mode()
    def feed(self, parents: Tensor, tokens: Tensor) -> None:
        """Beam k of slot s continues its beam ``parents[s, k]`` with ``tokens[s, k]``.

        Args:
            parents: ``[S, K]``, anything where a beam is dead.
            tokens: ``[S, K]``. Slots without a query write them, too, into places that nobody will see.
        """
        self._steps[self._open] += 1
        if self._used > self._places:
            grown = 1 + 2 * (self._places - 1)
            self._visible = functional.pad(self._visible, (0, grown - self._places))
            self._make_room(grown)
        self.written = self.written + self._busy
        clock = self.written.clamp(min=1)[:, None]
        place = 1 + (clock - 1) * self._beams + self._beam
        self._visible = self._visible.gather(1, parents[:, :, None].expand(-1, -1, self._places))
        self._visible.scatter_(2, place[:, :, None], True)
        self._write = (self._base * self._places + place).flatten()
        self._own_bias = self._bias(clock)
        self._hidden = self._advance(tokens.flatten(), clock.expand(-1, self._beams).flatten())

    def every(self) -> Tensor:
        """Logits of every token for every beam, ``[S, K, V]`` in float32, on the model's device."""
        with torch.inference_mode():
            flat = self._model.head.all(self._hidden)
            logits: Tensor = flat.unflatten(0, (self._slots, self._beams))
            return logits

    @property
    def _used(self) -> int:
        return 1 + self._beams * max(1, int(self._steps.max()))

    def _lay(self, rows: Tensor) -> Tensor:
        return rows

    def _unlay(self, rows: Tensor) -> Tensor:
        return rows

    def _bias(self, clock: Tensor) -> Tensor:
        """Position bias where a beam may look, minus infinity elsewhere, ``[S, H or 1, K, used]``."""
        used = self._used
        visible = self._visible[:, None, :, :used]
        table = self._distances(int(self._steps.max()))
        if table is None:
            table = torch.zeros((int(self._steps.max()) + 1, 1), device=clock.device)
        depth = (torch.arange(used, device=clock.device) + self._beams - 1) // self._beams
        bias = table[(clock - depth).clamp(min=0)].permute(0, 2, 1)[:, :, None]
        laid: Tensor = torch.where(visible, bias, -torch.inf)
        return laid
