"""A generator that rescores its own passages: is this passage evidence for the query?

A generator decides token by token. So a passage that was never an answer in training loses at its first
words, whatever comes later. After reading the whole passage, the same model can judge it together with the
whole query, in the same pass: the "self-assessment" of Self-Retrieval (arXiv 2403.00801). Here this takes one
more step. After the end token of passage x

    a(x)  =  z(<EVIDENCE>) - z(<QUESTION>)   (nats),

where z are the logits at this place: the log-odds of the marker that keeps the passage against the marker
that goes back to the question. (In Self-Retrieval the model writes a sentence, whose probability is used.)
Training: :mod:`grls.train.chains.module`. Score of a passage: :mod:`grls.retrieve.generative.rescore`. The
module does not know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from grls.data.codec import Codec
from grls.io.files import read_count

RESCORE = "rescore.json"
"""The file beside a trained model with the settings of rescoring in its training."""


class RescoreInput(NamedTuple):
    """How much of a passage is read to rescore it.

    Attributes:
        tokens: How many of its first tokens are read, before the end token.
    """

    tokens: int

    def read(self, sequence: Sequence[int] | npt.NDArray[Any], codec: Codec) -> list[int]:
        """The tokens of a target sequence that are read."""
        body = [int(token) for token in sequence if token != codec.end]
        return [*body[: self.tokens], codec.end]


def readout(codec: Codec) -> tuple[int, int]:
    """The two tokens whose logits are compared: the marker that keeps a passage, and the other one."""
    return codec.evidence, codec.question


def read_rescore_input(value: Any, file: Path) -> RescoreInput | None:
    """How much to read, from a JSON file; None if the file holds null.

    Args:
        value: The JSON value, ``{"tokens": 128}``.
        file: The file, for the error text.

    Raises:
        DataError: The value is something else.
    """
    tokens = read_count(value, "tokens", "how much is read to rescore", 128, file)
    return None if tokens is None else RescoreInput(tokens)
