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
from grls.decode.scores import ScoreMode, refuse_nan
from grls.decode.select import select
from grls.decode.slots import Ask, SlotDecoder, SlotSearch
from grls.decode.stop import Scope
from grls.errors import ConfigError
from grls.index import ConstraintIndex
from grls.index.array import ArrayIndex
from grls.index.rows import Ints
from grls.index.tensors import TensorIndex
from grls.models.base import GridGenerator, GridSession

_NOTHING = -torch.inf


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

    def __post_init__(self) -> None:
        if not isinstance(self.index, ArrayIndex) or not hasattr(self.generator, "open_grid"):
            raise ConfigError(
                f"a search on the device needs an encoder-decoder model and the index backend 'array', got "
                f"{type(self.generator).__name__} and {type(self.index).__name__}; take FastDecoder."
            )
        self.check()
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

    def __init__(self, decoder: DeviceDecoder, ask: Ask):
        super().__init__(decoder, ask)
        slots, beams = len(self.queries), decoder.beams
        self.device = decoder.generator.device
        self.session = decoder.generator.open_grid(slots, beams, self.longest)
        self.tensors = decoder.tensors
        self.count = _Count(ask.scope, self.device)
        self.written = np.zeros(slots, dtype=np.int64)  # tokens, as the host knows
        self.owners = torch.zeros(slots, dtype=torch.long, device=self.device)  # the query of each slot
        # [S, K]: the node of each beam, its score, the beam it continues, and the token it has yet to feed.
        self.nodes, self.parents, self.tokens = (
            torch.zeros((slots, beams), dtype=torch.long, device=self.device) for _ in range(3)
        )
        self.scores = self._nothing(slots, beams)
        # [S, k], best first:
        self.result_scores = self._nothing(slots, ask.k)
        self.result_nodes = torch.zeros((slots, ask.k), dtype=torch.long, device=self.device)
        self.damaged = torch.zeros((), dtype=torch.bool, device=self.device)

    @torch.inference_mode()
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        chosen = select(best.rows, best.scores, best.complete, self.options.beams)
        states = self.index.nodes(best.states)
        into = torch.from_numpy(slots).to(self.device)
        self.owners[into] = torch.from_numpy(self.queries[slots]).to(self.device)
        self.parents[into] = 0
        self.written[slots] = 1
        count = len(slots)
        done = _Table(best.rows[chosen.finished], count, self.ask.k)
        live = _Table(best.rows[chosen.live], count, self.options.beams)
        for table, some, scores, values in (
            (done, chosen.finished, self.result_scores, [(self.result_nodes, states)]),
            (live, chosen.live, self.scores, [(self.nodes, states), (self.tokens, best.tokens)]),
        ):
            scores[into] = torch.from_numpy(table.of(best.scores[some], -np.inf)).to(self.device)
            for kept, new in values:
                kept[into] = torch.from_numpy(table.of(new[some], 0)).to(self.device)
        self._drop_beaten()
        self._stop()

    @torch.inference_mode()
    def advance(self) -> None:
        """Every beam writes one token."""
        self.session.feed(self.parents, self.tokens)
        logits = self.session.every()
        alive = self.scores > _NOTHING
        width = max(self.tensors.most(self.options.beams, t) for t in self.written[self.queries >= 0])
        children = self.tensors.children(self.nodes, self.session.written, alive, width)
        low, high = self.tensors.span(children.nodes)
        remaining = self.count.remaining(self.owners, low, high)
        valid = children.valid & (remaining > 0)
        steps = self._steps(logits, children.beams, children.tokens, valid)
        scores = (self.scores.gather(1, children.beams) + steps).masked_fill(~valid, _NOTHING)
        complete = children.tokens == self.index.rows.end
        if self.options.stops_early:
            complete |= remaining == 1
        best = scores.topk(self.options.beams)
        ended = best.values.masked_fill(~complete.gather(1, best.indices), _NOTHING)
        self._add(ended, children.nodes.gather(1, best.indices))
        live = scores.masked_fill(complete, _NOTHING).topk(self.options.beams)
        self.scores = live.values
        self.nodes, self.parents, self.tokens = (
            some.gather(1, live.indices) for some in (children.nodes, children.beams, children.tokens)
        )
        self.written += 1
        self._drop_beaten()
        self._stop()

    def _steps(self, logits: Tensor, beams: Tensor, tokens: Tensor, valid: Tensor) -> Tensor:
        """``[S, C]`` log-probability (nats) of each candidate's token."""
        vocabulary = logits.shape[-1]
        wanted = logits.flatten(1).gather(1, beams * vocabulary + tokens).double()
        wanted = wanted.masked_fill(~valid, _NOTHING)
        self.damaged |= wanted.isnan().any()
        if self.options.mode == "full":
            found = wanted - logits.logsumexp(-1).double().gather(1, beams)
            self.damaged |= (found.isnan() & valid).any()
            return found
        top = self._nothing(*logits.shape[:2]).scatter_reduce(1, beams, wanted, "amax")
        top = top.masked_fill(top == _NOTHING, 0.0)  # a beam with nothing to write
        shares = (wanted - top.gather(1, beams)).exp()
        sums = torch.zeros_like(top).scatter_add(1, beams, shares)
        return wanted - (top + sums.log()).gather(1, beams)

    def _add(self, scores: Tensor, nodes: Tensor) -> None:
        """Enter finished candidates into the results, keeping the k best."""
        kept = torch.cat((self.result_scores, scores), 1).topk(self.ask.k)
        self.result_scores = kept.values
        self.result_nodes = torch.cat((self.result_nodes, nodes), 1).gather(1, kept.indices)

    def _drop_beaten(self) -> None:
        """Drop beams that cannot enter the results any more: scores never rise."""
        self.scores = self.scores.masked_fill(self.scores <= self.result_scores[:, -1:], _NOTHING)

    def _stop(self) -> None:
        """Release decided slots: where the host waits for the device, once a step and for what is decided."""
        alive = (self.scores > _NOTHING).any(1)
        told = torch.cat((alive, self.damaged[None])).cpu().numpy()
        if told[-1]:
            refuse_nan(np.array([np.nan]))
        ready = np.flatnonzero(~told[:-1] & (self.queries >= 0))
        if not len(ready):
            return
        places = torch.from_numpy(ready).to(self.device)
        scores, nodes = self.result_scores[places].tolist(), self.result_nodes[places].cpu().numpy()
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
        return torch.full(shape, _NOTHING, dtype=torch.float64, device=self.device)


class _Count:
    """What each query may find, counted by ranges of rows on the device.

    Args:
        scope: What each query may find.
        device: Where.
    """

    def __init__(self, scope: Scope, device: torch.device):
        hidden, subsets, held, self._stride = scope.lists()
        self._hidden, self._subsets, self._held = (
            torch.from_numpy(some).to(device) for some in (hidden, subsets, held)
        )

    def remaining(self, queries: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Rows of ``low[s, c]:high[s, c]`` that query ``queries[s]`` may find, ``[S, C]``."""
        count = high - low
        if len(self._held):
            subset = self._subsets[queries][:, None]
            within = self._between(self._held, subset.clamp(min=0), low, high)
            count = torch.where(subset >= 0, within, count)
        if len(self._hidden):
            count = count - self._between(self._hidden, queries[:, None], low, high)
        return count

    def _between(self, keys: Tensor, owners: Tensor, low: Tensor, high: Tensor) -> Tensor:
        base = owners * self._stride
        return torch.searchsorted(keys, base + high) - torch.searchsorted(keys, base + low)


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
