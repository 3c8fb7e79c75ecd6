"""Opens writers and makes tokenizers; :mod:`grls.models.load.generators` are the models of trainings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from grls.data.codec import SPECIAL_TOKENS, add_special_tokens
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries
from grls.errors import ConfigError, DataError, Option
from grls.io.ending import require
from grls.io.files import read_json
from grls.models.base import positions_in
from grls.models.load.opening import (
    IncompleteError,
    language_source,
    open_config,
    open_model,
    open_tokenizer,
    opening_errors,
    packaged_encoder,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TRAINING = "training.json"
"""The file beside a trained model: ``{"stages": ["memorise", "retrieve"]}``, the training stages of its
weights, and for a bi-encoder ``"done"``, whether it has learned DONE."""
BESIDE = "beside priors"
"""The entry after a stage that trained the generator with priors, so that it is decoded with them, too."""


def read_stages(folder: str | Path) -> tuple[str, ...]:
    file = Path(folder) / TRAINING
    if not file.is_file():
        return ()
    content = read_json(file)
    stages = content.get("stages") if isinstance(content, dict) else None
    return checked_stages(stages, file, "train again, or remove the file")


def checked_stages(stages: Any, file: Path, remedy: str) -> tuple[str, ...]:
    if not isinstance(stages, list) or {*map(type, stages)} - {str}:
        raise DataError(f'expected "stages" as a list of names, got {stages!r}; {remedy}.', file)
    return tuple(stages)


class Loaded(NamedTuple):
    model: Any
    tokenizer: PreTrainedTokenizerBase


def refuse_encoder(config: Any) -> None:
    """Refuse an encoder, by its config: transformers would load it as a causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if masked and not config.is_encoder_decoder and not getattr(config, "is_decoder", False):
        raise IncompleteError(f"a {config.model_type} is an encoder, which writes nothing")


def open_writer(source: str, large: Mapping[str, Any], **options: Any) -> Loaded:
    """A sequence-to-sequence or causal model and its tokenizer, in float32.

    ``large``: see :func:`large_options`; ``options`` are further ones of ``from_pretrained`` for all parts.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = open_config(source, **options)
    refuse_encoder(config)
    tokenizer = open_tokenizer(source, **options)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    return Loaded(open_model(kind, source, tokenizer, dtype=torch.float32, **options, **large), tokenizer)


def add_markers(
    model: Any, tokenizer: PreTrainedTokenizerBase, markers: Sequence[str] = SPECIAL_TOKENS
) -> None:
    """Add our special tokens to a model and its tokenizer; the embeddings grow if necessary.

    In a causal model a new marker starts with the embedding of a word (``<DONE>`` with "done",
    ``</TITLE>`` with "/title"), so markers differ from each other even if the embeddings are frozen.
    """
    known = set(tokenizer.get_vocab())
    add_special_tokens(tokenizer, markers)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    if model.config.is_encoder_decoder:
        return
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if known.issuperset(markers):
        return
    vocabulary = tokenizer.get_vocab()
    weights = {
        id(part.weight): part.weight for part in (model.get_input_embeddings(), model.get_output_embeddings())
    }
    for marker in (token for token in markers if token not in known):
        words = tokenizer(f" {marker.strip('<>').lower()}", add_special_tokens=False)["input_ids"]
        for weight in weights.values():
            weight.data[vocabulary[marker]] = weight.data[words].mean(0)


def add_rows(model: Any, tokenizer: PreTrainedTokenizerBase, names: Sequence[str]) -> None:
    """Add rows of the vocabulary that stand for no text to a tokenizer and the embeddings of its model.

    New ones are drawn from the normal distribution, a coordinate at a time, of the rows that are there.
    """
    import torch

    known = tokenizer.get_vocab()
    new = [name for name in names if name not in known]
    added = add_special_tokens(tokenizer, names)
    rows: Any = tokenizer.convert_tokens_to_ids(new)
    if added < len(new) or len({*rows}) < len(new):
        raise ConfigError(
            f"the tokenizer takes {added:,} of {len(new):,} new rows, such as {new[0]}: take another model, "
            "or identifiers of texts."
        )
    if new and len(tokenizer) > model.get_input_embeddings().num_embeddings:
        parts = [model.encoder, model.decoder] if model.config.model_type == "encoder-decoder" else [model]
        for part in parts:
            part.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        model.config.vocab_size = len(tokenizer)
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    for weight in {id(table.weight): table.weight for table in tables}.values():
        old = weight.data[: len(known)].float()
        drawn = old.mean(0) + old.std(0) * torch.randn(len(new), old.shape[1]).to(old)
        weight.data[rows] = drawn.to(weight.dtype)


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    source, options = language_source(packaged_encoder(name_or_path))
    with opening_errors("a tokenizer", name_or_path, "Give a folder that holds one, or a hub name."):
        tokenizer = open_tokenizer(source, **options)
        add_special_tokens(tokenizer)
    return tokenizer


def train_tokenizer(data: str | Path, vocabulary: int, texts: Sequence[str] = ()) -> PreTrainedTokenizerBase:
    """Train a BPE tokenizer on the corpus and queries of a data set, and on further texts.

    ``vocabulary``: number of pieces, special tokens included; fewer if the texts have fewer.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
    )
    passages = ((passage.title, passage.text) for passage in Corpus.read(data))
    queries = (query.text for query in read_queries(data))
    tokenizer.train_from_iterator(chain(chain.from_iterable(passages), queries, texts), trainer)
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


_AFTER_PADDING = (
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "mpnet",
    "xmod",
)
"""Encoders whose positions begin after the padding token, besides those with ``roberta`` in their name."""


def encoder_positions(config: Any) -> int | None:
    """The longest text of an encoder in tokens, from its config; None for relative positions."""
    most = positions_in(config)
    if most is None:
        return None
    kind = getattr(config, "model_type", "")
    return most - (config.pad_token_id or 0) - 1 if "roberta" in kind or kind in _AFTER_PADDING else most


Attention = Literal["eager", "sdpa", "flash_attention_2"]


def large_options(attention: Attention | None, four_bit: bool) -> dict[str, Any]:
    """The options of ``from_pretrained`` for a large model in training.

    QLoRA (arXiv 2305.14314): the weights of the linear layers are stored in four bits (NF4) on this
    process's GPU and frozen, and low-rank adapters are trained. The saved model has full weights with the
    adapters merged.
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
    return bool(getattr(model, "is_loaded_in_4bit", False))


def _refuse_without_gpu(option: str, remedy: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"{option} needs a CUDA GPU, and there is none: {remedy}.")
