"""States of a frozen encoder are computed once for each input, within a limit, and change no loss."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_data import scratch, tiny_bert

from grls.errors import ConfigError
from grls.models.load.build import WarmStart
from grls.train.chains.data import ChainData
from grls.train.chains.module import RetrieveChains
from grls.train.core.module import GIB, EncoderCache, GeneratorModule
from grls.train.stages.data import RetrieveData
from grls.train.stages.module import Retrieve


class Encoder(torch.nn.Module):
    """Gives each token its number as state, and remembers what it was asked.

    Dropout would show that it is in training mode.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.9)
        self.asked: list[list[int]] = []

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        self.asked += [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        states = self.dropout(input_ids.float()[..., None].repeat(1, 1, 2))
        return type("Output", (), {"last_hidden_state": states})


def batch(*rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return ids, (ids > 0).long()


def test_an_input_is_encoded_once_whatever_it_stands_beside() -> None:
    encoder, cache = Encoder().train(), EncoderCache(1.0)
    first = cache(encoder, *batch([3, 4, 5], [6], [6]))
    assert first[..., 0].tolist() == [[3, 4, 5], [6, 0, 0], [6, 0, 0]]
    second = cache(encoder, *batch([7, 8], [6]))
    assert second[..., 0].tolist() == [[7, 8], [6, 0]]
    assert encoder.asked == [[3, 4, 5], [6], [7, 8]]
    assert encoder.training  # as it was found
    assert len(cache) == 3
    assert cache.bytes == (3 + 1 + 2) * 2 * 4
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)
    cache(encoder, *batch([6]))
    assert encoder.asked[-1] == [6]


def test_a_full_cache_keeps_what_it_has() -> None:
    encoder, cache = Encoder(), EncoderCache(5 * 2 * 4 / GIB)  # five tokens
    for _ in range(2):
        found = cache(encoder, *batch([3, 4, 5], [6, 7, 8], [9]))
        assert found[..., 0].tolist() == [[3, 4, 5], [6, 7, 8], [9, 0, 0]]
    assert (len(cache), cache.bytes) == (2, 4 * 2 * 4)
    assert encoder.asked == [[3, 4, 5], [6, 7, 8], [9], [6, 7, 8]]


def batches(data: Path, module: GeneratorModule, kind: type[RetrieveData] = RetrieveData) -> list[Any]:
    """Two batches, the second of which has inputs of the first."""
    made = kind(str(data))
    made.read(module)
    assert module.loss == "allowed"
    draw = made.train_examples.draw
    return [made.collator([draw(n, 0) for n in some]) for some in ((0, 1, 2), (2, 3, 1))]


@pytest.mark.parametrize("kind", ["t5", "bert", "chains"])
def test_losses_and_gradients_are_those_without_it(data: Path, tmp_path: Path, kind: str) -> None:
    start = WarmStart(str(tiny_bert(tmp_path / "bert")), 1, 0.0) if kind == "bert" else scratch(data)
    module_class = RetrieveChains if kind == "chains" else Retrieve
    data_class = ChainData if kind == "chains" else RetrieveData
    found = []
    for limit in (0.0, 1.0):
        torch.manual_seed(0)
        module = module_class(start, loss="allowed", freeze_encoder=True, cache_encoder=limit)
        module.setup("fit")
        asked: list[int] = []
        module.model.get_encoder().register_forward_hook(
            lambda _encoder, _given, output, asked=asked: asked.append(len(output.last_hidden_state))
        )
        losses = []
        for one in batches(data, module, data_class):
            module.batch_loss(one).backward()
            losses.append(module.batch_loss(one).item())
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        found.append((losses, gradients, sum(asked)))
    (plain, gradients, calls), (kept, others, fewer) = found
    assert kept == pytest.approx(plain, rel=1e-4)
    assert len(gradients) == len(others) > 0
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert (calls, fewer) == ((30, 10) if kind == "chains" else (12, 4))


def test_states_of_other_weights_are_forgotten(data: Path) -> None:
    module = Retrieve(scratch(data), freeze_encoder=True, cache_encoder=0.1)
    assert module._cache is not None
    module._cache(Encoder(), *batch([3]))
    module.on_load_checkpoint({"state_dict": module.state_dict()})
    assert len(module._cache) == 0


@pytest.mark.parametrize(
    ("limit", "frozen", "message"),
    [(1.0, False, "set freeze_encoder to true"), (-1.0, True, "cache_encoder must be at least 0")],
)
def test_a_cache_that_cannot_work_is_refused(data: Path, limit: float, frozen: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Retrieve(scratch(data), freeze_encoder=frozen, cache_encoder=limit).setup("fit")
