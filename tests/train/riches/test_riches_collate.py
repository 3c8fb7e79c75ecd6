"""Where the labels of interlaced targets stand, what is allowed within keys, and the loss over both."""

import numpy as np
import pytest
import torch
from models_small import END, PAD, small_llama, small_t5

from grls.index.build import index_sequences
from grls.index.keys import PrefixKeys
from grls.models.head import Head
from grls.train.core.collate import IGNORED, Batch, Choices, Collator
from grls.train.core.examples import Example
from grls.train.riches.collate import Constraint, InterlacedCollator, allowed_in_quotes
from grls.train.riches.module import interlaced_loss

OPEN, CLOSE = 40, 41
KEYS = [(5, 6), (5, 6, 7), (8, 9)]
SHORT = Example([10, 11], [20, OPEN, 5, 6, CLOSE, END], ((2, 4),))
LONG = Example([12], [OPEN, 8, 9, CLOSE, OPEN, 5, 6, 7, CLOSE, END], ((1, 3), (5, 8)))


@pytest.fixture
def constraint() -> Constraint:
    rows = [np.array([*key, END]) for key in KEYS]
    return Constraint(PrefixKeys(index_sequences(rows, END)), CLOSE)


def chosen(choices: Choices) -> list[tuple[int, list[int], int]]:
    """Place, allowed tokens and target of every position with a choice, by place."""
    tokens, positions = choices.tokens.numpy(), choices.positions.numpy()
    found = [
        (int(place), tokens[positions == n].tolist(), int(tokens[choices.targets[n]]))
        for n, place in enumerate(choices.labels)
    ]
    return sorted(found)


def test_labels_of_an_encoder_decoder() -> None:
    batch = Collator(PAD, 3)([SHORT, LONG])
    assert batch.input_ids.tolist() == [[10, 11], [12, PAD]]
    assert batch.attention_mask.tolist() == [[1, 1], [1, 0]]
    assert batch.labels.tolist() == [[*SHORT.target, *[IGNORED] * 4], LONG.target]
    assert batch.decoder_input_ids is not None
    assert batch.decoder_input_ids.tolist() == [[3, *SHORT.target[:-1], *[PAD] * 4], [3, *LONG.target[:-1]]]
    assert batch.choices is None


def test_labels_of_a_causal_model_stand_where_their_token_is_predicted() -> None:
    batch = Collator(PAD, None)([SHORT, LONG])
    assert batch.decoder_input_ids is None
    assert batch.input_ids.tolist() == [[10, 11, *SHORT.target[:-1], *[PAD] * 3], [12, *LONG.target[:-1]]]
    assert batch.attention_mask.tolist() == [[1] * 7 + [0] * 3, [1] * 10]
    assert batch.labels.tolist() == [[IGNORED, *SHORT.target, *[IGNORED] * 3], LONG.target]


@pytest.mark.parametrize("start", [3, None])
def test_what_is_allowed_within_keys(constraint: Constraint, start: int | None) -> None:
    """After 5 6 a key may close or go on; 6 after 5 and 9 after 8 are no choice, nor is closing after 8 9."""
    batch = InterlacedCollator(PAD, start, constraint=constraint)([SHORT, LONG])
    assert batch.choices is not None
    shift = 0 if start is not None else 1
    assert chosen(batch.choices) == [
        (shift + 2, [5, 8], 5),
        (shift + 4, [7, CLOSE], CLOSE),
        (10 + 1, [5, 8], 8),
        (10 + 5, [5, 8], 5),
        (10 + 7, [7, CLOSE], 7),
    ]
    free = [IGNORED] * shift + [20, OPEN, *[IGNORED] * 3, END]
    assert batch.labels[0].tolist() == free + [IGNORED] * (10 - len(free))
    assert batch.labels[1].tolist() == [OPEN, *[IGNORED] * 3, OPEN, *[IGNORED] * 4, END]


def test_a_target_that_quotes_no_key_is_a_fault(constraint: Constraint) -> None:
    for key in ([5], [5, 7], [8, 9, 9], []):
        with pytest.raises(ValueError, match="no key of the index"):
            allowed_in_quotes(constraint, [(0, [8, 9]), (10, key)])
    assert len(allowed_in_quotes(constraint, []).labels) == 0


def test_a_closing_token_within_a_key_is_not_the_end_of_it() -> None:
    rows = [np.array(row) for row in ([5, END], [5, CLOSE, 6, END])]
    index = PrefixKeys(index_sequences(rows, END))
    found = allowed_in_quotes(Constraint(index, CLOSE), [(0, [5, CLOSE, 6]), (10, [5])])
    places = dict(zip(found.labels.tolist(), found.targets.tolist(), strict=True))
    # After 5 the token CLOSE goes on (first of the two), and closing is the second.
    first = {place: int((found.positions == n).nonzero()[0]) for n, place in enumerate(found.labels.tolist())}
    assert {place: target - first[place] for place, target in places.items()} == {1: 0, 11: 1}


@pytest.mark.parametrize("causal", [True, False])
def test_the_losses_by_definition(constraint: Constraint, causal: bool) -> None:
    model = small_llama() if causal else small_t5()
    start = None if causal else int(model.config.decoder_start_token_id)
    examples = [SHORT, LONG]
    logs = [log_probabilities(model, example, start) for example in examples]

    full = -np.mean(
        [row[n, t] for row, e in zip(logs, examples, strict=True) for n, t in enumerate(e.target)]
    )
    assert loss(model, Collator(PAD, start)(examples)) == pytest.approx(full, abs=1e-5)

    short, long = logs
    parts = [short[0, 20], short[1, OPEN], short[5, END], long[0, OPEN], long[4, OPEN], long[9, END]]
    parts += [
        row[n, target] - np.logaddexp(row[n, target], row[n, other])
        for row, n, target, other in (
            (short, 2, 5, 8), (short, 4, CLOSE, 7), (long, 1, 8, 5), (long, 5, 5, 8), (long, 7, 7, CLOSE),
        )
    ]  # fmt: skip
    found = loss(model, InterlacedCollator(PAD, start, constraint=constraint)(examples))
    assert found == pytest.approx(-np.mean(parts), abs=1e-5)


def loss(model: torch.nn.Module, batch: Batch) -> float:
    given = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "use_cache": False}
    if batch.decoder_input_ids is not None:
        given["decoder_input_ids"] = batch.decoder_input_ids
    head = Head(model)
    with torch.inference_mode():
        with head.catch() as caught:
            model(**given)
        return float(interlaced_loss(head, caught[0], batch.labels, batch.choices))


def log_probabilities(model: torch.nn.Module, example: Example, start: int | None) -> np.ndarray:
    """By the model's own forward pass over one example without padding, ``[target positions, V]``."""
    with torch.inference_mode():
        if start is None:
            tokens = torch.tensor([[*example.source, *example.target[:-1]]])
            logits = model(input_ids=tokens).logits[0, len(example.source) - 1 :]
        else:
            behind = torch.tensor([[start, *example.target[:-1]]])
            logits = model(input_ids=torch.tensor([example.source]), decoder_input_ids=behind).logits[0]
        return np.asarray(logits.log_softmax(-1).double())
