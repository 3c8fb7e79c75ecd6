"""Work on a device that is captured once and replayed: CUDA graphs, and when they are still valid.

Captured work is a list of kernels with the addresses that they read and write. A replay costs one launch,
whatever the host did between the kernels. It is valid as long as these tensors keep their addresses and the
work does not depend on a number that the host has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from typing import Any

import torch

from grls.errors import ConfigError, Option, out_of_memory

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
        try:
            with _capturing, torch.cuda.device(self._device), self._captured(graph):
                work()
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            raise ConfigError(
                f"a step of the search cannot be captured as a CUDA graph ({str(error).splitlines()[0]}); "
                f"search without {Option('search.compile')}."
            ) from error
        return partial(self._replay, graph)

    def _captured(self, graph: torch.cuda.CUDAGraph) -> AbstractContextManager[None]:
        # thread_local: allocations of other threads must not end the capture
        return torch.cuda.graph(graph, self._pool, self._stream, "thread_local")

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        with torch.cuda.device(self._device):
            graph.replay()
