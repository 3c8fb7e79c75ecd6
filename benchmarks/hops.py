"""Searches of a retriever folder by this code and by that of another working tree, in turns.

    python -m benchmarks.hops runs/NAME/hybrid data/NAME --rival ../grls-before

Each code searches the same queries in a process of its own, ``repeats`` times, one after the other, so that a
busy machine slows both. The table has, for each, the seconds a query (wall clock and processor, the median of
the repeats), the tokens that the language model was fed, the recall and the complete recall at ``k``, and how
many queries have the same first and the same first five passages. Without ``--rival`` this code is measured
alone.
A working tree of an earlier commit: ``git worktree add ../grls-before COMMIT``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import machine, print_table


def search(folder: str, data: str, split: str, limit: int, k: int, together: int, precision: str) -> None:
    """Search in this process and print a line of JSON: seconds, tokens and rankings."""
    from grls.data.dataset import read_split
    from grls.models.causal.slots import CausalTreeSession
    from grls.models.sessions import memory
    from grls.retrieve.registry import Opening, load_retriever

    retriever = load_retriever(folder, Opening("cpu", precision))
    queries = read_split(data, split)[0][:limit]
    fed = 0
    feed = memory.TreeMemory.feed

    def counted(session: Any, branches: Any) -> Any:
        nonlocal fed
        fed += len(branches.tokens)
        return feed(session, branches)

    memory.TreeMemory.feed = counted  # type: ignore[assignment, method-assign]
    if reader := getattr(CausalTreeSession, "_forward", None):  # earlier code feeds inputs, too

        def read(session: Any, inputs: Any, known: Any, new: Any) -> Any:
            nonlocal fed
            fed += int(new.sum())
            return reader(session, inputs, known, new)

        CausalTreeSession._forward = read  # type: ignore[method-assign, assignment]
    retriever.retrieve(queries[:1], k)  # what is computed once is not timed
    fed, rankings = 0, []
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(queries), together):
        rankings += retriever.retrieve(queries[start : start + together], k)
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps([*seconds, fed, [[hit.id for hit in hits] for hits in rankings]]))


def main(
    folder: str,
    data: str,
    rival: str | None = None,
    split: str = "test",
    limit: int = 160,
    k: int = 5,
    together: int = 8,
    precision: str = "float32",
    repeats: int = 1,
) -> None:
    """Compare two versions of the code.

    Args:
        folder: A retriever folder.
        data: The data set.
        rival: A working tree of another version; None: this one alone.
        split: Its split.
        limit: The first queries of the split, at most.
        k: Cut-off of recall.
        together: Queries searched together.
        precision: Precision of the models.
        repeats: Runs of each.
    """
    from grls.data.dataset import gold_passages, read_split
    from grls.evaluation.metrics import complete_recall, means, sequence_recall

    here = str(Path(__file__).parents[1])
    codes = {"this code": here} | ({} if rival is None else {"rival": str(Path(rival).absolute())})
    arguments = repr((folder, data, split, limit, k, together, precision))
    program = f"import runpy; runpy.run_path({__file__!r})['search'](*{arguments})"
    measured: dict[str, list[Any]] = {name: [] for name in codes}
    for _ in range(repeats):
        for name, code in codes.items():
            paths = os.pathsep.join([code, os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                [sys.executable, "-P", "-c", program],
                env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            measured[name].append(json.loads(done.stdout.splitlines()[-1]))
    queries, qrels = read_split(data, split)
    gold = [gold_passages(query, qrels) for query in queries[:limit]]
    first = measured["this code"][0][3]
    rows = []
    for name, runs in measured.items():
        rankings = runs[0][3]
        wall, cpu = (np.median([run[n] for run in runs]) / len(gold) for n in (0, 1))
        recall = means(sequence_recall, rankings, gold, ks=[k])[f"recall@{k}"]
        complete = means(complete_recall, rankings, gold, ks=[k])[f"complete_recall@{k}"]
        same = [np.mean([a[:n] == b[:n] for a, b in zip(rankings, first, strict=True)]) for n in (1, 5)]
        cells = f"{wall:.3g}", f"{cpu:.3g}", f"{runs[0][2] / len(gold):,.0f}"
        rows.append([name, *cells, *(f"{100 * value:.1f}" for value in (recall, complete, *same))])
    head = [
        "",
        "s a query",
        "processor s",
        "tokens fed",
        f"R@{k}",
        "complete",
        "same first",
        "same first five",
    ]
    print(machine())
    print_table("Searches of " + folder, head, rows)


if __name__ == "__main__":
    auto_cli(main)
