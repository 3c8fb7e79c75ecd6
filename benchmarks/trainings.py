"""The trainings of each public data set as `grls` commands: recipes of ``configs/`` and options of the set.

    python -m benchmarks.trainings                                      # lists the sets and their trainings
    python -m benchmarks.trainings strategyqa spans --dry_run true      # prints the command
    python -m benchmarks.trainings strategyqa spans --trainer.precision bf16-mixed

Further options of the command override those of the table, ``trainings.yaml``. The data are in data/SET; a
training writes to runs/SET/NAME.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import yaml

from grls.cli import main as grls

FILE = Path(__file__).with_name("trainings.yaml")


class Training(NamedTuple):
    """One training of a set.

    Attributes:
        layers: Its files in ``configs``; later files override earlier ones. The first file has the name of
            the training command (``grls train NAME``).
        options: Options of the set.
    """

    layers: tuple[str, ...]
    options: tuple[str, ...] = ()


def _read(name: str, line: str) -> Training:
    """Read a training of a set from a line of the table: layers, options."""
    words = shlex.split(line.replace("DATA", f"data/{name}").replace("RUNS", f"runs/{name}"))
    layers = tuple(takewhile(lambda word: not word.startswith("--"), words))
    return Training(layers, tuple(words[len(layers) :]))


TRAININGS: Mapping[str, Mapping[str, Training]] = {
    name: {run: _read(name, line) for run, line in lines.items()}
    for name, lines in yaml.safe_load(FILE.read_text(encoding="utf-8")).items()
}
"""Set -> name -> training."""


def options(name: str, run: str) -> list[str]:
    """The arguments of ``grls train`` for a training of a set: name, layers, options, and output."""
    training = TRAININGS[name][run]
    layers = [word for layer in training.layers for word in ("--config", f"configs/{layer}.yaml")]
    return [training.layers[0], *layers, *training.options, f"--output=runs/{name}/{run}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a command and run it.

    Args:
        arguments: The arguments; None: those of the command line.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        "python -m benchmarks.trainings", allow_abbrev=False, description=__doc__
    )
    parser.add_argument("name", nargs="?", metavar="SET")
    parser.add_argument("run", nargs="?", metavar="NAME")
    parser.add_argument(
        "--dry_run", choices=("true", "false"), default="false", help="print the command only"
    )
    chosen, more = parser.parse_known_args(arguments)
    if chosen.run is None:
        print("\n".join(f"{name}: {', '.join(runs)}" for name, runs in TRAININGS.items()))
        return 0
    if chosen.run not in TRAININGS.get(chosen.name, ()):
        raise SystemExit(
            f"error: no training {chosen.run!r} of {chosen.name!r}; call without arguments to list all."
        )
    command = ["train", *options(chosen.name, chosen.run), *more]
    print(f"grls {shlex.join(command)}", flush=True)
    return 0 if chosen.dry_run == "true" else grls(command)


if __name__ == "__main__":
    sys.exit(main())
