"""A batch of a bi-encoder in groups of like length: the same embeddings and gradients, and less padding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_data import tiny_bert
from torch import Tensor, nn

from grls.models.biencoder import BiEncoderModel
from grls.train.biencoder import loss as losses
from grls.train.biencoder.loss import GROUP, MaskedRankingLoss, embed_in_groups
from grls.train.options import BiEncoderOptions

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
    (grouped,) = embed_in_groups(model, [features])
    torch.testing.assert_close(grouped, whole)
    for found, right in zip(gradients(model, grouped), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
    lengths = sorted(features["attention_mask"].sum(dim=1).tolist())
    parts = [lengths[i : i + GROUP] for i in range(0, len(lengths), GROUP)]
    assert model.read == [features["input_ids"].numel(), *(len(part) * max(part) for part in parts)]
    assert sum(model.read[1:]) < 0.8 * model.read[0]


def test_pieces_that_are_embedded_again_have_the_gradient_of_the_whole_batch(encoder: BiEncoderModel) -> None:
    features = [encoder.features(TEXTS, "query"), encoder.features(TEXTS[::-1], "passage")]
    labels = torch.arange(2 * len(TEXTS)).view(2, -1).T

    def gradient(**options: Any) -> list[Tensor]:
        loss = MaskedRankingLoss(encoder.model, 20.0, encoder.scores, BiEncoderOptions(**options))
        encoder.model.zero_grad()
        loss([dict(part) for part in features], labels).backward()
        return [weight.grad.clone() for weight in encoder.model.parameters() if weight.grad is not None]

    expected = gradient()
    for found, right in zip(gradient(mini_batch_size=4), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(gradient(matryoshka=(4, 8))[0], expected[0])


def test_a_step_in_pieces_needs_the_memory_of_one(encoder: BiEncoderModel) -> None:
    """Counted in bytes that the graph keeps for the backward pass."""
    features = encoder.features(TEXTS * 8, "query")

    whole = kept_bytes(lambda: embed_in_groups(encoder.model, [features]))
    options = BiEncoderOptions(mini_batch_size=8)
    assert kept_bytes(lambda: embed_in_groups(encoder.model, [features], options)) < 0.1 * whole


def kept_bytes(work: Callable[[], Any]) -> int:
    """Bytes that the graph of some work keeps for the backward pass."""
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        work()
    return sum(sizes)


def test_activations_beyond_the_limit_are_computed_again_to_the_same_bits(
    encoder: BiEncoderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout: the backward pass draws what the forward pass drew."""
    columns = [encoder.features(TEXTS, "query"), encoder.features(TEXTS[::-1], "passage")]
    labels = torch.arange(2 * len(TEXTS)).view(2, -1).T
    encoder.model.train()
    loss = MaskedRankingLoss(encoder.model, 20.0, encoder.scores)

    def step(tokens: int) -> list[Tensor]:
        """The loss, the gradients, and the next random number."""
        monkeypatch.setattr(losses, "KEPT_TOKENS", tokens)
        torch.manual_seed(0)
        encoder.model.zero_grad()
        value = loss(columns, labels)
        value.backward()
        gradients = [weight.grad.clone() for weight in encoder.model.parameters() if weight.grad is not None]
        return [value.detach(), *gradients, torch.rand(1)]

    def kept(tokens: int) -> int:
        monkeypatch.setattr(losses, "KEPT_TOKENS", tokens)
        return kept_bytes(lambda: loss(columns, labels))

    expected = step(10**6)
    for tokens in (0, 150):
        for value, right in zip(step(tokens), expected, strict=True):
            assert torch.equal(value, right)
    assert kept(0) < 0.2 * kept(10**6)
    assert kept(0) < kept(150) < kept(10**6)
