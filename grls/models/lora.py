"""Low-rank adapters (LoRA, arXiv 2106.09685) by peft: few weights are trained, and merged at the end.

Only the linear layers get adapters; the model keeps its class, so code that uses it need not know of
them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from grls.io.ending import require


def add_adapters(model: Any, rank: int) -> None:
    """Add an adapter to every linear layer except the output head, and freeze all other weights, in place.

    Adapters of rank r are scaled by 2, that is, alpha = 2 r.
    """
    require("lora", "LoRA (lora_rank above 0)")
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear",
        task_type="SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM",
    )  # fmt: skip
    inject_adapter_in_model(config, model)


def merge_adapters(model: Any) -> None:
    """Merge all adapters into the weights and remove them."""
    if find_spec("peft") is None:
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = [(name, part) for name, part in model.named_modules() if isinstance(part, BaseTunerLayer)]
    for name, part in adapted:
        part.merge()
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, part.get_base_layer())
