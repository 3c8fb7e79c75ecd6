"""The constraint of an index in engines of others: which tokens may follow what a request has written.

``transformers`` serves ``generate`` of transformers, ``vllm`` the V1 model runner of vLLM, ``sglang``
SGLang; ``layouts`` gives arrays for STATIC and the dictionary of SGLang's fork with beam search. Each of
them imports its engine; this module needs NumPy alone, and PyTorch where an engine gives it logits.

A state is found again by the tokens that led to it, not by a row or a request. So beams may be reordered,
rows may leave a batch, and a request may pause.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grls.errors import ConfigError, IndexFormatError, MismatchError

if TYPE_CHECKING:
    from torch import Tensor

    from grls.index.base import ConstraintIndex
    from grls.index.rows import Ints

STRAY = int(np.iinfo(np.int64).min)
"""The state of tokens that begin no passage."""

ARGUMENT = "grls_index"
"""The argument of a request that names the folder of its index; empty: the request is free."""
VARIABLE = "GRLS_INDEX"
"""The environment variable that names the index of requests without this argument."""

_RECENT = 1 << 15
_BYTES = 8


def open_index(folder: str | Path) -> ConstraintIndex:
    """Open the index in a folder, of any backend or cut into ranges.

    Args:
        folder: The folder of an index, or of a retriever (its ``index/`` is opened).

    Raises:
        IndexFormatError: There is no index, or it is damaged.
    """
    path = Path(folder)
    for place in (path, path / "index"):
        if (place / "index.json").is_file():
            from grls.index.storage import load_index

            return load_index(place)
        if (place / "ranges.json").is_file():
            from grls.index.ranges import open_ranges

            return open_ranges(place)
    raise IndexFormatError(
        f"{path}: no index here, and none in {path / 'index'}: name a folder that `grls index` wrote."
    )


class PassageConstraint:
    """The tokens that may follow prefixes, for many rows at once.

    Args:
        index: An index, or a folder for :func:`open_index`.

    Raises:
        ConfigError: The index holds only unique prefixes: an engine writes passages to their end.
    """

    def __init__(self, index: ConstraintIndex | str | Path):
        self.index = open_index(index) if isinstance(index, str | Path) else index
        self.index.rows.refuse_prefixes("an engine, which writes passages to their end,")
        self._recent: dict[bytes, int] = {}
        self._earlier: dict[bytes, int] = {}

    def states(self, prefixes: Sequence[Ints]) -> Ints:
        """The state after each prefix (64-bit tokens), ``[S]``; :data:`STRAY` where no passage begins so."""
        keys = [prefix.tobytes() for prefix in prefixes]
        lengths = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)
        states, read = np.full(len(keys), self.index.start(), dtype=np.int64), np.zeros_like(lengths)
        for row, key in enumerate(keys):
            for known in (key, key[:-_BYTES]):
                state = self._recent.get(known, self._earlier.get(known))
                if state is not None:
                    states[row], read[row] = state, len(known) // _BYTES
                    break
        while len(behind := np.flatnonzero(read < lengths)):  # once, but for what is not known
            tokens = np.array([prefixes[row][read[row]] for row in behind.tolist()], dtype=np.int64)
            states[behind] = self._after(states[behind], tokens)
            read[behind] += 1
        if len(self._recent) > _RECENT:
            self._recent, self._earlier = {}, self._recent
        self._recent.update(zip(keys, states.tolist(), strict=True))
        return states

    def _after(self, states: Ints, tokens: Ints) -> Ints:
        """The state after a token of each state."""
        after = np.full(len(states), STRAY)
        live = (states != STRAY) & (tokens >= 0)
        different, owner = np.unique(states[live], return_inverse=True)
        allowed = self.index.allowed(different)
        if len(allowed.tokens):
            width = int(max(tokens.max(), allowed.tokens.max())) + 1
            keys = np.repeat(np.arange(len(different)), np.diff(allowed.offsets)) * width + allowed.tokens
            wanted = owner * width + tokens[live]
            at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
            after[live] = np.where(keys[at] == wanted, allowed.states[at], STRAY)
        return after

    def allowed(self, prefixes: Sequence[Ints], closing: int) -> tuple[Ints, Ints, Ints]:
        """What may follow each prefix.

        Args:
            prefixes: The tokens that each of S rows has written, 64-bit.
            closing: The token that follows what is finished or stray.

        Returns:
            Row and token of all allowed tokens, ``[A]`` each, and the state of each row, ``[S]``.
        """
        states = self.states(prefixes)
        live = np.flatnonzero(states != STRAY)
        allowed = self.index.allowed(states[live])
        counts = np.diff(allowed.offsets)
        open_rows = np.repeat(live, counts)
        closed = np.setdiff1d(np.arange(len(states)), live[counts > 0])
        rows = np.concatenate((open_rows, closed))
        return rows, np.concatenate((allowed.tokens, np.full(len(closed), closing))), states

    def passages(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of the passages that begin with these tokens.

        Where passages have several identifiers, an index numbers identifiers:
        ``grls.data.identifiers.Identifiers.owners`` has the passage of each.
        """
        state = int(self.states([np.array(tokens, dtype=np.int64)])[0])
        return [] if state == STRAY else sorted(self.index.passages(state).tolist())


def keep(logits: Tensor, rows: Ints, tokens: Ints, constrained: Ints) -> Tensor:
    """Bar all tokens of the constrained rows of logits ``[R, V]`` but the allowed ones, in place.

    Where something else has barred all allowed tokens, they become equally likely.

    Returns:
        Whether that was so anywhere, a tensor of one truth value.

    Raises:
        MismatchError: A token of the index is not in the vocabulary.
    """
    import torch

    if len(tokens) and (top := int(tokens.max())) >= logits.shape[1]:
        raise MismatchError(
            f"the index allows the token {top:,} and the model has {logits.shape[1]:,}: the index was built "
            "with another tokenizer; build it with that of the model, by `grls index`."
        )
    at, columns, barred_rows = (torch.from_numpy(a).to(logits.device) for a in (rows, tokens, constrained))
    kept = logits[at, columns]
    best = kept.new_full((len(logits),), -torch.inf).scatter_reduce(0, at, kept, "amax")
    barred = best.isneginf()[at]
    logits[barred_rows] = -torch.inf
    logits[at, columns] = kept.masked_fill(barred, 0.0)
    return barred.any()


def constrain(logits: Tensor, written: Mapping[int, tuple[PassageConstraint, Sequence[int]]]) -> Tensor:
    """Constrain rows of logits ``[R, V]`` in place.

    ``written``: row -> its index and the tokens that its request has written. A request that has left its
    index, or has written a passage, can only write the end token.
    """
    by_index: dict[PassageConstraint, list[int]] = {}
    for row, (constraint, _) in written.items():
        by_index.setdefault(constraint, []).append(row)
    for constraint, rows in by_index.items():
        tokens = [np.array(written[row][1], dtype=np.int64) for row in rows]
        places, columns, states = constraint.allowed(tokens, constraint.index.rows.end)
        if (states == STRAY).any():
            warnings.warn(
                "a request wrote tokens that begin no passage, and ends here: leave out min_tokens and what "
                "else bars tokens; start SGLang without its overlap schedule.",
                stacklevel=2,
            )
        numbers = np.array(rows, dtype=np.int64)
        keep(logits, numbers[places], columns, numbers)
    return logits


@lru_cache(maxsize=64)
def opened(folder: str) -> PassageConstraint:
    """An index that requests name, opened once in a process."""
    return PassageConstraint(folder)


def named_index(arguments: Mapping[str, Any] | None) -> PassageConstraint | None:
    """The index that the arguments of a request name; None: the request is free.

    Raises:
        ConfigError: Neither the request nor the environment names an index.
        IndexFormatError: The folder is no index.
    """
    folder = (arguments or {}).get(ARGUMENT, os.environ.get(VARIABLE))
    if folder is None:
        raise ConfigError(
            f'the request names no index: send "{ARGUMENT}": FOLDER among its extra arguments (an empty text '
            f"leaves it free), or start the engine with {VARIABLE}=FOLDER."
        )
    return opened(str(folder)) if folder else None
