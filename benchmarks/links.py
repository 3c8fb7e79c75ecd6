"""The cost of links: finding which passages name which, beside indexing the same passages with BM25.

    python -m benchmarks.links
    python -m benchmarks.links --passages '[1000000]'

The passages are made up: about 80 words by Zipf's law, a title of one to three words, and in each text the
titles of two other passages. Seconds are those of the processor, on one core, which depend less on what
else the machine does. Each size runs in a process of its own, with a cache of its own.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import in_process, machine, print_table
from grls.data import links
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever

WORDS = 32_000
FREQUENT = 200
"""So many of the most frequent words are in no title."""


def passages(count: int) -> Iterator[Passage]:
    """Passages that name each other."""
    rng = np.random.default_rng(0)
    syllables = list(map("".join, itertools.product("bdfgklmnprstvz", "aeiou")))
    words = ["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(WORDS)]
    shares = 1.0 / np.arange(1, WORDS + 1)
    cumulative = np.cumsum(shares / shares.sum())
    titles = [
        " ".join(words[n].capitalize() for n in rng.integers(FREQUENT, WORDS, rng.integers(1, 4)))
        for _ in range(count)
    ]
    for number, title in enumerate(titles):
        drawn = np.searchsorted(cumulative, rng.random(rng.integers(60, 96))).clip(max=WORDS - 1)
        text = [words[n] for n in drawn.tolist()]
        for named in rng.integers(0, count, 2).tolist():
            text[int(rng.integers(0, len(text)))] = titles[named]
        yield Passage(f"p{number}", " ".join(text).capitalize() + ".", title)


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor of one call, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def measure(count: int, rival: bool) -> list[str]:
    """One row of the table."""
    with (
        tempfile.TemporaryDirectory() as cache,
        mock.patch.dict(os.environ, HF_DATASETS_CACHE=cache),
        mock.patch.object(links, "KEPT_BYTES", 0),
    ):
        corpus = Corpus.from_passages(list(passages(count)))
        finding, table = spent(lambda: corpus.links())
        corpus = Corpus(corpus.table)
        opening, _ = spent(lambda: corpus.links())
        kept = sum(file.stat().st_size for file in Path(cache).rglob("*.npy"))
    queries = [f"Who is {title}?" for title in corpus.table[:100]["title"]]
    asking, _ = spent(lambda: list(map(table.in_text, queries)))
    ratio = "-"
    if rival:
        BM25Retriever(corpus.select(range(10)))  # imports what it needs
        ratio = f"{finding / spent(lambda: BM25Retriever(corpus))[0]:.2f}"
    figures = f"{finding:.1f}", ratio, f"{opening:.2f}", f"{kept / 1e6:.1f}"
    return [f"{count:,}", *figures, f"{1e3 * asking / len(queries):.2f}"]


def main(passages: tuple[int, ...] = (5_000, 100_000), rival_passages: int = 100_000) -> None:
    """Measure and print a table.

    Args:
        passages: Sizes of the corpora.
        rival_passages: Size of the largest one that BM25 indexes.
    """
    print(machine())
    header = ["passages", "find, s", "ratio to BM25", "open, s", "MB kept", "a question, ms"]
    rows = (in_process(measure, count, count <= rival_passages) for count in passages)
    print_table("Links of made-up passages; seconds of one core", header, rows)


if __name__ == "__main__":
    auto_cli(main)
