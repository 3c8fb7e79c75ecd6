"""Batches of a bi-encoder: features of texts, and labels of their keys.

Legend: B examples of a batch, n passages of an example, G largest number of gold texts of an example.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder.examples import BiEncoderExamples


class PairCollator(SentenceTransformerDataCollator):
    """Draws the examples of a batch, and makes features from their texts and labels from their keys.

    Args:
        encoder: Text to features.
        examples: The training pairs, which are drawn anew each epoch.
    """

    def __init__(self, encoder: BiEncoderModel, examples: BiEncoderExamples):
        super().__init__(preprocess_fn=encoder.model.preprocess)
        self.encoder = encoder
        self.examples = examples
        self.epoch = 0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Features of the queries and of each of the n passages, and ``label [B, n + G]``."""
        pairs = [self.examples.draw(row["number"], self.epoch) for row in features]
        columns = {"query": self.encoder.features([pair.query for pair in pairs], "query")}
        for n, texts in enumerate(zip(*(pair.passages for pair in pairs), strict=True)):
            columns[f"passage{n}"] = self.encoder.features(texts, "passage")
        batch = {f"{name}_{key}": value for name, made in columns.items() for key, value in made.items()}
        return {**batch, "label": torch.tensor([[*pair.keys, *pair.gold] for pair in pairs])}
