"""The adapter to transformers' ``generate``.

    model.generate(..., num_beams=5, prefix_allowed_tokens_fn=PrefixAllowedTokens(index, pad_token))

It is what a user with code of their own needs, and the oracle of our decoder: with
``length_penalty=0.0`` it scores as ``full`` does, with ``renormalize_logits=True`` too as
``renormalized``. What a generation config forces, ``generate`` does over the constraint: a token at the
beginning (``forced_bos_token_id``, as facebook/bart has) belongs to no passage and is counted by ``skip=2``;
one at the end cuts a passage, so give ``max_new_tokens`` room for the longest.
"""

from __future__ import annotations

import numpy as np
import torch

from grls.errors import ConfigError
from grls.index import ConstraintIndex


class PrefixAllowedTokens:
    """A ``prefix_allowed_tokens_fn`` that allows what a constraint index allows.

    Stateless between calls but for a memory of prefixes, so beams may be reordered and batches mixed.

    Args:
        index: The constraint index.
        pad_token: What may follow a finished passage.
        skip: Leading decoder tokens that belong to no passage: the start token, and a forced one behind it.

    Raises:
        ConfigError: While ``generate`` runs: no beam begins as a passage does.
    """

    def __init__(self, index: ConstraintIndex, pad_token: int, skip: int = 1):
        index.rows.refuse_prefixes("transformers' generate, which writes passages to their end,")
        self._index = index
        self._pad = pad_token
        self._skip = skip
        self._states: dict[tuple[int, ...], int | None] = {(): index.start()}
        self._astray: int | None = (
            None  # a first token that begins no passage, while no beam has one that does
        )

    def __call__(self, batch_id: int, input_ids: torch.Tensor) -> list[int]:
        """Allowed next tokens of one beam; ``input_ids [length]`` is what it has written."""
        prefix = tuple(input_ids.tolist()[self._skip :])
        state = self._state(prefix)
        self._watch(prefix, state)
        tokens = [] if state is None else self._index.allowed(np.array([state])).tokens.tolist()
        return tokens or [self._pad]

    def _watch(self, prefix: tuple[int, ...], state: int | None) -> None:
        """Refuse to go on where not one beam has begun a passage; those that fill the beam may leave it."""
        if len(prefix) == 0:
            self._astray = None
        elif len(prefix) == 1:
            if state is not None:
                self._astray = -1
            elif self._astray is None:
                self._astray = prefix[0]
        elif self._astray not in (None, -1):
            raise ConfigError(
                f"every beam begins with the token {self._astray}, which begins no passage: does the "
                "generation config force it (forced_bos_token_id)? Then give PrefixAllowedTokens(…, skip=2)."
            )

    def _state(self, prefix: tuple[int, ...]) -> int | None:
        if prefix in self._states:
            return self._states[prefix]
        state = self._state(prefix[:-1])
        if state is not None:
            allowed = self._index.allowed(np.array([state]))
            found = allowed.states[allowed.tokens == prefix[-1]]
            state = int(found[0]) if len(found) else None
        self._states[prefix] = state
        return state
