"""The log of a training: losses, and recall on dev after each epoch; and its memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from grls.io.files import write_json
from grls.train.core.malloc_trim import SmallHeap


class WriteLog(TrainerCallback):
    """Prints losses and dev recall, and writes them to a JSON file.

    Args:
        file: The file.
        settings: The settings of the run, which are written as well.
        shown: Print them, too.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any], shown: bool = True):
        self.shown = shown
        self.file = file
        self.settings = dict(settings)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the settings, with which those of a resumed run are compared."""
        self._write(state)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print a line."""
        values = [f"{name} {value:.4f}" for name, value in _measures(kwargs["logs"]).items()]
        if values and self.shown and state.is_world_process_zero:
            print(
                f"epoch {state.epoch:.2f}, step {state.global_step}/{state.max_steps}: {', '.join(values)}",
                flush=True,
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the losses and measures so far."""
        self._write(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the whole log."""
        self._write(state)

    def _write(self, state: Any) -> None:
        if not state.is_world_process_zero:
            return
        history = [
            {"step": entry["step"], "epoch": entry["epoch"], **_measures(entry)}
            for entry in state.log_history
            if _measures(entry)
        ]
        write_json(self.file, {"settings": self.settings, "history": history})


class GiveBack(TrainerCallback):
    """Keeps the heap small where the training is on a CPU."""

    def __init__(self) -> None:
        self._heap = SmallHeap()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Return memory after a step, when its tensors are free."""
        if args.device.type == "cpu":
            self._heap()


def _measures(logs: Mapping[str, Any]) -> dict[str, float]:
    """The loss, and dev recall under a short name."""
    named = {
        name if name == "loss" else f"dev_{name.rpartition('_')[2]}": value for name, value in logs.items()
    }
    return {name: value for name, value in named.items() if name == "loss" or "recall@" in name}
