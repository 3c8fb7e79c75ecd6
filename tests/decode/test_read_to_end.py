"""What a model says of passages it has read: trees, rows, and the model's own forward pass."""

from typing import Any

import numpy as np
import pytest
import torch
from models_small import END, small_bart, small_gpt2, small_llama, small_t5

from grls.decode import rescore as module
from grls.decode.rescore import rescore, rescore_plain
from grls.models.base import is_causal
from grls.models.load.kinds import plain_generator, slot_model

INPUTS = [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14]]
PASSAGES = [
    [[20, 21, 22, END], [20, 21, END], [30, END], [20, 21, 22, END]],
    [],
    [[40, 41, 42, 43, 44, 45, END], [40, END], [41, 41, END]],
]
TOKENS = (3, 4)


def by_itself(model: Any, source: list[int], passage: list[int]) -> float:
    """The log-odds by one forward pass of transformers' own."""
    with torch.no_grad():
        if is_causal(model):
            logits = model(input_ids=torch.tensor([[*source, *passage]])).logits[0, -1]
        else:
            start = model.config.decoder_start_token_id
            logits = model(
                input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start, *passage]])
            ).logits[0, -1]
    return float(logits[TOKENS[0]] - logits[TOKENS[1]])


@pytest.mark.parametrize("make", [small_t5, small_llama, small_gpt2, small_bart])
@pytest.mark.parametrize("whole", [1024, 8])
def test_log_odds_are_those_of_each_passage_read_alone(
    make: type, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WHOLE", whole)  # 8: the passages of a query are fed in pieces
    monkeypatch.setattr(module, "_TOKENS", 2 * whole)
    model = make()
    generator = plain_generator(model)
    expected = [
        [by_itself(model, source, passage) for passage in some]
        for source, some in zip(INPUTS, PASSAGES, strict=True)
    ]
    ways = [rescore_plain(generator, INPUTS, PASSAGES, TOKENS)]
    trees = slot_model(generator)
    if trees is not None:
        ways.append(rescore(trees, INPUTS, PASSAGES, TOKENS))
    assert (trees is None) == (make is small_bart)
    for found in ways:
        assert [len(some) for some in found] == [4, 0, 3]
        for own, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, right, rtol=1e-3, atol=1e-3)
    assert len({round(value, 3) for some in expected for value in some}) == 6  # they tell passages apart


def test_nothing_is_read_of_nothing() -> None:
    trees = slot_model(plain_generator(small_llama()))
    assert trees is not None
    assert rescore(trees, [], [], TOKENS) == []
    assert [len(some) for some in rescore(trees, INPUTS, [[], [], []], TOKENS)] == [0, 0, 0]
