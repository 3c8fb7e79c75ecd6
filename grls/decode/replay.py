"""Work on a device that is captured once and replayed: CUDA graphs, and when they are still right.

A captured piece of work is a list of kernels with the addresses they read and write: replaying it costs one
launch, whatever the host did between the kernels. It is right as long as those tensors lie where they lay and
nothing in it depended on a number that the host has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

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


def cuda_graph(work: Work) -> Work:
    """Capture work on the current GPU as a CUDA graph (torch's notes on CUDA semantics, "CUDA Graphs")."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
