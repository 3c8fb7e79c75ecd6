"""A whole step of the search on the device: the forward pass of the model, and the decisions from its logits.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, k results a query.

A step reads and writes only tensors of a :class:`Board`. So the same two functions (:func:`write`,
:func:`settle`) can run as they are, be compiled by ``torch.compile`` into one graph each, and, on a GPU, be
captured together in one CUDA graph that the host starts with one call. They are compiled separately because
their shapes vary independently: the shapes of the model with the number of steps (rounded up by doubling),
those of the decisions with the number of candidates (rounded up to a power of four). So there are few shapes
of either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from grls.decode.gpu.decision import NOTHING, Count, Rules, Standing, decide_step
from grls.decode.scope import Scope
from grls.errors import ConfigError, Option, out_of_memory
from grls.index.tensors import TensorIndex
from grls.models.base import GridGenerator, GridSession, Room

_SHAPES = 256
"""The most shapes of one function that are compiled in a process; the default of torch is 8."""


class Board:
    """All tensors that a step reads and writes, besides model and index; they keep their addresses.

    Args:
        generator: The model.
        slots: S.
        beams: K.
        results: k.
        longest: The most tokens of an input.
        fixed: Whether the board serves many searches with few shapes; otherwise it serves one search and is
            as small as possible.
    """

    @torch.inference_mode()  # for all tensors alike: a compiled step distinguishes inference tensors
    def __init__(
        self, generator: GridGenerator, slots: int, beams: int, results: int, longest: int, fixed: bool
    ):
        device = generator.device
        self._generator = generator
        self.session: GridSession = generator.open_grid(slots, beams, longest, fixed)
        self.count = Count(device, fixed)
        self.owners = torch.zeros(slots, dtype=torch.long, device=device)
        """``[S]`` the query of each slot."""
        integers = partial(torch.zeros, dtype=torch.long, device=device)
        scores = partial(torch.zeros, dtype=torch.float64, device=device)
        self.standing = Standing(
            nodes=integers((slots, beams)),
            scores=scores((slots, beams)),
            parents=integers((slots, beams)),
            tokens=integers((slots, beams)),
            result_scores=scores((slots, results)),
            result_nodes=integers((slots, results)),
            damaged=torch.zeros((), dtype=torch.bool, device=device),
        )
        self.flags = torch.zeros(slots + 1, dtype=torch.bool, device=device)
        """``[S + 1]`` whether each slot has a live beam; the last: whether a logit was NaN."""
        self._weights: tuple[int, ...] = ()

    @torch.inference_mode()
    def begin(self, scope: Scope) -> None:
        """Prepare the board for the queries of a scope."""
        self.session.begin()
        self.count.read(scope)
        for tensor in self.standing:
            tensor.zero_()
        self.standing.scores.fill_(NOTHING)
        self.standing.result_scores.fill_(NOTHING)
        self._weights = self._generator.addresses()

    @property
    def layout(self) -> Hashable:
        """A value that does not change as long as all tensors of a step keep their addresses."""
        return self.session.moved, self.count.moved, self._weights


def write(session: GridSession, standing: Standing, room: Room) -> Tensor:
    """The part of the model in a step: every beam feeds its token. Returns the logits, ``[S, K, V]``."""
    return session.write(standing.parents, standing.tokens, room)


def settle(
    standing: Standing,
    flags: Tensor,
    logits: Tensor,
    written: Tensor,
    owners: Tensor,
    index: TensorIndex,
    count: Count,
    rules: Rules,
    width: int,
) -> None:
    """The rest of a step: :func:`grls.decode.gpu.decision.decide_step` and its result in ``standing``."""
    new = decide_step(standing, logits, written, owners, index, count, rules, width)
    for kept, value in zip(standing, new, strict=True):
        kept.copy_(value)
    tell(standing, flags)


def tell(standing: Standing, flags: Tensor) -> None:
    """Write the flags of a step for the host; see :attr:`Board.flags`."""
    flags[:-1] = (standing.scores > NOTHING).any(1)
    flags[-1] = standing.damaged


class DeviceStep:
    """Runs the steps of a search on a board.

    Args:
        board: The tensors of the search.
        index: The constraint index on the device.
        rules: The options of the search.
        compiled: Whether to compile the step and, on a GPU, to replay it as a CUDA graph.
    """

    def __init__(self, board: Board, index: TensorIndex, rules: Rules, compiled: bool):
        self.board = board
        self._index = index
        self._rules = rules
        self._compiled = compiled
        how: Callable[..., Callable[..., Tensor | None]] = (
            partial(torch.compile, fullgraph=True, dynamic=False) if compiled else lambda work: work
        )
        self.write, self.settle = how(write), how(settle)
        graphs = compiled and board.flags.device.type == "cuda"
        self.replays = Replays(CudaGraphs(board.flags.device)) if graphs else None

    @torch.inference_mode()
    def __call__(self, width: int) -> None:
        """Every beam writes one token.

        Args:
            width: C; a compiled step rounds it up.
        """
        room = self.board.session.room()
        if self._compiled:
            width = rounded(width)
        work = partial(self._work, room, width)
        if self.replays is None:
            work()
        else:
            self.replays((room, width), self.board.layout, work)

    def _work(self, room: Room, width: int) -> None:
        board = self.board
        with board.session.attending(), torch._dynamo.config.patch(recompile_limit=_SHAPES):
            logits = self.write(board.session, board.standing, room)
            self.settle(
                board.standing, board.flags, logits, board.session.written, board.owners, self._index,
                board.count, self._rules, width,
            )  # fmt: skip


def rounded(width: int) -> int:
    """The next power of four, so that few shapes are compiled."""
    return 1 << 2 * -(-(width - 1).bit_length() // 2)


# Work on a device that is captured once and replayed: CUDA graphs, and when they are still valid.
#
# Captured work is a list of kernels with the addresses that they read and write. A replay costs one launch,
# whatever the host did between the kernels. It is valid as long as these tensors keep their addresses and the
# work does not depend on a number that the host has changed since.


Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Takes work and returns a function that repeats it; capturing does not run the work."""


class Replays:
    """Runs pieces of work, by replaying captured ones.

    The first run of a piece is a normal one, in which everything is compiled, tuned or loaded. The second run
    captures it.

    Args:
        capture: Captures work.
    """

    def __init__(self, capture: Capture):
        self._capture = capture
        self._layout: Hashable = None
        self._known: dict[Hashable, Work | None] = {}
        self.captured = 0
        """How many pieces were captured so far."""

    def __call__(self, key: Hashable, layout: Hashable, work: Work) -> None:
        """Run a piece of work.

        Args:
            key: The identity of the work; equal keys mean equal work.
            layout: The addresses of its tensors. If they have changed since the last run, all captures are
                dropped.
            work: The work.
        """
        if layout != self._layout:
            self._known.clear()
            self._layout = layout
        if key not in self._known:
            self._known[key] = None
            work()
            return
        again = self._known[key]
        if again is None:
            again = self._known[key] = self._capture(work)
            self.captured += 1
        again()


_capturing = Lock()
"""One capture at a time in a process: it might record what another thread launches meanwhile."""


class CudaGraphs:
    """Captures work on one GPU as CUDA graphs (torch's notes on CUDA semantics, "CUDA Graphs").

    Its graphs share one pool of memory: they are replayed one after the other, and nothing of a graph is read
    after the next one has begun.

    Args:
        device: The GPU, which need not be the current device.
    """

    def __init__(self, device: torch.device):
        self._device = device
        with torch.cuda.device(device):
            self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Capture work; see :data:`Capture`.

        Raises:
            ConfigError: The work cannot be captured.
        """
        graph = torch.cuda.CUDAGraph()
        how = graph, self._pool, self._stream, "thread_local"  # allocations of other threads do not end it
        try:
            with _capturing, torch.cuda.device(self._device), torch.cuda.graph(*how):
                work()
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            raise ConfigError(
                f"a step of the search cannot be captured as a CUDA graph ({str(error).splitlines()[0]}); "
                f"search without {Option('search.compile')}."
            ) from error
        return partial(self._replay, graph)

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.device(self._device):
            graph.replay()
