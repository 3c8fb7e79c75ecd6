"""Where the labels of interlaced targets stand, what is allowed within keys, and the loss over both."""

import numpy as np
import pytest
import torch
from models_small import END, PAD, small_llama, small_t5

from grls.index.build import index_sequences
from grls.index.keys import PrefixKeys
from grls.models.load.build import Loaded
from grls.models.load.generators import GeneratorSpec
from grls.train.core.examples import Example
from grls.train.core.module import Batch, DecisionTensors, GeneratorModule
from grls.train.options import WriterModelOptions
from grls.train.riches.collate import Constraint, TextCollator, allowed_in_quotes

OPEN, CLOSE = 40, 41
KEYS = [(5, 6), (5, 6, 7), (8, 9)]
SHORT = Example([10, 11], [20, OPEN, 5, 6, CLOSE, END], ((2, 4),))
LONG = Example([12], [OPEN, 8, 9, CLOSE, OPEN, 5, 6, 7, CLOSE, END], ((1, 3), (5, 8)))


@pytest.fixture
def constraint() -> Constraint:
    rows = [np.array([*key, END]) for key in KEYS]
    return Constraint(PrefixKeys(index_sequences(rows, END)), CLOSE)


def chosen(decisions: DecisionTensors) -> list[tuple[int, list[int], int]]:
    """Place, allowed tokens and target of every position with a choice, by place."""
    found = []
    for n, place in enumerate(decisions.states.tolist()):
        tokens = decisions.tokens[decisions.owners == n]
        right = decisions.probabilities[decisions.owners == n] == 1
        found.append((place, tokens.tolist(), int(tokens[right])))
    return sorted(found)


def predicted(batch: Batch) -> dict[int, int]:
    """The token of each state that predicts one of the vocabulary."""
    assert batch.labels is not None
    return dict(zip(batch.labels.states.tolist(), batch.labels.tokens.tolist(), strict=True))


def test_labels_of_an_encoder_decoder() -> None:
    batch = TextCollator(PAD, 3)([SHORT, LONG])
    assert batch.read.input_ids.tolist() == [[10, 11], [12, PAD]]
    assert batch.read.attention_mask.tolist() == [[1, 1], [1, 0]]
    assert predicted(batch) == dict(enumerate(SHORT.target)) | dict(enumerate(LONG.target, 10))
    written = [[3, *SHORT.target[:-1], *[PAD] * 4], [3, *LONG.target[:-1]]]
    assert batch.read.decoder_input_ids.tolist() == written
    assert batch.decisions is None


def test_labels_of_a_causal_model_stand_where_their_token_is_predicted() -> None:
    batch = TextCollator(PAD, None)([SHORT, LONG])
    assert batch.read.decoder_input_ids is None
    assert batch.read.input_ids.tolist() == [
        [10, 11, *SHORT.target[:-1], *[PAD] * 3],
        [12, *LONG.target[:-1]],
    ]
    assert batch.read.attention_mask.tolist() == [[1] * 7 + [0] * 3, [1] * 10]
    assert predicted(batch) == dict(enumerate(SHORT.target, 1)) | dict(enumerate(LONG.target, 10))


@pytest.mark.parametrize("start", [3, None])
def test_what_is_allowed_within_keys(constraint: Constraint, start: int | None) -> None:
    """After 5 6 a key may close or go on; 6 after 5 and 9 after 8 are no choice, nor is closing after 8 9."""
    batch = TextCollator(PAD, start, constraint)([SHORT, LONG])
    assert batch.decisions is not None
    shift = 0 if start is not None else 1
    assert chosen(batch.decisions) == [
        (shift + 2, [5, 8], 5),
        (shift + 4, [7, CLOSE], CLOSE),
        (10 + 1, [5, 8], 8),
        (10 + 5, [5, 8], 5),
        (10 + 7, [7, CLOSE], 7),
    ]
    own = {shift: 20, shift + 1: OPEN, shift + 5: END}
    assert predicted(batch) == own | {10: OPEN, 14: OPEN, 19: END}


def test_a_target_that_quotes_no_key_is_a_fault(constraint: Constraint) -> None:
    for key in ([5], [5, 7], [8, 9, 9], []):
        with pytest.raises(ValueError, match="no key of the index"):
            allowed_in_quotes(constraint, [(0, [8, 9]), (10, key)])
    assert len(allowed_in_quotes(constraint, []).states) == 0


def test_a_closing_token_within_a_key_is_not_the_end_of_it() -> None:
    rows = [np.array(row) for row in ([5, END], [5, CLOSE, 6, END])]
    index = PrefixKeys(index_sequences(rows, END))
    found = allowed_in_quotes(Constraint(index, CLOSE), [(0, [5, CLOSE, 6]), (10, [5])])
    # After 5 the token CLOSE goes on (first of the two), and closing is the second.
    right = {
        state: int(found.probabilities[found.owners == n].argmax())
        for n, state in enumerate(found.states.tolist())
    }
    assert right == {1: 0, 11: 1}


@pytest.mark.parametrize("causal", [True, False])
def test_the_losses_by_definition(constraint: Constraint, causal: bool) -> None:
    model = small_llama() if causal else small_t5()
    start = None if causal else int(model.config.decoder_start_token_id)
    examples = [SHORT, LONG]
    logs = [log_probabilities(model, example, start) for example in examples]

    full = -np.mean(
        [row[n, t] for row, e in zip(logs, examples, strict=True) for n, t in enumerate(e.target)]
    )
    assert loss(model, TextCollator(PAD, start)(examples)) == pytest.approx(full, abs=1e-5)

    short, long = logs
    parts = [short[0, 20], short[1, OPEN], short[5, END], long[0, OPEN], long[4, OPEN], long[9, END]]
    parts += [
        row[n, target] - np.logaddexp(row[n, target], row[n, other])
        for row, n, target, other in (
            (short, 2, 5, 8), (short, 4, CLOSE, 7), (long, 1, 8, 5), (long, 5, 5, 8), (long, 7, 7, CLOSE),
        )
    ]  # fmt: skip
    found = loss(model, TextCollator(PAD, start, constraint)(examples))
    assert found == pytest.approx(-np.mean(parts), abs=1e-5)


class Given(GeneratorSpec):
    """A model that is there."""

    def __init__(self, model: torch.nn.Module):
        self.model = model

    def load(self) -> Loaded:
        return Loaded(self.model, None)


def loss(model: torch.nn.Module, batch: Batch) -> float:
    module = GeneratorModule(WriterModelOptions(generator=Given(model)), "interlace")
    module.model.eval()
    with torch.inference_mode():
        return float(module.batch_loss(batch))


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
