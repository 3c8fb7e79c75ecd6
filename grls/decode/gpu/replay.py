"""Work on a device that is captured once and replayed: CUDA graphs, and when they are still right.

A captured piece of work is a list of kernels with the addresses they read and write: replaying it costs one
launch, whatever the host did between the kernels. It is right as long as those tensors lie where they lay and
nothing in it depended on a number that the host has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from typing import Any

import torch

from grls.errors import ConfigError, out_of_memory

Work = Callable[[], None]
Capture = Callable[[Work], Work]
"""Given work, something that does it again; the work itself is not done by capturing it."""


class Replays:
    """Does pieces of work, by replaying what was captured of them.

    The first time a piece is done as it is (what has to be compiled, tuned or loaded is so then); the second
    time it is captured.

    Args:
        capture: How.
    """

    def __init__(self, capture: Capture):
        self._capture = capture
        self._layout: Hashable = None
        self._known: dict[Hashable, Work | None] = {}
        self.captured = 0
        """Pieces captured so far."""

    def __call__(self, key: Hashable, layout: Hashable, work: Work) -> None:
        """Do a piece of work.

        Args:
            key: Which; equal keys stand for equal work.
            layout: Where its tensors lie. Another one than the last time: all that was captured is dropped.
            work: It.
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
"""One capture at a time in a process: what another thread launches meanwhile might end in it."""


class CudaGraphs:
    """Captures work on one GPU as CUDA graphs (torch's notes on CUDA semantics, "CUDA Graphs").

    Its graphs share one pool of memory, for they are replayed one after the other, and nothing of one is read
    once the next has begun.

    Args:
        device: The GPU, which need not be the current one.
    """

    def __init__(self, device: torch.device):
        self._device = device
        with torch.cuda.device(device):
            self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Capture work; see :data:`Capture`.

        Raises:
            ConfigError: It cannot be captured.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with _capturing, torch.cuda.device(self._device), self._captured(graph):
                work()
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            raise ConfigError(
                f"a step of the search cannot be captured as a CUDA graph ({str(error).splitlines()[0]}); "
                "search without --compile."
            ) from error
        return partial(self._replay, graph)

    def _captured(self, graph: torch.cuda.CUDAGraph) -> AbstractContextManager[None]:
        # thread_local: allocations of other threads must not end the capture
        return torch.cuda.graph(graph, self._pool, self._stream, "thread_local")

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.device(self._device):
            graph.replay()
