"""Helpers of all benchmarks: synthetic passages, timing, the machine, tables, and resuming a training."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import torch
import transformers

from grls.index.rows import Ints
from grls.train.core.checkpoints import last_checkpoint

Result = TypeVar("Result")

END = 1
RESERVED = 3
"""Tokens below this one (pad, end, unknown) occur in no passage."""


def going_on(model: Path) -> tuple[str, ...]:
    """The options that resume a killed training; empty if its ``config.json`` exists, or no checkpoint."""
    last = last_checkpoint(model.parents[1])
    return ("--resume", "true") if last.is_file() and not model.is_file() else ()


def synthetic_passages(
    count: int, mean_tokens: int, vocabulary: int = 32_000, branching: int = 300, seed: int = 0
) -> list[Ints]:
    """Token sequences with the skew of a language: Zipf's law, and each token depends on the previous one.

    Every token is drawn from a Zipf distribution over ranks. The previous token picks one of ``branching``
    permutations from ranks to words, so common prefixes are shared as in text.

    Args:
        count: Number of passages.
        mean_tokens: Mean length, end token included; lengths vary by a fifth.
        vocabulary: Size of the vocabulary.
        branching: Number of distinct permutations.
        seed: Seed of the random generator.
    """
    rng = np.random.default_rng(seed)
    words = vocabulary - RESERVED
    weights = 1.0 / np.arange(1, words + 1)
    cumulative = np.cumsum(weights / weights.sum())
    lengths = np.maximum(2, rng.normal(mean_tokens, mean_tokens / 5, count).round().astype(np.int64))
    ranks = np.searchsorted(cumulative, rng.random((count, int(lengths.max())))).clip(max=words - 1)
    shift = rng.integers(0, words, branching)
    tokens = np.empty_like(ranks)
    previous = np.zeros(count, dtype=np.int64)
    for position in range(ranks.shape[1]):
        previous = (ranks[:, position] + shift[previous % branching]) % words
        tokens[:, position] = previous + RESERVED
    return [np.append(tokens[n, : length - 1], END) for n, length in enumerate(lengths)]


def seconds(work: Callable[[], Result]) -> tuple[float, Result]:
    """Wall-clock seconds of one call, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def median_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median wall-clock seconds of ``repeats`` calls after one warm-up."""
    work()
    return float(np.median([seconds(work)[0] for _ in range(repeats)]))


class Clock:
    """The seconds spent in the functions of :func:`clocked`."""

    spent = 0.0


@contextmanager
def clocked(*watched: tuple[Any, str]) -> Iterator[Clock]:
    """Adds up the time of functions, each given by its owner and its name there."""
    clock = Clock()

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            spent, result = seconds(partial(work, *arguments, **options))
            clock.spent += spent
            return result

        return run

    with ExitStack() as patches:
        for owner, name in watched:
            patches.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name))))
        yield clock


def in_process(work: Callable[..., Result], *arguments: object) -> Result:
    """The result of ``work`` in a fresh process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def machine() -> str:
    """One line about the machine of the measurement."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {device}; Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}"
    )


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table, aligned for a terminal; the rows of an iterator as they come."""
    known = rows if isinstance(rows, Sequence) else ()
    widths = [max(len(row[i]) for row in [header, *known]) for i in range(len(header))]
    print(f"\n{title}\n")
    for row in itertools.chain([header, ["-" * width for width in widths]], rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("| " + " | ".join(cells) + " |", flush=True)
