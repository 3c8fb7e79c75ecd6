"""Constrained beam search on the model's device: the search of :mod:`grls.decode.beam`, for a GPU.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, V vocabulary, k results a
query.

On a GPU a step costs what its kernels cost to launch, not what they compute. So every beam of every slot
writes a token in every step, forced or not, and all that a step decides (what may follow, its score, which
candidates live, which results they displace) is a tensor that stays where it is. Only a bit a slot reaches
the host each step: whether it is decided. Then the host reads its results and gives its place to the next
query; a slot's first step is that of the fast search (:mod:`grls.decode.beginnings`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from grls.decode.beginnings import Best
from grls.decode.decision import NOTHING, Count, Rules, Standing, decide, without_beaten
from grls.decode.scores import ScoreMode, refuse_nan
from grls.decode.select import select
from grls.decode.slots import Ask, SlotDecoder, SlotSearch
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
        beams: Beam width K.
        mode: Score mode, ``renormalized`` or ``full``.
        early_stop: Stop a prefix when one passage is left under it. None means: where it is exact, that
            is under ``renormalized``. Under ``full`` the score of a stopped passage lacks its last tokens.
        slots: Queries in flight, S.
        compiled: Compile what a step decides by ``torch.compile`` (on a GPU: to few Triton kernels instead of
            some fifty launches). It takes seconds for each new shape, so it pays for many queries.

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
        self.decide = torch.compile(decide, fullgraph=True, dynamic=False) if self.compiled else decide
        self.tensors = TensorIndex(self.index, self.generator.device)

    def prepare(self, ask: Ask) -> SlotSearch:  # noqa: D102
        if self.tensors.device != self.generator.device:  # the model has moved
            self.tensors = TensorIndex(self.index, self.generator.device)
        return _Search(self, ask)


def suits(device: torch.device, index: ConstraintIndex) -> bool:
    """Whether a search for a model on that device is better done there."""
    return device.type == "cuda" and isinstance(index, ArrayIndex)


class _Search(SlotSearch):
    """One run of the search over all queries."""

    session: GridSession
    index: ArrayIndex
    options: DeviceDecoder

    def __init__(self, decoder: DeviceDecoder, ask: Ask):
        super().__init__(decoder, ask)
        slots, beams = len(self.queries), decoder.beams
        self.device = decoder.generator.device
        self.session = decoder.generator.open_grid(slots, beams, self.longest)
        self.count = Count(ask.scope, self.device)
        self.rules = Rules(self.index.rows.end, decoder.stops_early, decoder.mode)
        self.written = np.zeros(slots, dtype=np.int64)  # tokens, as the host knows
        self.owners = torch.zeros(slots, dtype=torch.long, device=self.device)  # the query of each slot
        zeros = torch.zeros((slots, beams), dtype=torch.long, device=self.device)
        self.standing = Standing(
            nodes=zeros,
            scores=self._nothing(slots, beams),
            parents=zeros.clone(),
            tokens=zeros.clone(),
            result_scores=self._nothing(slots, ask.k),
            result_nodes=torch.zeros((slots, ask.k), dtype=torch.long, device=self.device),
            damaged=torch.zeros((), dtype=torch.bool, device=self.device),
        )

    @torch.inference_mode()
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        chosen = select(best.rows, best.scores, best.complete, self.options.beams)
        states = self.index.nodes(best.states)
        into = torch.from_numpy(slots).to(self.device)
        self.owners[into] = torch.from_numpy(self.queries[slots]).to(self.device)
        self.written[slots] = 1
        now = self.standing
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
        self.standing = now._replace(scores=without_beaten(now.scores, now.result_scores))
        self._stop()

    @torch.inference_mode()
    def advance(self) -> None:
        """Every beam writes one token."""
        now, options = self.standing, self.options
        self.session.feed(now.parents, now.tokens)
        logits = self.session.every()
        width = max(options.tensors.most(options.beams, t) for t in self.written[self.queries >= 0])
        self.standing = options.decide(
            now, logits, self.session.written, self.owners, options.tensors, self.count, self.rules,
            _rounded(width) if options.compiled else width,
        )  # fmt: skip
        self.written += 1
        self._stop()

    def _stop(self) -> None:
        """Release decided slots: where the host waits for the device, once a step and for what is decided."""
        now = self.standing
        alive = (now.scores > NOTHING).any(1)
        told = torch.cat((alive, now.damaged[None])).cpu().numpy()
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

    def _nothing(self, *shape: int) -> Tensor:
        return torch.full(shape, NOTHING, dtype=torch.float64, device=self.device)


def _rounded(width: int) -> int:
    """The next power of four: few shapes, so that little is compiled."""
    return 1 << 2 * -(-(width - 1).bit_length() // 2)


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
