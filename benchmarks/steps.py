"""Steps of a training by this code and by that of another working tree, in turns.

    python -m benchmarks.steps --rival ../grls-before chains --config configs/chains.yaml --data.data D

What follows the options are the arguments of ``grls train``, without ``--output``: a stage of a generator.
Each code begins the training in a process of its own; the first three steps are not counted. The table has
the seconds of a step (wall clock, and of all processors), the pages that the system had to give, and the
largest memory. Without ``--rival`` this code is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import machine, print_table

_FIRST = 3


def train(steps: int, file: str, arguments: Sequence[str]) -> None:
    """Begin a training in this process, and write JSON to a file after so many steps: what a step took."""
    from grls.cli import main as grls
    from grls.train.core.module import GeneratorModule

    seen: list[tuple[float, ...]] = []
    step = GeneratorModule.training_step

    def counted(module: Any, *batch: Any) -> Any:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seen.append((time.perf_counter(), used.ru_utime + used.ru_stime, used.ru_minflt))
        if len(seen) > _FIRST + steps:
            spent = (np.array(seen[-1]) - seen[_FIRST]) / steps
            Path(file).write_text(json.dumps([*spent.tolist(), used.ru_maxrss / 1e6]), encoding="utf-8")
            raise SystemExit
        return step(module, *batch)

    GeneratorModule.training_step = counted  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        grls(["train", *arguments, "--output", f"{folder}/run"])
    raise SystemExit(f"the training has fewer than {_FIRST + steps + 1} steps: lower --steps.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare two versions of the code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rival", help="a working tree of another version")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1, help="runs of each")
    options, training = parser.parse_known_args(arguments)
    codes = {"this code": str(Path(__file__).parents[1])}
    if options.rival is not None:
        codes["rival"] = str(Path(options.rival).absolute())
    measured: dict[str, list[list[float]]] = {name: [] for name in codes}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "step.json")
        for name, code in [*codes.items()] * options.repeats:
            paths = os.pathsep.join([code, os.environ.get("PYTHONPATH", "")])
            call = f"['train'](*{(options.steps, str(file), training)!r})"
            done = subprocess.run(
                [sys.executable, "-P", "-c", f"import runpy; runpy.run_path({__file__!r}){call}"],
                env={**os.environ, "PYTHONPATH": paths},
                stdout=2,  # the lines of the training
            )
            if done.returncode:
                raise SystemExit(f"{name}: the training ended with {done.returncode}, see above.")
            measured[name].append(json.loads(file.read_text(encoding="utf-8")))
    rows = []
    for name, runs in measured.items():
        wall, processor, pages, memory = np.median(runs, axis=0)
        rows.append([name, f"{wall:.3g}", f"{processor:.3g}", f"{pages:,.0f}", f"{memory:.2f}"])
    print(machine())
    print_table("A step of grls train", ["", "s", "processor s", "pages taken", "peak GB"], rows)


if __name__ == "__main__":
    main()
