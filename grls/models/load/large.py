"""Options of loading a large model for training: the implementation of attention, and weights of four bits.

QLoRA (arXiv 2305.14314): the weights of the linear layers are stored in four bits (NF4) and frozen, and
low-rank adapters are trained. What is saved is the model with its full weights and the adapters merged.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, Literal

from grls.errors import ConfigError, Option
from grls.io.ending import require

Attention = Literal["eager", "sdpa", "flash_attention_2"]


def large_options(attention: Attention | None, four_bit: bool) -> dict[str, Any]:
    """The options of ``from_pretrained``.

    Args:
        attention: The implementation of attention; None: the default of transformers.
        four_bit: Store the linear layers in four bits, on this process's GPU.

    Raises:
        ConfigError: There is no GPU, or a package is missing.
    """
    options: dict[str, Any] = {} if attention is None else {"attn_implementation": attention}
    if attention == "flash_attention_2":
        _refuse_without_gpu("attention flash_attention_2", "take sdpa")
        if find_spec("flash_attn") is None:
            raise ConfigError("attention flash_attention_2 needs the package flash-attn; or take sdpa.")
    if four_bit:
        import torch
        from transformers import BitsAndBytesConfig

        _refuse_without_gpu("four_bit (QLoRA)", f"leave it out, and take {Option('model.lora_rank')} alone")
        require("qlora", "four_bit (QLoRA)")
        options["device_map"] = {"": int(os.environ.get("LOCAL_RANK", "0"))}
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
            bnb_4bit_quant_storage=torch.bfloat16,  # shards need one type for all weights
        )
    return options


def is_four_bit(model: Any) -> bool:
    """Whether a model was loaded with :func:`large_options` in four bits."""
    return bool(getattr(model, "is_loaded_in_4bit", False))


def _refuse_without_gpu(what: str, remedy: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"{what} needs a CUDA GPU, and there is none: {remedy}.")
