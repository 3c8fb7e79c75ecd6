"""Checkpoints that a full disk or a kill cannot destroy.

Lightning writes to the system's temporary folder and moves the file. Across file systems the move is a copy
over the last good checkpoint. Here the new checkpoint is written beside the old one and renamed, and a
checkpoint that is read is compared with its checksums.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, NamedTuple

import lightning as L
import torch
from jsonargparse import get_loader
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from grls.errors import ConfigError, MismatchError, Option, WriteError
from grls.io.files import atomic_path
from grls.train.core.processes import META, damage, refuse_damaged_folder

log = logging.getLogger(__name__)

_WORDS = ("last", "best", "hpc", "registry")
"""Lightning's keywords for a checkpoint, in place of a path."""
_HARMLESS = ("data.workers", "data.data")
"""Options without an effect on the training; one folder may have two paths."""
_FREE = ("device", "log_every", "gradient_checkpointing", "logger", "mini_batch_size")
"""Settings that a resumed run of :class:`RunState` may change, since they do not change the losses."""

_UNREADABLE = (
    AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, UnpicklingError, ValueError
)  # fmt: skip
"""Errors that torch raises for a file that it cannot read."""
_WEIGHTS = (
    "holds only weights and no state of a run, so no run can resume from it: give the last.ckpt of a run, "
    f"or begin a run from the folder of the model ({Option('model.generator.name_or_path')})."
)


class RunState(NamedTuple):
    """What checkpoints of bi-encoders and rerankers hold of their run; a resumed run must have the same.

    Attributes:
        settings: Options and paths, by name.
        files: Fingerprints of what the run reads, by name.
        options: Settings whose option has another name, with that of the option.
    """

    settings: Mapping[str, Any] = MappingProxyType({})
    files: Mapping[str, str] = MappingProxyType({})
    options: Mapping[str, str] = MappingProxyType({})

    def refuse_other(self, last: Path, sharded: bool) -> None:
        """Refuse to resume from a checkpoint of a run with other settings or other files.

        ``sharded``: both runs shard their weights.

        Raises:
            ConfigError: The checkpoint is missing or damaged.
            MismatchError: A setting or a file has changed; the first is named.
        """
        if not last.exists():
            raise ConfigError(
                f"{last.parent} holds no checkpoint to resume from (one is written every epoch): leave out "
                f"{Option('resume')} to start anew."
            )
        before = check_checkpoint(str(last), shards=sharded, option="fit.strategy")
        folder = last.parent.parent
        for name in sorted(self.settings.keys() - _FREE):
            earlier, now = before.get("settings", {}).get(name), self.settings[name]
            if earlier != now:
                raise MismatchError(
                    f"the run in {folder} had {Option(self.options.get(name, name))} {earlier!r}, now it is "
                    f"{now!r}: resume with the same "
                    f"settings, or start anew without {Option('resume')}."
                )
        for name, fingerprint in self.files.items():
            if before.get("files", {}).get(name) != fingerprint:
                raise MismatchError(
                    f"{name} has changed since the run in {folder} began: put it back as it was, or start "
                    f"anew without {Option('resume')} in another {Option('output')}."
                )


NO_STATE = RunState()


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its destination and renames it."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint; ``path`` holds the earlier one until the new one is complete.

        Raises:
            WriteError: The disk is full or the folder cannot be written.
        """
        with atomic_path(path) as temporary:
            try:
                torch.save(checkpoint, temporary)
            except RuntimeError as error:  # torch's writer wraps the system's error
                raise WriteError(
                    f"cannot write {path} ({str(error).splitlines()[0]}); the earlier checkpoint is intact. "
                    "Free disk space and resume from it."
                ) from error


class BestCheckpoint(ModelCheckpoint):
    """Lightning's best checkpoint; among equal scores, the one with the lowest ``dev_loss``.

    Recall has few distinct values on a small dev set: the loss often keeps falling while recall stays at its
    maximum. This works with ``save_top_k`` 1 only.

    Args:
        finer: The measure that decides among equal scores, and whether its ``min`` or ``max`` is better.
        options: The options of Lightning's callback.
    """

    def __init__(self, *args: Any, finer: tuple[str, str] = ("dev_loss", "min"), **options: Any):
        super().__init__(*args, **options)
        self._finer, self._sign = finer[0], 1.0 if finer[1] == "min" else -1.0
        self._value: float | None = None
        """That of the best checkpoint; lower is better."""

    def state_dict(self) -> dict[str, Any]:
        """Lightning's state, and the finer measure of the best checkpoint."""
        return {**super().state_dict(), "finer": self._value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state."""
        super().load_state_dict(state_dict)
        self._value = state_dict["finer"]

    def check_monitor_top_k(self, trainer: L.Trainer, current: Tensor | None = None) -> bool:
        """Whether the current weights become the best checkpoint."""
        finer = trainer.callback_metrics.get(self._finer)
        value = None if finer is None else self._sign * float(finer)
        better = super().check_monitor_top_k(trainer, current)
        if not better and self.save_top_k == 1 and value is not None and self._value is not None:
            better = current is not None and current == self.best_model_score and value < self._value
        if better:
            self._value = value
        return bool(better)


def kept_checkpoint(trainer: L.Trainer) -> Path | None:
    """The last checkpoint to resume from (written by callbacks without a metric); None: none yet."""
    files = [
        Path(str(callback.dirpath)) / f"{callback.filename}.ckpt"
        for callback in trainer.checkpoint_callbacks
        if isinstance(callback, ModelCheckpoint) and not callback.monitor
    ]
    return next((file for file in reversed(files) if file.exists()), None)


def last_checkpoint(output: str | Path) -> Path:
    """The checkpoint from which ``--resume`` resumes a run with this output folder."""
    return Path(output) / "checkpoints" / "last.ckpt"


def refuse_unfinished(output: str, warn: bool = True, model: str = "config.json") -> None:
    """Refuse to begin a new run in the output folder of an unfinished one.

    An unfinished run has a checkpoint to resume from and no later model. For a finished run this only warns
    that its model will be replaced. ``model`` is a file that every finished model has.

    Raises:
        ConfigError: The folder holds an unfinished run.
    """
    requeued = list(Path(output).glob("hpc_ckpt_*.ckpt"))
    if requeued and SLURMEnvironment.detect():  # Lightning resumes from it, but only in a SLURM job
        return
    model_file = Path(output) / "model" / model
    finished = model_file.is_file()
    checkpoints = [file for file in (*requeued, last_checkpoint(output)) if file.exists()]
    last = max(checkpoints, key=lambda file: file.stat().st_mtime, default=None)
    option = Option("resume", True) if last == last_checkpoint(output) else Option("ckpt_path", last)
    if last is not None and not (finished and model_file.stat().st_mtime >= last.stat().st_mtime):
        raise ConfigError(
            f"{last} is of a run that did not finish, or diverged: resume it with {option}, choose another "
            f"{Option('output')}, or remove {last if last in requeued else last.parent}."
        )
    if finished and warn:
        log.warning("%s is of an earlier run; this one replaces it when it ends.", model_file.parent)


def tell_changed(checkpoint: str, output: str, now: str) -> None:
    """Warn where a resumed run has other options for model and data than at its beginning.

    Options that only one side knows are ignored: another version may have written the earlier options.

    Args:
        checkpoint: The checkpoint to resume from; the options of its run are in ``logs`` beside its folder.
            Lightning's keywords (``last``, ``best``, …) mean checkpoints of ``output``.
        output: The output folder of the resumed run.
        now: All options of the resumed run, as YAML.
    """
    folder = Path(output) if checkpoint in _WORDS else Path(checkpoint).parent.parent
    written = list(folder.glob("logs/version_*/config.yaml"))
    if not written:
        return
    newest = max(written, key=lambda file: file.stat().st_mtime)
    earlier, current = _options(newest.read_text(encoding="utf-8")), _options(now)
    both = [name for name in sorted(earlier.keys() & current.keys()) if name not in _HARMLESS]
    changed = [
        f"{Option(name, current[name])!s} (before: {earlier[name]})"
        for name in both
        if current[name] != earlier[name]
    ]
    if changed:
        log.warning(
            "the run resumes from %s with other options than it began with: %s.",
            checkpoint,
            ", ".join(changed),
        )


def _options(text: str) -> dict[str, Any]:
    """The options for model and data in a YAML text, by name; empty where the text cannot be read."""
    try:
        read = get_loader("yaml")(text)
    except Exception as error:  # any error of the YAML reader: the warning is only a hint
        log.debug("options that cannot be read: %s", error)
        return {}
    options = {key: read[key] for key in ("model", "data") if key in read} if isinstance(read, dict) else {}
    return _flat(options) if options else {}


def _flat(options: Any, name: str = "") -> dict[str, Any]:
    """Options by their names on the command line, which leave out ``init_args``."""
    if not isinstance(options, dict) or not options:
        return {name: options}
    flat: dict[str, Any] = {}
    for key, value in options.items():
        flat |= _flat(value, name if key == "init_args" else f"{name}.{key}".removeprefix("."))
    return flat


def check_checkpoint(
    path: str, output: str | None = None, shards: bool = False, option: str = "trainer.strategy"
) -> Any:
    """The content of a checkpoint to resume from; of a sharded one without the shards.

    Args:
        path: A file, or one of Lightning's keywords (``last``, ``best``, …); the file of a keyword is checked
            where it is in the output folder.
        output: The output folder, for keywords.
        shards: The run shards its weights; its checkpoints are folders.
        option: The option that says so.

    Returns:
        None for a keyword.

    Raises:
        ConfigError: There is no such file, or it is damaged, or not a checkpoint of such a run.
    """
    if Path(path).is_dir() != shards and Path(path).exists():
        here, there = ("is not", "leave the option out") if shards else ("is", f"{Option(option, 'fsdp')}")
        raise ConfigError(
            f"the run of {path} {here} sharded ({Option(option, 'fsdp')}): resume it as it "
            f"began ({there}), or begin a new run from its model."
        )
    if shards and Path(path).is_dir():
        refuse_damaged_folder(Path(path))
        return torch.load(Path(path) / META, weights_only=True)
    if path in _WORDS or path.startswith("registry:"):
        file = Path(output or ".") / "checkpoints" / f"{path}.ckpt"
        if output is not None and file.is_file():
            read_checkpoint(file)
        return None
    if not Path(path).is_file():
        raise ConfigError(
            f"no such checkpoint: {path}. A run writes <output>/checkpoints/last.ckpt after each epoch; if "
            "it ended earlier, start it again without this option."
        )
    if path.endswith((".safetensors", ".bin")):
        raise ConfigError(f"{path} {_WEIGHTS}")
    content = read_checkpoint(path)
    if not (isinstance(content, dict) and {"state_dict", "loops", "optimizer_states"} <= content.keys()):
        raise ConfigError(f"{path} {_WEIGHTS}")
    return content


def read_checkpoint(path: str | Path) -> Any:
    """The content of a checkpoint, with tensors mapped from the file.

    Raises:
        ConfigError: The file is damaged, or not a checkpoint.
    """
    reason = damage(Path(path))
    if reason is not None:  # name the newest whole checkpoint beside it
        beside = [file for file in Path(path).parent.glob("*.ckpt") if file != Path(path)]
        newest = sorted(beside, key=lambda file: -file.stat().st_mtime)
        other = next((file for file in newest if damage(file) is None), None)
        remedy = (
            "no whole checkpoint is beside it: begin a new run"
            if other is None
            else f"take {other}, which is whole"
        )
        raise ConfigError(
            f"{path} cannot be read as a checkpoint ({reason}); it is damaged, or not a checkpoint: {remedy}."
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except _UNREADABLE as error:
        raise ConfigError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}); it is damaged, or not a "
            "checkpoint. Resume from another one."
        ) from error
