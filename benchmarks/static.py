"""A step of beam search over fixed-length ids: the device search beside STATIC (arXiv 2602.22647).

    git clone https://github.com/youtube/static-constraint-decoding PATH
    python -m benchmarks.static PATH

Both search the same random ids (a million of eight tokens, vocabulary 2,048), with the same logits, scores
over the whole vocabulary and no early stop, and have to find the same ids in the same order. The model is a
table of random logits, so that a step is log-softmax, constraint and choice of beams. ``device`` is
:func:`grls.decode.gpu.decision.decide_step` on the tensors of the index, as on a GPU. Memory is that of the
tables on the device. STATIC's code is fetched by whoever runs this; nothing of it is here.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from jsonargparse import auto_cli
from torch import Tensor

from benchmarks.common import END, RESERVED, machine, print_table, seconds
from grls.decode.gpu.decision import NOTHING, Board, Rules, decide_step
from grls.decode.scope import Scope
from grls.errors import ConfigError
from grls.index.array import ArrayIndex
from grls.index.build import index_tokens
from grls.index.rows import Ints
from grls.index.tensors import TensorIndex

REPEATS = 10
"""Searches of each system, in turn; the quickest counts."""


def module(folder: Path, name: str) -> ModuleType:
    """A module of STATIC's checkout.

    Raises:
        ConfigError: The file is not there.
    """
    file = folder / "static_decoding" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"static_{name}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ConfigError(f"{file}: no such file; clone github.com/youtube/static-constraint-decoding there.")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def random_ids(count: int, length: int, vocabulary: int) -> Ints:
    """``[count, length]`` different random ids, sorted."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (count, length))
    unique: Ints = np.unique(ids, axis=0)
    return unique


def fixed_length_index(ids: Ints) -> ArrayIndex:
    """The index of ids ``[N, L]``, whose tokens stand behind the reserved ones."""
    count, length = ids.shape
    tokens = np.full((count, length + 1), END, dtype=np.uint16)
    tokens[:, :-1] = ids + RESERVED
    index = index_tokens(tokens.ravel(), np.arange(count + 1) * (length + 1), END)
    assert isinstance(index, ArrayIndex)
    return index


class Table(torch.nn.Module):
    """A model that answers step after step with the rows of a table, ``[L, B, K, V]``."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits, self.step = logits, 0

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``[B, 1, V]`` in the first step, where there is one beam, ``[B K, 1, V]`` in the others."""
        now = self.logits[self.step]
        self.step += 1
        return (now[:, 0] if self.step == 1 else now.flatten(0, 1)).unsqueeze(1)


class Static:
    """STATIC's index and search."""

    def __init__(self, folder: Path, ids: Ints, logits: Tensor):
        self._search: Callable[..., Tensor] = module(folder, "decoding_pt").sparse_transition_torch
        build = module(folder, "csr_utils").build_static_index
        steps, batch, beams, vocabulary = logits.shape
        self.build, built = seconds(lambda: build(ids, vocabulary))
        csr, pointers, widths, *masks = built
        tensors = [torch.from_numpy(np.asarray(part)).to(logits.device) for part in (csr, pointers, *masks)]
        self.bytes = sum(part.nbytes for part in tensors)
        self._logits = logits
        options: tuple[Any, ...] = (batch, beams, max(beams, 64), 0, steps, vocabulary, widths)
        self._run = partial(self._called, options, tensors)

    def _called(self, options: tuple[Any, ...], tensors: list[Tensor]) -> Tensor:
        return self._search(Table(self._logits), *options, *tensors, self._logits.device)

    def __call__(self) -> Tensor:
        """``[B, K, L]`` the best ids."""
        return self._run()


class Device:
    """Our index on the device, and the steps of its search."""

    def __init__(self, ids: Ints, logits: Tensor):
        batch = logits.shape[1]
        self.build, index = seconds(lambda: fixed_length_index(ids))
        self._index, self._ids = index, ids
        self._tensors = TensorIndex(index, logits.device)
        self.bytes = self._tensors.bytes
        self._rules = Rules(END, False, "full")
        padding = logits.new_full((*logits.shape[:-1], RESERVED), NOTHING)
        self._logits = torch.cat((padding, logits), -1)
        written = torch.zeros(batch, dtype=torch.long, device=logits.device)
        session = SimpleNamespace(written=written, begin=written.zero_, visible=written)
        model = SimpleNamespace(device=logits.device, addresses=tuple, open_grid=lambda *_: session)
        self._board = Board(model, batch, logits.shape[2], logits.shape[0], True)

    @torch.inference_mode()
    def __call__(self) -> Tensor:
        """``[B, K, L]`` the best ids."""
        steps, batch, beams, _ = self._logits.shape
        board = self._board
        board.begin(Scope(self._index, batch))
        board.asked.within.fill_(True)
        board.standing.scores[:, 0] = 0.0
        for step in range(steps):
            board.session.written.fill_(step)
            width = self._tensors.most(beams, step)
            ends = step + 1 >= self._tensors.shortest
            decide_step(board, self._logits[step], self._tensors, self._rules, width, ends)
        low, _ = self._tensors.span(board.standing.nodes)
        return torch.from_numpy(self._ids[low.cpu().numpy()])


def main(
    static: Path,
    count: int = 1_000_000,
    length: int = 8,
    vocabulary: int = 2048,
    batches: tuple[int, ...] = (2, 8, 32),
    beams: tuple[int, ...] = (10, 70),
    device: str | None = None,
) -> None:
    """Measure and print a table.

    Args:
        static: A checkout of github.com/youtube/static-constraint-decoding.
        count: Ids.
        length: Tokens of an id, L.
        vocabulary: Tokens to choose from, V.
        batches: Queries together.
        beams: Beam widths, K.
        device: Where it runs; a GPU if there is one.
    """
    on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    ids = random_ids(count, length, vocabulary)
    print(machine())
    rows = []
    for batch in batches:
        for width in beams:
            torch.manual_seed(0)
            logits = torch.randn(length, batch, width, vocabulary, device=on)
            systems = Static(static, ids, logits), Device(ids, logits)
            theirs, ours = (system().cpu() for system in systems)
            if not torch.equal(theirs.long(), ours.long()):
                raise ConfigError("the searches found other ids, so their times do not compare.")
            runs = [[ended(system, on) / length for system in systems] for _ in range(REPEATS)]
            times = [min(spent) for spent in zip(*runs, strict=True)]
            rows.append(
                [
                    f"{batch}",
                    f"{width}",
                    *(f"{1e3 * time:.2f}" for time in times),
                    f"{times[0] / times[1]:.1f}",
                ]
            )
    header = ["queries", "beams", "STATIC, ms a step", "device, ms a step", "ratio"]
    print_table(f"{len(ids):,} ids of {length} tokens, vocabulary {vocabulary:,}, on {on}", header, rows)
    header = ["", "STATIC", "device", "ratio"]
    pairs = [("build, s", 1.0, "build"), ("tables, MB", 1e-6, "bytes")]
    print_table("index", header, [row(name, scale, *systems, of=of) for name, scale, of in pairs])


def row(name: str, scale: float, theirs: Static, ours: Device, of: str) -> list[str]:
    """A line of the table of the indexes."""
    values = [scale * getattr(system, of) for system in (theirs, ours)]
    return [name, *(f"{value:.2f}" for value in values), f"{values[0] / values[1]:.1f}"]


def ended(search: Callable[[], Tensor], device: torch.device) -> float:
    """Seconds of a search, with what the device has still to do; of one thread those of the processor."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    start = clock()
    search()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start


if __name__ == "__main__":
    auto_cli(main)
