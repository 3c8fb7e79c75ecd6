"""Decoding on a GPU: queries a second by batch, beams, context and corpus, and the cost of the constraint.

    python -m benchmarks.device

Models are random. The first table has the shapes of t5-small, t5-base and t5-large, on 80-token passages, in
float32. ``generate`` is transformers' constrained beam search with its best settings, as in
:mod:`benchmarks.decode`, for at most 640 beams together, since each asks Python for its next tokens at each
step; ``device`` is the search of the retrievers on a GPU (:mod:`grls.decode.gpu.search`), ``fast`` the search
for CPUs with the model on the GPU. The second table has causal models of the shapes of SmolLM2-135M and
SmolLM2-1.7B in bfloat16, whose inputs are contexts of so many tokens, on ids of eight tokens out of 2,048;
one query at a time (p50, p99) and several together (queries a second); ``generate`` runs beside beam 10 on
the smallest corpus. Time of a query: prefill and all steps. The constraint is everything except encoder,
decoder and head: the time of a search, minus the time of loading queries, minus the time of the model's part
of the same steps, run alone afterwards (compiled and replayed as a CUDA graph with ``--compiled true``).
Compiling takes minutes a row; ``--t5 [small] --batches [64] --beams [10]`` prints only one row of the first
table, ``--shapes []`` leaves out the second. Targets: at batch 64 and beam 10 at least 20 times ``generate``
and a constraint of at most 2 % of a step; causal, at beam 10 at least 30 times ``generate``, and with 1.7 B
parameters a constraint of at most 0.25 % and beam 256 at context 1,000 in 17.6 ms (NVIDIA's SID-GR on an
H100, without an item tree).

Without a GPU, ``--device cpu`` shows that the benchmark runs; the figures then mean nothing.
"""

from __future__ import annotations

import gc
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from jsonargparse import auto_cli
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.common import END, RESERVED, machine, median_seconds, print_table, seconds, synthetic_passages
from benchmarks.decode import generate, random_inputs, random_t5
from benchmarks.index import nested_dict_trie
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import CudaGraphs, DeviceDecoder, DeviceStep, Replays
from grls.errors import out_of_memory
from grls.index.array import ArrayIndex
from grls.index.build import index_sequences
from grls.index.rows import Rows
from grls.models.base import Room
from grls.models.causal.slots import plant_causal
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant

LONG = 80
_TIMES = 3
TARGETS = {(64, 10): (20, 2.0)}
_RIVAL = 640
"""The most beams together for which ``generate`` is measured."""


def wait(device: str) -> None:
    """Wait until the device has finished all work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


@contextmanager
def watched(device: str, kind: type[Any]) -> Iterator[Watch]:
    """Adds up the seconds of loading queries (waiting for the device), and notes the steps.

    ``kind``: the class of the sessions.
    """
    seen = Watch()

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            wait(device)
            spent, result = seconds(partial(work, *arguments))
            wait(device)
            seen.loading += spent
            return result

        return run

    def stepped(self: DeviceStep, *arguments: Any) -> None:
        step(self, *arguments)
        seen.step = self

    def counted(self: Any) -> Room:
        seen.rooms.append(room(self))
        return seen.rooms[-1]

    load, shared, room, step = kind.load, kind.shared, kind.room, DeviceStep.__call__
    with (
        mock.patch.object(kind, "load", timed(load)),
        mock.patch.object(kind, "shared", timed(shared)),
        mock.patch.object(kind, "room", counted),
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


class Steps(NamedTuple):
    """Milliseconds of a step, and the rest of the steps in percent of the model's part; NaN without steps."""

    milliseconds: float
    constraint: float


def measure_steps(decoder: DeviceDecoder, inputs: list[list[int]], device: str) -> Steps:
    """Search for the inputs and take its steps apart."""
    kind = type(decoder.generator.open_grid(1, 1, 1))
    steps = []
    for _ in range(_TIMES):
        with watched(device, kind) as seen:
            wait(device)
            total, _ = seconds(partial(decoder.search, inputs))
        steps.append(total - seen.loading)
    if seen.step is None:
        return Steps(float("nan"), float("nan"))
    spent, model = statistics.median(steps), model_seconds(seen.step, seen.rooms, device)
    return Steps(1000 * spent / len(seen.rooms), 100 * (spent - model) / model)


SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 1},
    "135m": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
             "num_key_value_heads": 3},
    "1.7b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
             "num_attention_heads": 32, "num_key_value_heads": 32},
}  # fmt: skip
"""Shapes of causal models."""
_IDS, _LENGTH, _DISTINCT = 2048, 8, 5
"""Tokens of the ids, their number in an id, and how many of them no two ids share."""


def random_ids(count: int) -> ArrayIndex:
    """An index of at most ``count`` random ids; memory: 60 bytes an id."""
    rng = np.random.default_rng(1)
    numbers = np.unique(rng.integers(0, _IDS**_DISTINCT, count))
    shared = np.zeros(len(numbers), dtype=np.int64)
    tokens = np.empty((len(numbers), _LENGTH + 1), dtype=np.uint16)
    for place in range(_DISTINCT):
        prefixes = numbers // _IDS ** (_DISTINCT - 1 - place)
        shared[1:] += prefixes[1:] == prefixes[:-1]
        tokens[:, place] = RESERVED + prefixes % _IDS
    tokens[:, _DISTINCT:-1] = rng.integers(RESERVED, RESERVED + _IDS, (len(numbers), _LENGTH - _DISTINCT))
    tokens[:, -1] = END
    offsets, every = np.arange(len(numbers) + 1) * (_LENGTH + 1), np.arange(len(numbers))
    return ArrayIndex.build(Rows.pack(tokens.ravel(), offsets, every, every, END, "whole"), shared)


def random_llama(shape: str, device: str) -> Any:
    """A random causal model of SmolLM2's vocabulary, in bfloat16."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49_152, max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=0,
        eos_token_id=END, pad_token_id=2, **SHAPES[shape],
    )  # fmt: skip
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    return model.to(torch.bfloat16).eval()


def causal_rows(
    shape: str, device: str, indexes: list[ArrayIndex], contexts: Sequence[int], beams: Sequence[int],
    batch: int, queries: int, compiled: bool,
) -> Iterator[list[str]]:  # fmt: skip
    """The rows of one shape."""
    model = random_llama(shape, device)
    trees = plant_causal(model)
    smallest = min(indexes, key=len)
    trie = nested_dict_trie([smallest.tokens(n).tolist() for n in range(len(smallest))])

    def row(context: int, index: ArrayIndex, width: int) -> list[str]:
        inputs = random_inputs(queries, context)
        if device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats(device)
        one, many = (
            DeviceDecoder(trees, index, width, slots=slots, compiled=compiled) for slots in (1, batch)
        )
        alone = [[tokens] for tokens in inputs]
        for tokens in alone[:3]:  # compiled, captured, replayed
            one.search(tokens)
        spent = sorted(1000 * seconds(partial(waited, one, tokens, device))[0] for tokens in alone)
        together = median_seconds(partial(many.search, inputs), 1)
        steps = measure_steps(one, inputs[:1], device)
        memory = (
            torch.cuda.max_memory_allocated(device) / 2**30 if device.startswith("cuda") else float("nan")
        )
        rival = "-"
        if index is smallest and width == 10:
            generate(model, trie, alone[0], _LENGTH + 1, width)
            took, _ = seconds(partial(generate, model, trie, alone[0], _LENGTH + 1, width))
            rival = f"{1000 * took / statistics.median(spent):.1f} (>= 30)"
        large = shape == "1.7b"
        fast = " (<= 17.6)" if large and (context, width) == (1000, 256) else ""
        return [
            shape, f"{len(index):,}", f"{context:,}", str(width), f"{len(inputs) / together:.1f}",
            f"{np.percentile(spent, 50):.1f}{fast}", f"{np.percentile(spent, 99):.1f}",
            f"{steps.milliseconds:.2f}", f"{steps.constraint:.2f}" + (" (<= 0.25)" if large else ""),
            f"{memory:.1f}", rival,
        ]  # fmt: skip

    for context, index, width in itertools.product(contexts, indexes, beams):
        settings = [shape, f"{len(index):,}", f"{context:,}", str(width)]
        yield tried(partial(row, context, index, width), settings, 11)


def waited(decoder: DeviceDecoder, inputs: list[list[int]], device: str) -> None:
    """Search, and wait for the device."""
    decoder.search(inputs)
    wait(device)


def tried(row: Callable[[], list[str]], settings: Sequence[str], columns: int) -> list[str]:
    """A row of a table, or one that says that the memory of the device did not suffice."""
    try:
        return row()
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return [*settings, "out of memory", *["-"] * (columns - len(settings) - 1)]


def main(
    device: str = "cuda",
    passages: int = 100_000,
    t5: tuple[str, ...] = ("small", "base", "large"),
    batches: tuple[int, ...] = (1, 8, 64),
    beams: tuple[int, ...] = (1, 10, 50, 256),
    rounds: int = 2,
    repeats: int = 3,
    input_length: int = 24,
    compiled: bool = False,
    shapes: tuple[str, ...] = ("135m", "1.7b"),
    corpora: tuple[int, ...] = (12_000, 1_000_000, 20_000_000),
    contexts: tuple[int, ...] = (1000, 5000),
    causal_beams: tuple[int, ...] = (10, 50, 256),
    causal_batch: int = 4,
    queries: int = 12,
) -> None:
    """Measure and print two tables.

    Args:
        device: Device of the model.
        passages: Number of 80-token passages.
        t5: Shapes of T5 (:data:`benchmarks.decode.T5_SHAPES`).
        batches: Batch sizes: queries in flight.
        beams: Beam widths.
        rounds: Batches of queries for our decoders.
        repeats: Repeats of our decoders, and of the rival on the first batch; medians count.
        input_length: Tokens of a model input.
        compiled: Compile the whole step, and on a GPU replay it as a CUDA graph.
        shapes: Shapes of causal models (:data:`SHAPES`).
        corpora: Numbers of ids for causal models.
        contexts: Tokens of their inputs.
        causal_beams: Their beam widths.
        causal_batch: Their queries in flight, for queries a second.
        queries: Queries of each of their rows.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(
            "error: no CUDA GPU here; --device cpu shows that the benchmark runs, without useful figures."
        )
    print(machine())
    torch.set_float32_matmul_precision("highest")
    if t5:
        print_table(
            f"{passages:,} x {LONG} tokens, T5's shapes, random weights, renormalized, queries a second",
            ["model", "batch", "beams", "generate", "fast", "device", "device / generate", "ms a step",
             "constraint, % of the model", "equal top-1"],
            t5_rows(t5, device, passages, batches, beams, rounds, repeats, input_length, compiled),
        )  # fmt: skip
    indexes = [random_ids(count) for count in corpora] if shapes else []
    for shape in shapes:
        print_table(
            f"{shape} shape, random weights, bfloat16, ids of {_LENGTH} tokens, renormalized",
            ["model", "ids", "context", "beams", "queries/s", "p50, ms", "p99, ms", "ms a step",
             "constraint, % of the model", "memory, GiB", "generate / device"],
            causal_rows(shape, device, indexes, contexts, causal_beams, causal_batch, queries, compiled),
        )  # fmt: skip


def t5_rows(
    shapes: Sequence[str], device: str, passages: int, batches: Sequence[int], beams: Sequence[int],
    rounds: int, repeats: int, input_length: int, compiled: bool,
) -> Iterator[list[str]]:  # fmt: skip
    """The rows of T5's shapes."""
    sequences = synthetic_passages(passages, LONG, seed=1)
    index = index_sequences(sequences, END)
    trie = nested_dict_trie([row.tolist() for row in sequences])
    gc.freeze()
    assert isinstance(index, ArrayIndex)
    longest = max(len(row) for row in sequences)
    for shape in shapes:
        model = random_t5(shape=shape).to(device)
        trees = plant(Seq2SeqGenerator(model))

        def row(batch: int, width: int, model: Any = model, trees: Any = trees, shape: str = shape) -> Any:
            inputs = random_inputs(batch * rounds, input_length)
            ours = DeviceDecoder(trees, index, width, slots=batch, compiled=compiled)
            fast = FastDecoder(trees, index, width, slots=batch)
            rates = [
                len(inputs) / median_seconds(partial(decoder.search, inputs), repeats)
                for decoder in (ours, fast)
            ]
            steps = measure_steps(ours, inputs, device)
            against = equal = "-"
            rate = float("nan")
            target = TARGETS.get((batch, width))
            if batch * width <= _RIVAL:
                generate(model, trie, inputs[:batch], 3, width)
                wait(device)
                rival = partial(generate, model, trie, inputs[:batch], longest, width)
                measured = [seconds(rival) for _ in range(repeats)]
                rate = batch / statistics.median(spent for spent, _ in measured)
                against = f"{rates[0] / rate:.1f}" + (f" (>= {target[0]})" if target else "")
                found = [index.tokens(hits[0].passage).tolist() for hits in ours.search(inputs[:batch])]
                same = sum(a == b for a, b in zip(found, measured[0][1], strict=True))
                equal = f"{same} of {batch}"
            return [
                shape, str(batch), str(width), f"{rate:.2f}", f"{rates[1]:.1f}", f"{rates[0]:.1f}", against,
                f"{steps.milliseconds:.2f}",
                f"{steps.constraint:.1f}" + (f" (<= {target[1]:g})" if target else ""), equal,
            ]  # fmt: skip

        for batch, width in itertools.product(batches, beams):
            yield tried(partial(row, batch, width), [shape, str(batch), str(width)], 10)


if __name__ == "__main__":
    auto_cli(main)
