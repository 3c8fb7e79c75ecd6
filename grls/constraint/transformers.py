"""A logits processor for ``generate`` of transformers.

    model.generate(..., num_beams=5, logits_processor=[GenerateProcessor(index, pad_token)])

It is for users with their own code, and it is the oracle of our decoder. With ``length_penalty=0.0`` its
scores are those of ``full``; with ``renormalize_logits=True`` as well, those of ``renormalized``.

Do not use

- ``num_return_sequences``, or more beams, above the number of passages: the other beams write something else;
- ``max_new_tokens``, ``max_length`` and ``stop_strings`` that end a passage before its end: allow more tokens
  than the longest passage has.

Continuous batching (``generate_batch``) takes no processors, and gives them no history.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessor

from grls.constraint import STRAY, PassageConstraint, keep
from grls.errors import ConfigError
from grls.index.base import ConstraintIndex


class GenerateProcessor(LogitsProcessor):
    """Lets ``generate`` write only passages of an index, with beams or without, of any number of inputs.

    Args:
        index: The index, its folder, or the folder of a retriever.
        pad_token: The token that may follow a finished passage.
        prompt_length: The number of tokens before the passage: 1 for an encoder-decoder (its start token),
            ``inputs.input_ids.shape[1]`` for a causal model with its padded prompts.

    Raises:
        ConfigError: The index holds only unique prefixes. In ``generate``: the tokens after the prompt begin
            no passage, or an option bars all tokens that may follow.
        MismatchError: In ``generate``: a token of the index is not in the vocabulary of the model.
    """

    def __init__(self, index: ConstraintIndex | str | Path, pad_token: int, prompt_length: int = 1):
        self._constraint = PassageConstraint(index)
        self._pad = pad_token
        self._prompt = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores ``[rows, V]`` with minus infinity for what may not follow ``input_ids [rows, length]``."""
        rows, length = input_ids.shape
        if rows != len(scores) or length < self._prompt:
            raise ConfigError(
                f"{rows} prefixes of {length} tokens for {len(scores)} rows of scores, and prompt_length="
                f"{self._prompt}: give the length of the prompt in tokens, and use no continuous batching, "
                "which gives a processor no history."
            )
        written = input_ids[:, self._prompt :].long().cpu().numpy()
        places, tokens, states = self._constraint.allowed(list(written), self._pad)
        if (states == STRAY).all():
            end = self._constraint.index.rows.end
            raise ConfigError(
                f"no row begins like a passage after its first {self._prompt} tokens: give prompt_length, "
                "the length of the prompt (of an encoder-decoder 1, else input_ids.shape[1]). If generate "
                f"wrote on after the end of a passage: give it eos_token_id={end}, that of the index."
            )
        constrained = scores.clone()
        if keep(constrained, places, tokens, np.arange(rows)):
            raise ConfigError(
                "an option of generate bars all tokens that may follow: leave out min_length, "
                "min_new_tokens, no_repeat_ngram_size, bad_words_ids and suppress_tokens. Give a forced "
                "first token in decoder_input_ids, with forced_bos_token_id=None and prompt_length=2."
            )
        return constrained
