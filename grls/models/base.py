"""What the decoder asks of a model.

Legend: B inputs of a batch, R rows (live beams of all inputs together), A (row, token) pairs, V
vocabulary. The protocol says nothing of encoders, so a causal language model that reads its input as a
prefix can fulfil it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from grls.index.rows import Ints

Floats = npt.NDArray[np.floating[Any]]


class Session(Protocol):
    """The decoding of one batch: the model's memory of R rows, one a live beam."""

    def first(self) -> None:
        """Read the inputs; afterwards there are R = B rows, each about to write its first token."""

    def step(self, parents: Ints, tokens: Ints) -> None:
        """Replace the rows: new row r continues row ``parents[r]`` with ``tokens[r]``, both ``[R]``."""

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        """Logit of ``tokens[a]`` as the next token of ``rows[a]``, ``[A]``; rows ascend."""

    def log_normalizer(self) -> Floats:
        """Log of the sum of exponentials of all V logits of each row, ``[R]``."""


class Generator(Protocol):
    """A model that writes token sequences given an input."""

    def open(self, inputs: Sequence[Sequence[int]]) -> Session:
        """Begin to decode a batch of B inputs (token ids)."""
