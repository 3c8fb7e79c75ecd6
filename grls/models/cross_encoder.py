"""A cross-encoder: reads a query and a passage together and returns one number, their relevance.

A thin layer on sentence-transformers' ``CrossEncoder``. The number is the logit, before any activation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sentence_transformers import CrossEncoder
from torch import nn
from transformers import PreTrainedTokenizerBase

from grls.data.codec import foreign_ids, reset_tokenizer
from grls.data.evidence import excerpt
from grls.data.types import Passage
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.timing import PartTimer, report_step
from grls.models.base import Floats, once_each
from grls.models.load.language import model_fingerprint
from grls.models.load.opening import write_encoder
from grls.models.precision import accelerator, move
from grls.models.sentence_model import PlainTexts, open_library_model, positions_of
from grls.models.text_encoder import passage_text, reading, telling, together

Pair = tuple[str, str]
"""A query and a passage, as texts."""

TRAINED = "grls_reranker"
"""The field of a model's config with the settings of its training."""


class PairNetwork(PlainTexts, CrossEncoder):
    paired = True


class PairScorer:
    """Scores pairs of a query and a passage by a cross-encoder with one label.

    Attributes:
        max_tokens: The longest pair in tokens, special tokens included; of a longer pair the longer text is
            cut.
        evidence_words: Words of each evidence passage that it was trained to read with a query; 0: all.
    """

    def __init__(self, model: CrossEncoder):
        if model.num_labels != 1:
            raise ConfigError(
                f"the cross-encoder has {model.num_labels} labels, but a ranking needs one number: use a "
                "model with one label (num_labels=1)."
            )
        if not isinstance(model.tokenizer, PreTrainedTokenizerBase):
            raise ConfigError("the cross-encoder reads no text: use one that reads pairs of texts.")
        self.model = PairNetwork.of(model)
        self._chats = "message" in model.modalities
        self._markers = int(model.tokenizer.num_special_tokens_to_add(pair=True))
        if self._chats:  # what its template and prompt add
            self._markers = len(self.model.preprocess([("", "")], _prompt(model))["input_ids"][0])
        positions = positions_of(model[0])
        self.max_tokens = int(min(model.max_seq_length or positions, positions, 2**30))
        if self.max_tokens < self._markers + 2:
            raise ConfigError(f"the cross-encoder reads {self.max_tokens} tokens, too few for two texts.")
        model.max_seq_length = self.max_tokens
        config = getattr(self.model.transformers_model, "config", None)
        stored = getattr(config, TRAINED, None)
        words = stored.get("evidence_words") if isinstance(stored, dict) else None
        if words is not None and (not isinstance(words, int) or isinstance(words, bool) or words < 0):
            raise ConfigError(
                f"config.json of the cross-encoder: expected {TRAINED}.evidence_words to be a number of "
                f"words, got {words!r}; train it again."
            )
        self.evidence_words = words or 0
        self._fingerprint = _fingerprint(self.model, self.max_tokens)

    @classmethod
    def load(cls, source: str, device: str = "auto", precision: str = "float32") -> Self:
        scorer = cls(open_library_model(CrossEncoder, source, "a cross-encoder", ""))
        move(scorer.model, str(accelerator()) if device == "auto" else device, precision)
        return scorer

    def fingerprint(self) -> str:
        """SHA-256 of all that affects a logit: weights, settings, tokenizer, prompt, length."""
        return self._fingerprint

    def query_text(self, query: str, evidence: Sequence[Passage] = ()) -> str:
        return query_with_evidence(query, evidence, self.evidence_words)

    def write(self, folder: Path) -> None:
        """Write model and tokenizer to a temporary folder, which the caller renames."""
        if _fingerprint(self.model, self.max_tokens) != self._fingerprint:
            raise MismatchError(
                "the cross-encoder has changed since it was loaded: load it again in float32, then save it."
            )
        reset_tokenizer(self.model.tokenizer)
        write_encoder(self.model, folder)

    def cut_queries(self, pairs: Sequence[Pair]) -> list[tuple[int, int]]:
        """The pairs that are too long and whose query is cut: number of the pair, tokens of its query.

        The longer text is cut, so a query of at most half the limit never is. A chat model loses the end
        of the passage, and then that of the query.
        """
        room, prompt = self.max_tokens - self._markers, "" if self._chats else _prompt(self.model) or ""
        queries = list(dict.fromkeys(query for query, _ in pairs))
        ids = foreign_ids(self.model.tokenizer, [prompt + query for query in queries])
        tokens = {query: len(row) for query, row in zip(queries, ids, strict=True)}
        if self._chats:
            return [(n, tokens[query]) for n, (query, _) in enumerate(pairs) if tokens[query] > room]
        long = [number for number, (query, _) in enumerate(pairs) if tokens[query] > room // 2]
        passages = foreign_ids(self.model.tokenizer, [pairs[number][1] for number in long]) if long else []
        return [
            (number, tokens[pairs[number][0]])
            for number, other in zip(long, passages, strict=True)
            if tokens[pairs[number][0]] + len(other) > room
        ]

    def logits(
        self, pairs: Sequence[Pair], batch_size: int = 32, decided: Callable[[int], object] | None = None
    ) -> Floats:
        """``[n]`` logits of pairs, in eval mode; those of equal pairs are equal.

        Pairs of similar length share a batch; ``decided`` is called with the number of pairs after each.
        """
        if not pairs:
            return np.empty(0)
        distinct, numbers = once_each(pairs)

        def count(read: int) -> None:
            report_step()
            if decided is not None:
                decided(read)

        def read(some: Sequence[Pair], size: int) -> Any:
            return self.model.predict(
                list(some), batch_size=size, prompt=_prompt(self.model), activation_fn=nn.Identity(),
                show_progress_bar=False,
            )  # fmt: skip

        batch_size = together(self.model, "pair", distinct, batch_size, read)
        with PartTimer("encoder"), telling(self.model, count):
            predicted = read(distinct, batch_size)
        if decided is not None:
            decided(len(pairs) - len(distinct))
        logits: Floats = np.asarray(predicted, dtype=np.float64)[numbers]
        wrong = np.flatnonzero(~np.isfinite(logits))
        if len(wrong):
            query, passage = pairs[wrong[0]]
            raise DataError(
                f"the logit of {query[:60]!r} with {passage[:60]!r} is not finite ({len(wrong)} of "
                f"{len(pairs)} pairs): the weights are damaged or overflow; use float32, or another model."
            )
        return logits


def query_with_evidence(query: str, evidence: Sequence[Passage], words: int) -> str:
    """A query and the passages retrieved so far, in order, as one text.

    ``words``: the most words of each passage (:func:`grls.data.evidence.excerpt`); 0: all.
    """
    return " ".join([query, *(passage_text(excerpt(query, passage, words)) for passage in evidence)])


def _prompt(model: CrossEncoder) -> str | None:
    return None if model.default_prompt_name is None else model.prompts.get(model.default_prompt_name)


def _fingerprint(model: PairNetwork, max_tokens: int) -> str:
    parts = ["cross-encoder-1", max_tokens, _prompt(model), reading(model[0]), model_fingerprint(model)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
