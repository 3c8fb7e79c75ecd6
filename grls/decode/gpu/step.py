"""A whole step of the search on the device: the model's forward pass, and what is decided from its logits.

Legend: S slots (queries in flight), K beam width, C candidates of a slot at most, k results a query.

A step reads and writes tensors of a :class:`Board` and nothing else, so the same two functions
(:func:`write`, :func:`settle`) serve as they are, compiled by ``torch.compile`` into one graph each, and, on
a GPU, captured together in one CUDA graph that the host starts by one call. They are compiled apart because
their shapes vary apart: the model's with the steps that a query has written (rounded up by doubling), the
decision's with the candidates there can be (rounded up to a power of four). So there are few of either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import torch
from torch import Tensor

from grls.decode.gpu.decision import NOTHING, Count, Rules, Standing, decide_step
from grls.decode.gpu.replay import CudaGraphs, Replays
from grls.decode.scope import Scope
from grls.index.tensors import TensorIndex
from grls.models.base import GridGenerator, GridSession, Room

_SHAPES = 256
"""Shapes of one function that are compiled at most, in one process; torch's own limit is 8."""


class Board:
    """All that a step reads and writes, beside model and index; its tensors stay where they are.

    Args:
        generator: The model.
        slots: S.
        beams: K.
        results: k.
        longest: Tokens of an input at most.
        fixed: For many searches and few shapes; otherwise for one search, as small as can be.
    """

    @torch.inference_mode()  # all of them alike: a compiled step tells tensors of inference from others
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
        self.told = torch.zeros(slots + 1, dtype=torch.bool, device=device)
        """``[S + 1]`` whether each slot has a beam that lives; and whether a logit was no number."""
        self._weights: tuple[int, ...] = ()

    @torch.inference_mode()
    def begin(self, scope: Scope) -> None:
        """Make ready for the queries of a scope."""
        self.session.begin()
        self.count.read(scope)
        for some in self.standing:
            some.zero_()
        self.standing.scores.fill_(NOTHING)
        self.standing.result_scores.fill_(NOTHING)
        self._weights = self._generator.addresses()

    @property
    def layout(self) -> Hashable:
        """The same as long as every tensor that a step touches lies where it lay."""
        return self.session.moved, self.count.moved, self._weights


def write(session: GridSession, standing: Standing, room: Room) -> Tensor:
    """The model's part of a step: every beam feeds its token. Returns the logits, ``[S, K, V]``."""
    return session.write(standing.parents, standing.tokens, room)


def settle(
    standing: Standing,
    told: Tensor,
    logits: Tensor,
    written: Tensor,
    owners: Tensor,
    index: TensorIndex,
    count: Count,
    rules: Rules,
    width: int,
) -> None:
    """The rest of a step: :func:`grls.decode.gpu.decision.decide_step`, its outcome written over
    ``standing``.
    """
    new = decide_step(standing, logits, written, owners, index, count, rules, width)
    for kept, some in zip(standing, new, strict=True):
        kept.copy_(some)
    tell(standing, told)


def tell(standing: Standing, told: Tensor) -> None:
    """Write down what the host wants to know of a step; see :attr:`Board.told`."""
    told[:-1] = (standing.scores > NOTHING).any(1)
    told[-1] = standing.damaged


class DeviceStep:
    """One step after another on a board.

    Args:
        board: What it works on.
        index: What may be written.
        rules: What is asked.
        compiled: Compile it, and on a GPU replay it as a CUDA graph.
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
        graphs = compiled and board.told.device.type == "cuda"
        self.replays = Replays(CudaGraphs(board.told.device)) if graphs else None

    @torch.inference_mode()
    def __call__(self, width: int) -> None:
        """Every beam writes one token.

        Args:
            width: C; where the step is compiled it is rounded up.
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
                board.standing, board.told, logits, board.session.written, board.owners, self._index,
                board.count, self._rules, width,
            )  # fmt: skip


def rounded(width: int) -> int:
    """The next power of four: few shapes, so that little is compiled."""
    return 1 << 2 * -(-(width - 1).bit_length() // 2)
