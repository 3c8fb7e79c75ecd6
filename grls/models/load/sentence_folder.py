"""Folders of sentence-transformers: the modules that they name, and whether all of them are complete.

The library fills gaps silently (mean pooling, random weights) and opens pickles. This module refuses such
folders. It does not know the purpose of the embeddings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.io.files import read_json
from grls.models.load.opening import (
    IncompleteError,
    open_tokenizer,
    refuse_code,
    refuse_incomplete,
    refuse_pickle,
)

MODULES = "modules.json"
"""The file that every folder of sentence-transformers holds."""

_BARE = ("Normalize",)
"""Modules without a file."""
_WITH_WEIGHTS = (
    "Transformer", "MLMTransformer", "Dense", "LayerNorm", "WeightedLayerPooling", "SparseAutoEncoder",
    "SparseStaticEmbedding",
)  # fmt: skip
_LEFT = ("config_sentence_transformers.json", "1_Pooling", "sentence_bert_config.json")
"""Files and folders beside :data:`MODULES`."""


def module_folders(source: str) -> list[tuple[str, Path]]:
    """The modules that a folder names, as (class, folder); empty for a plain encoder and for a hub name.

    Raises:
        IncompleteError: :data:`MODULES` is damaged, or missing though other files of sentence-transformers
            are there.
        DataError: :data:`MODULES` is no JSON.
    """
    folder = Path(source)
    file = folder / MODULES
    if not file.is_file():
        left = [name for name in _LEFT if (folder / name).exists()]
        if folder.is_dir() and left:
            raise IncompleteError(f"it lacks {MODULES}, though {left[0]} is there: copy the whole model")
        return []
    entries = read_json(file)
    if not isinstance(entries, list) or not all(_names_module(entry) for entry in entries) or not entries:
        raise IncompleteError(f'expected {MODULES} to list modules by "type" and "path", got {entries!r}')
    return [(entry["type"], folder / entry["path"]) for entry in entries]


def _names_module(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("type", "path"))


def refuse_missing_parts(source: str, parts: list[tuple[str, Path]]) -> None:
    """Refuse a folder in which a module lacks its files or has its weights as a pickle.

    Args:
        source: The folder; a hub name is not checked.
        parts: Its modules (:func:`module_folders`); empty for a plain encoder.

    Raises:
        IncompleteError: It is such a folder.
    """
    if not Path(source).is_dir():
        return
    for kind, folder in parts or [("Transformer", Path(source))]:
        name = kind.rpartition(".")[2]
        if name not in _BARE and not any(folder.glob("*.json")):
            raise IncompleteError(
                f"it lacks the settings of {name} (in {folder.name}), which {MODULES} names"
            )
        if name in _WITH_WEIGHTS:
            refuse_pickle(folder)
        if name in ("Transformer", "MLMTransformer"):
            refuse_code(folder)
            open_tokenizer(folder)


def refuse_unread(model: Any, pooler: bool = False) -> None:
    """Refuse a model whose transformer lacks weights or dropped weights while loading.

    Args:
        model: The loaded model, of any class of sentence-transformers.
        pooler: Whether the output depends on the pooler.

    Raises:
        IncompleteError: Weights are missing or were dropped.
    """
    network: Any = getattr(model, "transformers_model", None)
    if network is None or not hasattr(network, "name_or_path"):
        return
    # The library does not return the report of its loading. Loading to the device "meta" reads no numbers.
    _, report = type(network).from_pretrained(
        network.name_or_path, config=network.config, trust_remote_code=False, output_loading_info=True,
        device_map="meta",
    )  # fmt: skip
    refuse_incomplete(network, report, pooler=pooler)
