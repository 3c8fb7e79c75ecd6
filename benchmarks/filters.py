"""The cost of filters: queries a second with filters of several widths, against no filter in the same run.

    python -m benchmarks.filters

The fast search runs over synthetic passages with a random model. The cases are one filter for all queries, a
filter a query, and one that leaves nearly everything. A
narrow filter leaves fewer decisions, so it may be faster than no filter: the ratios compare whole searches. A
separate column has the time to make the filters for an index.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import (
    END,
    RESERVED,
    machine,
    median_seconds,
    print_table,
    seconds,
    synthetic_passages,
)
from benchmarks.decode import random_t5
from grls.decode.fast import FastDecoder
from grls.index.base import ConstraintIndex
from grls.index.build import index_sequences
from grls.index.subset import Subset
from grls.models.seq2seq.slots import Seq2SeqGenerator, Seq2SeqTrees, plant

BEAMS = 5
VOCABULARY = 32_000
SHARES = (0.5, 0.01, 0.0001)


def subsets(index: ConstraintIndex, share: float, queries: int, each: bool) -> list[Subset | None]:
    """A filter for each query that leaves a share of the passages: one for all queries, or one for each."""
    rng = np.random.default_rng(4)
    size = max(1, round(share * len(index)))
    subsets: list[Subset | None] = [
        Subset(index.rows, rng.choice(len(index), size, replace=False)) for _ in range(queries if each else 1)
    ]
    return subsets if each else subsets * queries


def rate(
    trees: Seq2SeqTrees,
    index: ConstraintIndex,
    inputs: list[list[int]],
    filters: list[Subset | None],
    repeats: int,
) -> float:
    """Queries a second."""
    decoder = FastDecoder(trees, index, beams=BEAMS)
    return len(inputs) / median_seconds(lambda: decoder.search(inputs, subsets=filters), repeats)


def main(passages: int = 100_000, tokens: int = 40, queries: int = 32, repeats: int = 5) -> None:
    """Measure and print a table.

    Args:
        passages: Size of the corpus.
        tokens: Mean tokens a passage.
        queries: Queries, decoded together.
        repeats: Searches of each kind; the median counts.
    """
    print(machine())
    rows = synthetic_passages(passages, tokens, VOCABULARY)
    index = index_sequences(rows, END)
    trees = plant(Seq2SeqGenerator(random_t5(VOCABULARY + 128)))
    rng = np.random.default_rng(2)
    inputs = [[*rng.integers(RESERVED, VOCABULARY, 23).tolist(), END] for _ in range(queries)]
    bare = rate(trees, index, inputs, [], repeats)
    table = [["no filter", "-", f"{bare:.1f}", "1.00"]]
    kinds = [(f"{share:.2%} of the passages, one filter", share, False) for share in SHARES]
    kinds += [(f"{share:.2%} of the passages, a filter a query", share, True) for share in SHARES]
    kinds.append(("all but ten passages", 1 - 10 / passages, False))
    for name, share, each in kinds:
        making, filters = seconds(partial(subsets, index, share, queries, each))
        filtered = rate(trees, index, inputs, filters, repeats)
        table.append([name, f"{1e3 * making:.1f}", f"{filtered:.1f}", f"{filtered / bare:.2f}"])
    print_table(
        f"{passages:,} x {tokens} tokens, {queries} queries, t5-small shape, random weights, beam {BEAMS}",
        ["", "made in, ms", "queries/s", "ratio to no filter"],
        table,
    )


if __name__ == "__main__":
    auto_cli(main)
