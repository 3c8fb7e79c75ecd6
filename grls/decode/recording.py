"""Records the logits of a search, for those who show what a model preferred before the constraint.

A :class:`RecordingModel` stands in the place of a model in :class:`grls.decode.beam.Decoder`. It keeps what
the search asks for, and the normalizer over the vocabulary, which a search with ``renormalized`` scores does
not need. Searches that are not recorded do not know this module.

Legend: R rows (beams), A (row, token) pairs, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grls.index.rows import Ints
from grls.models.base import Floats, GeneratorModel, Session


class RecordedStep(NamedTuple):
    """What the model gave for one step.

    Attributes:
        rows: ``[A]`` the beam of each allowed token.
        logits: ``[A]`` the logit of each allowed token.
        normalizers: ``[R]`` log of the sum of exponentials of all V logits of each beam.
    """

    rows: Ints
    logits: Floats
    normalizers: Floats


class RecordingModel:
    """A model whose steps are recorded.

    Args:
        model: The model.
    """

    def __init__(self, model: GeneratorModel):
        self._model = model
        self.steps: list[RecordedStep] = []
        """The steps of all sessions, in order."""

    def open(self, inputs: Sequence[Sequence[int]]) -> Session:
        """Begin to decode; see :class:`grls.models.base.GeneratorModel`."""
        return _Recorded(self._model.open(inputs), self.steps)


class _Recorded:
    """A session that is recorded; see :class:`grls.models.base.Session`."""

    def __init__(self, session: Session, steps: list[RecordedStep]):
        self._session, self._steps = session, steps

    def first(self) -> None:
        self._session.first()

    def step(self, parents: Ints, tokens: Ints) -> None:
        self._session.step(parents, tokens)

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        logits = self._session.logits(rows, tokens)
        self._steps.append(RecordedStep(rows, logits, self._session.log_normalizer()))
        return logits

    def log_normalizer(self) -> Floats:
        return self._steps[-1].normalizers
