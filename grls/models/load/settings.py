"""The settings in a model's folder that affect its output, and whether they have changed.

All fields of ``config.json``, of the settings of the tokenizer and of sentence-transformers count, except
those that change no result: notes of transformers, and fields that only training reads. In
``generation_config.json`` only the tokens count, because options of grls control sampling. The manifest of a
retriever keeps these settings, since the same weights fit another activation or start token, too. The module
does not know the purpose of a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grls.errors import DataError, MismatchError
from grls.io.files import read_json

CONFIG = "config.json"
GENERATION = "generation_config.json"
FILES = (
    CONFIG, GENERATION, "tokenizer_config.json", "sentence_bert_config.json",
    "config_sentence_transformers.json",
)  # fmt: skip
"""The files of settings in a folder and in the folders of its parts."""

Settings = dict[str, dict[str, Any]]
"""File, relative to the model's folder -> field (``encoder.hidden_act``) -> JSON value."""

_HARMLESS = frozenset(
    {
        "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "_from_model_config",
        "architectures", "dtype", "torch_dtype", "_attn_implementation", "attn_implementation",
        "tokenizer_class", "id2label", "label2id", "finetuning_task", "task_specific_params", "problem_type",
        "initializer_range", "initializer_factor", "gradient_checkpointing", "__version__", "is_local",
        "local_files_only", "model_max_length",
    }
)  # fmt: skip
_TRAINING = re.compile(r"dropout|pdrop|layerdrop")
_TOKEN = re.compile(r"_token_ids?$")
_NOWHERE = object()


def settings_of(config: Any) -> dict[str, Any]:
    """The fields of a config that count, nested fields by their path.

    Args:
        config: The config as an object of JSON values (``to_dict`` in transformers).
    """
    return dict(_flat(config, ""))


def settings_in(folder: str | Path) -> Settings:
    """The settings that count in a model's folder, including those in folders of its parts.

    Raises:
        DataError: A file holds no settings.
    """
    place, settings = Path(folder), {}
    for file in sorted(file for name in FILES for file in place.rglob(name)):
        content = read_json(file)
        if not isinstance(content, dict):
            raise DataError(
                "expected an object of settings: copy the file from the source of the model, or make the "
                "folder again.",
                file,
            )
        fields = settings_of(content)
        if file.name == GENERATION:
            fields = {name: value for name, value in fields.items() if _TOKEN.search(name)}
        settings[file.relative_to(place).as_posix()] = fields
    return settings


def refuse_other_settings(folder: str | Path, known: Any, manifest: Path) -> None:
    """Refuse a model's folder whose settings differ from those in a manifest.

    Args:
        folder: The folder of the model.
        known: The result of :func:`settings_in` when the manifest was written.
        manifest: The file of the manifest, for errors.

    Raises:
        MismatchError: A setting differs; the error names the file, the field and the remedy.
        DataError: A file is damaged.
    """
    if not isinstance(known, dict) or not all(isinstance(fields, dict) for fields in known.values()):
        raise DataError(
            "settings: expected the settings of the model by file; make it again with `grls index`.", manifest
        )
    now = settings_in(folder)
    for name in sorted({*known, *now}):
        before, after = known.get(name, {}), now.get(name, {})
        for field in sorted({*before, *after}):
            was, value = (_shown(fields.get(field, _NOWHERE)) for fields in (before, after))
            if was != value:
                raise MismatchError(
                    f"{Path(folder) / name}: {field} is {value}, and was {was} when this retriever was made: "
                    "the model would compute something else. Put it back, or make the retriever again with "
                    "`grls index`."
                )


def _shown(value: Any) -> str:
    return "not there" if value is _NOWHERE else json.dumps(value, sort_keys=True)


def _flat(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if name in _HARMLESS or _TRAINING.search(name):
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
