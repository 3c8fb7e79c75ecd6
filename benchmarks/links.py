"""The cost of links: finding who names whom, beside building BM25 of the same passages in the same run.

    python -m benchmarks.links
    python -m benchmarks.links --passages '[1000000]'

Passages are made up: about 80 words by Zipf's law, a title of one to three words, and in each text the titles
of two other passages. Each size runs in a process of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from grls.data.types import Passage

WORDS = 32_000


def passages(count: int) -> Iterator[Passage]:
    """Passages that name each other."""
    rng = np.random.default_rng(0)
    parts = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    words = [" ".join("".join(rng.choice(parts, rng.integers(1, 5))) for _ in range(1))
             for _ in range(WORDS)]
    shares = 1.0 / np.arange(1, WORDS + 1)
    cumulative = np.cumsum(shares / shares.sum())
    titles = [" ".join(words[n].capitalize() for n in rng.integers(200, WORDS, rng.integers(1, 4))) for _ in range(count)]
    for number, title in enumerate(titles):
        drawn = np.searchsorted(cumulative, rng.random(int(rng.integers(60, 96)))).clip(max=WORDS - 1).tolist()
        text = [words[n] for n in drawn]
        for other in rng.integers(0, count, 2).tolist():
            text[int(rng.integers(0, len(text)))] = titles[other]
        yield Passage(f"p{number}", " ".join(text).capitalize() + ".", title)
