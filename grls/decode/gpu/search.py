"""Constrained beam search on the device of the model: the search of :mod:`grls.decode.beam`, for a GPU.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, V vocabulary.

On a GPU, the time of a step is the time to launch its kernels. So every beam of every slot writes a token
in every step, forced or not, and all results of a step stay on the device. Only one number a slot reaches
the host: whether the slot is decided, and the size of its frontier. Then the host reads its results and
gives the slot to the next query.

The way of a query is that of :mod:`grls.decode.slots`. A step::

    advance                           how many candidates a beam may have
      DeviceStep                        plain, compiled, or replayed as a CUDA graph:
        write                             the model reads the tokens of all beams and gives logits
        decide_step                       all decisions, from tensors of the Board to the same (decision):
          TensorIndex.children, Count       the tokens that the index allows
          _steps, NodeMasses.with_masses    log-probabilities, and what priors add
          topk                              whole passages are results, the K best prefixes beams
          Board.tell                        which slots are decided
      _release                          the host reads that, and the results of decided slots
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from grls.decode.first_step import Best
from grls.decode.gpu.decision import NOTHING, Board, NodeMasses, Rules, Standing, decide_step
from grls.decode.prior import Prior
from grls.decode.select import refuse_nan
from grls.decode.slots import QuerySource, SlotDecoder, SlotRun
from grls.errors import ConfigError, Option, out_of_memory
from grls.index.array import ArrayIndex
from grls.index.rows import Ints
from grls.index.tensors import TensorIndex
from grls.io.timing import PartTimer
from grls.models.base import Room

if TYPE_CHECKING:
    from grls.models.sessions.grid import GridMemory


@dataclass
class DeviceDecoder(SlotDecoder):
    """The search on the device of a model, to which the index is copied.

    Args:
        compiled: Whether to compile the whole step, including the model, with ``torch.compile``, and on a
            GPU to replay it as a CUDA graph. Each new shape takes seconds to minutes, so it pays off for
            thousands of queries. The memory for S queries is kept, and every search uses all of it.
    """

    slots: int = 64
    compiled: bool = False

    def __post_init__(self) -> None:
        if not self.index.has_tensors:
            raise ConfigError(
                "a search on the device needs the index backend 'array', got "
                f"{type(self.index).__name__}; use FastDecoder."
            )
        super().__post_init__()
        self._tensors: TensorIndex | None = None
        self._compiled_step: tuple[int, tuple[Hashable, ...], DeviceStep] | None = None
        self.masses: NodeMasses | None = None
        """Those of the last search, where its steps were compiled: their tensors are used again."""

    @property
    def tensors(self) -> TensorIndex:
        """The index on the device of the model, which may have moved."""
        if self._tensors is None or self._tensors.device != self.generator.device:
            assert isinstance(self.index, ArrayIndex)
            self._tensors = TensorIndex(self.index, self.generator.device)
            self._compiled_step = self.masses = None
        return self._tensors

    def run(
        self, source: QuerySource, longest: int, slots: int | None = None, frontiers: bool = False
    ) -> None:
        slots = self.slots if self.compiled or slots is None else slots
        _DeviceRun(self, source, longest, slots, frontiers).run()

    def with_beams(self, beams: int) -> Self:
        assert self.tensors  # on the device once for both
        other = super().with_beams(beams)
        other._compiled_step = other.masses = None
        return other

    def step(self, slots: int, longest: int) -> DeviceStep:
        """The step of a search with inputs of at most ``longest`` tokens.

        A compiled step is kept, with its memory, for the next search.
        """
        if self.compiled:
            longest = max(_LEAST_INPUT, 1 << (longest - 1).bit_length())
            if self._compiled_step is not None:
                stored_longest, weights, step = self._compiled_step
                # Weights at other addresses may be of another type, which the memory must match.
                if stored_longest >= longest and weights == self.generator.addresses():
                    return step
            self._compiled_step = None  # released first, so that there is one memory at a time
        board = Board(self.generator, slots, self.beams, longest, self.compiled)
        rules = Rules(self.index.rows.end, self.stops_early, self.mode, self.threshold)
        step = DeviceStep(board, self.tensors, rules, self.compiled)
        if self.compiled:
            self._compiled_step = longest, self.generator.addresses(), step
        return step


_LEAST_INPUT = 32
"""The least input length, in tokens, for which a step is compiled; longer inputs are rounded up."""


class _DeviceRun(SlotRun):
    session: GridMemory
    index: ArrayIndex
    decoder: DeviceDecoder

    def __init__(
        self, decoder: DeviceDecoder, source: QuerySource, longest: int, slots: int, frontiers: bool
    ):
        super().__init__(decoder, source, slots, frontiers)
        self.step = decoder.step(slots, longest)
        self.board = self.step.board
        self.board.begin(self.scope)
        self.session = self.board.session
        self.device = decoder.generator.device
        self.written = np.zeros(slots, dtype=np.int64)  # tokens of each slot, counted by the host
        self.left = 0  # the most candidates of a slot that were not continued, as far as the host knows

    def open_masses(self, prior: Prior) -> NodeMasses:
        decoder = self.decoder
        masses = NodeMasses(prior, self.index, self.scope, len(self.results), decoder.tensors, decoder.masses)
        decoder.masses = masses if decoder.compiled else None
        return masses

    @torch.inference_mode()
    def enter(self, slots: Ints, nodes: Ints, best: Best) -> None:
        board, owners = self.board, slots[best.rows]
        _, live, _ = self.cut(owners, best.states, best.scores, best.complete, self.widths)
        rows, states, scores = best.rows[live], best.states[live], best.scores[live]
        own = scores if self.masses is None else scores - self.masses.added(owners[live], states)
        results = [self.results[slot] for slot in slots.tolist()]
        result_rows = np.repeat(np.arange(len(slots)), [len(found) for found in results])
        pairs = [pair for found in results for pair in found]
        result_scores = np.array([score for score, _ in pairs], dtype=np.float64)
        result_nodes = self.index.nodes(np.array([state for _, state in pairs], dtype=np.int64))
        now, into = board.standing, self._tensor(slots)
        now.parents[into] = 0
        asked = np.arange(now.scores.shape[1]) < self.widths[:, None], np.array(self.k_of_slot)
        for tensor, new in zip(board.asked, asked, strict=True):
            tensor[into] = self._tensor(new[slots])
        for table, at, values, filling in (
            (now.scores, rows, scores, NOTHING), (now.own, rows, own, NOTHING),
            (now.nodes, rows, self.index.nodes(states), 0), (now.tokens, rows, best.tokens[live], 0),
            (now.result_scores, result_rows, result_scores, NOTHING),
            (now.result_nodes, result_rows, result_nodes, 0),
        ):  # fmt: skip
            filled = np.full((len(slots), table.shape[1]), filling, dtype=values.dtype)
            filled[at, np.arange(len(at)) - np.searchsorted(at, at)] = values
            table[into] = self._tensor(filled)
        self.written[slots] = 1
        board.serve(self.scope, self.masses, self.gathering is not None)
        if board.left is not None:
            board.left.counts[into] = 0
        board.tell()
        self._release()

    def advance(self) -> None:
        written = np.unique(self.written[self.busy]).tolist()
        tensors = self.decoder.tensors
        width = max(tensors.most(self.decoder.beams, t) for t in written)
        ends = self.decoder.stops_early or written[-1] + 1 >= tensors.shortest
        # The constraint is part of the step.
        with PartTimer("decoder", int(self.busy.sum()) * self.decoder.beams):
            self.step(width, self.left, ends)
            self.written += 1
            self._release()

    @torch.inference_mode()
    def drop(self, slots: Ints) -> None:
        super().drop(slots)
        self.board.standing.scores[self._tensor(slots)] = NOTHING
        self.session.release(slots)

    @torch.inference_mode()
    def _release(self) -> None:
        """Free the slots of decided queries; here the host waits for the device."""
        flags = self.board.flags.cpu().numpy()
        if flags[-1]:
            refuse_nan(np.array([np.nan]))
        self.left = int(flags[:-1].max()) - 1
        ready = np.flatnonzero((flags[:-1] == 0) & self.busy)
        if not len(ready):
            return
        now, slots = self.board.standing, self._tensor(ready)
        scores, nodes = now.result_scores[slots].tolist(), now.result_nodes[slots].cpu().numpy()
        states = self.index.states(nodes, 0).tolist()
        for slot, *columns in zip(ready.tolist(), scores, states, strict=True):
            self.results[slot] = [pair for pair in zip(*columns, strict=True) if pair[0] > NOTHING]
        if self.gathering is not None and self.board.left is not None:
            rows, nodes, *both = self.board.left.of(slots)
            self.gathering.add(ready[rows], self.index.states(nodes, 0), *both)
        self.release(ready)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


# A step reads and writes only tensors of a :class:`Board`. So the same two functions (:func:`write`,
# :func:`decide_step`) can run as they are, be compiled by ``torch.compile`` into one graph each, and, on a
# GPU, be captured together in one CUDA graph that the host starts with one call. They are compiled separately
# because their shapes vary independently: the shapes of the model with the number of steps (rounded up by
# doubling), those of the decisions with the number of candidates (rounded up to a power of four).

_SHAPES = 256
"""The most shapes of one function that are compiled in a process; the default of torch is 8."""


def write(session: GridMemory, standing: Standing, room: Room) -> Tensor:
    """The model's part of a step: every beam feeds its token. Returns the logits, ``[S, K, V]``."""
    return session.write(standing.parents, standing.tokens, room)


class DeviceStep:
    """Runs the steps of a search on a board; compiled and, on a GPU, replayed as CUDA graphs if wanted."""

    def __init__(self, board: Board, index: TensorIndex, rules: Rules, compiled: bool):
        self.board = board
        self._index = index
        self._rules = rules
        self._compiled = compiled
        prepared: Callable[..., Callable[..., Tensor | None]] = (
            partial(torch.compile, fullgraph=True, dynamic=False) if compiled else lambda work: work
        )
        self.write, self.settle = prepared(write), prepared(decide_step)
        graphs = compiled and board.flags.device.type == "cuda"
        self.replays = Replays(CudaGraphs(board.flags.device)) if graphs else None

    @torch.inference_mode()
    def __call__(self, width: int, left: int = 0, ends: bool = True) -> None:
        """Every beam writes one token; ``width`` is C, which a compiled step rounds up.

        ``left``: the largest frontier of a slot so far. ``ends``: see :func:`decide_step`; true where it
        is compiled, once.
        """
        room = self.board.session.room()
        if self._compiled:
            width = rounded(width)
        board = self.board
        if board.left is not None:
            board.left.room(left + width)

        def work() -> None:
            with board.session.attending(), torch._dynamo.config.patch(recompile_limit=_SHAPES):
                logits = self.write(board.session, board.standing, room)
                self.settle(board, logits, self._index, self._rules, width, ends or self._compiled)

        if self.replays is None:
            work()
        else:
            self.replays((room, width), board.layout, work)


def rounded(width: int) -> int:
    """The next power of four, so that few shapes are compiled."""
    return 1 << 2 * -(-(width - 1).bit_length() // 2)


Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Takes work and returns a function that repeats it; capturing does not run the work."""


class Replays:
    """Runs pieces of work, by replaying captured pieces (CUDA graphs).

    A replay is one launch of captured kernels. It is valid as long as their tensors keep their addresses
    and the work depends on no number that the host has changed since. The first run of a piece is a
    normal one, in which everything is compiled or loaded; the second run captures it.
    """

    def __init__(self, capture: Capture):
        self._capture = capture
        self._layout: Hashable = None
        self._known: dict[Hashable, Work | None] = {}
        self.captured = 0
        """The number of pieces that were captured so far."""

    def __call__(self, key: Hashable, layout: Hashable, work: Work) -> None:
        """Run a piece of work; equal keys mean equal work.

        If ``layout``, the addresses of all tensors, has changed, all captures are dropped.
        """
        if layout != self._layout:
            self._known.clear()
            self._layout = layout
        if key not in self._known:
            self._known[key] = None
            work()
            return
        replay = self._known[key]
        if replay is None:
            replay = self._known[key] = self._capture(work)
            self.captured += 1
        replay()


_capturing = Lock()
"""One capture at a time in a process: it might record what another thread launches meanwhile."""


class CudaGraphs:
    """Captures work on one GPU as CUDA graphs (torch's notes on CUDA semantics, "CUDA Graphs").

    Its graphs share one pool of memory: nothing of a graph is read after the next one has begun.
    """

    def __init__(self, device: torch.device):
        self._device = device
        with torch.cuda.device(device):
            self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # "thread_local": allocations of other threads do not end the capture.
        options = graph, self._pool, self._stream, "thread_local"
        try:
            with _capturing, torch.cuda.device(self._device), torch.cuda.graph(*options):
                work()
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            raise ConfigError(
                f"a step of the search cannot be captured as a CUDA graph ({str(error).splitlines()[0]}); "
                f"search without {Option('search.compile')}."
            ) from error

        def replay() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        return replay
