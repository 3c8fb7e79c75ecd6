"""What the decoders ask of a model.

Legend: B inputs of a batch, R rows (live beams of all inputs together), A (row, token) pairs, V vocabulary, N
tokens asked of several rows alike, S slots (queries in flight). The protocols say nothing of encoders, so a
causal language model that reads its input as a prefix can fulfil them too.

The plain search asks for a :class:`Generator`, the fast one for a :class:`TreeGenerator`, the one that runs
on the model's device for a :class:`GridGenerator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from grls.index.rows import Ints
from grls.models.sessions.forest import Branches

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Floats = npt.NDArray[np.floating[Any]]


class StepRows(Protocol):
    """R rows, each about to write a token."""

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        """Logit of ``tokens[a]`` as the next token of ``rows[a]``, ``[A]``; rows ascend."""

    def log_normalizer(self) -> Floats:
        """Log of the sum of exponentials of all V logits of each row, ``[R]``."""


class Session(StepRows, Protocol):
    """The decoding of one batch: the model's memory of R rows, one a live beam."""

    def first(self) -> None:
        """Read the inputs; afterwards there are R = B rows, each about to write its first token."""

    def step(self, parents: Ints, tokens: Ints) -> None:
        """Replace the rows: new row r continues row ``parents[r]`` with ``tokens[r]``, both ``[R]``."""


class Generator(Protocol):
    """A model that writes token sequences given an input."""

    def open(self, inputs: Sequence[Sequence[int]]) -> Session:
        """Begin to decode a batch of B inputs (token ids)."""


class SlotSession(Protocol):
    """The memory of S queries in flight."""

    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots, forgetting what these held.

        Returns the node that each writes on from, ``[R]``. Afterwards row r is the query of ``slots[r]``,
        about to write its first token.
        """

    def shared(self, tokens: Ints) -> Tensor:
        """Logits of the same N tokens for every row, ``[R, N]`` in float32, on the model's device.

        The part of the head that belongs to ``tokens`` is kept for the next call with that very array.
        """

    def log_normalizer(self) -> Floats:
        """Log of the sum of exponentials of all V logits of each row, ``[R]``."""


class TreeSession(SlotSession, StepRows, Protocol):
    """The memory of S queries in flight, each a tree of tokens."""

    def feed(self, branches: Branches) -> Ints:
        """Feed the tokens of R branches; returns the node of each branch's last token, ``[R]``.

        Afterwards row r is branch r, about to write its next token.
        """

    def every(self) -> Tensor:
        """Logits of every token for every row, ``[R, V]`` in float32, on the model's device."""


class TreeGenerator(Protocol):
    """A model that keeps what it writes as trees."""

    def open_trees(self, slots: int, longest: int) -> TreeSession:
        """Room for S queries in flight, whose inputs have at most ``longest`` tokens."""


class Room(NamedTuple):
    """How much of its memory a step of a grid looks at.

    Attributes:
        steps: Steps that a slot has written at most, this one among them.
        reach: Tokens of an input at most.
    """

    steps: int
    reach: int


class GridSession(SlotSession, Protocol):
    """The memory of S queries in flight with K beams each, on the model's device."""

    written: Tensor
    """``[S]`` tokens that every beam of a slot has written."""
    moved: int
    """Rises when tensors of the memory have been replaced by others."""

    def begin(self) -> None:
        """Forget all queries, and read anew what was derived from the model's weights."""

    def release(self, slots: Ints) -> None:
        """Forget the queries of some slots."""

    def attending(self) -> AbstractContextManager[None]:
        """Within the block :meth:`write` can be called."""

    def room(self) -> Room:
        """Count a step, and make room for it: the host's part."""

    def write(self, parents: Tensor, tokens: Tensor, room: Room) -> Tensor:
        """Beam k of slot s continues its beam ``parents[s, k]`` with ``tokens[s, k]``, both ``[S, K]``.

        Returns the logits of every token that may follow, ``[S, K, V]`` in float32. Tensors alone, which stay
        where they are while :attr:`moved` says the same: it can be compiled or captured.
        """


class GridGenerator(Protocol):
    """A model that writes one token of every beam at a time."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""

    def open_grid(self, slots: int, beams: int, longest: int, fixed: bool = False) -> GridSession:
        """Room for S queries in flight with K beams each, whose inputs have at most ``longest`` tokens.

        ``fixed``: a step looks at whole rooms, so that its shapes are few.
        """

    def addresses(self) -> tuple[int, ...]:
        """Where the weights lie: a step that was captured is of use while they stay."""
