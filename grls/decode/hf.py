"""The adapter to ``generate`` of transformers.

    model.generate(..., num_beams=5, prefix_allowed_tokens_fn=PrefixAllowedTokens(index, pad_token))

It is for users with their own code, and it is the oracle of our decoder. With ``length_penalty=0.0`` its
scores are those of ``full``; with ``renormalize_logits=True`` as well, those of ``renormalized``.

``generate`` (and a generation config) can override the constraint, and then writes what is no passage. So do
not use

- ``min_length`` and ``min_new_tokens`` above the shortest passage: a passage that ends is continued;
- ``num_return_sequences``, or more beams, above the number of passages: the other beams write something else;
- ``no_repeat_ngram_size``, ``bad_words_ids``, ``suppress_tokens``, ``begin_suppress_tokens`` and
  ``sequence_bias`` of minus infinity: where they bar all allowed tokens, any other token is taken;
- ``max_new_tokens``, ``max_length`` and ``stop_strings`` that end a passage before its end, and a forced last
  token (``forced_eos_token_id``), which cuts it: allow more tokens than the longest passage has.

A forced first token (``forced_bos_token_id``, as in facebook/bart) belongs to no passage, so set ``skip=2``.
"""

from __future__ import annotations

import numpy as np
import torch

from grls.errors import ConfigError
from grls.index.base import ConstraintIndex


class PrefixAllowedTokens:
    """A ``prefix_allowed_tokens_fn`` that allows the tokens of a constraint index.

    Between calls it only caches prefixes, so beams may be reordered and batches mixed.

    Args:
        index: The constraint index.
        pad_token: The token that may follow a finished passage.
        skip: The number of leading decoder tokens that belong to no passage: the start token, and a forced
            token after it.

    Raises:
        ConfigError: While ``generate`` runs, no beam begins like a passage.
    """

    def __init__(self, index: ConstraintIndex, pad_token: int, skip: int = 1):
        index.rows.refuse_prefixes("transformers' generate, which writes passages to their end,")
        self._index = index
        self._pad = pad_token
        self._skip = skip
        self._states: dict[tuple[int, ...], int | None] = {(): index.start()}
        # A first token that begins no passage; -1 once the first token of a beam begins one.
        self._astray: int | None = None

    def __call__(self, batch_id: int, input_ids: torch.Tensor) -> list[int]:
        """Allowed next tokens of one beam; ``input_ids [length]`` are the tokens it has written."""
        prefix = tuple(input_ids.tolist()[self._skip :])
        state = self._state(prefix)
        if len(prefix) == 0:
            self._astray = None
        elif len(prefix) == 1:
            if state is not None:
                self._astray = -1
            elif self._astray is None:
                self._astray = prefix[0]
        elif self._astray not in (None, -1):  # no beam has begun a passage; single beams may be outside
            raise ConfigError(
                f"every beam begins with the token {self._astray}, which begins no passage: does the "
                "generation config force it (forced_bos_token_id)? Then give PrefixAllowedTokens(…, skip=2)."
            )
        tokens = [] if state is None else self._index.allowed(np.array([state])).tokens.tolist()
        return tokens or [self._pad]

    def _state(self, prefix: tuple[int, ...]) -> int | None:
        if prefix in self._states:
            return self._states[prefix]
        state = self._state(prefix[:-1])
        if state is not None:
            allowed = self._index.allowed(np.array([state]))
            following = allowed.states[allowed.tokens == prefix[-1]]
            state = int(following[0]) if len(following) else None
        self._states[prefix] = state
        return state
