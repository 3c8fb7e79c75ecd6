"""Batches as tensors, and the loss over the allowed tokens against plain definitions."""

import numpy as np
import pytest
import torch
from models_small import END, PAD, small_bart, small_t5

from grls.decode.score_all import score_all
from grls.index import ConstraintIndex, index_sequences
from grls.models.head import Head
from grls.models.seq2seq.slots import Seq2SeqGenerator
from grls.train.core.collate import IGNORED, Batch, Collator, allowed_choices
from grls.train.core.examples import Example
from grls.train.core.module import allowed_loss

ROWS = [
    (3, 4, 5, END), (3, 4, 6, END), (3, 4, END), (7, 8, 9, 10, END), (7, 8, 9, 11, END), (12, 13, 14, END),
    (3, 4, 5, END), (2, END),
]  # fmt: skip
SOURCES = [[20, 21, END], [22, END], [23, 24, 25, 26, END]]


@pytest.fixture(scope="module", params=["array", "flat"])
def index(request: pytest.FixtureRequest) -> ConstraintIndex:
    return index_sequences([np.array(row) for row in ROWS], END, request.param)


def naive_allowed(prefix: tuple[int, ...]) -> list[int]:
    return sorted(
        {row[len(prefix)] for row in ROWS if row[: len(prefix)] == prefix and len(row) > len(prefix)}
    )


@pytest.mark.parametrize("numbers", [range(8), [5], [7], [0, 0, 6], [4, 2]])
def test_choices_equal_the_naive_ones(index: ConstraintIndex, numbers: list[int]) -> None:
    targets = [list(ROWS[n]) for n in numbers]
    choices, lengths = allowed_choices(index, targets)
    assert choices.first.tolist() == [2, 3, 7, 12]
    expected = {}
    for i, target in enumerate(targets):
        for position in range(1, len(target)):
            allowed = naive_allowed(tuple(target[:position]))
            if len(allowed) > 1:
                expected[(i, position)] = (allowed, target[position])
    found = {}
    for p, place in enumerate(choices.labels.tolist()):
        tokens = choices.tokens[choices.positions == p].tolist()
        found[tuple(place)] = (tokens, int(choices.tokens[choices.targets[p]]))
    assert found == expected
    last = [max([p for j, p in expected if j == i], default=0) + 1 for i in range(len(targets))]
    assert lengths.tolist() == last


def test_a_batch_is_padded_shifted_and_cut_after_the_last_choice(index: ConstraintIndex) -> None:
    examples = [Example(SOURCES[0], list(ROWS[3])), Example(SOURCES[1], list(ROWS[5]))]
    batch = Collator(PAD, 9, index)(examples)
    assert batch.input_ids.tolist() == [[20, 21, END], [22, END, PAD]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.labels.tolist() == [[7, 8, 9, 10], [12, IGNORED, IGNORED, IGNORED]]
    assert batch.decoder_input_ids.tolist() == [[9, 7, 8, 9], [9, PAD, PAD, PAD]]
    assert batch.choices is not None
    assert batch.choices.labels.tolist() == [3]
    full = Collator(PAD, 9)(examples)
    assert full.choices is None
    assert full.labels.tolist() == [[7, 8, 9, 10, END], [12, 13, 14, END, IGNORED]]


def loss_of(model: object, batch: Batch) -> torch.Tensor:
    head = Head(model)
    with head.catch() as caught:
        model(  # type: ignore[operator]
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            decoder_input_ids=batch.decoder_input_ids,
        )
    assert batch.choices is not None
    return allowed_loss(head, caught[0], batch.labels, batch.choices)


@pytest.mark.parametrize("make", [small_t5, small_bart])
@pytest.mark.parametrize("numbers", [(0, 3, 5), (5, 7, 5), (2, 4, 6)])
def test_the_loss_is_the_renormalized_negative_log_probability(
    index: ConstraintIndex, make: object, numbers: tuple[int, ...]
) -> None:
    """Summed over the passages, divided by the number of positions with a choice."""
    model = make()  # type: ignore[operator]
    generator = Seq2SeqGenerator(model)
    start = generator.start_token
    targets = [list(ROWS[n]) for n in numbers]
    examples = [Example(s, t) for s, t in zip(SOURCES, targets, strict=True)]
    total = -sum(score_all(generator, index, s)[n] for s, n in zip(SOURCES, numbers, strict=True))
    places = sum(len(naive_allowed(tuple(t[:p]))) > 1 for t in targets for p in range(len(t)))
    loss = loss_of(model, Collator(PAD, start, index)(examples))
    assert loss.item() == pytest.approx(total / places, abs=1e-5)


def test_the_gradient_reaches_every_weight_and_is_that_of_the_definition(index: ConstraintIndex) -> None:
    model = small_t5()
    examples = [Example(s, list(ROWS[n])) for s, n in zip(SOURCES, (0, 3, 5), strict=True)]
    batch = Collator(PAD, PAD, index)(examples)
    loss_of(model, batch).backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert len(ours) == len(list(model.parameters()))
    assert all(grad.isfinite().all() for grad in ours.values())
    assert all(grad.abs().sum() > 0 for grad in ours.values())
    model.zero_grad()
    logits = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        decoder_input_ids=batch.decoder_input_ids,
    ).logits
    terms = []
    for i, n in enumerate((0, 3, 5)):
        for position, token in enumerate(ROWS[n]):
            allowed = naive_allowed(ROWS[n][:position])
            if len(allowed) > 1:
                terms.append(logits[i, position, allowed].logsumexp(0) - logits[i, position, token])
    torch.stack(terms).mean().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(ours[name], parameter.grad, atol=1e-5), name
