"""The network of a bi-encoder: a sentence-transformers model, opened from what its folder says.

The library's model reads a special token that a text spells as that token where the vocabulary has it as a
piece like others (``</s>`` of a Unigram vocabulary); :class:`PlainTexts` does not. What a training of ours
wrote beside the model is read here, too. The module does not know how texts are made or compared.
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
from grls.io.files import read_count, read_json
from grls.models.biencoder_kinds import Kind as Kind
from grls.models.encoder_input import special_tokens, spells_special, without_controls, without_spelled
from grls.models.load.build import TRAINING, encoder_positions
from grls.models.load.opening import IncompleteError, open_config, opening
from grls.models.load.sentence_folder import MODULES, module_folders, refuse_missing_parts, refuse_unread
from grls.models.load.sources import refuse_missing_folder
from grls.models.st5 import FirstDecoderOutput

DOT, COSINE = "dot", "cosine"
"""What embeddings are compared by."""

Library = TypeVar("Library", bound=BaseModel)

_CONFIG = "config_sentence_transformers.json"
_LATE = "MultiVectorEncoder"


class PlainTexts:
    """For a sentence-transformers model: a special token that a text spells is text, or nothing.

    Where texts hold none, its input is the library's. Mixed into a class of the library.
    """

    marked: bool
    """A prompt holds special tokens (``[Q]`` of a ColBERT), so they are not split in what stands after it."""

    @classmethod
    def of(cls, model: Any) -> Self:
        """The same model, reading so."""
        if not isinstance(model, cls):
            model.__class__ = cls
        assert isinstance(model, cls)
        tokenizer, model.marked = model.tokenizer, False  # type: ignore[attr-defined]
        if not isinstance(model[0], FirstDecoderOutput) and isinstance(tokenizer, PreTrainedTokenizerBase):  # type: ignore[index]
            prompts = [prompt for prompt in model.prompts.values() if prompt]  # type: ignore[attr-defined]
            model.marked = bool(prompts) and spells_special(tokenizer, prompts)
            tokenizer.split_special_tokens = not model.marked  # the library hands on no such option
        return model

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor | Any]:
        """Model input of texts, which are freed of special tokens where there are more than around them."""

        def read(texts: Sequence[Any]) -> dict[str, Tensor | Any]:
            found: dict[str, Tensor | Any] = super(PlainTexts, self).preprocess(  # type: ignore[misc]
                texts, prompt=prompt, **kwargs
            )
            return found

        tokenizer = self.tokenizer  # type: ignore[attr-defined]
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            return read(inputs)
        if self.marked:
            inputs = without_spelled(tokenizer, inputs)
        found = read(inputs)
        if "input_ids" not in found:
            return found
        if special_tokens(tokenizer, found) > len(inputs) * special_tokens(tokenizer, read(["a"])):
            found = read(without_controls(tokenizer, inputs))
        return found


class TextNetwork(PlainTexts, SentenceTransformer):
    """A model of one vector a text."""


def learned_done_of(folder: str) -> bool | None:
    """What a training wrote beside its model; None where it wrote nothing of DONE."""
    file = Path(folder) / TRAINING
    found = read_json(file).get("done") if file.is_file() else None
    return found if isinstance(found, bool) else None


def evidence_words_of(folder: str) -> int:
    """Words of each passage found so far that a model was trained to read with a query; 0: all of them.

    Raises:
        DataError: The file says something else.
    """
    file = Path(folder) / TRAINING
    found = read_json(file) if file.is_file() else {}
    if "evidence_words" not in found:
        return 0
    return read_count(found, "evidence_words", "words of evidence", 64, file) or 0


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
        if (found := library_type(source)) not in (None, SentenceTransformer.__name__):
            raise IncompleteError(f"it is a {found}, which gives no single vector of a text")
        return _library_model(SentenceTransformer, source, parts)


def library_type(source: str) -> str | None:
    """What the library says a model is: ``SentenceTransformer``, ``SparseEncoder``, ``MultiVectorEncoder``.

    Args:
        source: A folder, or a hub name.

    Returns:
        None where it does not say: a model that was not saved by the library.
    """
    named = load_file_path(source, _CONFIG)
    if named is not None:
        found = read_json(Path(named))
        kind = str(found.get("model_type") or "SentenceTransformer") if isinstance(found, dict) else ""
        return _LATE if kind == "ColBERT" else kind
    config = load_file_path(source, "config.json")
    found = read_json(Path(config)) if config is not None else {}
    if isinstance(found, dict) and "HF_ColBERT" in (found.get("architectures") or []):
        return _LATE
    return "SentenceTransformer" if load_file_path(source, MODULES) is not None else None


def open_library_model(kind: type[Library], source: str, what: str, plain: str | None = None) -> Library:
    """Open a model as a class of the library; nothing of it is made up, and none of another class is taken.

    Args:
        kind: ``SparseEncoder`` or ``MultiVectorEncoder``. Its folder must say so: the library would make any
            other model into one by layers of random numbers.
        source: A folder, or a hub name.
        what: What is opened, for errors.
        plain: End of the architecture of models that the library did not save and that will do, too.

    Raises:
        ConfigError: It cannot be opened, or is something else.
    """
    refuse_missing_folder(source)
    with opening(what, source, f"Give a folder, or the hub name, of a {kind.__name__}."):
        parts = module_folders(source)
        found = library_type(source)
        if found != kind.__name__ and not (found is None and plain and _is_plain(source, plain)):
            named = "a model without its layers" if found is None else f"a {found}"
            raise IncompleteError(f"it is {named}, not a {kind.__name__}")
        return _library_model(kind, source, parts)


def _is_plain(source: str, ending: str) -> bool:
    architectures = open_config(source).architectures or []
    return any(str(name).endswith(ending) for name in architectures)


def _library_model(kind: type[Library], source: str, parts: list[tuple[str, Path]]) -> Library:
    refuse_missing_parts(source, parts)
    whole = {"dtype": torch.float32}  # whatever the config says: its weights may hold more
    model = kind(source, device="cpu", trust_remote_code=False, model_kwargs=whole)
    refuse_unread(model)
    return model


def positions_of(model: BaseModel) -> float:
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
