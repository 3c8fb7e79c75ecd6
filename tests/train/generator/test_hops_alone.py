"""Hops alone as tensors, and their loss over the allowed tokens against plain definitions."""

from typing import Any

import numpy as np
import pytest
import torch
from models_small import END, PAD, small_bart, small_t5
from score_all import score_all

from grls.index.base import ConstraintIndex
from grls.index.build import index_sequences
from grls.models.load.build import Loaded
from grls.models.load.generators import GeneratorSpec
from grls.models.seq2seq.slots import Seq2SeqGenerator
from grls.train.core.module import Batch
from grls.train.generator.collate import HopCollator
from grls.train.generator.examples import HopExample
from grls.train.generator.module import Retrieve
from grls.train.generator.targets import Teaching
from grls.train.options import RetrieveModelOptions

ROWS = [
    (3, 4, 5, END), (3, 4, 6, END), (3, 4, END), (7, 8, 9, 10, END), (7, 8, 9, 11, END), (12, 13, 14, END),
    (3, 4, 5, END), (2, END),
]  # fmt: skip
SOURCES = [[20, 21, END], [22, END], [23, 24, 25, 26, END]]


@pytest.fixture(scope="module", params=["array", "flat"])
def index(request: pytest.FixtureRequest) -> ConstraintIndex:
    return index_sequences([np.array(row) for row in ROWS], END, request.param)


def batch_of(index: ConstraintIndex, numbers: Any, start: int, full: bool = False) -> Batch:
    """Each passage as a hop alone, behind its source."""
    hops = [
        HopExample(SOURCES[place % 3], (n,), n, "", (), (n,), f"{place}") for place, n in enumerate(numbers)
    ]
    collate = HopCollator(PAD, index, Teaching(index, len(ROWS) - 1), start, full, together=False)
    return collate([(hop,) for hop in hops])


class Given(GeneratorSpec):
    """A model that is there."""

    def __init__(self, model: Any):
        self.model = model

    def load(self) -> Loaded:
        return Loaded(self.model, None)


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    module = Retrieve(RetrieveModelOptions(generator=Given(model)))
    module.model.eval()
    return module.batch_loss(batch)


def naive_allowed(prefix: tuple[int, ...]) -> list[int]:
    return sorted(
        {row[len(prefix)] for row in ROWS if row[: len(prefix)] == prefix and len(row) > len(prefix)}
    )


def choices(numbers: Any) -> dict[tuple[int, int], tuple[list[int], int]]:
    """Example and position of each choice -> the allowed tokens, and the one to write."""
    return {
        (i, position): (allowed, token)
        for i, n in enumerate(numbers)
        for position, token in enumerate(ROWS[n])
        if len(allowed := naive_allowed(ROWS[n][:position])) > 1
    }


@pytest.mark.parametrize("numbers", [range(8), [5], [7], [0, 0, 6], [4, 2]])
def test_decisions_equal_the_naive_ones(index: ConstraintIndex, numbers: list[int]) -> None:
    batch = batch_of(index, numbers, 9)
    decisions, width = batch.decisions, batch.read.decoder_input_ids.shape[1]
    assert decisions is not None
    found = {}
    for n, state in enumerate(decisions.states.tolist()):
        own = decisions.owners == n
        tokens, probabilities = decisions.tokens[own], decisions.probabilities[own]
        assert sorted(probabilities.tolist()) == [0.0] * (len(tokens) - 1) + [1.0]
        found[divmod(state, width)] = (tokens.tolist(), int(tokens[probabilities == 1]))
    assert found == choices(numbers)
    assert batch.divisor == len(found)
    last = max(position for _, position in found)
    assert width == last + 1  # targets are cut after the last choice


def test_a_batch_is_padded_shifted_and_cut_after_the_last_choice(index: ConstraintIndex) -> None:
    batch = batch_of(index, (3, 5), 9)
    assert batch.labels is None
    assert batch.read.input_ids.tolist() == [[20, 21, END], [22, END, PAD]]
    assert batch.read.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.read.decoder_input_ids.tolist() == [[9, 7, 8, 9], [9, PAD, PAD, PAD]]
    full = batch_of(index, (3, 5), 9, full=True)
    assert full.decisions is None
    assert full.labels is not None
    assert full.read.decoder_input_ids.tolist() == [[9, 7, 8, 9, 10], [9, 12, 13, 14, PAD]]
    assert full.labels.states.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert full.labels.tokens.tolist() == [7, 8, 9, 10, END, 12, 13, 14, END]


@pytest.mark.parametrize("make", [small_t5, small_bart])
@pytest.mark.parametrize("numbers", [(0, 3, 5), (5, 7, 5), (2, 4, 6)])
def test_the_loss_is_the_renormalized_negative_log_probability(
    index: ConstraintIndex, make: Any, numbers: tuple[int, ...]
) -> None:
    """Summed over the passages, divided by the number of positions with a choice."""
    model = make()
    generator = Seq2SeqGenerator(model)
    total = -sum(score_all(generator, index, s)[n] for s, n in zip(SOURCES, numbers, strict=True))
    loss = loss_of(model, batch_of(index, numbers, generator.start_token))
    assert loss.item() == pytest.approx(total / len(choices(numbers)), abs=1e-5)


def test_the_full_loss_is_that_of_the_model(index: ConstraintIndex) -> None:
    model = small_t5()
    batch = batch_of(index, (0, 3, 5), PAD, full=True)
    labels = torch.full(batch.read.decoder_input_ids.shape, -100)
    for row, n in enumerate((0, 3, 5)):
        labels[row, : len(ROWS[n])] = torch.tensor(ROWS[n])
    expected = model(
        input_ids=batch.read.input_ids, attention_mask=batch.read.attention_mask,
        decoder_input_ids=batch.read.decoder_input_ids, labels=labels,
    ).loss  # fmt: skip
    torch.testing.assert_close(loss_of(model, batch), expected)


def test_the_gradient_reaches_every_weight_and_is_that_of_the_definition(index: ConstraintIndex) -> None:
    model = small_t5()
    batch = batch_of(index, (0, 3, 5), PAD)
    loss_of(model, batch).backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert len(ours) == len(list(model.parameters()))
    assert all(grad.isfinite().all() for grad in ours.values())
    assert all(grad.abs().sum() > 0 for grad in ours.values())
    model.zero_grad()
    logits = model(
        input_ids=batch.read.input_ids,
        attention_mask=batch.read.attention_mask,
        decoder_input_ids=batch.read.decoder_input_ids,
    ).logits
    terms = [
        logits[i, position, allowed].logsumexp(0) - logits[i, position, token]
        for (i, position), (allowed, token) in choices((0, 3, 5)).items()
    ]
    torch.stack(terms).mean().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(ours[name], parameter.grad, atol=1e-5), name
