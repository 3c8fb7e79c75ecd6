"""Constrained beam search on the model's device: the search of :mod:`grls.decode.beam`, for a GPU.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, V vocabulary, k results a
query.

On a GPU a step costs what its kernels cost to launch, not what they compute. So every beam of every slot
writes a token in every step, forced or not, and all that a step decides (what may follow, its score, which
candidates live, which results they displace) is a tensor that stays where it is. Only a bit a slot reaches
the host each step: whether it is decided. Then the host reads its results and gives its place to the next
query; a slot's first step is that of the fast search (:mod:`grls.decode.first_step`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from grls.decode.first_step import Best
from grls.decode.gpu.decision import Rules, without_beaten
from grls.decode.gpu.step import Board, DeviceStep, tell
from grls.decode.scores import ScoreMode, refuse_nan
from grls.decode.select import select
from grls.decode.slots import SearchRequest, SlotDecoder, SlotSearch
from grls.errors import ConfigError
from grls.index import ConstraintIndex
from grls.index.array import ArrayIndex
from grls.index.rows import Ints
from grls.index.tensors import TensorIndex
from grls.models.base import GridGenerator, GridSession


@dataclass
class DeviceDecoder(SlotDecoder):
    """Finds the passages that a model gives the highest probability, by constrained beam search.

    Args:
        generator: The model, on its device.
        index: What may be written; it is copied to the device.
        beams, mode, early_stop: As of :class:`grls.decode.beam.Decoder`.
        slots: Queries in flight, S.
        compiled: Compile the whole step, the model's part as well, by ``torch.compile``, and on a GPU replay
            it as a CUDA graph: one launch instead of hundreds. It takes from seconds to minutes for each new
            shape (see :mod:`grls.decode.gpu.step`), so it pays for thousands of queries. The memory of S
            queries is kept for the next search, and every search takes all of it.

    Raises:
        ConfigError: The beam width or the number of slots is not positive, the score mode is unknown, or
            model or index are of another kind.
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
                f"{type(self.generator).__name__} and {type(self.index).__name__}; take FastDecoder."
            )
        self.check()
        self.tensors = TensorIndex(self.index, self.generator.device)
        self._kept: tuple[tuple[int, int], tuple[int, ...], DeviceStep] | None = None

    def prepare(self, ask: SearchRequest) -> SlotSearch:  # noqa: D102
        if ask.prior is not None:
            raise ConfigError("the search on the device takes no priors; take FastDecoder.")
        if ask.gathering is not None:
            raise ConfigError("the search on the device does not tell where it leaves off; take FastDecoder.")
        if self.tensors.device != self.generator.device:  # the model has moved
            self.tensors = TensorIndex(self.index, self.generator.device)
            self._kept = None
        return _Search(self, ask)

    def places(self, queries: int) -> int:  # noqa: D102
        return self.slots if self.compiled else super().places(queries)

    def step(self, slots: int, results: int, longest: int) -> DeviceStep:
        """The step of a search with so many results a query and inputs of so many tokens.

        Where it is compiled it is kept, with its memory, for the next search.
        """
        if self.compiled:
            longest = max(_LEAST_INPUT, 1 << (longest - 1).bit_length())
            if self._kept is not None:
                (kept, reach), weights, step = self._kept
                # Weights that lie elsewhere may be of another type, and the memory with them.
                if kept == results and reach >= longest and weights == self.generator.addresses():
                    return step
            self._kept = None  # before there is another: one memory at a time
        board = Board(self.generator, slots, self.beams, results, longest, self.compiled)
        step = DeviceStep(
            board, self.tensors, Rules(self.index.rows.end, self.stops_early, self.mode), self.compiled
        )
        if self.compiled:
            self._kept = (results, longest), self.generator.addresses(), step
        return step


def suits(device: torch.device, index: ConstraintIndex) -> bool:
    """Whether a search for a model on that device is better done there."""
    return device.type == "cuda" and isinstance(index, ArrayIndex)


_LEAST_INPUT = 32
"""Compiled for inputs of so many tokens at least; more when it doubles."""


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
        self.written = np.zeros(len(self.queries), dtype=np.int64)  # tokens, as the host knows

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
        for table, some, scores, values in (
            (done, chosen.finished, now.result_scores, [(now.result_nodes, states)]),
            (live, chosen.live, now.scores, [(now.nodes, states), (now.tokens, best.tokens)]),
        ):
            scores[into] = torch.from_numpy(table.of(best.scores[some], -np.inf)).to(self.device)
            for kept, new in values:
                kept[into] = torch.from_numpy(table.of(new[some], 0)).to(self.device)
        now.scores.copy_(without_beaten(now.scores, now.result_scores))
        tell(now, self.board.told)
        self._stop()

    def advance(self) -> None:
        """Every beam writes one token."""
        written = np.unique(self.written[self.queries >= 0]).tolist()
        self.step(max(self.options.tensors.most(self.options.beams, t) for t in written))
        self.written += 1
        self._stop()

    @torch.inference_mode()
    def _stop(self) -> None:
        """Release decided slots: where the host waits for the device, once a step and for what is decided."""
        now = self.board.standing
        told = self.board.told.cpu().numpy()
        if told[-1]:
            refuse_nan(np.array([np.nan]))
        ready = np.flatnonzero(~told[:-1] & (self.queries >= 0))
        if not len(ready):
            return
        places = torch.from_numpy(ready).to(self.device)
        scores, nodes = now.result_scores[places].tolist(), now.result_nodes[places].cpu().numpy()
        states = self.index.states(nodes, 0).tolist()
        self.release(
            ready,
            [
                [(score, state) for score, state in zip(*some, strict=True) if score > -np.inf]
                for some in zip(scores, states, strict=True)
            ],
        )
        self.session.release(ready)


class _Table:
    """Ragged values by row as a table of fixed width; what does not fit is left out."""

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
