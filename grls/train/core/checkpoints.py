"""Checkpoints that a full disk or a kill cannot destroy.

Lightning writes to the system's temporary folder and moves the file: across file systems that is a copy over
the last good checkpoint. Here the new one is written beside the old one and renamed, and what is read is held
against its checksums.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning as L
import torch
from jsonargparse import get_loader
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from grls.errors import ConfigError, MismatchError, WriteError
from grls.io.files import atomic_path
from grls.train.core.damage import refuse_damaged

log = logging.getLogger(__name__)

_WORDS = ("last", "best", "hpc", "registry")
"""What Lightning takes for a checkpoint beside a path."""
_HARMLESS = ("data.workers", "data.data")
"""Options that change no training; a folder may be told in two ways."""

_UNREADABLE = (
    AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, UnpicklingError, ValueError
)  # fmt: skip
"""What torch raises of a file that it cannot read."""
_WEIGHTS = (
    "holds weights alone and no state of a run, so no run goes on from it: give the last.ckpt that a run has "
    "written, or begin a run from the folder of the model (--model.generator.name_or_path)."
)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its destination and renames it."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint; ``path`` keeps the earlier one until the new one is complete.

        Raises:
            WriteError: The disk is full or the folder cannot be written.
        """
        with atomic_path(path) as temporary:
            try:
                torch.save(checkpoint, temporary)
            except RuntimeError as error:  # torch's writer wraps the system's error
                raise WriteError(
                    f"cannot write {path} ({str(error).splitlines()[0]}); the earlier one is as it was. "
                    "Free some space and go on from it."
                ) from error


class BestCheckpoint(ModelCheckpoint):
    """Lightning's, which of checkpoints with the same score keeps the one with the lowest ``dev_loss``.

    Recall has few values on a small dev set: at its highest the loss often falls for long. With
    ``save_top_k`` 1 alone.
    """

    _loss: float | None = None

    @property
    def state_key(self) -> str:
        """That of Lightning's, whose checkpoints are gone on with."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning keeps, and the loss of the best one."""
        return {**super().state_dict(), "dev_loss": self._loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it up again."""
        super().load_state_dict(state_dict)
        self._loss = state_dict.get("dev_loss")

    def check_monitor_top_k(self, trainer: L.Trainer, current: Tensor | None = None) -> bool:
        """Whether the weights are to be kept."""
        loss = trainer.callback_metrics.get("dev_loss")
        kept = super().check_monitor_top_k(trainer, current)
        if not kept and self.save_top_k == 1 and loss is not None and self._loss is not None:
            kept = current is not None and current == self.best_model_score and float(loss) < self._loss
        if kept:
            self._loss = None if loss is None else float(loss)
        return bool(kept)


def kept_checkpoint(trainer: L.Trainer) -> Path | None:
    """What a run has written last to go on from (the callbacks without a measure); None: nothing yet."""
    last = [
        some
        for some in trainer.checkpoint_callbacks
        if isinstance(some, ModelCheckpoint) and not some.monitor
    ]
    kept = [Path(str(some.dirpath)) / f"{some.filename}.ckpt" for some in last]
    kept = [path for path in kept if path.is_file()]
    return kept[-1] if kept else None


def last_checkpoint(output: str | Path) -> Path:
    """The file that a run with this output folder goes on from."""
    return Path(output) / "checkpoints" / "last.ckpt"


def refuse_unfinished(output: str) -> None:
    """Refuse to begin anew where an earlier run has left a checkpoint to go on from, and no model since.

    Args:
        output: The output folder of the run that begins.

    Raises:
        ConfigError: There is one. A finished run's model is only told of: it is replaced when this one ends.
    """
    requeued = list(Path(output).glob("hpc_ckpt_*.ckpt"))
    if requeued and SLURMEnvironment.detect():  # Lightning goes on with it, in a SLURM job alone
        return
    model = Path(output) / "model" / "config.json"
    finished = model.is_file()
    kept = [file for file in (*requeued, last_checkpoint(output)) if file.is_file()]
    last = max(kept, key=lambda file: file.stat().st_mtime, default=None)
    option = "--resume true" if last == last_checkpoint(output) else f"--ckpt_path {last}"
    if last is not None and not (finished and model.stat().st_mtime >= last.stat().st_mtime):
        raise ConfigError(
            f"{last} is of a run that did not finish, or diverged: go on from it with {option}, "
            f"choose another --output, or remove "
            f"{last if last in requeued else last.parent}."
        )
    if finished:
        log.warning("%s is of an earlier run; this one replaces it when it ends.", model.parent)


def tell_changed(checkpoint: str, output: str, now: str) -> None:
    """Warn of a resumed run whose options for model and data are not those that it began with.

    Options that only one of both knows are left out: another version may have written the earlier ones.

    Args:
        checkpoint: Where it goes on from; the options of that run are in ``logs`` beside its folder.
            Lightning's own words stand for checkpoints of ``output``.
        output: The output folder of the run that goes on.
        now: All options, as YAML.
    """
    folder = Path(output) if checkpoint in _WORDS else Path(checkpoint).parent.parent
    written = list(folder.glob("logs/version_*/config.yaml"))
    if not written:
        return
    newest = max(written, key=lambda file: file.stat().st_mtime)
    earlier, given = _options(newest.read_text(encoding="utf-8")), _options(now)
    both = [name for name in sorted(earlier.keys() & given.keys()) if name not in _HARMLESS]
    changed = [
        f"--{name} {given[name]} (before: {earlier[name]})" for name in both if given[name] != earlier[name]
    ]
    if changed:
        log.warning(
            "the run goes on from %s with other options than it began with: %s.",
            checkpoint,
            ", ".join(changed),
        )


def _options(text: str) -> dict[str, Any]:
    """The options for model and data that a YAML text holds, by name; none of one that cannot be read."""
    try:
        read = get_loader("yaml")(text)
    except Exception as error:  # whatever reads YAML; this is but a hint
        log.debug("options that cannot be read: %s", error)
        return {}
    kept = {key: read[key] for key in ("model", "data") if key in read} if isinstance(read, dict) else {}
    return _flat(kept) if kept else {}


def _flat(options: Any, name: str = "") -> dict[str, Any]:
    """Options by name, as on the command line; those of a class without ``init_args``."""
    if not isinstance(options, dict) or not options:
        return {name: options}
    found: dict[str, Any] = {}
    for key, value in options.items():
        found |= _flat(value, name if key == "init_args" else f"{name}.{key}".removeprefix("."))
    return found


def check_checkpoint(path: str, output: str | None = None) -> None:
    """Refuse a checkpoint to resume from that is not there, is damaged, or holds no state of a run.

    Args:
        path: A file; or Lightning's own words (``last``, ``best``, …), whose file is looked at where a run
            with this output folder has written it.
        output: The output folder, for these words.

    Raises:
        ConfigError: There is no such file, or it is no checkpoint.
    """
    if path in _WORDS or path.startswith("registry:"):
        meant = Path(output or ".") / "checkpoints" / f"{path}.ckpt"
        if output is not None and meant.is_file():
            read_checkpoint(meant)
        return
    if not Path(path).is_file():
        raise ConfigError(
            f"no such checkpoint: {path}. A run writes <output>/checkpoints/last.ckpt after each epoch; "
            "where it ended before, begin anew without this option."
        )
    if path.endswith((".safetensors", ".bin")):
        raise ConfigError(f"{path} {_WEIGHTS}")
    held = read_checkpoint(path)
    if not (isinstance(held, dict) and {"state_dict", "loops", "optimizer_states"} <= held.keys()):
        raise ConfigError(f"{path} {_WEIGHTS}")


def read_checkpoint(path: str | Path) -> Any:
    """What a checkpoint holds, its tensors mapped from the file.

    Raises:
        ConfigError: It is not as it was written, or no checkpoint.
    """
    refuse_damaged(Path(path))
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except _UNREADABLE as error:
        raise ConfigError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}); it is damaged, or none. "
            "Resume from another one."
        ) from error


def refuse_other_run(module: L.LightningModule, checkpoint: Mapping[str, Any], optimizer: str) -> None:
    """Refuse a checkpoint of another model, stage or optimizer than those of the run that would go on.

    Args:
        module: What is trained.
        checkpoint: What was read.
        optimizer: ``adamw`` or another one.

    Raises:
        MismatchError: It is of another.
    """
    remedy = "go on with the options of that run, or begin anew in another --output."
    data = None if module._trainer is None else getattr(module.trainer, "datamodule", None)
    if data is not None and type(data).__qualname__ not in checkpoint:
        raise MismatchError(f"the checkpoint is of a run without {type(data).__qualname__}: {remedy}")
    own, found = module.state_dict(), checkpoint["state_dict"]
    for name in sorted(own.keys() ^ found.keys()):
        which = "lacks" if name in own else "has"
        raise MismatchError(f"the checkpoint is of another model (it {which} the weights {name}): {remedy}")
    for name, weights in own.items():
        if weights.shape != found[name].shape:
            raise MismatchError(
                f"the checkpoint is of a model of other sizes ({name} has {list(found[name].shape)}, here "
                f"{list(weights.shape)}): {remedy}"
            )
    groups = [group for state in checkpoint.get("optimizer_states", ()) for group in state["param_groups"]]
    trained = sum(weights.requires_grad for weights in module.parameters())
    if any(("betas" in group) != (optimizer == "adamw") for group in groups):
        raise MismatchError(f"the checkpoint is of a run with another optimizer than {optimizer}: {remedy}")
    if groups and sum(len(group["params"]) for group in groups) != trained:
        raise MismatchError(f"the checkpoint is of a run that trained another part of the model: {remedy}")
