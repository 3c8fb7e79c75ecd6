"""Propositions of passages, written by a language model: the best keys of RICHES.

Any causal or encoder-decoder model writes them, greedily, with transformers' ``generate``: a batch of
passages of similar length at a time. A causal model reads the prefix that all inputs share only once; the
keys and values of the prefix stand before every batch, and the padding behind them. A model that repeats a
line is in a loop, and is stopped.

Prompt and parsing: :mod:`grls.answer.riches.proposition_prompt`. File:
:mod:`grls.answer.riches.proposition_file`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow.compute as pc
import torch
from torch import Tensor
from transformers import DynamicCache, StoppingCriteria, StoppingCriteriaList

from grls.answer.riches.prompts import common
from grls.answer.riches.proposition_prompt import PropositionPrompt, parse_propositions
from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.errors import ConfigError, Option, at_least
from grls.io.turns import turn
from grls.models.cache_name import cache_argument
from grls.models.load.language import end_tokens
from grls.models.positions import positions_in

_TAIL = 8
"""Number of last tokens that are searched for the end of a line."""


class Propositions(NamedTuple):
    """The propositions of a passage.

    Attributes:
        passage: Its id.
        texts: The propositions.
        by: ``model`` if the model wrote them; ``sentences`` if they are the sentences of the passage.
        dropped: Reason -> number of lines of the model that were left out (see
            :class:`grls.answer.riches.proposition_prompt.Parsed`); ``unread`` if the passage is too long.
    """

    passage: str
    texts: tuple[str, ...]
    by: Literal["model", "sentences"]
    dropped: dict[str, int]


class Propositionizer:
    """Writes propositions.

    Args:
        model: A transformers model, causal or encoder-decoder.
        tokenizer: Its tokenizer.
        prompt: Writes the prompt; None: with examples for a causal model, plain otherwise.
        max_new_tokens: Length limit of the output for a passage.
        longest: Most characters of a proposition.
        fallback: Take the sentences of a passage if the model wrote no proposition.

    Raises:
        ConfigError: A limit is not positive, or the prompt does not fit the model.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        prompt: PropositionPrompt | None = None,
        max_new_tokens: int = 256,
        longest: int = 300,
        fallback: bool = True,
    ):
        at_least(1, max_new_tokens=max_new_tokens, longest=longest)
        self.model = model
        self.tokenizer = tokenizer
        self.encoder_decoder = bool(model.config.is_encoder_decoder)
        self.prompt = prompt or PropositionPrompt(examples=not self.encoder_decoder)
        self.max_new_tokens = max_new_tokens
        self.longest = longest
        self.fallback = fallback
        self._head = self._without_end(self.prompt.head(tokenizer))
        self._read: tuple[int, DynamicCache] | None = None
        positions = positions_in(model.config) or sys.maxsize
        self._room = positions - (0 if self.encoder_decoder else max_new_tokens)
        if len(self._head) >= self._room or max_new_tokens >= positions:
            raise ConfigError(
                f"the prompt takes {len(self._head)} tokens, the propositions up to {max_new_tokens}, but "
                f"the model has {positions} positions; lower {Option('max_new_tokens')}."
            )

    def write(self, passages: Sequence[Passage]) -> list[Propositions]:
        """The propositions of a batch of passages, in their order."""
        rows = [self._without_end(row) for row in self.prompt.inputs(self.tokenizer, passages)]
        asked = [n for n, p in enumerate(passages) if p.text.strip() and len(rows[n]) <= self._room]
        outputs = dict(zip(asked, self._generate([rows[n] for n in asked]), strict=True))
        results = []
        for n, passage in enumerate(passages):
            texts: tuple[str, ...] = ()
            dropped = {"unread": 1} if passage.text.strip() else {}
            if n in outputs:
                texts, dropped = parse_propositions(*outputs[n], passage, self.longest)
            by: Literal["model", "sentences"] = "model"
            if not texts and self.fallback:
                texts, by = tuple(" ".join(s.split()) for s in sentences(passage.text)), "sentences"
            results.append(Propositions(passage.id, tuple(dict.fromkeys(texts)), by, dropped))
        return results

    @torch.inference_mode()
    def _generate(self, rows: list[list[int]]) -> Iterator[tuple[str, bool]]:
        """The output for each input, and whether it is complete."""
        if not rows:
            return
        with turn(self.model):
            cache = None if self.encoder_decoder else self._prompt_read(rows)
            shared = 0 if cache is None else cache.get_seq_length()
            tokens, mask = self._padded(rows, shared)
            start = 0 if self.encoder_decoder else tokens.shape[1]
            ends = end_tokens(self.model, self.tokenizer)
            written = self.model.generate(
                input_ids=tokens,
                attention_mask=mask,
                do_sample=False,
                num_beams=1,
                max_new_tokens=self.max_new_tokens,
                eos_token_id=sorted(ends),
                pad_token_id=self._pad(),
                stopping_criteria=StoppingCriteriaList([_Stopped(self.tokenizer, self.prompt, start)]),
                **({} if cache is None else {cache_argument(self.model): cache}),
            )
        for row in written[:, start:].tolist():
            first = 1 if self.encoder_decoder else 0  # the decoder's start token, which may be an end token
            place = next((n for n, token in enumerate(row) if n >= first and token in ends), None)
            text = self.prompt.lead + self.tokenizer.decode(row[:place], skip_special_tokens=True)
            yield self.prompt.shortened(text), place is not None or self.prompt.stopped(text)

    def _prompt_read(self, rows: list[list[int]]) -> DynamicCache | None:
        """Keys and values of the prefix that all inputs share; None if the model has no plain full cache."""
        kinds = set(getattr(self.model.config, "layer_types", None) or ()) - {"full_attention"}
        if kinds or getattr(self.model.config, "sliding_window", None) is not None:
            return None
        shared = common([[*self._head, -1], *rows])
        if not shared:
            return None
        if self._read is None or self._read[0] != shared:
            cache = DynamicCache(config=self.model.config)
            prompt = torch.tensor([self._head[:shared]], device=self.model.device)
            self.model(input_ids=prompt, use_cache=True, **{cache_argument(self.model): cache})
            if cache.get_seq_length() != shared:  # a model with another kind of cache
                return None
            self._read = shared, cache
        cache = copy.deepcopy(self._read[1])
        cache.batch_repeat_interleave(len(rows))
        return cache

    def _padded(self, rows: list[list[int]], shared: int) -> tuple[Tensor, Tensor]:
        """Inputs and mask, both ``[B, longest]``: padded behind the first ``shared`` tokens.

        (An encoder is padded at the end: some encoders count positions from the first token, padding
        included.)
        """
        longest = max(map(len, rows))
        tokens, mask = [], []
        for row in rows:
            place, pads = len(row) if self.encoder_decoder else shared, longest - len(row)
            tokens.append([*row[:place], *[self._pad()] * pads, *row[place:]])
            mask.append([1] * place + [0] * pads + [1] * (len(row) - place))
        return torch.tensor(tokens, device=self.model.device), torch.tensor(mask, device=self.model.device)

    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad is None else pad)

    def _without_end(self, row: list[int]) -> list[int]:
        """A causal input without the end token that some tokenizers add."""
        causal = not self.encoder_decoder and row and row[-1] == self.tokenizer.eos_token_id
        return row[:-1] if causal and not self.prompt.chat else row


class _Stopped(StoppingCriteria):
    """Ends a row whose propositions are complete."""

    def __init__(self, tokenizer: Any, prompt: PropositionPrompt, start: int):
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._start = start

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        stopped = [self._ended(row) for row in input_ids[:, self._start :].tolist()]
        return torch.tensor(stopped, device=input_ids.device)

    def _ended(self, row: list[int]) -> bool:
        if "\n" not in self._tokenizer.decode(row[-_TAIL:]):  # no line has just ended
            return False
        return self._prompt.stopped(self._prompt.lead + self._tokenizer.decode(row))


def batches(corpus: Corpus, count: int, size: int) -> list[list[int]]:
    """Numbers of the first passages of a corpus in batches of similar length, the longest first.

    (If the memory does not suffice, the first batch shows it. Batches do not depend on earlier runs, so a
    resumed run pads and rounds like an uninterrupted one.)

    Args:
        corpus: The passages.
        count: Number of passages to take.
        size: Passages a batch.
    """
    lengths = pc.utf8_length(corpus.table.data.column("text")).to_numpy()[:count]
    order = np.argsort(-lengths.astype(np.int64), kind="stable").tolist()
    return [order[first : first + size] for first in range(0, len(order), size)]
