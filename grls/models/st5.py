"""A sentence embedding from an encoder-decoder: the decoder's first output.

Legend: B texts, L longest text in tokens, d width of the decoder.

ST5's "encoder-decoder first" (Ni et al. 2021, arXiv 2108.08877) and the bi-encoder baseline of "Generative
Multi-hop Retrieval" (arXiv 2204.13596): the decoder reads only its start token, and its last hidden state is
the embedding. The backbone does not change, so a bi-encoder has exactly the parameters of the generator it is
compared with. (ST5 also projects and normalises; the baseline of the paper does not, and compares by inner
product.)

This is a module of sentence-transformers. It does not know its training or what it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers.base.modules import InputModule
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from grls.models.encoder_input import padded
from grls.models.load.opening import open_model, open_tokenizer, write_network
from grls.models.seq2seq.plain import start_token


class FirstDecoderOutput(InputModule):
    """Embeds a text by the decoder's output for its start token.

    In training, the output head of the backbone gets no gradient unless it is tied to the word embeddings (it
    is not in BERT decoders and T5 1.1). So distributed training must look for unused parameters.

    Args:
        backbone: Any transformers sequence-to-sequence model, including its output head.
        tokenizer: Its tokenizer.
        max_seq_length: The longest text in tokens, special tokens included; longer texts are cut.

    Raises:
        ConfigError: The model names no decoder start token.
    """

    tokenizer: Any
    config_file_name = "first_decoder_output.json"
    config_keys: list[str] = ["max_seq_length"]  # noqa: RUF012 - the base class declares it so

    def __init__(self, backbone: Any, tokenizer: PreTrainedTokenizerBase, max_seq_length: int):
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self._start = start_token(backbone)

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor | Any]:
        """Token ids and attention mask, ``[B, L]``; the prompt is put before each text."""
        texts = [(prompt or "") + str(text) for text in inputs]
        encoded = padded(self.tokenizer, texts, truncation=True, max_length=self.max_seq_length)
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Adds ``sentence_embedding [B, d]`` to the features."""
        mask = features["attention_mask"]
        encoder = self.backbone.get_encoder()
        states = encoder(input_ids=features["input_ids"], attention_mask=mask).last_hidden_state
        start = torch.full((len(states), 1), self._start, dtype=torch.long, device=states.device)
        # Only the decoder returns hidden states, each of one position.
        output = self.backbone(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=start,
            output_hidden_states=True,
            use_cache=False,
        )
        features["sentence_embedding"] = output.decoder_hidden_states[-1][:, 0]
        return features

    def get_embedding_dimension(self) -> int:
        """The width of the decoder, d."""
        config = getattr(self.backbone.config, "decoder", self.backbone.config)
        return int(config.hidden_size)

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write backbone (safetensors), tokenizer and settings of this module to a folder."""
        write_network(self.backbone, output_path)
        self.save_tokenizer(output_path)
        self.save_config(output_path)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> Self:
        """Open a local folder that :meth:`save` wrote."""
        folder = Path(model_name_or_path) / subfolder
        config = cls.load_config(str(folder))
        tokenizer = open_tokenizer(folder)
        backbone = open_model(AutoModelForSeq2SeqLM, folder, tokenizer, dtype=torch.float32)
        return cls(backbone, tokenizer, int(config["max_seq_length"]))
