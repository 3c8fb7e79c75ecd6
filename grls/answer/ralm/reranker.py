"""The trained judge of documents: an encoder that reads prefix and document (arXiv 2302.00083).

``f(x, d)`` is one number, and ``p_rank(d_i | x) = exp f(x, d_i) / sum_j exp f(x, d_j)`` over the
candidates of a retriever ("Training LM-dedicated rerankers" there). Training:
:mod:`grls.train.reranker.module`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from grls.answer.ralm.reader import Candidates, Stride, split_by
from grls.data.codec import foreign_places, reset_tokenizer
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, Option
from grls.io.jsonl import read_jsonl
from grls.models.base import once_each
from grls.models.cross_encoder import TRAINED
from grls.models.load.build import encoder_positions
from grls.models.load.opening import (
    open_config,
    open_model,
    open_tokenizer,
    opening_errors,
    packaged_encoder,
    refuse_missing_folder,
    write_network,
)
from grls.models.precision import move, refuse_nan_logits
from grls.models.special_tokens import padded

PREFIX = 64
"""Tokens of a text before a stride that a reranker reads, in tokens of the language model."""
_BATCH = 64


class RerankExample(NamedTuple):
    """A training example of a reranker.

    Attributes:
        prefix: The end of the text before a stride.
        passages: Texts of the candidates, in the retriever's order; in a file their ids.
        scores: Log-probability (nats) of the stride behind each candidate.
    """

    prefix: str
    passages: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(eq=False, repr=False)
class Reranker:
    """An encoder with one output.

    Args:
        model: A transformers sequence classification model with one label.
        max_tokens: Most tokens of prefix and document together, in tokens of the encoder; the document is
            cut.
        evidence_words: Of a cross-encoder for hops, whose prefixes are queries with the passages found: words
            of each of these passages, 0: all; None: the prefixes are texts. In a pair that is too long, the
            longer text is cut.
    """

    model: Any
    tokenizer: Any
    max_tokens: int = 256
    evidence_words: int | None = None

    def __post_init__(self) -> None:
        labels, positions = self.model.config.num_labels, encoder_positions(self.model.config)
        if labels != 1:
            raise ConfigError(f"a reranker has one label, got {labels}; train a reranker.")
        if positions and self.max_tokens > positions:
            raise ConfigError(
                f"max_tokens of {self.max_tokens}, but the encoder has {positions} positions; lower "
                "max_tokens."
            )

    @classmethod
    def load(
        cls,
        name: str,
        max_tokens: int = 256,
        device: str = "auto",
        trained: bool = False,
        evidence_words: int | None = None,
    ) -> Reranker:
        """Load a trained reranker, or an encoder to train (folder or hub name).

        A trained reranker stores ``max_tokens``. ``trained``: the model must have a head; otherwise a
        missing one gets random weights.
        """
        source = packaged_encoder(name)
        refuse_missing_folder(source)
        with opening_errors(
            "a reranker" if trained else "an encoder",
            name,
            "Give a folder that `grls train reranker` wrote."
            if trained
            else "Give a folder or hub name of a bidirectional encoder.",
        ):
            config = open_config(source, num_labels=1)
            tokenizer = open_tokenizer(source)
            model = open_model(
                AutoModelForSequenceClassification, source, tokenizer, new_head=not trained, pooler=True,
                config=config, dtype=torch.float32,
            )  # fmt: skip
        stored = getattr(model.config, TRAINED, None) or {}
        if trained and "evidence_words" in stored:
            raise ConfigError(
                f"{name} was trained on the hops of a data set, so it reads questions and no texts: rescore "
                f"a retriever with it (`grls index rescored R {Option('model', name)} "
                f"{Option('output', 'NEW')}`), or train a reranker of texts."
            )
        if trained and (read := stored.get("prefix_tokens", PREFIX)) != PREFIX:
            raise ConfigError(
                f"{name} was trained on {read} tokens before a stride, and rerankers read {PREFIX}: "
                "train one anew with `grls train reranker`."
            )
        if evidence_words is not None:
            stored = {}  # a reranker that is trained further
        move(model, device, "float32")
        return cls(model, tokenizer, stored.get("max_tokens", max_tokens), evidence_words)

    def save(self, folder: str | Path) -> None:
        settings = {"max_tokens": self.max_tokens}
        if self.evidence_words is not None:
            settings["evidence_words"] = self.evidence_words
            self.tokenizer.model_max_length = self.max_tokens  # the length that a cross-encoder reads
        setattr(self.model.config, TRAINED, settings)
        write_network(self.model, folder)
        reset_tokenizer(self.tokenizer)
        self.tokenizer.save_pretrained(folder)

    def logits(self, prefixes: Sequence[str], documents: Sequence[str]) -> Tensor:
        """``f(x, d)`` of pairs, ``[R]``, with gradients if the model is in training."""
        texts, cut = list(prefixes), "longest_first"
        if (
            self.evidence_words is None
        ):  # prefixes lose their start, so that the document gets half the tokens
            length, cut = self.max_tokens // 2, "only_second"
            read = zip(prefixes, foreign_places(self.tokenizer, prefixes), strict=True)
            texts = [p if len(spans) <= length else p[spans[-length][0] :] for p, (_, spans) in read]
        encoded = padded(self.tokenizer, texts, documents, truncation=cut, max_length=self.max_tokens)
        encoded = encoded.to(self.model.device)
        scores: Tensor = self.model(**encoded).logits[:, 0].float()
        return scores

    @torch.inference_mode()
    def scores(self, prefixes: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        """``f(x, d)`` of any number of pairs, similar lengths together."""
        self.model.eval()
        pairs, numbers = once_each(list(zip(prefixes, documents, strict=True)))
        scores = np.empty(len(pairs))
        order = np.argsort([len(document) for _, document in pairs], kind="stable")
        for n in range(0, len(order), _BATCH):
            batch = order[n : n + _BATCH]
            values = self.logits([pairs[i][0] for i in batch], [pairs[i][1] for i in batch])
            refuse_nan_logits(values)
            scores[batch] = values.cpu().numpy()
        return scores[numbers]


@dataclass(frozen=True)
class Trained:
    """A trained reranker as judge; the text comes in tokens of ``tokenizer``, the language model's."""

    reranker: Reranker
    tokenizer: Any
    corpus: Corpus

    def scores(
        self, text: Sequence[int], strides: Sequence[Stride], candidates: Candidates
    ) -> list[np.ndarray]:
        prefixes = prefixes_of(self.tokenizer, text, strides)
        texts = document_texts(self.corpus, sorted({number for numbers in candidates for number in numbers}))
        values = self.reranker.scores(
            [prefix for prefix, numbers in zip(prefixes, candidates, strict=True) for _ in numbers],
            [texts[number] for numbers in candidates for number in numbers],
        )
        return split_by(candidates, values)


def prefixes_of(tokenizer: Any, text: Sequence[int], strides: Sequence[Stride]) -> list[str]:
    prefixes: list[str] = tokenizer.batch_decode([list(text[stride.asks(PREFIX)]) for stride in strides])
    return prefixes


def document_texts(corpus: Corpus, numbers: Sequence[int]) -> dict[int, str]:
    passages = corpus.passages(numbers)
    return {
        number: f"{passage.title} {passage.text}".strip()
        for number, passage in zip(numbers, passages, strict=True)
    }


def read_examples(file: str | Path, corpus: Corpus) -> list[RerankExample]:
    """The examples of a file, with the texts of their passages."""
    examples = []
    for line, record in read_jsonl(file):
        if "settings" in record or record.get("passages") == []:  # the head, or a stride without candidates
            continue
        passages, scores = record.get("passages"), record.get("scores")
        fits = isinstance(passages, list) and isinstance(scores, list) and len(passages) == len(scores) > 0
        fits = fits and all(isinstance(name, str) for name in passages or ())
        fits = fits and all(isinstance(score, int | float) and abs(score) < 1e30 for score in scores or ())
        if not fits or not isinstance(record.get("prefix"), str):
            raise DataError(
                "expected 'prefix' (a text), 'passages' (ids) and as many 'scores' (numbers).", file, line
            )
        examples.append(RerankExample(record["prefix"], tuple(passages or ()), tuple(scores or ())))
    if not examples:
        raise DataError("there are no examples; write some with `grls ralm examples`.", file)
    ids = list(dict.fromkeys(name for example in examples for name in example.passages))
    numbers = []
    for name, number in zip(ids, corpus.numbers(ids), strict=True):
        if number is None:
            raise DataError(
                f"the passage {name!r} of an example is not in {corpus.source}: take the corpus with which "
                "the examples were collected.",
                file,
            )
        numbers.append(number)
    texts = dict(zip(ids, document_texts(corpus, numbers).values(), strict=True))
    return [
        example._replace(passages=tuple(texts[name] for name in example.passages)) for example in examples
    ]


def example_settings(file: str | Path) -> dict[str, Any]:
    """The settings that examples were collected with; empty if the file does not say."""
    for _, record in read_jsonl(file):
        settings = record.get("settings")
        return settings if isinstance(settings, dict) else {}
    return {}
