"""Low-rank adapters: what is trained, that searches see them, and that they can be merged away."""

from pathlib import Path

import pytest
import torch
from llama_small import write_llama
from models_small import small_llama, small_t5
from small_data import write_small
from train_helpers import chain_options

from grls.cli import main
from grls.models.load.generators import Pretrained
from grls.models.load.kinds import plain_generator, slot_model
from grls.models.lora import add_adapters, merge_adapters


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_adapters_are_all_that_is_trained_and_merge_into_the_same_function(kind: str) -> None:
    pytest.importorskip("peft")
    model = small_llama() if kind == "llama" else small_t5()
    names = set(model.state_dict())
    head = model.get_output_embeddings()
    add_adapters(model, 2)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert model.get_output_embeddings() is head
    with torch.no_grad():
        for name in trained:
            model.get_parameter(name).normal_()
        tokens = torch.tensor([[3, 4, 5]])
        given = (
            {"input_ids": tokens} if kind == "llama" else {"input_ids": tokens, "decoder_input_ids": tokens}
        )
        before = model(**given).logits
        assert slot_model(plain_generator(model)) is not None  # the fast search sees the adapters
        merge_adapters(model)
        torch.testing.assert_close(model(**given).logits, before, rtol=1e-4, atol=1e-4)
    assert set(model.state_dict()) == names


def test_a_fit_saves_a_plain_model_that_differs_by_its_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    llama = write_llama(tmp_path / "llama", write_small(tmp_path / "data"))
    assert main(chain_options(tmp_path, tmp_path / "run", "--model.lora_rank=4")) == 0
    before = Pretrained(str(llama)).load().model.state_dict()
    after = Pretrained(str(tmp_path / "run" / "model")).load().model.state_dict()
    assert set(after) == set(before)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "proj" in name}
