"""The journal of a run, ``fit.jsonl``: what was done and what came of it, so that a killed run goes on.

A record is of one step: its name, a fingerprint of all that it depends on (its options and the results before
it), its seconds and its result. A step that has a record is not done again. Beside the steps stand values of
the first call that no step depends on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, MismatchError
from grls.fitting.clock import CLOCK
from grls.fitting.timing import TIMING
from grls.io.files import refuse_unwritable
from grls.io.resumable import GrowingFile

JOURNAL = "fit.jsonl"
_BEGIN, _END = "begin", "end"
PLAN = "first plan"
"""What is kept of the plan that a run begins with."""
_CHEAP = {_BEGIN, "data", PLAN}
"""Steps that are done anew rather than that a run with other options is refused."""

_TRAINED = {"--biencoder": "biencoder dense", "--generator": "generator hybrid"}
"""Options that take a model that a run has trained -> the step that trains it."""

_LACKING = "no such option"

_FIELDS = {"step": str, "inputs": str, "seconds": (int, float), "result": object}


class FitJournal:
    """The steps of a run that are done.

    Args:
        output: The folder of the run; it is empty, missing, or of a run with the same settings.
        settings: What the run depends on, as JSON values: fingerprint of the data, and the options.

    Attributes:
        seconds: Seconds of all steps that are done, in earlier calls as well.

    Raises:
        ConfigError: The folder holds something else.
        MismatchError: It is of a run with other data or options.
        WriteError: Another run works there, in this process or another, or the folder cannot be written.
    """

    def __init__(self, output: str | Path, settings: dict[str, Any]):
        self.output = Path(output)
        file = self.output / JOURNAL
        refuse_other_output(output, settings)
        self._existed = self.output.is_dir()
        there = {one.name for one in self.output.iterdir()} if self._existed else set()
        self._there = None if JOURNAL in there else there
        try:
            self._file = GrowingFile(file, settings, alone=True, fields=_FIELDS)
        except MismatchError:
            if not _steps_of(file) <= _CHEAP:
                raise
            file.unlink()
            (self.output / CLOCK).unlink(missing_ok=True)
            self._file = GrowingFile(file, settings, alone=True, fields=_FIELDS)
        self._known = {record["step"]: record for record in self._file.records}
        self._results: list[Any] = []
        self.seconds = sum(record["seconds"] for record in self._file.records)

    def done(self, step: str, options: Any, there: Callable[[Any], bool] = lambda _: True) -> Any | None:
        """The result of a step that was done with these options after the same steps; None: it was not.

        Args:
            step: Its name.
            options: JSON values.
            there: Whether the files of the result are there.
        """
        record = self._known.get(step)
        if record is None or record["inputs"] != self._inputs(options) or not there(record["result"]):
            return None
        self._results.append(record["result"])
        return record["result"]

    def add(self, step: str, options: Any, seconds: float, result: Any) -> None:
        """Record a step; it is on disk when this returns."""
        record = {"step": step, "inputs": self._inputs(options), "seconds": round(seconds, 2)}
        record |= {"options": options, "result": result}
        self._file.add([record])
        self._known[step] = json.loads(json.dumps(record))
        self._results.append(json.loads(json.dumps(result)))
        self.seconds += record["seconds"]

    def keep(self, name: str, value: Any) -> None:
        """Record a value, as JSON, that a run which goes on takes again; no step depends on it."""
        record = {"step": name, "inputs": "", "seconds": 0.0, "result": value}
        self._file.add([record])
        self._known[name] = json.loads(json.dumps(record))

    def kept(self, name: str) -> Any | None:
        """The value of :meth:`keep`; None: there is none."""
        return self._known[name]["result"] if name in self._known else None

    def of(self, step: str) -> float:
        """The seconds of a step."""
        return float(sum(record["seconds"] for record in self._file.records if record["step"] == step))

    def step_seconds(self) -> dict[str, float]:
        """Step -> its seconds, without those that take none."""
        steps = dict.fromkeys(record["step"] for record in self._file.records)
        return {step: round(seconds, 2) for step in steps if (seconds := self.of(step))}

    def begin(self) -> None:
        """Say that the folder is of a run, before anything else is written there."""
        if not self._known:
            self.add(_BEGIN, {}, 0.0, {})
        else:
            self.done(_BEGIN, {})

    @property
    def last(self) -> str | None:
        """The last step that was done of a run that goes on; None: none that would be missed."""
        done = [step for step, record in self._known.items() if record["inputs"] and step not in _CHEAP]
        done = [step for step in done if not step.startswith("plan after ")]
        return done[-1] if done else None

    @property
    def ended(self) -> bool:
        """Whether the run is done."""
        return _END in self._known

    def end(self) -> None:
        """The run is done."""
        if not self.ended:
            self.add(_END, {}, 0.0, {})

    def forget(self) -> None:
        """Remove what a run that can do nothing has written; what was there before it stays.

        Nothing is removed of a run that has done a step that takes time, or of one that was begun earlier.
        """
        if self._there is None or self.last is not None:
            return
        self.close()
        for file in [one for one in self.output.iterdir() if one.name not in self._there]:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        if not self._existed:
            self.output.rmdir()

    def close(self) -> None:
        """Let other processes work in the folder."""
        self._file.close()

    def _inputs(self, options: Any) -> str:
        text = json.dumps([options, self._results], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def refuse_other_output(output: str | Path, settings: dict[str, Any]) -> None:
    """Refuse a folder in which a run with these settings could not work. Nothing is written.

    Raises:
        ConfigError: The folder holds something else.
        MismatchError: It is of a run with other data or options.
        WriteError: The folder cannot be written.
    """
    refuse_unwritable(output, folder=True)
    _refuse_foreign(Path(output))
    file = Path(output) / JOURNAL
    changed = _changed(file, settings)
    if changed and not _steps_of(file) <= _CHEAP:
        raise MismatchError(f"{output} holds a run of other {changed}: {_remedy(Path(output), changed)}")


def kept_beside(output: str | Path, settings: dict[str, Any], name: str) -> Any | None:
    """What a run with these settings keeps under a name (:meth:`FitJournal.keep`), without a hold on it."""
    file = Path(output) / JOURNAL
    if not file.is_file() or _changed(file, settings):
        return None
    return next((record.get("result") for record in _records(file)[::-1] if record.get("step") == name), None)


def _remedy(output: Path, changed: str) -> str:
    """What can be done where a run has other settings."""
    if not re.fullmatch(r"budget \([^()]*\)", changed):
        return "call again with the same ones to go on, or give another output."
    records = _records(output / JOURNAL)
    same = "read its result" if any(record.get("step") == _END for record in records) else "go on"
    remedy = f"call again with the same budget to {same}, or give another output for the other one"
    models = {option: _trained_model(output, records, step) for option, step in _TRAINED.items()}
    begun = " ".join(f"{option} {folder}" for option, folder in models.items() if folder is not None)
    return remedy + (f", which may begin with what is trained here: {begun}" if begun else ".")


def _trained_model(output: Path, records: Sequence[dict[str, Any]], step: str) -> Path | None:
    """The folder of the model that a step has trained; None: there is none."""
    results = [record.get("result") for record in records if record.get("step") == step]
    named = [one["model"] for one in results if isinstance(one, dict) and isinstance(one.get("model"), str)]
    return next((folder for one in named[::-1] if (folder := output / one).is_dir()), None)


def _refuse_foreign(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; give the output another name.")
    there = {file.name for file in output.iterdir()} - {TIMING} if output.is_dir() else set()
    if there and JOURNAL not in there:
        raise ConfigError(
            f"{output} is not empty and holds no {JOURNAL}, so it is of no run that could go on: give "
            "another output, or empty it."
        )


def _steps_of(file: Path) -> set[str]:
    """The steps in a journal; a line that was cut off is none, and one that cannot be read has no name."""
    return {str(record.get("step", "")) for record in _records(file)}


def _records(file: Path) -> list[dict[str, Any]]:
    """The records of a journal; of a line that cannot be read an empty one, and of one cut off none."""
    with file.open("rb") as stream:
        lines = [line for line in stream if line.endswith(b"\n")][1:]
    return list(map(_record_of, lines))


def _record_of(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (RecursionError, TypeError, ValueError):
        return {}


def _changed(file: Path, settings: dict[str, Any]) -> str:
    """The settings in which a run differs, with their values; empty: in none, or its journal is damaged."""
    try:
        with file.open(encoding="utf-8") as stream:
            before = dict(json.loads(stream.readline())["settings"])
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return ""  # the journal says so once it is opened
    now = json.loads(json.dumps(settings))
    changed = []
    for name in sorted({*before, *now}):
        if name not in before or name not in now or before[name] != now[name]:
            old, new = (json.dumps(one[name]) if name in one else _LACKING for one in (before, now))
            changed.append(name if name == "data" else f"{name} ({old}, now {new})")
    return ", ".join(changed)
