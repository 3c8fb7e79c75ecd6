"""Does a hypothesis follow from a premise? Models of natural language inference, as transformers has them.

Two kinds are read: a classifier of pairs with a label ``entailment``, and an encoder-decoder that writes
``1`` for what follows and ``0`` for what does not (the form of the TRUE models, arXiv 2204.04991). Where a
pair is too long, its premise is cut from the end; the hypothesis never is. The module does not know what is
judged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from grls.data.codec import foreign_ids
from grls.errors import ConfigError
from grls.models.encoder_input import padded
from grls.models.load.build import encoder_positions
from grls.models.load.opening import open_config, open_model, open_tokenizer, opening
from grls.models.load.sources import refuse_missing_folder
from grls.models.precision import move, refuse_nan_logits

log = logging.getLogger(__name__)

LABEL = "entailment"
_MAX_TOKENS = 512
_WRITTEN = 4
"""Tokens that an encoder-decoder may take for its 1 or 0."""


class Entailment(Protocol):
    """A model of entailment."""

    def entails(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
        """Whether each hypothesis follows from its premise.

        A hypothesis that leaves no room for any premise does not follow; that is logged.

        Args:
            premises: N texts.
            hypotheses: N texts.

        Returns:
            N booleans.
        """
        ...


def load_entailment(
    name: str, device: str = "auto", batch_size: int = 16, max_tokens: int = _MAX_TOKENS
) -> Entailment:
    """Load a model of entailment, in float32 and eval mode.

    Args:
        name: A folder or hub name: a sequence classifier with a label ``entailment``, or an encoder-decoder
            that reads ``premise: … hypothesis: …`` and writes 1 or 0.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
        batch_size: Pairs judged together.
        max_tokens: Longest pair, in tokens; fewer where the model has fewer positions.

    Raises:
        ConfigError: There is no such model, its labels have no entailment, or a number is below 1.
    """
    if batch_size < 1 or max_tokens < 1:
        raise ConfigError(
            f"expected batch_size and max_tokens of at least 1, got {batch_size}, {max_tokens}."
        )
    refuse_missing_folder(name)
    with opening(
        "a model of entailment",
        name,
        "Give a folder or hub name of a sequence classifier or an encoder-decoder, with its tokenizer.",
    ):
        config = open_config(name)
        kinds = config.architectures or ()
        seq2seq = config.is_encoder_decoder and not any("SequenceClassification" in kind for kind in kinds)
        # Before the weights: a model without the label would get a head of random weights.
        label = -1 if seq2seq else _label(name, config.id2label)
        kind = AutoModelForSeq2SeqLM if seq2seq else AutoModelForSequenceClassification
        tokenizer = open_tokenizer(name)
        model = open_model(kind, name, pooler=not seq2seq, dtype=torch.float32)
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    move(model, where, "float32")
    limit = min(max_tokens, _positions(tokenizer, config))
    if seq2seq:
        return WritingJudge(model.eval(), tokenizer, batch_size, limit)
    return ClassifyingJudge(model.eval(), tokenizer, label, batch_size, limit)


class ClassifyingJudge:
    """A classifier of pairs: what follows is what gets the label of entailment.

    Args:
        model: A sequence classifier.
        tokenizer: Its tokenizer.
        label: Number of the label ``entailment``.
        batch_size: Pairs judged together.
        max_tokens: Longest pair.
    """

    def __init__(self, model: Any, tokenizer: Any, label: int, batch_size: int, max_tokens: int):
        self.model = model
        self.tokenizer = tokenizer
        self.label = label
        self.batch_size = batch_size
        self.max_tokens = max_tokens

    @torch.inference_mode()
    def entails(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
        """See :class:`Entailment`."""
        added = self.tokenizer.num_special_tokens_to_add(pair=True)
        judged = _with_room(self.tokenizer, hypotheses, self.max_tokens - added)
        found = [False] * len(premises)
        for some in _batches(judged, self.batch_size):
            encoded = padded(
                self.tokenizer, [premises[n] for n in some], [hypotheses[n] for n in some],
                truncation="only_first", max_length=self.max_tokens,
            ).to(self.model.device)  # fmt: skip
            logits = self.model(**encoded).logits
            refuse_nan_logits(logits)
            best = logits.argmax(-1).tolist()
            for place, label in zip(some, best, strict=True):
                found[place] = label == self.label
        return found


class WritingJudge:
    """An encoder-decoder that writes 1 for what follows.

    Args:
        model: An encoder-decoder.
        tokenizer: Its tokenizer.
        batch_size: Pairs judged together.
        max_tokens: Longest input.
    """

    def __init__(self, model: Any, tokenizer: Any, batch_size: int, max_tokens: int):
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.max_tokens = max_tokens

    @torch.inference_mode()
    def entails(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
        """See :class:`Entailment`."""
        ends = [f"hypothesis: {text}" for text in hypotheses]
        added = self.tokenizer.num_special_tokens_to_add(pair=False)
        judged = _with_room(self.tokenizer, ends, self.max_tokens - added)
        found = [False] * len(premises)
        for some in _batches(judged, self.batch_size):
            rows = [self._row(premises[n], ends[n], self.max_tokens - added) for n in some]
            encoded = self.tokenizer.pad({"input_ids": rows}, padding=True, return_tensors="pt")
            written = self.model.generate(
                **encoded.to(self.model.device), max_new_tokens=_WRITTEN, do_sample=False, num_beams=1,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
            refuse_nan_logits(written.logits[0])
            texts = self.tokenizer.batch_decode(written.sequences, skip_special_tokens=True)
            for place, text in zip(some, texts, strict=True):
                found[place] = text.strip() == "1"
        return found

    def _row(self, premise: str, end: str, room: int) -> list[int]:
        """Tokens of a pair, the premise cut so that both fit, and what the tokenizer adds to a text."""
        tail = _tokens(self.tokenizer, end)
        head = _tokens(self.tokenizer, f"premise: {premise}")[: room - len(tail)]
        added = self.tokenizer("", verbose=False)["input_ids"]  # T5's is the end token alone
        return [*head, *tail, *added]


def _label(name: str, labels: dict[int, str]) -> int:
    """The label of entailment; ``not_entailment`` is another one."""
    found = [number for number, label in labels.items() if label.casefold() == LABEL]
    if len(found) != 1:
        raise ConfigError(
            f"{name!r} has the labels {', '.join(labels.values())}, and exactly one must be named {LABEL!r}: "
            "take a model of natural language inference, or name it in the id2label of its config.json."
        )
    return int(found[0])


def _positions(tokenizer: Any, config: Any) -> int:
    """The longest input that the model can read; a large number where there is no limit."""
    return int(min(encoder_positions(config) or 10**9, tokenizer.model_max_length))


def _with_room(tokenizer: Any, texts: Sequence[str], room: int) -> list[int]:
    """Places of the texts that leave room for a premise."""
    judged = [n for n, text in enumerate(texts) if len(_tokens(tokenizer, text)) < room]
    if len(judged) < len(texts):
        log.warning(
            "%d hypotheses leave no room for a premise; they do not follow.", len(texts) - len(judged)
        )
    return judged


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return foreign_ids(tokenizer, [text])[0]


def _batches(places: Sequence[int], size: int) -> list[Sequence[int]]:
    return [places[first : first + size] for first in range(0, len(places), size)]
