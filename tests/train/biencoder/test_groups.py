"""A batch of a bi-encoder in groups of like length: the same embeddings and gradients, and less padding."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_data import tiny_bert
from torch import Tensor, nn

from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder.loss import GROUP, embed_in_groups

TEXTS = [" ".join(["otter"] * (1 + 7 * n % 19)) for n in range(2 * GROUP + 3)]


@pytest.fixture
def encoder(tmp_path: Path) -> BiEncoderModel:
    made = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    made.model.eval()  # no dropout: both sides would draw another one
    return made


class Counted(nn.Module):
    """Counts the tokens that a model reads, padding among them, and its passes."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        self.read: list[int] = []

    def forward(self, features: dict[str, Any]) -> Any:
        """One pass of the model."""
        self.read.append(features["input_ids"].numel())
        return self.model(features)


def gradients(model: nn.Module, embedded: Tensor) -> list[Tensor]:
    model.zero_grad()
    (embedded * torch.linspace(-1, 1, embedded.numel()).view_as(embedded)).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_groups_are_the_whole_batch_with_less_padding(encoder: BiEncoderModel) -> None:
    features = encoder.features(TEXTS, "passage")
    model = Counted(encoder.model)
    whole = model(dict(features))["sentence_embedding"]
    expected = gradients(model, whole)
    grouped = embed_in_groups(model, features)
    torch.testing.assert_close(grouped, whole)
    for found, right in zip(gradients(model, grouped), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
    lengths = sorted(features["attention_mask"].sum(dim=1).tolist())
    parts = [lengths[i : i + GROUP] for i in range(0, len(lengths), GROUP)]
    assert model.read == [features["input_ids"].numel(), *(len(part) * max(part) for part in parts)]
    assert sum(model.read[1:]) < 0.8 * model.read[0]
