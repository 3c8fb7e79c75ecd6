"""Constrained beam search on the device of the model: the search of :mod:`grls.decode.beam`, for a GPU.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, V vocabulary, k results a
query.

On a GPU, the time of a step is the time to launch its kernels, not their computation. So every beam of every
slot writes a token in every step, forced or not. All results of a step (the allowed tokens, their scores, the
live candidates, the new results) are tensors that stay on the device. Only one bit a slot reaches the host in
each step: whether the slot is decided. Then the host reads its results and gives the slot to the next query.
The first step of a query is the one of the fast search (:mod:`grls.decode.first_step`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from grls.decode.first_step import Best
from grls.decode.gpu.decision import Rules, without_beaten
from grls.decode.gpu.step import Board, DeviceStep, tell
from grls.decode.scope import Mask
from grls.decode.select import ScoreMode, refuse_nan, select
from grls.decode.slots import SearchRequest, SlotDecoder, SlotSearch
from grls.errors import ConfigError
from grls.index import ConstraintIndex
from grls.index.array import ArrayIndex
from grls.index.rows import Ints
from grls.index.tensors import TensorIndex
from grls.io.parts import PartTimer
from grls.models.base import GridGenerator, GridSession


@dataclass
class DeviceDecoder(SlotDecoder):
    """Finds the passages that a model gives the highest probability, by constrained beam search.

    Args:
        generator: The model, on its device.
        index: The constraint index; it is copied to the device.
        beams, mode, early_stop: See :class:`grls.decode.beam.Decoder`.
        slots: Queries in flight, S.
        compiled: Whether to compile the whole step, including the model, with ``torch.compile``, and on a GPU
            to replay it as a CUDA graph: one launch instead of hundreds. Each new shape takes seconds to
            minutes (see :mod:`grls.decode.gpu.step`), so it pays off for thousands of queries. The memory for
            S queries is kept for the next search, and every search uses all of it.

    Raises:
        ConfigError: The beam width or the number of slots is not positive, the score mode is unknown, or the
            model or the index is of another kind.
    """

    generator: GridGenerator
    index: ArrayIndex
    beams: int = 5
    mode: ScoreMode = "renormalized"
    early_stop: bool | None = None
    slots: int = 64
    compiled: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.index, ArrayIndex) or not hasattr(self.generator, "open_grid"):
            raise ConfigError(
                f"a search on the device needs an encoder-decoder model and the index backend 'array', got "
                f"{type(self.generator).__name__} and {type(self.index).__name__}; use FastDecoder."
            )
        self.check()
        self.tensors = TensorIndex(self.index, self.generator.device)
        self._kept: tuple[tuple[int, int], tuple[int, ...], DeviceStep] | None = None

    def prepare(self, ask: SearchRequest) -> SlotSearch:  # noqa: D102
        if ask.prior is not None:
            raise ConfigError("the search on the device supports no priors; use FastDecoder.")
        if ask.gathering is not None:
            raise ConfigError("the search on the device supports no frontier; use FastDecoder.")
        if self.tensors.device != self.generator.device:  # the model has moved
            self.tensors = TensorIndex(self.index, self.generator.device)
            self._kept = None
        return _Search(self, ask)

    def places(self, queries: int) -> int:  # noqa: D102
        return self.slots if self.compiled else super().places(queries)

    def step(self, slots: int, results: int, longest: int) -> DeviceStep:
        """The step of a search with ``results`` results a query and inputs of at most ``longest`` tokens.

        A compiled step is kept, with its memory, for the next search.
        """
        if self.compiled:
            longest = max(_LEAST_INPUT, 1 << (longest - 1).bit_length())
            if self._kept is not None:
                (kept, reach), weights, step = self._kept
                # Weights at other addresses may be of another type, which the memory must match.
                if kept == results and reach >= longest and weights == self.generator.addresses():
                    return step
            self._kept = None  # released before a new one is made, so that there is one memory at a time
        board = Board(self.generator, slots, self.beams, results, longest, self.compiled)
        step = DeviceStep(
            board, self.tensors, Rules(self.index.rows.end, self.stops_early, self.mode), self.compiled
        )
        if self.compiled:
            self._kept = (results, longest), self.generator.addresses(), step
        return step


def suits(device: torch.device, index: ConstraintIndex) -> bool:
    """Whether a search on this device is faster than :class:`grls.decode.fast.FastDecoder`."""
    return device.type == "cuda" and isinstance(index, ArrayIndex)


_LEAST_INPUT = 32
"""The least input length, in tokens, for which a step is compiled; longer ones are rounded up by doubling."""


class _Search(SlotSearch):
    """One run of the search over all queries."""

    session: GridSession
    index: ArrayIndex
    options: DeviceDecoder

    def __init__(self, decoder: DeviceDecoder, ask: SearchRequest):
        super().__init__(decoder, ask)
        self.step = decoder.step(len(self.queries), ask.k, self.longest)
        self.board = self.step.board
        self.board.begin(ask.scope)
        self.session = self.board.session
        self.device = decoder.generator.device
        self.written = np.zeros(len(self.queries), dtype=np.int64)  # tokens of each slot, counted by the host

    @torch.inference_mode()
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        chosen = select(best.rows, best.scores, best.complete, self.options.beams)
        states = self.index.nodes(best.states)
        into = torch.from_numpy(slots).to(self.device)
        self.board.owners[into] = torch.from_numpy(self.queries[slots]).to(self.device)
        self.written[slots] = 1
        now = self.board.standing
        now.parents[into] = 0
        count = len(slots)
        done = _Table(best.rows[chosen.finished], count, self.ask.k)
        live = _Table(best.rows[chosen.live], count, self.options.beams)
        for table, candidates, scores, values in (
            (done, chosen.finished, now.result_scores, [(now.result_nodes, states)]),
            (live, chosen.live, now.scores, [(now.nodes, states), (now.tokens, best.tokens)]),
        ):
            scores[into] = torch.from_numpy(table.of(best.scores[candidates], -np.inf)).to(self.device)
            for kept, new in values:
                kept[into] = torch.from_numpy(table.of(new[candidates], 0)).to(self.device)
        now.scores.copy_(without_beaten(now.scores, now.result_scores))
        tell(now, self.board.flags)
        self._stop(self._flags())

    def advance(self) -> None:
        """Every beam writes one token."""
        written = np.unique(self.written[self.queries >= 0]).tolist()
        reach = max(self.options.tensors.most(self.options.beams, t) for t in written)
        # The constraint is part of the step.
        with PartTimer("decoder", int((self.queries >= 0).sum()) * self.options.beams):
            self.step(reach)
            flags = self._flags()
        self.written += 1
        self._stop(flags)

    @torch.inference_mode()
    def _flags(self) -> Mask:
        """The flags of the step. Here the host waits for the device."""
        flags: Mask = self.board.flags.cpu().numpy()
        return flags

    @torch.inference_mode()
    def _stop(self, flags: Mask) -> None:
        """Release decided slots; for the results, the host waits for the device."""
        now = self.board.standing
        if flags[-1]:
            refuse_nan(np.array([np.nan]))
        ready = np.flatnonzero(~flags[:-1] & (self.queries >= 0))
        if not len(ready):
            return
        places = torch.from_numpy(ready).to(self.device)
        scores, nodes = now.result_scores[places].tolist(), now.result_nodes[places].cpu().numpy()
        states = self.index.states(nodes, 0).tolist()
        self.release(
            ready,
            [
                [(score, state) for score, state in zip(*columns, strict=True) if score > -np.inf]
                for columns in zip(scores, states, strict=True)
            ],
        )
        self.session.release(ready)


class _Table:
    """Ragged values by row as a table of fixed width; values that do not fit are left out."""

    def __init__(self, rows: Ints, count: int, width: int):
        self._shape = count, width
        self._column = np.arange(len(rows)) - np.searchsorted(rows, rows)
        self._fits = self._column < width
        self._rows = rows

    def of(self, values: np.ndarray, filling: float) -> np.ndarray:
        """``[count, width]``."""
        table = np.full(self._shape, filling, dtype=values.dtype)
        table[self._rows[self._fits], self._column[self._fits]] = values[self._fits]
        return table
