"""The network of a bi-encoder: opens models of sentence-transformers.

If a text spells a special token that is an ordinary piece of the vocabulary (``</s>`` of a Unigram
vocabulary), the library's model reads it as this token; :class:`PlainTexts` does not. The module also reads
the files that our training writes beside a model. It does not know how texts are made or compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import BaseModel
from sentence_transformers.util import is_sentence_transformer_model
from sentence_transformers.util.file_io import load_file_path
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from grls.data.codec import LIMITS, limits_of
from grls.errors import DataError
from grls.io.files import read_count, read_json
from grls.io.turns import turn
from grls.models.biencoder_kinds import Kind as Kind
from grls.models.encoder_input import special_tokens, spells_special, without_controls, without_spelled
from grls.models.load.build import TRAINING, encoder_positions
from grls.models.load.opening import IncompleteError, open_config, opening
from grls.models.load.sentence_folder import MODULES, module_folders, refuse_missing_parts, refuse_unread
from grls.models.load.sources import refuse_missing_folder
from grls.models.st5 import FirstDecoderOutput

DOT, COSINE = "dot", "cosine"
"""The similarities of embeddings."""

Library = TypeVar("Library", bound=BaseModel)

_CONFIG = "config_sentence_transformers.json"
_LATE = "MultiVectorEncoder"


class PlainTexts:
    """A mix-in for models of sentence-transformers: special tokens in a text are read as plain text or
    dropped.

    For texts without special tokens, the input is the same as the library's.
    """

    marked: bool
    """Whether a prompt holds special tokens (``[Q]`` of a ColBERT), so the tokenizer must not split them."""

    @classmethod
    def of(cls, model: Any) -> Self:
        """The same model with this mix-in."""
        if not isinstance(model, cls):
            model.__class__ = cls
        assert isinstance(model, cls)
        tokenizer, model.marked = model.tokenizer, False  # type: ignore[attr-defined]
        if not isinstance(model[0], FirstDecoderOutput) and isinstance(tokenizer, PreTrainedTokenizerBase):  # type: ignore[index]
            prompts = [prompt for prompt in model.prompts.values() if prompt]  # type: ignore[attr-defined]
            model.marked = bool(prompts) and spells_special(tokenizer, prompts)
            tokenizer.split_special_tokens = not model.marked  # the library does not pass this option on
        return model

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor | Any]:
        """Model input of texts; special tokens are removed if there are more than the tokenizer adds."""

        def read(texts: Sequence[Any]) -> dict[str, Tensor | Any]:
            batch: dict[str, Tensor | Any] = super(PlainTexts, self).preprocess(  # type: ignore[misc]
                texts, prompt=prompt, **kwargs
            )
            return batch

        tokenizer = self.tokenizer  # type: ignore[attr-defined]
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            return read(inputs)
        with turn(tokenizer):
            if self.marked:
                inputs = without_spelled(tokenizer, inputs)
            features = read(inputs)
            if "input_ids" not in features:
                return features
            if special_tokens(tokenizer, features) > len(inputs) * special_tokens(tokenizer, read(["a"])):
                features = read(without_controls(tokenizer, inputs))
        return features


class TextNetwork(PlainTexts, SentenceTransformer):
    """A model with one vector for each text."""


def learned_done_of(folder: str) -> bool | None:
    """Whether the model in a folder has learned DONE, by its training file; None if the file does not say."""
    done = _training(folder).get("done")
    return done if isinstance(done, bool) else None


def _training(folder: str) -> dict[str, Any]:
    """The content of the training file of a model; empty if there is none.

    Raises:
        DataError: The file is damaged.
    """
    file = Path(folder) / TRAINING
    content = read_json(file) if file.is_file() else {}
    if not isinstance(content, dict):
        raise DataError("expected an object of what was trained; train again, or remove the file.", file)
    return content


def evidence_words_of(folder: str) -> int:
    """How many words of each retrieved passage a model was trained to read with a query; 0: all.

    Raises:
        DataError: The training file holds something else.
    """
    file = Path(folder) / TRAINING
    content = _training(folder)
    if "evidence_words" not in content:
        return 0
    return read_count(content, "evidence_words", "words of evidence", 64, file) or 0


def similarity_of(folder: str, network: SentenceTransformer) -> str:
    """The similarity of a model; the inner product if its settings do not say.

    Old folders of grls name the default of the library, though their models were trained, and their passages
    embedded, with the inner product. So in a folder with a training file, only this file counts.
    """
    file = Path(folder) / TRAINING
    named = _training(folder).get("similarity", DOT) if file.is_file() else network._similarity_fn_name
    return str(named or DOT)


def kind_of(source: str) -> Kind:
    """The kind of bi-encoder for a source: ``st5`` for an encoder-decoder, ``sentence`` for other models."""
    with _opening(source):
        if is_sentence_transformer_model(source):
            return "sentence"
        return "st5" if open_config(source).is_encoder_decoder else "sentence"


def open_network(source: str) -> SentenceTransformer:
    """Open a model. A module of grls is made directly, so that the library need not trust foreign code."""
    with _opening(source):
        parts = module_folders(source)
        if [kind for kind, _ in parts] == [f"{FirstDecoderOutput.__module__}.{FirstDecoderOutput.__name__}"]:
            module = FirstDecoderOutput.load(source)
            return SentenceTransformer(modules=[module], device="cpu", similarity_fn_name="dot")
        if (named := library_type(source)) not in (None, SentenceTransformer.__name__):
            raise IncompleteError(f"it is a {named}, which gives no single vector of a text")
        return _library_model(SentenceTransformer, source, parts)


def library_type(source: str) -> str | None:
    """The class of a model by its files: ``SentenceTransformer``, ``SparseEncoder``, ``MultiVectorEncoder``.

    Args:
        source: A folder, or a hub name.

    Returns:
        The name of the class; None for a model that the library did not save.
    """
    named = load_file_path(source, _CONFIG)
    if named is not None:
        settings = read_json(Path(named))
        kind = str(settings.get("model_type") or "SentenceTransformer") if isinstance(settings, dict) else ""
        return _LATE if kind == "ColBERT" else kind
    config = load_file_path(source, "config.json")
    settings = read_json(Path(config)) if config is not None else {}
    if isinstance(settings, dict) and "HF_ColBERT" in (settings.get("architectures") or []):
        return _LATE
    return "SentenceTransformer" if load_file_path(source, MODULES) is not None else None


def open_library_model(kind: type[Library], source: str, what: str, plain: str | None = None) -> Library:
    """Open a complete model of a class of the library.

    Args:
        kind: ``SparseEncoder`` or ``MultiVectorEncoder``. The files of the model must name this class: the
            library would extend any other model by layers with random weights.
        source: A folder, or a hub name.
        what: What is opened, for errors.
        plain: The ending of an architecture name; such models are accepted though the library did not save
            them.

    Raises:
        ConfigError: The model cannot be opened, or is of another class.
    """
    refuse_missing_folder(source)
    with opening(what, source, f"Give a folder, or the hub name, of a {kind.__name__}."):
        parts = module_folders(source)
        saved = library_type(source)
        if saved != kind.__name__ and not (saved is None and plain and _is_plain(source, plain)):
            named = "a model without its layers" if saved is None else f"a {saved}"
            raise IncompleteError(f"it is {named}, not a {kind.__name__}")
        return _library_model(kind, source, parts)


def _is_plain(source: str, ending: str) -> bool:
    architectures = open_config(source).architectures or []
    return any(str(name).endswith(ending) for name in architectures)


def _library_model(kind: type[Library], source: str, parts: list[tuple[str, Path]]) -> Library:
    refuse_missing_parts(source, parts)
    whole = {"dtype": torch.float32}  # not the dtype of the config: the weights may be more precise
    model = kind(source, device="cpu", trust_remote_code=False, model_kwargs=whole)
    refuse_unread(model)
    return model


def positions_of(model: BaseModel) -> float:
    """The longest text that a network can read, in tokens; infinite for relative positions (T5)."""
    network = getattr(model[0], "backbone", None) or model.transformers_model
    config = getattr(network, "config", None)
    most = encoder_positions(getattr(config, "encoder", config))
    return math.inf if most is None else most


def _opening(source: str) -> AbstractContextManager[None]:
    remedy = "Give a folder of sentence-transformers, a sequence-to-sequence model, or a hub name."
    return opening("a bi-encoder", source, remedy)


def input_limit(folder: str) -> int | None:
    """The longest model input of a generator that grls trained; None for other models."""
    file = Path(folder) / LIMITS
    if not file.is_file():
        return None
    return limits_of(read_json(file), file, "train the model again, or remove the file").input
