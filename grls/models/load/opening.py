"""Opens configs, tokenizers and weights, and refuses incomplete folders and foreign code.

transformers fills gaps silently: weights that are missing in a folder become random numbers, a tokenizer
without a vocabulary has only its special tokens, and weights without a place in the architecture are dropped.
Here a model is opened as a whole, or the error names what is missing. Code and pickles of a model are never
run. The module does not know the purpose of a model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from grls.data.codec import SPECIAL_TOKENS
from grls.errors import ConfigError, GrlsError
from grls.io.files import read_json
from grls.io.logs import without_weight_bars
from grls.models.load.sources import first_line, of_the_hub

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_POOLER = "pooler"
"""A layer of encoders that only classifiers read."""
_NUMBERS = frozenset(
    {
        "max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "num_return_sequences",
        "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
        "length_penalty", "diversity_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "guidance_scale", "max_time",
    }
)  # fmt: skip
"""Settings of ``generate`` in transformers that are numbers."""
_LISTS = ("suppress_tokens", "begin_suppress_tokens")
_PENALTIES = ("repetition_penalty", "encoder_repetition_penalty")
_RARE = "\U00010380 \U00013000 \U0001f9a6"
"""A letter of Ugaritic, a hieroglyph and an otter: hardly any vocabulary has all of them."""
_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
"""The endings of the files of a model."""
_SHOWN = 3
"""How many weights an error names."""
_DAMAGED = (
    OSError, ValueError, ImportError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, EOFError,
    AssertionError, ArithmeticError, SafetensorError, StrictDataclassError, struct.error,
)  # fmt: skip
"""Errors that transformers raises for damaged files."""
_PANIC = "PanicException"
"""The error of the tokenizers library when it panics. It derives from BaseException and cannot be imported.
(For other faults, the library raises errors of the class Exception itself.)"""


class IncompleteError(ConfigError):
    """A model folder lacks something, or holds something unsafe; :func:`opening` adds the model's name."""


class UnopenedError(ConfigError):
    """A model cannot be opened as what it is taken for."""


@contextmanager
def opening(what: str, name: str | Path, remedy: str) -> Iterator[None]:
    """A context that turns all errors of libraries over a damaged or incomplete folder into one error.

    No bar is drawn while weights are read.

    Args:
        what: What is opened, such as "a generator".
        name: The name that the user wrote.
        remedy: What the user should give instead, a sentence.

    Raises:
        UnopenedError: The model cannot be opened. Errors of grls and lack of memory are raised unchanged.
    """
    import torch

    try:
        refuse_irregular(name)
        with without_weight_bars():
            yield
    except IncompleteError as error:
        raise _cannot(what, name, error, remedy) from None
    except (GrlsError, torch.OutOfMemoryError):
        raise
    except _DAMAGED as error:
        raise _cannot(what, name, error, remedy) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC and type(error) is not Exception:
            raise
        raise _cannot(what, name, error, remedy) from None


def _cannot(what: str, name: str | Path, error: BaseException, remedy: str) -> UnopenedError:
    kind = type(error).__name__ + ": " if isinstance(error, (KeyError, TypeError, AttributeError)) else ""
    reason = (kind + first_line(error)).rstrip(". ")
    return UnopenedError(f"cannot load {what} from {str(name)!r}: {reason}. {remedy}")


def open_config(source: str | Path, **options: Any) -> Any:
    """The config of a model.

    Args:
        source: A folder or hub name.
        options: Further options of ``from_pretrained``.

    Raises:
        IncompleteError: The model needs code from its folder, or the folder holds adapters of another model.
    """
    from transformers import AutoConfig

    refuse_dependent(source)
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **of_the_hub(source), **options)
    if getattr(config, "auto_map", None):
        raise _brings_code("config.json")
    return config


def open_tokenizer(source: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a model.

    Args:
        source: A folder or hub name.
        options: Further options of ``from_pretrained``.

    Raises:
        IncompleteError: The tokenizer is not complete: transformers would make one of special tokens only.
    """
    from transformers import AutoTokenizer

    refuse_dependent(source)
    folder = Path(source)
    if folder.is_dir() and not options.get("gguf_file"):
        _refuse_missing_tokenizer(folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        source, trust_remote_code=False, **of_the_hub(source), **options
    )
    known = tokenizer.get_vocab()
    if not set(known) - set(tokenizer.all_special_tokens) - set(tokenizer.get_added_vocab()):
        raise IncompleteError(
            f"its tokenizer has no words, only {len(known)} special tokens, so tokenizer.json or another "
            "file of the vocabulary is missing: copy it from the source of the model"
        )
    refuse_unknown_words(tokenizer)
    return tokenizer


def refuse_unknown_words(tokenizer: Any) -> None:
    """Refuse a tokenizer that cannot read a character outside of its vocabulary.

    Args:
        tokenizer: A tokenizer of transformers or of tokenizers.

    Raises:
        IncompleteError: Its token for unknown words is missing.
    """
    read = getattr(tokenizer, "encode", None)
    try:
        if read is not None:
            read(_RARE)
    except Exception as error:  # the tokenizers library raises errors of this class
        raise IncompleteError(
            f"its tokenizer fails at a character that it does not know ({first_line(error).rstrip('.')}), so "
            "it lacks the token for unknown words: copy tokenizer.json from the source of the model"
        ) from None


def refuse_larger_tokenizer(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer with more pieces than a model has rows; the special tokens of grls do not count.

    Args:
        model: A model of transformers, or a module of sentence-transformers.
        tokenizer: Its tokenizer; None, or one without a vocabulary by number, is not checked.

    Raises:
        IncompleteError: The tokenizer has pieces without a row.
    """
    rows = _rows(model)
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    if rows is None or not isinstance(vocabulary, dict):
        return
    pieces = 1 + max(
        (number for piece, number in vocabulary.items() if piece not in SPECIAL_TOKENS), default=-1
    )
    if pieces > rows:
        raise IncompleteError(
            f"the tokenizer has {pieces:,} pieces, but the model has rows for {rows:,}, so they do not "
            "belong together (the other rows would be random numbers): copy the tokenizer from the source of "
            "the model, or the weights that belong to the tokenizer"
        )


def _rows(model: Any) -> int | None:
    """How many pieces a model has rows for; None if it has no table of embeddings."""
    network = getattr(model, "auto_model", model)
    if hasattr(network, "get_input_embeddings"):
        try:
            table = network.get_input_embeddings()
        except NotImplementedError:  # a model of texts and images
            return None
    else:  # static embeddings, of words, or of one number a piece
        table = getattr(network, "embedding", getattr(network, "emb_layer", network))
    weight = getattr(table, "weight", None)
    return None if weight is None else int(weight.shape[0])


def refuse_irregular(source: str | Path) -> None:
    """Refuse a folder in which settings are no file: a folder, or a pipe, which would be read for ever.

    Args:
        source: The folder; anything else, such as a hub name, is not checked.

    Raises:
        IncompleteError: It is such a folder.
    """
    folder = Path(source)
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_file() or not entry.exists():
            continue
        if entry.suffix in _SUFFIXES or not entry.is_dir():
            kind = "a folder" if entry.is_dir() else "a pipe or a device"
            raise IncompleteError(
                f"its {entry.name} (in {folder}) is {kind}, and a file is expected: copy the file from the "
                "source of the model"
            )


def open_model(
    kind: Any,
    source: str | Path,
    tokenizer: Any,
    new_head: bool = False,
    pooler: bool = False,
    **options: Any,
) -> Any:
    """A model with exactly the weights of its folder; none is missing and none is dropped.

    Weights of another head than the loaded one are ignored.

    Args:
        kind: The class, or an auto class such as ``AutoModelForCausalLM``.
        source: A folder or hub name.
        tokenizer: The tokenizer whose pieces the model reads.
        new_head: Whether the head and the pooler may be missing, because they will be trained.
        pooler: Whether the output depends on the pooler.
        options: Further options of ``from_pretrained``.

    Raises:
        IncompleteError: The folder lacks weights of the architecture, has weights without a place in it, or
            has its weights as a pickle; the tokenizer has more pieces than the model has rows; or a setting
            of its generation config is wrong.
    """
    refuse_dependent(source)
    if not options.get("gguf_file"):
        refuse_pickle(source)
        options["use_safetensors"] = True
    options |= of_the_hub(source)
    model, report = kind.from_pretrained(source, trust_remote_code=False, output_loading_info=True, **options)
    refuse_incomplete(model, report, new_head, pooler)
    refuse_larger_tokenizer(model, tokenizer)
    _refuse_unusable_generation(model)
    return model


def refuse_incomplete(
    model: Any, report: dict[str, Any], new_head: bool = False, pooler: bool = False
) -> None:
    """Refuse a model for which transformers reports missing or dropped weights.

    Args:
        model: The model.
        report: The report of loading (``output_loading_info``).
        new_head: Whether the head and the pooler may be missing.
        pooler: Whether the output depends on the pooler.

    Raises:
        IncompleteError: Weights are missing or were dropped.
    """
    prefix = f"{model.base_model_prefix}." if new_head else ""
    needed = (key for key in report["missing_keys"] if key.startswith(prefix))
    missing = sorted(key for key in needed if (pooler and not new_head) or _POOLER not in key.split("."))
    if missing:
        raise IncompleteError(
            f"it lacks {_named(missing)}, which {type(model).__name__} needs (they would be random "
            "numbers): save the whole model there (with its head, and every shard), or correct config.json"
        )
    unplaced = sorted(key for key in report["unexpected_keys"] if _within(model, key))
    if unplaced:
        raise IncompleteError(
            f"it holds {_named(unplaced)}, for which a {type(model).__name__} of this config.json has "
            "no place (they would be dropped): correct config.json, or use the weights that belong to it"
        )


def _refuse_unusable_generation(model: Any) -> None:
    """Refuse settings with which ``generate`` would fail in the middle of a run."""
    most = getattr(model.config, "vocab_size", math.inf)
    for name, value in vars(getattr(model, "generation_config", None) or object).items():
        expected = None if value is None else _expected(name, value, most)
        if expected:
            raise IncompleteError(
                f"{name} of its generation_config.json is {value!r}, and {expected} is expected: correct it, "
                "or copy the file from the source of the model"
            )


def _expected(name: str, value: Any, tokens: float) -> str | None:
    """The expected value of a wrong setting of ``generate``; None if the setting is right."""
    if name.endswith(("_token_id", "_token_ids")):
        several = value if isinstance(value, list) and name.startswith(("eos", "forced_eos")) else [value]
        within = not name.startswith("forced") or all(
            type(one) is int and 0 <= one < tokens for one in several
        )
        return None if within and all(type(one) is int for one in several) else "the number of a token"
    if name in _PENALTIES and value != 1 and not (type(value) is float and value > 0):
        return "a number above 0 with a decimal point"
    if name in _LISTS and not (isinstance(value, list) and all(type(one) is int for one in value)):
        return "a list of numbers of tokens"
    return "a number" if name in _NUMBERS and type(value) not in (int, float) else None


def _within(model: Any, key: str) -> bool:
    """Whether a weight belongs to a part of the model; a weight of another head does not."""
    parts = {name for module in (model, model.base_model) for name, _ in module.named_children()}
    inner = key.removeprefix(f"{model.base_model_prefix}.") if model.base_model_prefix else key
    return inner.split(".")[0] in parts


def _named(keys: list[str]) -> str:
    """The names of the first weights, and how many more there are."""
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def refuse_dependent(source: str | Path) -> None:
    """Refuse a folder that needs its own code to be run, or holds adapters of a model that is elsewhere.

    Raises:
        IncompleteError: It is such a folder.
    """
    for name in ("config.json", "tokenizer_config.json"):
        file = Path(source) / name
        if file.is_file() and isinstance(content := read_json(file), dict) and content.get("auto_map"):
            raise _brings_code(name)
    if (Path(source) / "adapter_config.json").is_file() and not (Path(source) / "config.json").exists():
        raise IncompleteError(
            "it holds adapters (adapter_config.json) and not the model that they change: merge them into it "
            "(merge_and_unload of peft), and save the whole model"
        )


def _brings_code(name: str) -> IncompleteError:
    return IncompleteError(
        f"it brings its own code (auto_map in its {name}), which is never run: use a model that "
        "transformers knows; if it knows this one, remove auto_map"
    )


def refuse_pickle(source: str | Path) -> None:
    """Refuse a folder without weights that can be opened safely.

    Raises:
        IncompleteError: It has no weights, or only pickles.
    """
    folder = Path(source)
    if not folder.is_dir() or any(folder.glob("*.safetensors*")):
        return
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    if pickles:
        raise IncompleteError(
            f"it has no *.safetensors, only {pickles[0]}, a pickle, which may run code and is never opened: "
            "if you trust it, convert it (load the model with transformers, then save_pretrained)"
        )
    raise IncompleteError(f"it has no weights (no *.safetensors in {folder.name})")


def _refuse_missing_tokenizer(folder: Path) -> None:
    """Refuse a folder without the files of a tokenizer."""
    if not (folder / "tokenizer_config.json").is_file():
        raise IncompleteError(
            "its tokenizer is missing, or tokenizer_config.json, which names the special tokens: save it "
            "there (save_pretrained), or copy its files from the source of the model"
        )
    file = folder / "tokenizer.json"
    if file.is_file() and not (isinstance(content := read_json(file), dict) and "model" in content):
        raise IncompleteError(f"its {file.name} is damaged: copy it from the source of the model")
