"""Does a hypothesis follow from a premise? Models of natural language inference from transformers.

One kind is a classifier of pairs with a label ``entailment``, the other an encoder-decoder that writes
``1`` if the hypothesis follows and ``0`` if not (the TRUE models, arXiv 2204.04991). If a pair is too
long, the end of the premise is cut, never the hypothesis.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from grls.data.codec import foreign_ids, wrapping
from grls.errors import ConfigError
from grls.models.base import once_each
from grls.models.load.build import encoder_positions
from grls.models.load.opening import (
    open_config,
    open_model,
    open_tokenizer,
    opening_errors,
    refuse_missing_folder,
)
from grls.models.precision import move, refuse_nan_logits
from grls.models.special_tokens import padded

log = logging.getLogger(__name__)

LABEL = "entailment"
_WRITTEN = 4
"""The most tokens that an encoder-decoder may write for 1 or 0."""


def load_entailment(
    name: str, device: str = "auto", batch_size: int = 16, max_tokens: int = 512
) -> Entailment:
    """Load a model of entailment, in float32 and eval mode: a folder or a hub name.

    Pairs have at most ``max_tokens`` tokens, or as many as the model has positions.
    """
    refuse_missing_folder(name)
    remedy = "Give a folder or hub name of a sequence classifier or an encoder-decoder, with its tokenizer."
    with opening_errors("a model of entailment", name, remedy):
        config = open_config(name)
        kinds = config.architectures or ()
        seq2seq = config.is_encoder_decoder and not any("SequenceClassification" in kind for kind in kinds)
        # Check before loading the weights: a model without the label would get a head of random weights.
        labels = {} if seq2seq else config.id2label
        numbers = [number for number, label in labels.items() if label.casefold() == LABEL]
        if not seq2seq and len(numbers) != 1:  # `not_entailment` is another label
            raise ConfigError(
                f"{name!r} has the labels {', '.join(labels.values())}, and exactly one must be named "
                f"{LABEL!r}: use a model of natural language inference, or name the label in id2label of its "
                "config.json."
            )
        kind = AutoModelForSeq2SeqLM if seq2seq else AutoModelForSequenceClassification
        tokenizer = open_tokenizer(name)
        model = open_model(kind, name, tokenizer, pooler=not seq2seq, dtype=torch.float32)
    move(model, device, "float32")
    limit = int(min(max_tokens, encoder_positions(config) or 10**9, tokenizer.model_max_length))
    if seq2seq:
        return WritingJudge(model.eval(), tokenizer, batch_size, limit)
    return ClassifyingJudge(model.eval(), tokenizer, batch_size, limit, int(numbers[0]))


@dataclass(eq=False)
class Entailment(ABC):
    model: Any
    tokenizer: Any
    batch_size: int
    max_tokens: int

    _pair: ClassVar[bool]
    """Whether the tokenizer reads premise and hypothesis as two texts."""
    _lead: ClassVar[str] = ""
    """The text before a hypothesis."""

    @torch.inference_mode()
    def entails(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
        """Whether each hypothesis follows from its premise.

        A hypothesis that leaves no room for any premise counts as not following, with a warning.
        """
        ends = [f"{self._lead}{text}" for text in hypotheses]
        pairs, numbers = once_each(list(zip(premises, ends, strict=True)))
        room = self.max_tokens - self.tokenizer.num_special_tokens_to_add(pair=self._pair)
        judged = [n for n, (_, end) in enumerate(pairs) if len(_tokens(self.tokenizer, end)) < room]
        if len(judged) < len(pairs):
            log.warning(
                "%d hypotheses leave no room for a premise; they count as not following.",
                len(pairs) - len(judged),
            )
        follows = [False] * len(pairs)
        for first in range(0, len(judged), self.batch_size):
            batch = judged[first : first + self.batch_size]
            for n, follow in zip(batch, self._follow([pairs[n] for n in batch], room), strict=True):
                follows[n] = follow
        return [follows[number] for number in numbers]

    @abstractmethod
    def _follow(self, pairs: list[tuple[str, str]], room: int) -> list[bool]:
        """Whether the hypotheses of a batch follow; ``room`` is what special tokens leave of a pair."""


@dataclass(eq=False)
class ClassifyingJudge(Entailment):
    """A classifier of pairs: a hypothesis follows if the pair gets label number ``label``."""

    label: int
    _pair = True

    def _follow(self, pairs: list[tuple[str, str]], room: int) -> list[bool]:
        premises, hypotheses = zip(*pairs, strict=True)
        encoded = padded(
            self.tokenizer, premises, hypotheses, truncation="only_first", max_length=self.max_tokens
        )
        logits = self.model(**encoded.to(self.model.device)).logits
        refuse_nan_logits(logits)
        return [label == self.label for label in logits.argmax(-1).tolist()]


class WritingJudge(Entailment):
    """An encoder-decoder that writes 1 if a hypothesis follows."""

    _pair, _lead = False, "hypothesis: "

    def _follow(self, pairs: list[tuple[str, str]], room: int) -> list[bool]:
        before, behind = wrapping(self.tokenizer)  # for T5, only the end token behind
        rows = []
        for premise, end in pairs:  # the premise is cut so that both fit
            tail = _tokens(self.tokenizer, end)
            head = _tokens(self.tokenizer, f"premise: {premise}")[: room - len(tail)]
            rows.append([*before, *head, *tail, *behind])
        encoded = self.tokenizer.pad({"input_ids": rows}, padding=True, return_tensors="pt")
        written = self.model.generate(
            **encoded.to(self.model.device), max_new_tokens=_WRITTEN, do_sample=False, num_beams=1,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        refuse_nan_logits(written.logits[0])
        texts = self.tokenizer.batch_decode(written.sequences, skip_special_tokens=True)
        return [text.strip() == "1" for text in texts]


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return foreign_ids(tokenizer, [text])[0]
