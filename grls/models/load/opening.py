"""Opening configs, tokenizers and weights: what a folder lacks, and what is not its own, is refused.

transformers fills gaps without a word: weights that are not in a folder are drawn at random, a tokenizer
whose vocabulary is missing knows its special tokens alone, and weights that an architecture has no place for
are dropped. Whatever is opened here is whole, or the error names what lacks. Nothing that comes with a model
is ever run: no code of a folder, and no pickle. It does not know what a model is for.
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

from grls.errors import ConfigError, GrlsError
from grls.io.files import read_json
from grls.models.load.sources import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_POOLER = "pooler"
"""A layer of encoders that nothing here reads, unless a classifier stands behind it."""
_NUMBERS = frozenset(
    {
        "max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "num_return_sequences",
        "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
        "length_penalty", "diversity_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "guidance_scale", "max_time",
    }
)  # fmt: skip
"""Settings of transformers' ``generate`` that are numbers."""
_LISTS = ("suppress_tokens", "begin_suppress_tokens")
_PENALTIES = ("repetition_penalty", "encoder_repetition_penalty")
_SHOWN = 3
"""Weights that an error names."""
_DAMAGED = (
    OSError, ValueError, ImportError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, EOFError,
    AssertionError, ArithmeticError, SafetensorError, StrictDataclassError, struct.error,
)  # fmt: skip
"""What transformers raises over damaged files."""
_PANIC = "PanicException"
"""What the tokenizers library raises where it breaks off; it derives from BaseException and has no import.
(Elsewhere it raises bare Exceptions, of that very class.)"""


class IncompleteError(ConfigError):
    """A model folder lacks something, or brings what is not opened; :func:`opening` says of which it is."""


@contextmanager
def opening(what: str, name: str | Path, remedy: str) -> Iterator[None]:
    """Within the block whatever a damaged or incomplete folder makes a library raise is one error of ours.

    Args:
        what: What is opened, "a generator".
        name: As the user gave it.
        remedy: What to give instead, a sentence.

    Raises:
        ConfigError: It cannot be opened; errors of ours and want of memory pass as they are.
    """
    import torch

    try:
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


def _cannot(what: str, name: str | Path, error: BaseException, remedy: str) -> ConfigError:
    kind = type(error).__name__ + ": " if isinstance(error, (KeyError, TypeError, AttributeError)) else ""
    reason = (kind + first_line(error)).rstrip(". ")
    return ConfigError(f"cannot load {what} from {str(name)!r}: {reason}. {remedy}")


def open_config(source: str | Path, **options: Any) -> Any:
    """The config of a model.

    Args:
        source: A folder or hub name.
        options: Further ones of ``from_pretrained``.

    Raises:
        IncompleteError: The model brings code of its own.
    """
    from transformers import AutoConfig

    refuse_code(source)
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
    if getattr(config, "auto_map", None):
        raise _brings_code("config.json")
    return config


def open_tokenizer(source: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a model.

    Args:
        source: A folder or hub name.
        options: Further ones of ``from_pretrained``.

    Raises:
        IncompleteError: It is not there as a whole: transformers would make up a stub of special tokens.
    """
    from transformers import AutoTokenizer

    refuse_code(source)
    folder = Path(source)
    if folder.is_dir() and not options.get("gguf_file"):
        _refuse_missing_tokenizer(folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        source, trust_remote_code=False, **options
    )
    known = tokenizer.get_vocab()
    if not set(known) - set(tokenizer.all_special_tokens) - set(tokenizer.get_added_vocab()):
        raise IncompleteError(
            f"its tokenizer has no words, only {len(known)} special tokens, so tokenizer.json or another "
            "file of the vocabulary is missing: copy it from where the model comes from"
        )
    return tokenizer


def open_model(
    kind: Any, source: str | Path, new_head: bool = False, pooler: bool = False, **options: Any
) -> Any:
    """A model with all of its weights, none left out and none made up.

    Weights of another head than the one that is loaded are no fault.

    Args:
        kind: The class, or a class of classes such as ``AutoModelForCausalLM``.
        source: A folder or hub name.
        new_head: The head, and a pooler, need not be there: they are to be learned.
        pooler: Whether what the model computes depends on its pooler.
        options: Further ones of ``from_pretrained``.

    Raises:
        IncompleteError: The folder lacks weights that the architecture needs, or has some without a
            place in it, or keeps them as a pickle; or a setting of how it writes is of a wrong kind.
    """
    refuse_code(source)
    if not options.get("gguf_file"):
        refuse_pickle(source)
        options["use_safetensors"] = True
    model, report = kind.from_pretrained(source, trust_remote_code=False, output_loading_info=True, **options)
    refuse_incomplete(model, report, new_head, pooler)
    _refuse_unusable_generation(model)
    return model


def refuse_incomplete(
    model: Any, report: dict[str, Any], new_head: bool = False, pooler: bool = False
) -> None:
    """Refuse what transformers reports of a loading: weights that were made up, or dropped.

    Args:
        model: The model.
        report: As ``output_loading_info`` gives it.
        new_head: As of :func:`open_model`.
        pooler: Likewise.

    Raises:
        IncompleteError: Some were.
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
            "no place (they would be dropped): correct config.json, or take the weights that belong to it"
        )


def _refuse_unusable_generation(model: Any) -> None:
    """Refuse settings of ``generate`` that it would break on in the middle of a run."""
    most = getattr(model.config, "vocab_size", math.inf)
    for name, value in vars(getattr(model, "generation_config", None) or object).items():
        expected = None if value is None else _expected(name, value, most)
        if expected:
            raise IncompleteError(
                f"{name} of its generation_config.json is {value!r}, and {expected} is expected: correct it, "
                "or copy the file from where the model comes from"
            )


def _expected(name: str, value: Any, tokens: float) -> str | None:
    """What a setting of ``generate`` ought to be; None where it may be what it is."""
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
    """Whether a weight would belong to a part that the model has; another head's does not."""
    parts = {name for some in (model, model.base_model) for name, _ in some.named_children()}
    own = key.removeprefix(f"{model.base_model_prefix}.") if model.base_model_prefix else key
    return own.split(".")[0] in parts


def _named(keys: list[str]) -> str:
    """Some weights by name, and how many more there are."""
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def refuse_code(source: str | Path) -> None:
    """Refuse a folder that wants code of its own to be run.

    Raises:
        IncompleteError: It does.
    """
    for name in ("config.json", "tokenizer_config.json"):
        file = Path(source) / name
        if file.is_file() and isinstance(found := read_json(file), dict) and found.get("auto_map"):
            raise _brings_code(name)


def _brings_code(name: str) -> IncompleteError:
    return IncompleteError(
        f"it brings code of its own (auto_map in its {name}), which is never run: take a model that "
        "transformers knows; if it knows this one, remove auto_map"
    )


def refuse_pickle(source: str | Path) -> None:
    """Refuse a folder without weights that can be opened safely.

    Raises:
        IncompleteError: It has none, or pickles alone.
    """
    folder = Path(source)
    if not folder.is_dir() or any(folder.glob("*.safetensors*")):
        return
    found = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    if found:
        raise IncompleteError(
            f"it has no *.safetensors, only {found[0]}, a pickle, which may run code and is never opened: "
            "convert it where you trust it (load the model with transformers, save_pretrained)"
        )
    raise IncompleteError(f"it has no weights (no *.safetensors in {folder.name})")


def _refuse_missing_tokenizer(folder: Path) -> None:
    """Refuse a folder without the files of a tokenizer."""
    if not (folder / "tokenizer_config.json").is_file():
        raise IncompleteError(
            "its tokenizer is missing, or tokenizer_config.json, which tells the special tokens: save it "
            "there (save_pretrained), or copy its files from where the model comes from"
        )
    file = folder / "tokenizer.json"
    if file.is_file() and not (isinstance(found := read_json(file), dict) and "model" in found):
        raise IncompleteError(f"its {file.name} is damaged: copy it from where the model comes from")
