"""Folders of sentence-transformers: the modules that they name, and whether all of them are complete.

The library fills gaps silently (mean pooling, random weights) and opens pickles. This module refuses such
folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from grls.io.files import read_json
from grls.models.load.opening import (
    IncompleteError,
    open_tokenizer,
    refuse_dependent,
    refuse_incomplete,
    refuse_larger_tokenizer,
    refuse_pickle,
)

MODULES = "modules.json"
"""The file that every folder of sentence-transformers holds."""

_BARE = ("Normalize",)
"""Modules without a file."""
_WITH_WEIGHTS = (
    "Transformer", "MLMTransformer", "Dense", "LayerNorm", "WeightedLayerPooling", "SparseAutoEncoder",
    "StaticEmbedding", "WordEmbeddings", "CNN", "LSTM",
)  # fmt: skip
_ROUTERS = ("Router", "Asym")
"""Modules that hold other modules, a chain of them for each task."""
_LEFT = ("config_sentence_transformers.json", "1_Pooling", "sentence_bert_config.json")
"""Files and folders beside :data:`MODULES`."""


class ModuleFolder(NamedTuple):
    """A module of a model: the path of its class, and its folder relative to that of the model."""

    kind: str
    folder: str

    @property
    def name(self) -> str:
        return self.kind.rpartition(".")[2]


def module_folders(source: str) -> list[ModuleFolder]:
    """The modules of a folder or hub name, with those of its Routers; empty for a plain encoder."""
    folder = Path(source)
    file = file_of(source, MODULES)
    if file is None:
        left = [name for name in _LEFT if (folder / name).exists()]
        if folder.is_dir() and left:
            raise IncompleteError(f"it lacks {MODULES}, though {left[0]} is there: copy the whole model")
        return []
    entries = read_json(file)
    if not (isinstance(entries, list) and entries) or not all(
        isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in ("type", "path"))
        for entry in entries
    ):
        raise IncompleteError(f'expected {MODULES} to list modules by "type" and "path", got {entries!r}')
    return [part for entry in entries for part in _parts(source, ModuleFolder(entry["type"], entry["path"]))]


def file_of(source: str, name: str) -> Path | None:
    """A file of a model in a folder or on the hub, if there is one."""
    folder = Path(source)
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from sentence_transformers.util.file_io import load_file_path

    path = PurePosixPath(name)
    file = load_file_path(source, path.name, subfolder="" if path.parent.name == "" else str(path.parent))
    return None if file is None else Path(file)


def _parts(source: str, part: ModuleFolder) -> Iterator[ModuleFolder]:
    """A module; for a Router, the modules of its routes, in their order."""
    if part.name not in _ROUTERS:
        yield part
        return
    within = PurePosixPath(part.folder)
    files = [file_of(source, str(within / name)) for name in ("router_config.json", "config.json")]
    content = next((read_json(file) for file in files if file is not None), None)
    settings = content if isinstance(content, dict) else {}
    kinds, routes = settings.get("types"), settings.get("structure")
    if not isinstance(kinds, dict) or not isinstance(routes, dict):
        raise IncompleteError(f"the settings of its Router (in {part.folder or source}) name no modules")
    for name in (name for route in routes.values() for name in route):
        if not isinstance(kinds.get(name), str):
            raise IncompleteError(f"the settings of its Router (in {part.folder}) name no class for {name!r}")
        yield from _parts(source, ModuleFolder(kinds[name], str(within / name)))


def modules_of(model: Any) -> Iterator[Any]:
    """The modules of a model of sentence-transformers in the order of :func:`module_folders`."""
    for module in model:
        routes = getattr(module, "sub_modules", None)
        if routes is None:
            yield module
        else:
            for route in routes.values():
                yield from modules_of(route)


def refuse_missing_parts(source: str, parts: list[ModuleFolder]) -> None:
    """Refuse a model that needs other code, and a folder in which a part is incomplete.

    A module may lack its files, or have its weights as a pickle. Of a hub name, only what needs code is
    looked for.
    """
    for part in parts or [ModuleFolder("Transformer", "")]:
        refuse_dependent(source, part.folder)
        if not Path(source).is_dir():
            continue
        folder = Path(source) / part.folder
        if part.name not in _BARE and not any(folder.glob("*.json")):
            raise IncompleteError(
                f"it lacks the settings of {part.name} (in {folder.name}), which {MODULES} names"
            )
        if part.name in _WITH_WEIGHTS:
            refuse_pickle(folder)
        if part.name in ("Transformer", "MLMTransformer"):
            open_tokenizer(folder)


def refuse_unread(model: Any, source: str, parts: list[ModuleFolder]) -> None:
    """Refuse a loaded model with weights that were not read, or with another's tokenizer."""
    for module, part in zip_longest(modules_of(model), parts):
        refuse_larger_tokenizer(module, getattr(module, "tokenizer", None))
        network: Any = getattr(module, "auto_model", None)
        if network is None or not hasattr(network, "name_or_path"):
            continue
        # The library returns no report of its loading. Loading to the device "meta" reads no numbers.
        _, report = type(network).from_pretrained(
            source, subfolder="" if part is None else part.folder, config=network.config,
            trust_remote_code=False, output_loading_info=True, device_map="meta",
        )  # fmt: skip
        refuse_incomplete(network, report, pooler=module.transformer_task == "sequence-classification")
