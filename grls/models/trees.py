"""Trees of tokens for a transformers model: the memory behind the fast search on a CPU.

Legend: R branches, T their tokens, S slots (queries in flight), P places a slot, m most new tokens of one
slot, H heads.

Beams are nodes of a tree of tokens a slot (:mod:`grls.models.forest`), and any number of tokens is fed to any
of them at once; how the model is made to see trees is told in :mod:`grls.models.slots`. Where a model takes
no positions (BART counts its cache), this cannot work: :func:`plant` tries it on the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grls.index.rows import Ints
from grls.models.forest import Branches, Forest, Placed
from grls.models.generator import Seq2SeqGenerator
from grls.models.grid import Seq2SeqGridSession
from grls.models.slots import SlotModel, SlotSession


class Seq2SeqTrees(SlotModel):
    """Drives an ``AutoModelForSeq2SeqLM`` for the fast searches; see :func:`plant`."""

    def open_trees(self, slots: int, longest: int) -> Seq2SeqTreeSession:
        """Room for S queries in flight, whose inputs have at most ``longest`` tokens."""
        return Seq2SeqTreeSession(self, slots, longest)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.generator.device

    def open_grid(self, slots: int, beams: int, longest: int) -> Seq2SeqGridSession:
        """Room for S queries in flight with K beams each, whose inputs have at most ``longest`` tokens."""
        return Seq2SeqGridSession(self, slots, beams, longest)


class Seq2SeqTreeSession(SlotSession):
    """The decoding of S queries at a time; see :class:`grls.models.base.TreeSession`.

    Args:
        model: The model.
        slots: S.
        longest: L, the longest input that will come.
    """

    def __init__(self, model: SlotModel, slots: int, longest: int):
        self._forest = Forest(slots)
        super().__init__(model, slots, longest, self._forest.places)
        self._gather: Tensor  # [S m], see Placed.by_slot
        self._scatter: Tensor  # [T]

    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> None:
        """Read new queries into slots and feed the start token as node 0."""
        super().load(slots, inputs)
        self._forest.plant(slots)

    @torch.inference_mode()
    def feed(self, branches: Branches) -> Ints:
        """Feed the tokens of R branches; returns the node of the last token of each."""
        placed = self._forest.grow(branches)
        if self._forest.places > self._places:
            self._make_room(self._forest.places)
        gather, scatter = placed.by_slot(self._slots)
        self._gather, self._scatter = self._tensor(gather), self._tensor(scatter)
        self._write = self._tensor(placed.slots * self._places + placed.nodes)
        self._own_bias = self._bias(placed)
        hidden = self._advance(self._tensor(branches.tokens), self._tensor(placed.depths))
        self._hidden = hidden[self._tensor(placed.last)]
        return placed.nodes[placed.last]

    @property
    def _used(self) -> int:
        return int(self._forest.counts.max())

    def _lay(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._gather)

    def _unlay(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._scatter)

    def _bias(self, placed: Placed) -> Tensor:
        """Position bias where a token may look, minus infinity elsewhere, ``[S, H or 1, m, used]``."""
        visible = self._tensor(placed.visible[:, : self._used, None])
        table = self._distances(int(placed.depths.max()))
        if table is None:
            bias = self._hidden.new_zeros(visible.shape)
        else:
            distance = placed.depths[:, None] - self._forest.depths[placed.slots, : self._used]
            bias = table[self._tensor(np.maximum(distance, 0))]
        bias = self._lay(bias.masked_fill(~visible, -torch.inf))
        laid: Tensor = bias.unflatten(0, (self._slots, -1)).permute(0, 3, 1, 2).contiguous()
        return laid


def plant(generator: Seq2SeqGenerator) -> Seq2SeqTrees | None:
    """Trees of a model, or None where its decoder cannot be driven so.

    Two inputs and three branches, one of them two tokens long, are tried against the model's own forward
    pass.
    """
    model, training = generator.model, generator.model.training
    model.eval()
    try:
        trees = Seq2SeqTrees(generator)
        return trees if generator.head.linear and _agrees(trees) else None
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return None
    finally:
        model.train(training)


@torch.inference_mode()
def _agrees(trees: Seq2SeqTrees) -> bool:
    generator = trees.generator
    inputs = [[3, 4, 5], [5, 4]]
    session = trees.open_trees(2, 3)
    session.load(np.arange(2), inputs)
    slots = np.array([0, 0, 1])
    nodes = session.feed(Branches(slots, np.zeros(3, int), np.array([1, 2, 1]), np.array([3, 4, 5, 4])))
    session.feed(Branches(slots, nodes, np.ones(3, int), np.array([5, 3, 5])))
    states, mask = generator.encode(inputs)
    for row, written in enumerate(([3, 5], [4, 5, 3], [4, 5])):
        slot = slots[row : row + 1]
        before = torch.tensor([[generator.start_token, *written]], device=generator.device)
        expected = generator.head.all(generator.forward(states[slot], mask[slot], before)[:, -1])
        found = generator.head.all(session._hidden[row : row + 1])
        if not torch.allclose(found, expected, rtol=1e-2, atol=1e-2 * float(expected.std())):
            return False
    return True
