"""A generator that rescores what it has written: is this passage evidence for the query?

A generator commits itself token by token, so a passage that was never an answer in training loses at its
first words, whatever stands in it. Read to its end, it can be judged as a whole, with all of the query and
all of the passage in sight: the "self-rescore" of Self-Retrieval (arXiv 2403.00801), by the
same model, in the pass in which it writes. Here the model says it by one step more. Behind the end token of
passage x

    a(x)  =  z(<EVIDENCE>) - z(<QUESTION>)   (nats),

with z its logits there: the log-odds of going on with the marker that keeps what was written, against that
which goes back to the question. (Self-Retrieval has it write a sentence, and takes its probability.) What it
learns is :mod:`grls.train.chains.loss`'s affair, how a passage's score is made of both
:mod:`grls.retrieve.generative.rescore`'s. This module knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from grls.data.codec import Codec
from grls.io.files import read_count

RESCORE = "rescore.json"
"""The file beside a trained model that says how it learned to rescore."""


class RescoreInput(NamedTuple):
    """How much of a passage is read to rescore it.

    Attributes:
        tokens: So many of its first tokens, and the end token.
    """

    tokens: int

    def read(self, sequence: Sequence[int] | npt.NDArray[Any], codec: Codec) -> list[int]:
        """What is read of a target sequence."""
        body = [int(token) for token in sequence if token != codec.end]
        return [*body[: self.tokens], codec.end]


def readout(codec: Codec) -> tuple[int, int]:
    """The tokens whose logits are compared: that which keeps what was written, and the other."""
    return codec.evidence, codec.question


def read_rescore_input(found: Any, file: Path) -> RescoreInput | None:
    """What a file says of it; None where it says nothing.

    Args:
        found: What stands there, ``{"tokens": 128}``.
        file: For the error text.

    Raises:
        DataError: It says something else.
    """
    tokens = read_count(found, "tokens", "how much is read to rescore", 128, file)
    return None if tokens is None else RescoreInput(tokens)
