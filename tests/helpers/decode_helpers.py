"""Inputs and rankings of searches on the small random models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from models_small import END, VOCABULARY

from grls.models.seq2seq.slots import Seq2SeqGenerator, Seq2SeqTrees, plant


def queries(count: int, seed: int = 2) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(3, VOCABULARY, rng.integers(2, 9)).tolist(), END] for _ in range(count)]


def passage(longest: int = 9) -> st.SearchStrategy[list[int]]:
    """Few tokens, so that prefixes are shared and stretches are forced."""
    return st.lists(st.integers(3, 6), max_size=longest).map(lambda tokens: [*tokens, END])


def trees(model: Any) -> Seq2SeqTrees:
    found = plant(Seq2SeqGenerator(model))
    assert found is not None
    return found


def ranking(found: Sequence[Any]) -> list[int]:
    """The passages, those of (nearly) equal score in order of number."""
    return [hit.passage for hit in sorted(found, key=lambda hit: (-round(hit.score, 3), hit.passage))]
