"""What a model computes by beside its weights: the settings in its folder, and whether they are as written.

Of ``config.json``, of the tokenizer's settings and of those of sentence-transformers all fields count but
those that change no result: what transformers notes of itself, and what training alone reads. Of
``generation_config.json`` the tokens count: how to sample is said by options here. A retriever's folder
keeps these settings in its manifest, since another activation or start token fits the same weights. It does
not know what a model is for.
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
"""The files of settings that a folder, and the folders of its parts, may hold."""

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
    """The fields that count of a config as transformers gives it (``to_dict``), nested ones by their path.

    Args:
        config: An object of JSON values.
    """
    return dict(_flat(config, ""))


def settings_in(folder: str | Path) -> Settings:
    """The settings that count in a model's folder, those of its parts in folders below included.

    Raises:
        DataError: A file holds something else than settings.
    """
    place, found = Path(folder), {}
    for file in sorted(file for name in FILES for file in place.rglob(name)):
        content = read_json(file)
        if not isinstance(content, dict):
            raise DataError(
                "expected an object of settings: copy it from where the model comes from, or make the folder "
                "again.",
                file,
            )
        fields = settings_of(content)
        if file.name == GENERATION:
            fields = {name: value for name, value in fields.items() if _TOKEN.search(name)}
        found[file.relative_to(place).as_posix()] = fields
    return found


def refuse_other_settings(folder: str | Path, known: Any, manifest: Path) -> None:
    """Refuse a model's folder whose settings are not those that were written with it.

    Args:
        folder: The model's.
        known: What :func:`settings_in` gave then; None: the manifest is older and does not know.
        manifest: Where that stands, for errors.

    Raises:
        MismatchError: They are others, with the file, the field and the remedy.
        DataError: A file is damaged.
    """
    if known is None:
        return
    if not isinstance(known, dict) or not all(isinstance(fields, dict) for fields in known.values()):
        raise DataError(
            "settings: expected those of the model by file; make it again with `grls index`.", manifest
        )
    now = settings_in(folder)
    for name in sorted({*known, *now}):
        before, after = known.get(name, {}), now.get(name, {})
        for field in sorted({*before, *after}):
            was, found = (_shown(fields.get(field, _NOWHERE)) for fields in (before, after))
            if was != found:
                raise MismatchError(
                    f"{Path(folder) / name}: {field} is {found}, and was {was} when this retriever was made: "
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
