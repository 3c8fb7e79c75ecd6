"""The cluster and the number of workers: the options ``--ray`` and ``--workers``. Light to import."""

from __future__ import annotations

from typing import NamedTuple

from grls.errors import ConfigError, Option
from grls.io.arguments import Count, NonNegativeFloat, options

LOCAL = "local"
"""The address that starts a cluster on this machine, and ends it after the work."""


@options("workers")
class WorkerOptions:
    """The workers of a command with ``--ray``; without it these options have no effect.

    Args:
        count: The most workers at a time; null: one for each processor of the cluster.
        shard: Passages (or queries, of `grls retrieve`) in a shard, the part of the work that is done again
            if its worker dies; null: a size that suits the work.
        cpus: Processors of a worker, which are also its threads.
        gpus: GPUs of a worker; a share such as 0.5 lets two workers use one GPU.
    """

    count: Count | None = None
    shard: Count | None = None
    cpus: Count = 1
    gpus: NonNegativeFloat = 0


USUAL_WORKERS = WorkerOptions()


class Workers(NamedTuple):
    """The workers that do the shards.

    Attributes:
        address: Address of the Ray cluster, ``HOST:PORT`` or ``auto``; :data:`LOCAL`: one on this machine;
            None: no cluster, this process does the shards one after the other.
        options: Number of workers, and size of a shard.
    """

    address: str | None = None
    options: WorkerOptions = USUAL_WORKERS


def workers_of(ray: str | None, options: WorkerOptions) -> Workers | None:
    """The workers that the options ``--ray`` and ``--workers`` name; None: the command works alone."""
    if ray is None:
        if options != USUAL_WORKERS:
            raise ConfigError(
                f"{Option('workers')} has no effect without {Option('ray')}: add {Option('ray', 'local')}, "
                "or leave it out."
            )
        return None
    host, _, port = ray.rpartition(":")
    if ray not in (LOCAL, "auto") and not (host and port.isdigit() and "/" not in host):
        raise ConfigError(
            f"{Option('ray', ray)}: expected the address of a Ray cluster as HOST:PORT (`ray status` shows "
            "it), auto (the cluster that this machine belongs to) or local (a cluster on this machine)."
        )
    return Workers(ray, options)
