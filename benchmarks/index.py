"""Index: build time, memory, disk and the allowed-set step, against a nested dict trie and ``flat``.

    python -m benchmarks.index

The nested dict trie is the structure of the public constrained decoders (one dict a token). Targets: build
at least 60 times faster, at least 90 times smaller in memory, at most 2.4 bytes a token on disk; a batched
allowed-set and transition step for 1,000 beams at least 8 times faster than a Python loop over ``flat``.
"""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import END, machine, median_seconds, print_table, seconds, synthetic_passages
from grls.index.backends import FlatIndex
from grls.index.base import ConstraintIndex
from grls.index.build import index_sequences, index_tokens
from grls.index.rows import Ints
from grls.index.storage import save_index

Trie = dict[int, Any]


def nested_dict_trie(passages: list[list[int]]) -> Trie:
    """The rival: one dict a prefix, one entry a next token."""
    root: Trie = {}
    for passage in passages:
        node = root
        for token in passage:
            node = node.setdefault(token, {})
    return root


def traced_bytes(work: Any) -> int:
    """Bytes that the result of a call keeps alive (NumPy's arrays included)."""
    gc.collect()
    tracemalloc.start()
    result = work()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return size


def random_states(index: ConstraintIndex, count: int, seed: int = 0) -> Ints:
    """States as in a beam search: random walks from the root, of random lengths."""
    rng = np.random.default_rng(seed)
    states = np.full(count, index.start(), dtype=np.int64)
    steps = rng.integers(1, 6, count)
    for step in range(int(steps.max())):
        allowed = index.allowed(states)
        sizes = np.diff(allowed.offsets)
        pick = allowed.offsets[:-1] + (rng.random(count) * np.maximum(sizes, 1)).astype(np.int64)
        move = (steps > step) & (sizes > 0)
        states[move] = allowed.states[pick[move]]
    return states


def loop_over_flat(index: FlatIndex, prefixes: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """The plain loop: look up each beam's prefix, extend it by every allowed token."""
    return [[(*prefix, token) for token in index.following[prefix]] for prefix in prefixes]


def step_ratio(sequences: list[Ints], beams: int) -> tuple[float, float, float]:
    """Seconds of one step: the loop over ``flat``, ``flat`` behind the protocol, and ``array``."""
    array, flat = index_sequences(sequences, END), index_sequences(sequences, END, "flat")
    assert isinstance(flat, FlatIndex)
    states, flat_states = random_states(array, beams), random_states(flat, beams)
    prefixes = [flat._prefixes[s] for s in flat_states]
    assert array.allowed(states).tokens.tolist() == flat.allowed(flat_states).tokens.tolist()
    return (
        median_seconds(lambda: loop_over_flat(flat, prefixes), 15),
        median_seconds(lambda: flat.allowed(flat_states), 15),
        median_seconds(lambda: array.allowed(states), 15),
    )


def main(passages: int = 100_000, tokens: int = 80, step_passages: int = 20_000, beams: int = 1_000) -> None:
    """Measure and print two tables.

    Args:
        passages: Size of the corpus.
        tokens: Mean tokens a passage.
        step_passages: Size of the corpus for the allowed-set step (``flat`` is large).
        beams: Number of beam states in that step.
    """
    sequences = synthetic_passages(passages, tokens)
    lists = [sequence.tolist() for sequence in sequences]  # the fastest input for the dict trie
    flat_tokens = np.concatenate(sequences).astype(np.uint16)  # the form of a tokenized corpus
    offsets = np.concatenate(([0], np.cumsum([len(sequence) for sequence in sequences])))
    total = len(flat_tokens)
    print(machine())
    array_time = median_seconds(lambda: index_tokens(flat_tokens, offsets, END), 3)
    trie_time, trie = seconds(lambda: nested_dict_trie(lists))
    del trie
    gc.disable()  # the rival at its best: the collector does not scan its millions of dicts
    trie_best, trie = seconds(lambda: nested_dict_trie(lists))
    gc.enable()
    del trie
    trie_bytes = traced_bytes(lambda: nested_dict_trie(lists))
    array_bytes = traced_bytes(lambda: index_tokens(flat_tokens, offsets, END))
    with tempfile.TemporaryDirectory() as folder:
        save_index(index_sequences(sequences, END), Path(folder) / "index")
        disk = sum(file.stat().st_size for file in (Path(folder) / "index").iterdir())
    print_table(
        f"{passages:,} passages, {total / passages:.1f} tokens on average",
        ["", "nested dict trie", "array", "ratio", "target"],
        [
            ["build, s", f"{trie_time:.2f}", f"{array_time:.3f}", f"{trie_time / array_time:.0f}", ">= 60"],
            ["build, garbage collector off, s", f"{trie_best:.2f}", f"{array_time:.3f}",
             f"{trie_best / array_time:.0f}", ""],
            ["memory, bytes a token", f"{trie_bytes / total:.1f}", f"{array_bytes / total:.2f}",
             f"{trie_bytes / array_bytes:.0f}", ">= 90"],
            ["disk, bytes a token", "-", f"{disk / total:.3f}", "-", "<= 2.4"],
        ],
    )  # fmt: skip
    loop, flat, array = step_ratio(sequences[:step_passages], beams)
    print_table(
        f"allowed set and transition of {beams:,} beams, {step_passages:,} passages",
        ["", "ms", "times slower than array", "target"],
        [
            ["Python loop over flat", f"{1e3 * loop:.2f}", f"{loop / array:.1f}", ">= 8"],
            ["flat behind the protocol", f"{1e3 * flat:.2f}", f"{flat / array:.1f}", ""],
            ["array", f"{1e3 * array:.2f}", "1.0", ""],
        ],
    )


if __name__ == "__main__":
    auto_cli(main)
