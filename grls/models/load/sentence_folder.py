"""Folders of sentence-transformers: which modules they name, and whether all of them are there as a whole.

The library makes up what is missing (mean pooling, random weights) and opens pickles; here such a folder is
refused. It does not know what the embeddings are for.
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
"""The file by which a folder is one of sentence-transformers."""

_BARE = ("Normalize",)
"""Modules without a file of their own."""
_WITH_WEIGHTS = (
    "Transformer", "MLMTransformer", "Dense", "LayerNorm", "WeightedLayerPooling", "SparseAutoEncoder",
    "SparseStaticEmbedding",
)  # fmt: skip
_LEFT = ("config_sentence_transformers.json", "1_Pooling", "sentence_bert_config.json")
"""What stands beside :data:`MODULES`."""


def module_folders(source: str) -> list[tuple[str, Path]]:
    """The modules that a folder names, as (class, folder); none of a plain encoder, or of a hub's.

    Raises:
        IncompleteError: The folder is one of sentence-transformers without :data:`MODULES`, or it is
            damaged.
        DataError: It is no JSON.
    """
    folder = Path(source)
    file = folder / MODULES
    if not file.is_file():
        left = [name for name in _LEFT if (folder / name).exists()]
        if folder.is_dir() and left:
            raise IncompleteError(f"it lacks {MODULES}, though {left[0]} is there: copy the whole model")
        return []
    found = read_json(file)
    if not isinstance(found, list) or not all(_names_module(entry) for entry in found) or not found:
        raise IncompleteError(f'expected {MODULES} to list modules by "type" and "path", got {found!r}')
    return [(entry["type"], folder / entry["path"]) for entry in found]


def _names_module(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("type", "path"))


def refuse_missing_parts(source: str, parts: list[tuple[str, Path]]) -> None:
    """Refuse a folder in which a module lacks its files, or keeps its weights as a pickle.

    Args:
        source: The folder, or a hub name, of which nothing is looked at.
        parts: Its modules (:func:`module_folders`); none: it is a plain encoder.

    Raises:
        IncompleteError: It does.
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
    """Refuse a model whose transformer did not find all of its weights, or dropped some.

    Args:
        model: As it was opened, of any class of sentence-transformers.
        pooler: Whether what it computes depends on its pooler.

    Raises:
        IncompleteError: It did not.
    """
    network: Any = getattr(model, "transformers_model", None)
    if network is None or not hasattr(network, "name_or_path"):
        return
    # The library keeps the report of its own loading to itself; this one reads no numbers.
    _, report = type(network).from_pretrained(
        network.name_or_path, config=network.config, trust_remote_code=False, output_loading_info=True,
        device_map="meta",
    )  # fmt: skip
    refuse_incomplete(network, report, pooler=pooler)
