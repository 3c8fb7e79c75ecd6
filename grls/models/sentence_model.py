"""The network of a bi-encoder: a sentence-transformers model, opened from what its folder says.

The library's model reads a special token that a text spells as that token where the vocabulary has it as a
piece like others (``</s>`` of a Unigram vocabulary); :class:`TextNetwork` does not. What a training of ours
wrote beside the model is read here, too. The module does not know how texts are made or compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import is_sentence_transformer_model
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from grls.data.codec import LIMITS, limits_of
from grls.io.files import read_json
from grls.models.encoder_input import special_tokens, without_controls
from grls.models.load.build import TRAINING, encoder_positions
from grls.models.load.opening import open_config, opening
from grls.models.load.sentence_folder import module_folders, refuse_missing_parts, refuse_unread
from grls.models.st5 import FirstDecoderOutput

DOT, COSINE = "dot", "cosine"
"""What embeddings are compared by."""

Kind = Literal["auto", "sentence", "st5"]


class TextNetwork(SentenceTransformer):
    """A sentence-transformers model to which a special token that a text spells is text, or nothing.

    Where texts hold none, its input is the library's.
    """

    @classmethod
    def of(cls, model: SentenceTransformer) -> Self:
        """The same model, reading so."""
        if not isinstance(model[0], FirstDecoderOutput) and isinstance(
            model.tokenizer, PreTrainedTokenizerBase
        ):
            model.tokenizer.split_special_tokens = True  # the library hands on no such option
        if not isinstance(model, cls):
            model.__class__ = cls
        assert isinstance(model, cls)
        return model

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor | Any]:
        """Model input of texts, which are freed of special tokens where there are more than around them."""

        def read(texts: Sequence[Any]) -> dict[str, Tensor | Any]:
            return super(TextNetwork, self).preprocess(texts, prompt=prompt, **kwargs)

        found, tokenizer = read(inputs), self.tokenizer
        if "input_ids" not in found or not isinstance(tokenizer, PreTrainedTokenizerBase):
            return found
        if special_tokens(tokenizer, found) > len(inputs) * special_tokens(tokenizer, read(["a"])):
            found = read(without_controls(tokenizer, inputs))
        return found


def learned_done_of(folder: str) -> bool | None:
    """What a training wrote beside its model; None where it wrote nothing of DONE."""
    file = Path(folder) / TRAINING
    found = read_json(file).get("done") if file.is_file() else None
    return found if isinstance(found, bool) else None


def similarity_of(folder: str, network: SentenceTransformer) -> str:
    """What a model compares by; where it says nothing, the inner product.

    Folders that we wrote before they said so name the library's default, though by inner product their models
    were trained and their passages embedded.
    """
    file = Path(folder) / TRAINING
    found = read_json(file).get("similarity", DOT) if file.is_file() else network._similarity_fn_name
    return str(found or DOT)


def kind_of(source: str) -> Kind:
    """What a source is: a model of sentence-transformers, an encoder-decoder, or a plain encoder."""
    with _opening(source):
        if is_sentence_transformer_model(source):
            return "sentence"
        return "st5" if open_config(source).is_encoder_decoder else "sentence"


def open_network(source: str) -> SentenceTransformer:
    """Open a model; a module of ours is made here, so that no foreign code needs to be trusted."""
    with _opening(source):
        parts = module_folders(source)
        if [kind for kind, _ in parts] == [f"{FirstDecoderOutput.__module__}.{FirstDecoderOutput.__name__}"]:
            module = FirstDecoderOutput.load(source)
            return SentenceTransformer(modules=[module], device="cpu", similarity_fn_name="dot")
        refuse_missing_parts(source, parts)
        whole = {"dtype": torch.float32}  # whatever the config says: its weights may hold more
        model = SentenceTransformer(source, device="cpu", trust_remote_code=False, model_kwargs=whole)
        refuse_unread(model)
        return model


def positions_of(model: SentenceTransformer) -> float:
    """The longest text a network can read, in tokens; infinite where its positions are relative (T5)."""
    network = getattr(model[0], "backbone", None) or model.transformers_model
    config = getattr(network, "config", None)
    most = encoder_positions(getattr(config, "encoder", config))
    return math.inf if most is None else most


def _opening(source: str) -> AbstractContextManager[None]:
    remedy = "Give a folder of sentence-transformers, a sequence-to-sequence model, or a hub name."
    return opening("a bi-encoder", source, remedy)


def input_limit(folder: str) -> int | None:
    """The longest model input of a generator that a training stage of ours wrote."""
    file = Path(folder) / LIMITS
    if not file.is_file():
        return None
    return limits_of(read_json(file), file, "train the model again, or remove the file").input
