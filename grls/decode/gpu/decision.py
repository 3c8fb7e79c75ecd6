"""The decisions of one step of the search on the device, as a function of tensors only.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, V vocabulary, I
priors, R rows of the index. The host needs no value from the device meanwhile, so the function
can be compiled as a whole (:mod:`grls.decode.gpu.search`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from grls.data.types import ScoreMode
from grls.decode.prior import Prior, PriorMasses, Scoped
from grls.decode.scope import Scope
from grls.index.array import ArrayIndex
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.index.tensors import TensorIndex
from grls.models.base import Floats

if TYPE_CHECKING:
    from grls.models.sessions.grid import GridMemory

NOTHING = -torch.inf
"""The score where there is no beam or result."""
_BEYOND = torch.iinfo(torch.long).max
_PART = 1 << 28  # bytes of masses that are summed up together: a load takes little more than the table
_LEAST = 10
"""The log to base two of the least length of a list with fixed addresses."""


class Rules(NamedTuple):
    """The end token of the index, and the options of :class:`grls.decode.beam.BeamSearch`."""

    end: int
    early_stop: bool
    mode: ScoreMode
    threshold: float | None = None


class Standing(NamedTuple):
    """The state of a search.

    Attributes:
        nodes: ``[S, K]`` the node of each beam in the index.
        scores: ``[S, K]`` log-probabilities (nats), including the scores of priors.
        own: ``[S, K]`` the same without the scores of priors, unless these are normalized.
        parents: ``[S, K]`` the beam that each beam continues.
        tokens: ``[S, K]`` the token that each beam will feed next.
        result_scores: ``[S, K]`` the scores of the results, best first; ``result_nodes``: their nodes.
        damaged: Whether a logit was NaN.
    """

    nodes: Tensor
    scores: Tensor
    own: Tensor
    parents: Tensor
    tokens: Tensor
    result_scores: Tensor
    result_nodes: Tensor
    damaged: Tensor


class Asked(NamedTuple):
    """The queries in the slots: which of K beams they have, ``[S, K]``, and k, ``[S]``."""

    within: Tensor
    k: Tensor


class Count:
    """Counts the passages that each query may find in ranges of rows, on the device.

    ``fixed``: the lists of all scopes are kept in the same tensors, which only grow: there are few
    shapes.
    """

    def __init__(self, device: torch.device, fixed: bool = False):
        self._fixed = fixed
        self._stride = 0
        self._loaded: tuple[Subset, ...] = ()  # the subsets whose rows are in _held
        self._hidden, self._subsets, self._held = (
            torch.empty(0, dtype=torch.long, device=device) for _ in range(3)
        )

    def read(self, scope: Scope) -> None:
        hidden, subsets, self._stride = scope.hidden_and_subsets()
        # The padding of sorted lists is beyond all rows; the padding of the list of subsets is never read.
        self._hidden = self._stored(self._hidden, hidden, _BEYOND)
        self._subsets = self._stored(self._subsets, subsets, -1)
        # A filter can have as many rows as there are passages, so the same filters are not read again.
        if [*map(id, scope.subsets)] != [*map(id, self._loaded)]:
            self._held = self._stored(self._held, scope.held(), _BEYOND)
            self._loaded = scope.subsets

    @property
    def counts(self) -> bool:
        """Whether any query may not find all passages."""
        return len(self._hidden) > 0 or len(self._held) > 0

    def tensors(self) -> list[Tensor]:
        return [self._hidden, self._subsets, self._held]

    def _stored(self, room: Tensor, values: Ints, padding: int) -> Tensor:
        new = torch.from_numpy(values).to(room.device)
        if not self._fixed:
            return new
        if len(new) > len(room):
            room = torch.empty(
                1 << max(_LEAST, (len(new) - 1).bit_length()), dtype=torch.long, device=room.device
            )
        room[: len(new)] = new
        room[len(new) :] = padding
        return room

    def remaining(self, low: Tensor, high: Tensor) -> Tensor:
        """``[S, C]`` the number of rows of ``low[s, c]:high[s, c]`` that the query of slot s may find."""
        count, slots = high - low, len(low)
        if len(self._held):
            subset = self._subsets[:slots, None]
            within = self._between(self._held, subset.clamp(min=0), low, high)
            count = torch.where(subset >= 0, within, count)
        if len(self._hidden):
            owners = torch.arange(slots, device=low.device)[:, None]
            count = count - self._between(self._hidden, owners, low, high)
        return count

    def _between(self, keys: Tensor, owners: Tensor, low: Tensor, high: Tensor) -> Tensor:
        base = owners * self._stride
        return torch.searchsorted(keys, base + high) - torch.searchsorted(keys, base + low)


class Left:
    """The candidates that a search does not continue, of each slot's query: its frontier."""

    def __init__(self, slots: int, device: torch.device):
        self.counts = torch.zeros(slots, dtype=torch.long, device=device)
        self.nodes = torch.zeros((slots, 1), dtype=torch.long, device=device)  # the last column: of no one
        self.scores = torch.zeros((2, slots, 1), dtype=torch.float64, device=device)

    def room(self, most: int) -> None:
        missing = most + 1 - self.nodes.shape[1]
        if missing > 0:
            missing = max(missing, 1 << most.bit_length())
            self.nodes = functional.pad(self.nodes, (0, missing))
            self.scores = functional.pad(self.scores, (0, missing))

    def add(self, chosen: Tensor, nodes: Tensor, scores: Tensor, own: Tensor) -> None:
        place = self.counts[:, None] + chosen.cumsum(1) - 1
        place = torch.where(chosen, place, self.nodes.shape[1] - 1)
        self.nodes.scatter_(1, place, nodes)
        self.scores.scatter_(2, place.expand(2, -1, -1), torch.stack((scores, own)))
        self.counts.add_(chosen.sum(1))

    def of(self, slots: Tensor) -> tuple[Ints, Ints, Floats, Floats]:
        """The candidates of these slots, for the host: the number of the slot, node, score, own score."""
        counts = self.counts[slots].cpu().numpy()
        most = int(counts.max())
        rows, columns = np.nonzero(np.arange(most) < counts[:, None])
        scores, own = (part.cpu().numpy()[rows, columns] for part in self.scores[:, slots, :most])
        return rows, self.nodes[slots, :most].cpu().numpy()[rows, columns], scores, own


class NodeMasses(PriorMasses):
    """The masses of the queries in flight, as a table on the device, by prior, slot and node.

    The masses of all nodes are summed up once a query, and a step looks them up. Tensors of ``old`` are used
    again. Memory: 8 bytes times nodes (at most 2 R) per slot and prior.
    """

    def __init__(
        self,
        prior: Prior,
        index: ArrayIndex,
        scope: Scope,
        slots: int,
        tensors: TensorIndex,
        old: NodeMasses | None = None,
    ):
        super().__init__(prior, index, scope, slots)
        self._tensors, self._array = tensors, index
        weights = torch.tensor([part.weight for part in self._parts], dtype=torch.float64)
        shape = len(weights), slots, tensors.places
        if old is not None and old.logs.shape != shape:
            old = None
        self.weights: Tensor = weights.to(tensors.device)[:, None, None] if old is None else old.weights
        self.weights.copy_(weights[:, None, None])
        self.logs: Tensor = self.weights.new_zeros(shape) if old is None else old.logs
        """``[I, S, nodes]`` log-masses in each of I priors."""
        first = index.nodes(index.allowed(np.array([index.start()])).states)
        self._first = tensors.place(torch.from_numpy(first).to(tensors.device))

    def _put(self, part: int, slots: Ints, masses: list[Floats], scoped: list[Scoped]) -> None:
        most = max(1, _PART // (8 * self._tensors.places))
        for part_of in (slice(at, at + most) for at in range(0, len(slots), most)):
            rows = np.zeros((len(slots[part_of]), len(self._array.rows)))
            for row, mass, (held, _) in zip(rows, masses[part_of], scoped[part_of], strict=True):
                row[slice(None) if held is None else held] = mass
            into, leaves = (torch.from_numpy(some).to(self.logs.device) for some in (slots[part_of], rows))
            self.logs[part, into] = self._tensors.under(leaves).log_()

    def with_masses(self, steps: Tensor, nodes: Tensor, beams: Tensor, valid: Tensor, count: int) -> Tensor:
        """``[S, C]`` the scores of candidates, including those of priors (``Masses.with_priors``)."""
        places = self._tensors.place(nodes).expand(len(self.logs), -1, -1)
        logs = self.logs.gather(2, places).masked_fill(~valid, NOTHING)
        of_all = _log_sums(logs, beams.expand_as(logs), count).gather(2, beams.expand_as(logs))
        scores = steps + (self.weights * (logs - of_all)).sum(0)
        if not self.normalized:
            return scores
        scores = scores.masked_fill(~valid, NOTHING)
        return scores - _log_sums(scores, beams, count).gather(1, beams)

    def table(self, slots: Ints, low: Ints, high: Ints) -> Tensor:
        into = torch.from_numpy(slots).to(self.logs.device)[:, None]
        shares = self.logs[:, into, self._first] - self.logs[:, into, 0]
        return (self.weights * shares).masked_fill(shares == NOTHING, 0.0).sum(0)

    def added(self, slots: Ints, states: Ints) -> Floats:
        if self.normalized:
            return np.zeros(len(states))
        nodes = torch.from_numpy(self._array.nodes(states)).to(self.logs.device)
        rows, places = torch.from_numpy(slots).to(self.logs.device), self._tensors.place(nodes)
        shares = self.logs[:, rows, places] - self.logs[:, rows, 0]
        sums: Floats = (self.weights[..., 0] * shares).sum(0).cpu().numpy()
        return sums


class Board:
    """All tensors that a step reads and writes, besides model and index; they keep their addresses.

    ``fixed``: the board serves many searches with few shapes; otherwise one, and is as small as possible.
    """

    @torch.inference_mode()  # for all tensors alike: a compiled step distinguishes inference tensors
    def __init__(self, generator: Any, slots: int, beams: int, longest: int, fixed: bool):
        device = generator.device
        self._generator = generator
        self.session: GridMemory = generator.open_grid(slots, beams, longest, fixed)
        self.count = Count(device, fixed)
        integers = partial(torch.zeros, dtype=torch.long, device=device)
        scores = partial(torch.zeros, dtype=torch.float64, device=device)
        self.asked = Asked(torch.zeros((slots, beams), dtype=torch.bool, device=device), integers(slots))
        self.standing = Standing(
            nodes=integers((slots, beams)),
            scores=scores((slots, beams)),
            own=scores((slots, beams)),
            parents=integers((slots, beams)),
            tokens=integers((slots, beams)),
            result_scores=scores((slots, beams)),
            result_nodes=integers((slots, beams)),
            damaged=torch.zeros((), dtype=torch.bool, device=device),
        )
        self.masses: NodeMasses | None = None
        self.left: Left | None = None
        self._left: Left | None = None  # kept for later searches
        self.flags = integers(slots + 1)
        """``[S + 1]`` 0 for a slot without a live beam, else 1 + the size of its frontier; the last one:
        whether a logit was NaN."""
        self._scope: Scope | None = None
        self._weights: tuple[Hashable, ...] = ()

    @torch.inference_mode()
    def begin(self, scope: Scope) -> None:
        if self._scope is not None:  # a session begins as it is opened
            self.session.begin()
        self.serve(scope, None, False)
        for tensor in (*self.standing, *self.asked):
            tensor.zero_()
        self.asked.k.fill_(1)
        self.standing.scores.fill_(NOTHING)
        self.standing.result_scores.fill_(NOTHING)
        self._weights = self._generator.addresses()

    def serve(self, scope: Scope, masses: NodeMasses | None, frontier: bool) -> None:
        if scope is not self._scope:
            self.count.read(scope)
            self._scope = scope
        self.masses = masses
        if frontier and self._left is None:
            self._left = Left(len(self.flags) - 1, self.flags.device)
        self.left = self._left if frontier else None

    def tell(self) -> None:
        live = (self.standing.scores > NOTHING).any(1)
        self.flags[:-1] = live if self.left is None else live * (1 + self.left.counts)
        self.flags[-1] = self.standing.damaged

    @property
    def layout(self) -> Hashable:
        """A value that does not change as long as all tensors of a step keep their addresses."""
        tensors = [self.session.visible, *self.count.tensors()]
        if self.left is not None:
            tensors += [self.left.counts, self.left.nodes, self.left.scores]
        if self.masses is not None:
            tensors.append(self.masses.logs)
        normalized = self.masses is not None and self.masses.normalized
        return self._weights, normalized, *((tensor.data_ptr(), tensor.shape) for tensor in tensors)


def decide_step(
    board: Board, logits: Tensor, index: TensorIndex, rules: Rules, width: int, ends: bool = True
) -> None:
    """Let every beam write one token, from logits ``[S, K, V]``.

    ``width`` is C; ``ends`` is false if no passage can be complete after this token.
    """
    standing, asked, masses = board.standing, board.asked, board.masses
    beams = standing.scores.shape[1]
    children = index.children(standing.nodes, board.session.written, standing.scores > NOTHING, width)
    below, valid, remaining = None, children.valid, None  # the nodes of all candidates, if something asks
    if rules.early_stop or board.count.counts or masses is not None or board.left is not None:
        below = index.after(standing.nodes, children)
        remaining = board.count.remaining(*index.span(below))
        valid = valid & (remaining > 0)
    steps = _steps(logits, children.beams, children.tokens, valid, rules.mode)
    own = None
    if masses is not None and below is not None:
        own = None if masses.normalized else standing.own.gather(1, children.beams) + steps
        steps = masses.with_masses(steps, below, children.beams, valid, beams)
    scores = torch.where(valid, standing.scores.gather(1, children.beams) + steps, NOTHING)
    own = scores if own is None else own
    live = best = scores.topk(beams)
    result_scores, result_nodes = standing.result_scores, standing.result_nodes
    if ends:
        complete = children.tokens == rules.end
        if rules.early_stop and remaining is not None:
            complete = complete | (remaining == 1)
        ended = torch.where(complete.gather(1, best.indices) & asked.within, best.values, NOTHING)
        best_results = torch.cat((result_scores, ended), 1).topk(beams)
        wanted = torch.arange(beams, device=scores.device) < asked.k[:, None]
        result_scores = torch.where(wanted, best_results.values, NOTHING)
        ended_nodes = index.after(standing.nodes, children.at(best.indices))
        result_nodes = torch.cat((result_nodes, ended_nodes), 1).gather(1, best_results.indices)
        live = scores.masked_fill(complete, NOTHING).topk(beams)
    chosen = children.at(live.indices)
    nodes = index.after(standing.nodes, chosen)
    kept = torch.where(asked.within, live.values, NOTHING)
    if ends or board.left is not None:
        # A beam that cannot enter the results any more is dropped.
        stays = kept > result_scores.gather(1, asked.k[:, None] - 1)
        if board.left is not None and below is not None:
            if rules.threshold is not None:
                top = torch.maximum(kept.amax(1), result_scores[:, 0])
                stays = stays & (kept >= top[:, None] - rules.threshold)
            board.left.add(valid.scatter(1, live.indices, ~stays) & valid, below, scores, own)
        kept = torch.where(stays, live.values, NOTHING)
    new = Standing(
        nodes,
        kept,
        kept if own is scores else own.gather(1, live.indices),
        chosen.beams,
        chosen.tokens,
        result_scores,
        result_nodes,
        standing.damaged | best.values.isnan().any(),  # topk places NaN first
    )
    torch._foreach_copy_(list(standing), list(new))
    board.tell()


def _steps(logits: Tensor, beams: Tensor, tokens: Tensor, valid: Tensor, mode: ScoreMode) -> Tensor:
    """``[S, C]`` log-probability (nats) of each candidate's token."""
    positions = beams * logits.shape[-1] + tokens
    if mode == "full":
        return logits.log_softmax(-1).flatten(1).gather(1, positions).double()
    wanted = torch.where(valid, logits.flatten(1).gather(1, positions).double(), NOTHING)
    return wanted - _log_sums(wanted, beams, logits.shape[1]).gather(1, beams)


def _log_sums(values: Tensor, beams: Tensor, count: int) -> Tensor:
    """``[..., K]`` the log of the sum of exponentials of each beam's candidates, from ``[..., C]``."""
    nothing = values.new_full((*values.shape[:-1], count), NOTHING)
    top = nothing.scatter_reduce(-1, beams, values, "amax")
    top = top.masked_fill(top == NOTHING, 0.0)  # for a beam without a candidate
    shares = (values - top.gather(-1, beams)).exp()
    return top + torch.zeros_like(top).scatter_add(-1, beams, shares).log()
