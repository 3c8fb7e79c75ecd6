"""The network of a bi-encoder: opens models of sentence-transformers.

If a text spells a special token that is an ordinary piece of the vocabulary (``</s>`` of a Unigram
vocabulary), the library's model reads it as this token; :class:`PlainTexts` does not. The module also
reads the files that our training writes beside a model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import BaseModel
from sentence_transformers.base.modules import InputModule, Router
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from grls.errors import ConfigError, DataError
from grls.io.files import read_count, read_json
from grls.io.locks import exclusive
from grls.models.base import start_token
from grls.models.load.build import TRAINING, encoder_positions
from grls.models.load.opening import (
    IncompleteError,
    open_config,
    open_model,
    open_tokenizer,
    opening_errors,
    read_weights,
    refuse_missing_folder,
    write_network,
)
from grls.models.load.sentence_folder import (
    MODULES,
    file_of,
    module_folders,
    refuse_missing_parts,
    refuse_unread,
)
from grls.models.option_names import Kind
from grls.models.special_tokens import padded, read_plain, spells_special, without_spelled

DOT, COSINE = "dot", "cosine"
"""The similarities of embeddings that are inner products."""

Role = Literal["query", "passage"]

DEFAULT_TOKENS = 512
"""The longest text in tokens, if neither the caller nor the model sets a limit."""

TASKS: dict[Role, str] = {"query": "query", "passage": "document"}
"""The name of a role in sentence-transformers."""

Library = TypeVar("Library", bound=BaseModel)

_CONFIG = "config_sentence_transformers.json"
_LATE = "MultiVectorEncoder"
_OUTPUTS = {_LATE: "token_embeddings", "CrossEncoder": "scores"}
"""What the modules of a model make, where it is not one embedding of a text."""


class PlainTexts:
    """A mix-in for models of sentence-transformers: special tokens in a text are plain text or dropped."""

    marked: bool
    """Whether a prompt or template holds special tokens, so the tokenizer must not split them."""
    paired = False
    """Whether an input is a pair of texts."""

    @classmethod
    def of(cls, model: Any) -> Self:
        if not isinstance(model, cls):
            model.__class__ = cls
        assert isinstance(model, cls)
        network: Any = model
        for part in readers_of(network):
            _pad_right(part)
            if getattr(part, "do_lower_case", False):  # the library does not save it
                part.config_keys = list(dict.fromkeys([*part.config_keys, "do_lower_case"]))
        prompts = [prompt for prompt in network.prompts.values() if prompt]
        tokenizers = [  # of texts that may spell special tokens, which these tokenizers can split
            part.tokenizer
            for part in readers_of(network)
            if not isinstance(part, FirstDecoderOutput)
            and isinstance(part.tokenizer, PreTrainedTokenizerBase)
        ]
        # The template of a chat model spells them.
        chats = "message" in getattr(network, "modalities", ())
        model.marked = chats or (bool(prompts) and any(spells_special(each, prompts) for each in tokenizers))
        for tokenizer in tokenizers:
            tokenizer.split_special_tokens = not model.marked  # the library does not pass this option on
        return model

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor | Any]:
        def read(columns: Sequence[Sequence[Any]]) -> dict[str, Tensor | Any]:
            rows = list(zip(*columns, strict=True)) if self.paired else columns[0]
            batch: dict[str, Tensor | Any] = super(PlainTexts, self).preprocess(  # type: ignore[misc]
                rows, prompt=prompt, **kwargs
            )
            return batch

        columns: list[Sequence[Any]] = list(zip(*inputs, strict=True)) if self.paired else [inputs]
        tokenizer = reader_of(self, kwargs.get("task")).tokenizer
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            return read(columns)
        with exclusive(tokenizer):
            if self.marked:
                columns = [without_spelled(tokenizer, column) for column in columns]
            features: dict[str, Tensor | Any] = read_plain(tokenizer, read, columns)
        return features


def reader_of(model: Any, task: str | None) -> Any:
    """The module that reads the texts of a task (``query``, ``document``): the first, or that of a route."""
    reader = model[0]
    while isinstance(reader, Router):
        route: Any = reader.sub_modules[str(reader._resolve_route(task, "text"))]
        reader = route[0]
    return reader


def readers_of(model: Any) -> list[Any]:
    """The modules that read queries and passages: one, or that of each route; see :func:`reader_of`."""
    return list(dict.fromkeys(reader_of(model, task) for task in TASKS.values()))


def _pad_right(reader: Any) -> None:
    """Pad texts on the right: on the left, positions, and the first token, depend on the batch.

    A causal reranker reads its score at the end of a batch, so it stays as it is.
    """
    tokenizer, options = reader.tokenizer, getattr(reader, "processing_kwargs", None) or {}
    places = [place for place in options.values() if place.get("padding_side") == "left"]
    left = getattr(tokenizer, "padding_side", "right") == "left" or bool(places)
    if not left or getattr(reader, "transformer_task", None) == "text-generation":
        return
    if getattr(reader, "query_expansion", None):
        raise ConfigError(
            "the model pads texts on the left (padding_side in its tokenizer_config.json) and fills queries "
            "with further tokens there (query_expansion): set padding_side to right if it was trained so, or "
            "use another model."
        )
    tokenizer.padding_side = "right"
    for place in places:
        del place["padding_side"]


class TextNetwork(PlainTexts, SentenceTransformer):
    """A model with one vector for each text."""


def done_and_evidence(folder: str) -> tuple[bool | None, int]:
    """From the training file of a bi-encoder: whether it has learned DONE (None: unknown), and the words
    of each retrieved passage that it was trained to read with a query (0: all).
    """
    file = Path(folder) / TRAINING
    content = read_json(file) if file.is_file() else {}
    if not isinstance(content, dict):
        raise DataError("expected an object of what was trained; train again, or remove the file.", file)
    done, known = content.get("done"), content if "evidence_words" in content else None
    words = read_count(known, "evidence_words", "words of evidence", 64, file)
    return (done if isinstance(done, bool) else None), words or 0


def kind_of(source: str) -> Kind:
    """The kind of bi-encoder of a source: ``st5`` for an encoder-decoder, else ``sentence``."""
    with _opening(source):
        if file_of(source, MODULES) is not None:
            return "sentence"
        return "st5" if open_config(source).is_encoder_decoder else "sentence"


def open_network(source: str) -> SentenceTransformer:
    """Open a model. A module of grls is made directly, so that the library need not trust foreign code."""
    with _opening(source):
        parts = module_folders(source)
        own_class = f"{FirstDecoderOutput.__module__}.{FirstDecoderOutput.__name__}"
        if [part.kind for part in parts] == [own_class]:
            module, file = FirstDecoderOutput.load(source), file_of(source, _CONFIG)
            similarity: Any = read_json(file).get("similarity_fn_name", DOT) if file is not None else DOT
            return SentenceTransformer(modules=[module], device="cpu", similarity_fn_name=similarity)
        return library_model(SentenceTransformer, source, "")


def library_type(source: str) -> str | None:
    """The class that saved a model: ``SentenceTransformer``, ``SparseEncoder``, ``MultiVectorEncoder``.

    None for a model that the library did not save.
    """
    file = file_of(source, _CONFIG)
    if file is not None:
        settings = read_json(file)
        kind = str(settings.get("model_type") or "SentenceTransformer") if isinstance(settings, dict) else ""
        return _LATE if kind == "ColBERT" else kind
    config = file_of(source, "config.json")
    settings = read_json(config) if config is not None else {}
    if isinstance(settings, dict) and "HF_ColBERT" in (settings.get("architectures") or []):
        return _LATE
    return "SentenceTransformer" if file_of(source, MODULES) is not None else None


def open_library_model(kind: type[Library], source: str, noun: str, plain: str | None = None) -> Library:
    """:func:`library_model`; ``noun`` names such a model in errors."""
    refuse_missing_folder(source)
    with opening_errors(noun, source, f"Give a folder, or the hub name, of a {kind.__name__}."):
        return library_model(kind, source, plain)


def library_model(kind: type[Library], source: str, plain: str | None) -> Library:
    """A complete model of a class of the library, in float32.

    Its files must name this class: the library would extend any other model by layers with random
    weights. Of a model that the library did not save, the name of the architecture must end in ``plain``
    (None: such a model is refused).
    """
    parts, saved = module_folders(source), library_type(source)
    fits = saved == kind.__name__
    if saved is None and plain is not None:
        fits = any(str(name).endswith(plain) for name in open_config(source).architectures or [""])
    if not fits:
        actual = "a model without its layers" if saved is None else f"a {saved}"
        raise IncompleteError(f"it is {actual}, not a {kind.__name__}")
    refuse_missing_parts(source, parts)
    options: dict[str, Any] = {"dtype": torch.float32}  # not that of the config: weights may be more precise
    if Path(source).is_dir():
        options["use_safetensors"] = True
    model = kind(source, device="cpu", trust_remote_code=False, model_kwargs=options)
    refuse_unread(model, source, parts)
    readers_of(model)  # a Router without a route for queries is refused here
    texts: list[Any] = [("a", "a")] if kind.__name__ == "CrossEncoder" else ["a"]
    output = _OUTPUTS.get(kind.__name__, "sentence_embedding")
    with torch.inference_mode():
        try:
            found = model.eval()(model.preprocess(texts, task="query")).get(output)
        except KeyError as error:  # a module lacks what another one should have made
            found, output = None, str(error.args[0])
    if found is None:
        names = ", ".join(type(module).__name__ for module in model)
        raise IncompleteError(
            f"the modules that its {MODULES} names ({names}) make no {output}: copy {MODULES}, with the "
            "folders that it names (such as 1_Pooling), from the source of the model"
        )
    read_weights(model)
    return model


def positions_of(reader: Any) -> float:
    """The longest text that a module can read, in tokens; infinite for relative positions (T5)."""
    network = next((part for part in reader.modules() if isinstance(part, PreTrainedModel)), None)
    config: Any = getattr(network, "config", None)
    positions = encoder_positions(getattr(config, "encoder", config))
    return math.inf if positions is None else positions


def _opening(source: str) -> AbstractContextManager[None]:
    remedy = "Give a folder of sentence-transformers, a sequence-to-sequence model, or a hub name."
    return opening_errors("a bi-encoder", source, remedy)


def cuts(reader: Any) -> bool:
    """Whether a module cuts long texts; static embeddings and bags of words read a text as a whole."""
    limit = getattr(type(reader), "max_seq_length", None)
    return hasattr(reader, "max_seq_length") and not (isinstance(limit, property) and limit.fset is None)


class FirstDecoderOutput(InputModule):
    """Embeds a text by the decoder's output for its start token: ``[B, d]`` for B texts of at most L tokens.

    ST5's "encoder-decoder first" (Ni et al. 2021, arXiv 2108.08877) and the bi-encoder baseline of
    "Generative Multi-hop Retrieval" (arXiv 2204.13596). The backbone does not change, so a bi-encoder has
    exactly the parameters of the generator it is compared with. (ST5 also projects and normalises; the
    baseline of the paper does not, and compares by inner product.)

    In training, an untied output head (BERT decoders, T5 1.1) gets no gradient, so distributed training must
    look for unused parameters. ``backbone`` is any transformers sequence-to-sequence model with its output
    head. A text longer than ``max_seq_length`` tokens, special ones included, is cut.
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
        config = getattr(self.backbone.config, "decoder", self.backbone.config)
        return int(config.hidden_size)

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        write_network(self.backbone, output_path)
        self.save_tokenizer(output_path)
        self.save_config(output_path)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any
    ) -> Self:
        folder = Path(model_name_or_path) / subfolder
        config = cls.load_config(str(folder))
        tokenizer = open_tokenizer(folder)
        backbone = open_model(AutoModelForSeq2SeqLM, folder, tokenizer, dtype=torch.float32)
        return cls(backbone, tokenizer, int(config["max_seq_length"]))
