"""The long form of the fault harness: prints a table of what was tried, how often, and what was lost.

    PYTHONPATH=tests/helpers python tests/faults/run.py --kills 200 --damages 2000

Toy data and random models; everything is written below a temporary folder. Exit code 1: a fault was found.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import bm25s  # noqa: F401  loaded before processes are forked
import datasets  # noqa: F401  loaded before processes are forked
import sentence_transformers  # noqa: F401  loaded before processes are forked
import torch
from command_lines import commands, prepare
from damage import HARMLESS, REFUSED, UNCLEAR, UNDETECTED, Damager, table
from fault_folders import write_every_kind, write_indexes
from transformers.utils import logging as transformers_logging
from trials import Trials


def main() -> int:
    """Run what was asked for."""
    asked = arguments()
    torch.set_num_threads(1)  # a forked process has no other
    transformers_logging.disable_progress_bar()
    logging.disable(logging.CRITICAL)
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="grls-faults-") as name:
        if asked.kills or asked.trials:
            faults += hindered(Path(name) / "commands", asked)
        if asked.damages:
            faults += damaged(Path(name) / "folders", asked)
    print(*faults, sep="\n")
    return 1 if faults else 0


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=204, help="kills of all commands together")
    parser.add_argument("--damages", type=int, default=2000, help="about how many files to damage")
    parser.add_argument("--trials", type=int, default=3, help="sizes of a full disk a command; 0: no trials")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="names of commands; none: all")
    return parser.parse_args()


def hindered(place: Path, asked: argparse.Namespace) -> list[str]:
    """Kills and other hindrances of every command that writes."""
    chosen = [one for one in commands() if not asked.only or one.name in asked.only]
    if any(one.compared for one in chosen):
        import lightning  # noqa: F401  trainings; loaded before processes are forked
    trials = Trials(prepare(place / "in", chosen), place / "work", asked.seed)
    for number, command in enumerate(chosen):
        began, before = time.perf_counter(), len(trials.faults)
        due = asked.kills * (number + 1) // len(chosen)
        while trials.kills < due and len(trials.faults) == before:
            trials.run(command, due - trials.kills)
        if asked.trials:
            trials.all(command, asked.trials)
        seconds = time.perf_counter() - began
        print(f"{command.name}: {seconds:.0f} s, {len(trials.faults) - before} faults", flush=True)
    tried = {"kill -9": trials.kills, **trials.tried}
    print("\n| hindrance | times | commands |\n|---|---|---|")
    print(*(f"| {what} | {times} | {len(chosen)} |" for what, times in tried.items()), sep="\n")
    return trials.faults


def damaged(place: Path, asked: argparse.Namespace) -> list[str]:
    """Damage of the files of every kind of folder."""
    folders = write_every_kind(place) | write_indexes(place)
    share = min(1.0, asked.damages / 4500)  # all of them are about so many
    damager = Damager(place, asked.seed)
    for name, folder in folders.items():
        before = len(damager.results)
        damager.run({name: folder}, share)
        outcomes = Counter(one.outcome for one in damager.results[before:])
        print(f"{name}: {dict(outcomes)}", flush=True)
    results = damager.results
    files = Counter(one.file for one in results)
    print(f"\n{len(results)} damages of {len(files)} files in {len(folders)} kinds of folders\n")
    print(table(results))
    wrong = [one for one in results if one.outcome not in (REFUSED, HARMLESS)]
    counts = Counter(one.outcome for one in wrong)
    print(f"\nundetected: {counts[UNDETECTED]}, unclear: {counts[UNCLEAR]}")
    return [f"{one.outcome}: {one.file} {one.how}: {one.told}" for one in wrong]


if __name__ == "__main__":
    sys.exit(main())
