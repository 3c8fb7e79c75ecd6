"""Checkpoints that a full disk or a kill cannot destroy.

Lightning writes to the system's temporary folder and moves the file, which may be a copy over the last
good checkpoint. Here the new one is written beside the old one and renamed, and is compared with its
checksums when it is read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from grls.errors import ConfigError, MismatchError, Option, WriteError
from grls.io.files import atomic_path
from grls.train.core.processes import META, damage, refuse_damaged_folder

log = logging.getLogger(__name__)

_APART = ("output", "resume", "checkpoint", "last", "recall", "quotes")
"""Options of a training that say where it is written, and how it is measured."""
_FREE = (
    "train", "dev", "data", "data.data", "data.batch_size", "data.global_batch_size", "data.workers",
    "device", "fit.device", "fit.mini_batch_size",
    "fit.gradient_checkpointing", "model.gradient_checkpointing",
)  # fmt: skip
"""Settings that a resumed run may change: they do not change the losses, or the data module compares them.

Names without a dot are those of a bi-encoder or a reranker, the others of ``data`` those of a generator.
"""
_LENGTH = ("fit.epochs", "fit.max_steps", "trainer.max_epochs", "trainer.max_steps")
"""Settings that the schedule of the learning rate depends on; of a constant rate they may change.

Shares of a mix that change from epoch to epoch depend on them, too.
"""
_TRAINER = (
    "max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val", "limit_train_batches",
    "precision",
)  # fmt: skip
_MORE = ("gradient_clip_algorithm", "overfit_batches")
"""Options of Lightning's trainer, and among its further arguments, that change the losses."""

_UNREADABLE = (
    AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, UnpicklingError, ValueError
)  # fmt: skip
"""Errors that torch raises for a file that it cannot read."""


def run_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a training that a resumed run must have, too, by name; checkpoints hold them."""
    settings = {name: value for name, value in record.items() if name not in _APART}
    if (trainer := settings.get("trainer")) is not None:
        settings["trainer"] = {name: trainer[name] for name in _TRAINER}
    flat = _flat(json.loads(json.dumps(settings, default=str)))
    if trainer is not None:
        flat["trainer.more"] = {name: trainer["more"][name] for name in _MORE if name in trainer["more"]}
    return flat


def refuse_other_settings(before: Mapping[str, Any], settings: Mapping[str, Any], run: str | Path) -> None:
    """Refuse to resume from the checkpoint ``before`` of a run with other settings."""
    part = "fit" if "fit.schedule" in settings else "model"
    constant = settings.get(f"{part}.schedule") == "constant" and not settings.get(f"{part}.warmup")
    constant &= not isinstance(settings.get("data.mix.pseudo_share"), list)
    earlier = before.get("settings", {})
    for name in sorted(settings.keys() | earlier.keys()):
        then, now = earlier.get(name), settings.get(name)
        if then != now and name not in _FREE and not (constant and name in _LENGTH):
            raise MismatchError(
                f"the run in {run} had {Option(name, then)}, now it is {now!r}: resume with the same, or "
                f"begin a new run in another {Option('output')}."
            )


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its destination and renames it."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
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
        return {**super().state_dict(), "finer": self._value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of a run that has been moved, too: Lightning would forget its best score."""

        def here(path: str) -> str:
            return str(Path(str(self.dirpath)) / Path(path).name) if path else path

        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        known = {here(path): score for path, score in state_dict["best_k_models"].items()}
        moved = {"dirpath": self.dirpath, "best_k_models": known, **{p: here(state_dict[p]) for p in paths}}
        super().load_state_dict(state_dict | moved)
        self._value = state_dict["finer"]

    def check_monitor_top_k(self, trainer: L.Trainer, current: Tensor | None = None) -> bool:
        finer = trainer.callback_metrics.get(self._finer)
        value = None if finer is None else self._sign * float(finer)
        better = super().check_monitor_top_k(trainer, current)
        if not better and self.save_top_k == 1 and value is not None and self._value is not None:
            better = current is not None and current == self.best_model_score and value < self._value
        if better:
            self._value = value
        return bool(better)


def kept_checkpoint(trainer: L.Trainer) -> Path | None:
    """The last checkpoint to resume from (written by callbacks without a metric), if there is one."""
    files = [
        Path(str(callback.dirpath)) / f"{callback.filename}.ckpt"
        for callback in trainer.checkpoint_callbacks
        if isinstance(callback, ModelCheckpoint) and not callback.monitor
    ]
    return next((file for file in reversed(files) if file.exists()), None)


def last_checkpoint(output: str | Path) -> Path:
    return Path(output) / "checkpoints" / "last.ckpt"


def refuse_unfinished(output: str, warn: bool = True, model: str = "config.json") -> None:
    """Refuse to begin a new run in the output folder of an unfinished one.

    That has a checkpoint to resume from and no later model. For a finished run this only warns. ``model``
    is a file that every finished model has.
    """
    requeued = list(Path(output).glob("hpc_ckpt_*.ckpt"))
    if requeued and SLURMEnvironment.detect():  # Lightning resumes from it, but only in a SLURM job
        return
    model_file = Path(output) / "model" / model
    finished = model_file.is_file()
    checkpoints = [file for file in (*requeued, last_checkpoint(output)) if file.exists()]
    last = max(checkpoints, key=lambda file: file.stat().st_mtime, default=None)
    if last is not None and not (finished and model_file.stat().st_mtime >= last.stat().st_mtime):
        resume = f"resume it with {Option('resume', True)}"
        if last in requeued:
            resume = f"copy it to {last_checkpoint(output)}, {resume}"
        raise ConfigError(
            f"{last} is of a run that did not finish, or diverged: {resume}, choose another "
            f"{Option('output')}, or remove {last if last in requeued else last.parent}."
        )
    if finished and warn:
        log.warning("%s is of an earlier run; this one replaces it when it ends.", model_file.parent)


def _flat(options: Any, name: str = "") -> dict[str, Any]:
    """Options by their names on the command line, where the name of a class is the value of its option."""
    if not isinstance(options, dict) or not options:
        return {name: options}
    flat: dict[str, Any] = {}
    for key, value in options.items():
        flat |= _flat(
            value, name if key in ("init_args", "class_path") else f"{name}.{key}".removeprefix(".")
        )
    return flat


def check_checkpoint(path: str, shards: bool = False, option: str = "trainer.strategy") -> Any:
    """The content of a checkpoint to resume from; of a sharded one (a folder) without the shards.

    ``shards``: the run shards its weights, as ``option`` says.
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
    if not Path(path).is_file():
        raise ConfigError(
            f"{path}: there is no checkpoint to resume from (one is written every epoch): leave out "
            f"{Option('resume')} to start anew."
        )
    content = read_checkpoint(path)
    if not (isinstance(content, dict) and {"state_dict", "loops", "optimizer_states"} <= content.keys()):
        raise ConfigError(
            f"{path} holds no state of a run, so none can resume from it: begin a new run in another "
            f"{Option('output')}."
        )
    return content


def read_checkpoint(path: str | Path) -> Any:
    """The content of a checkpoint, with tensors mapped from the file."""
    reason = damage(Path(path))
    if reason is not None:  # name the newest whole checkpoint beside it
        beside = [file for file in Path(path).parent.glob("*.ckpt") if file != Path(path)]
        newest = sorted(beside, key=lambda file: -file.stat().st_mtime)
        other = next((file for file in newest if damage(file) is None), None)
        remedy = (
            "no whole checkpoint is beside it: begin a new run"
            if other is None
            else f"copy {other}, which is whole, to it"
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
