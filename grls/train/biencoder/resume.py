"""The start of training a bi-encoder: a new run, or the last checkpoint that is whole and undamaged.

Wherever a run dies, one of the two works, and the error of the other one names it. The module knows the files
of a checkpoint, not their content.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.files import read_json
from grls.models.load.sentence_folder import MODULES
from grls.train.core.damage import folder_damage

log = logging.getLogger(__name__)

LOGS = "logs.json"
STATE = "trainer_state.json"
"""The last file that the trainer writes into a checkpoint; a checkpoint with this file is whole."""

FILES = "fingerprints"
"""Key of the data's fingerprints in the settings."""

_FREE = {"device", "log_every", "gradient_checkpointing"}
"""Settings that a resumed run may change, since they do not change the losses."""


def begin_anew(folder: Path) -> str | None:
    """Remove old checkpoints for a new run; returns None, the checkpoint to start from.

    These are the checkpoints of a finished run, and an incomplete one of a run that died while writing.

    Raises:
        ConfigError: There are checkpoints of a run that has not finished.
    """
    refuse_unfinished_run(folder)
    for checkpoint in _all(folder):
        shutil.rmtree(checkpoint)
    return None


def refuse_unfinished_run(folder: Path) -> None:
    """Refuse a new run where another one has not finished.

    Raises:
        ConfigError: There are checkpoints of a run that has not finished.
    """
    model = folder / "model" / MODULES
    finished = model.stat().st_mtime if model.is_file() else 0.0
    if any(checkpoint.stat().st_mtime > finished for checkpoint in _whole(folder)):
        raise ConfigError(
            f"{folder / 'checkpoints'} holds checkpoints of a run that did not finish: resume it with "
            f"{Option('resume', True)}, choose another {Option('output')}, or remove the checkpoints."
        )


def _all(folder: Path) -> list[Path]:
    return list((folder / "checkpoints").glob("checkpoint-*"))


def _whole(folder: Path) -> list[Path]:
    """The complete checkpoints, the last one first."""
    whole = [checkpoint for checkpoint in _all(folder) if (checkpoint / STATE).is_file()]
    return sorted(whole, key=lambda path: -int(path.name.rpartition("-")[2]))


def checkpoint_to_resume(folder: Path, settings: Mapping[str, Any]) -> str:
    """The last whole checkpoint of the run with these settings; later checkpoints are removed."""
    if not _whole(folder):
        raise ConfigError(
            f"{folder / 'checkpoints'} holds no checkpoint to resume from (one is written every epoch): "
            f"leave out {Option('resume')} to start anew."
        )
    _refuse_others(folder, settings)
    chosen = _undamaged(folder)
    for checkpoint in _all(folder):
        if int(checkpoint.name.rpartition("-")[2]) > int(chosen.name.rpartition("-")[2]):
            shutil.rmtree(checkpoint)
    return str(chosen)


def _undamaged(folder: Path) -> Path:
    """The last undamaged checkpoint; warns of damaged ones.

    Raises:
        ConfigError: All checkpoints are damaged.
    """
    damaged: list[tuple[Path, str]] = []
    for checkpoint in _whole(folder):
        what = folder_damage(checkpoint)
        if what is None:
            for pair in damaged:
                log.warning("%s is damaged (%s): the run resumes from %s.", *pair, checkpoint)
            return checkpoint
        damaged.append((checkpoint, what))
    raise ConfigError(
        f"{damaged[0][0]} is damaged ({damaged[0][1]}), and no other checkpoint is whole: remove "
        f"{folder / 'checkpoints'} and start anew without {Option('resume')}."
    )


def _refuse_others(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse to resume with other settings or other data.

    Raises:
        MismatchError: A setting or a file has changed.
        DataError: The log of the run is damaged.
    """
    logged = read_json(folder / LOGS)
    before = logged.get("settings") if isinstance(logged, dict) else None
    if not isinstance(before, dict):
        raise DataError(
            f"the log holds no settings of a run: start anew in another {Option('output')}.", folder / LOGS
        )
    checked = settings.keys() - _FREE - {FILES}
    for name in sorted(name for name in checked if before.get(name) != settings[name]):
        raise MismatchError(
            f"the run in {folder} had {name} {before.get(name)!r}, now it is {settings[name]!r}: resume "
            f"with the same settings, or start anew without {Option('resume')}."
        )
    known = before.get(FILES, {})
    for name in (name for name, now in settings[FILES].items() if known.get(name) != now):
        raise MismatchError(
            f"{name} has changed since the run in {folder} began: put it back as it was, or start anew "
            f"without {Option('resume')} in another {Option('output')}."
        )
