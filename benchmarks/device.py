"""Decoding on a GPU: queries a second by batch and beam width, and the cost of the constraint a step.

    python -m benchmarks.device

The model is random with t5-small's shape, on 80-token passages, in float32. ``generate`` is transformers'
constrained beam search with its best settings, as in :mod:`benchmarks.decode`; ``device`` is the search of
the retrievers on a GPU (:mod:`grls.decode.gpu.search`), ``fast`` the search for CPUs with the model on the
GPU. The constraint is everything except encoder, decoder and head: the time of a search, minus the time of
loading queries, minus the time of the model's part of the same steps, run alone afterwards (compiled and
replayed as a CUDA graph with ``--compiled true``). Compiling takes minutes a row; ``--batches [64] --beams
[10]`` prints only one row. Targets at batch 64 and beam 10: at least 20 times ``generate``, constraint at
most 2 % of a step.

Without a GPU, ``--device cpu`` shows that the benchmark runs; the figures then mean nothing.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from jsonargparse import auto_cli

from benchmarks.common import END, machine, median_seconds, print_table, seconds, synthetic_passages
from benchmarks.decode import generate, random_inputs, t5_small
from benchmarks.index import nested_dict_trie
from grls.decode import DeviceDecoder, FastDecoder
from grls.decode.gpu.search import CudaGraphs, DeviceStep, Replays
from grls.index.array import ArrayIndex
from grls.index.build import index_sequences
from grls.models.base import Room
from grls.models.seq2seq.slots import Seq2SeqGenerator, Seq2SeqGridSession, plant

LONG = 80
_TIMES = 3
TARGETS = {(64, 10): (20, 2.0)}


def wait(device: str) -> None:
    """Wait until the device has finished all work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


@contextmanager
def watched(device: str) -> Iterator[Watch]:
    """Adds up the seconds of loading queries (waiting for the device), and notes the steps."""
    seen = Watch()

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            wait(device)
            spent, result = seconds(partial(work, *arguments))
            wait(device)
            seen.loading += spent
            return result

        return run

    def stepped(self: DeviceStep, width: int) -> None:
        step(self, width)
        seen.step = self

    def counted(self: Seq2SeqGridSession) -> Room:
        seen.rooms.append(room(self))
        return seen.rooms[-1]

    load, shared, room, step = (
        Seq2SeqGridSession.load, Seq2SeqGridSession.shared, Seq2SeqGridSession.room, DeviceStep.__call__,
    )  # fmt: skip
    with (
        mock.patch.object(Seq2SeqGridSession, "load", timed(load)),
        mock.patch.object(Seq2SeqGridSession, "shared", timed(shared)),
        mock.patch.object(Seq2SeqGridSession, "room", counted),
        mock.patch.object(DeviceStep, "__call__", stepped),
    ):
        yield seen


class Watch:
    """Observations of a search: seconds of loading queries, the step, and the rooms of its steps."""

    def __init__(self) -> None:
        self.loading = 0.0
        self.step: DeviceStep | None = None
        self.rooms: list[Room] = []


@torch.inference_mode()
def model_seconds(step: DeviceStep, rooms: list[Room], device: str) -> float:
    """Seconds of the model's part of the same steps, compiled and replayed as in the search.

    The search is over, so no slot has a query, and the same kernels run over tensors of the same shapes.
    """
    session: Any = step.board.session
    replays = None if step.replays is None else Replays(CudaGraphs(step.board.flags.device))

    def write(room: Room) -> None:
        with session.attending():
            step.write(session, step.board.standing, room)

    def every() -> None:
        for room in rooms:
            session.look(room)
            if replays is None:
                write(room)
            else:
                replays(room, None, partial(write, room))
        wait(device)

    if replays is not None:
        every()  # one more call than median_seconds makes, so that a room of a single step is captured
    return median_seconds(every, _TIMES)


def constraint_share(search: Callable[[], object], device: str) -> float:
    """Time of the rest of the steps, in percent of the model's part; not a number without steps."""
    steps = []
    for _ in range(_TIMES):
        with watched(device) as seen:
            wait(device)
            total, _ = seconds(search)
        steps.append(total - seen.loading)
    if seen.step is None:
        return float("nan")
    model = model_seconds(seen.step, seen.rooms, device)
    return 100 * (statistics.median(steps) - model) / model


def main(
    device: str = "cuda",
    passages: int = 100_000,
    batches: tuple[int, ...] = (1, 8, 64),
    beams: tuple[int, ...] = (1, 5, 10),
    rounds: int = 4,
    repeats: int = 5,
    input_length: int = 24,
    compiled: bool = False,
) -> None:
    """Measure and print a table.

    Args:
        device: Device of the model.
        passages: Number of 80-token passages.
        batches: Batch sizes: queries in flight.
        beams: Beam widths.
        rounds: Batches of queries for our decoders.
        repeats: Repeats of our decoders, and of the rival on the first batch; medians count.
        input_length: Tokens of a model input.
        compiled: Compile the whole step, and on a GPU replay it as a CUDA graph.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(
            "error: no CUDA GPU here; --device cpu shows that the benchmark runs, without useful figures."
        )
    print(machine())
    torch.set_float32_matmul_precision("highest")
    sequences = synthetic_passages(passages, LONG, seed=1)
    index = index_sequences(sequences, END)
    trie = nested_dict_trie([row.tolist() for row in sequences])
    gc.freeze()
    assert isinstance(index, ArrayIndex)
    model = t5_small(32_128).to(device)
    trees = plant(Seq2SeqGenerator(model))
    if trees is None:
        raise SystemExit("error: the model cannot be driven as trees; nothing to measure.")
    longest = max(len(row) for row in sequences)
    rows = []
    for batch in batches:
        inputs = random_inputs(batch * rounds, input_length)
        for width in beams:
            ours = DeviceDecoder(trees, index, width, slots=batch, compiled=compiled)
            fast = FastDecoder(trees, index, width, slots=batch)
            generate(model, trie, inputs[:batch], 3, width)
            wait(device)
            rival = partial(generate, model, trie, inputs[:batch], longest, width)
            measured = [seconds(rival) for _ in range(repeats)]
            best = measured[0][1]
            rate = batch / statistics.median(spent for spent, _ in measured)
            rates = [
                len(inputs) / median_seconds(partial(decoder.search, inputs), repeats)
                for decoder in (ours, fast)
            ]
            share = constraint_share(partial(ours.search, inputs), device)
            found = [index.tokens(hits[0].passage).tolist() for hits in ours.search(inputs[:batch])]
            equal = sum(a == b for a, b in zip(found, best, strict=True))
            target = TARGETS.get((batch, width))
            rows.append(
                [
                    str(batch), str(width), f"{rate:.2f}", f"{rates[1]:.1f}", f"{rates[0]:.1f}",
                    f"{rates[0] / rate:.1f}" + (f" (>= {target[0]})" if target else ""),
                    f"{share:.1f}" + (f" (<= {target[1]:g})" if target else ""),
                    f"{equal} of {batch}",
                ]
            )  # fmt: skip
    print_table(
        f"{passages:,} x {LONG} tokens, t5-small shape, random weights, renormalized, queries a second",
        ["batch", "beams", "generate", "fast", "device", "device / generate", "constraint, % of the model",
         "equal top-1"],
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    auto_cli(main)
