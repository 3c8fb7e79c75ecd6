"""Does the missing shards of a plan: in this process, or by the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from grls.cluster.options import Workers
from grls.cluster.plan import Done, Maker, ShardPlan, held_shards
from grls.cluster.workers import Cluster
from grls.io.progress import Progress

Reporting = Callable[[Callable[[int], object]], AbstractContextManager[None]]
"""A context in which a function is called with the number of items after each batch of a shard."""


def done_by_workers(
    plan: ShardPlan, make: Maker, workers: Workers, label: str, unit: str, reporting: Reporting | None = None
) -> list[Done]:
    """Do the missing shards of a plan and gather all, with a progress bar.

    ``make`` opens models and files of the work, once a worker. ``reporting`` reports the progress within a
    shard of this process.
    """
    missing = plan.begin()
    before = plan.items - sum(shard.end - shard.first for shard in missing)
    with Progress(plan.items, label, unit, before) as bar:
        if missing and workers.address is None:
            work = make()
            for shard in missing:
                with reporting(bar.update) if reporting else nullcontext():
                    plan.do(shard, work)
                if reporting is None:
                    bar.update(shard.end - shard.first)
        elif missing:
            with Cluster.opened(workers) as cluster:
                cluster.check(plan.folder)
                for count in cluster.do(plan, missing, make):
                    bar.update(count)
    return plan.gather()


@contextmanager
def done_shards(
    output: str | Path,
    settings: dict[str, Any],
    items: int,
    size: int,
    make: Maker,
    workers: Workers,
    label: str,
    unit: str,
    replaces: bool = False,
    reporting: Reporting | None = None,
) -> Iterator[list[Done]]:
    """Do items in shards that stand beside an output; the block makes the output of them.

    A killed run does only the missing shards; one of other settings is refused, or replaced. A second run
    at the same time is refused.
    """
    with held_shards(output) as folder:
        plan = ShardPlan(folder, settings, items, size, replaces)
        yield done_by_workers(plan, make, workers, label, unit, reporting)
