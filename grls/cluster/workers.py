"""Does the missing shards of a plan by workers of a Ray cluster (a stage of Ray Data).

A worker that dies is started again with its shard. An error of grls in a worker ends the command with the
same text as in one process.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from grls.cluster.options import LOCAL, WorkerOptions, Workers
from grls.cluster.plan import Maker, Shard, ShardPlan, Work
from grls.errors import ConfigError, GrlsError, Option
from grls.io.ending import require

RESTARTS = 3
"""Most times that a shard is done again after its worker has died."""
_SECONDS = 5.0
"""Seconds within which an address must answer."""
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow")
"""Packages whose versions are compared, since results depend on them."""


class Cluster:
    """An open Ray cluster; see :meth:`opened`."""

    def __init__(self, options: WorkerOptions):
        self._options = options

    @classmethod
    @contextmanager
    def opened(cls, workers: Workers) -> Iterator[Self]:
        """A context in which the cluster is open; one that was open before stays open."""
        require("ray", f"{Option('ray')}")
        os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        import ray

        before, ending = ray.is_initialized(), signal.getsignal(signal.SIGTERM)
        if not before:
            try:
                _open(workers)
            finally:
                if threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGTERM, ending or signal.SIG_DFL)  # not Ray's, which stays
        try:
            yield cls(workers.options)
        finally:
            if not before:
                ray.shutdown()

    def check(self, folder: Path) -> None:
        """Check that every machine imports grls in the same versions, and sees the folder."""
        mark = folder / f"seen-{uuid.uuid4().hex[:8]}"
        mark.write_text("", encoding="utf-8")
        try:
            self.check_sees(mark)
        finally:
            mark.unlink(missing_ok=True)

    def check_sees(self, mark: Path) -> None:
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        cpus, gpus = self._options.cpus, self._options.gpus
        if not any(
            node["Resources"].get("CPU", 0) >= cpus and node["Resources"].get("GPU", 0) >= gpus
            for node in nodes
        ):
            raise ConfigError(
                f"no machine of the Ray cluster has {cpus} processors and {gpus:g} GPUs "
                f"for a worker: lower {Option('workers.cpus')} or {Option('workers.gpus')}."
            )
        probe = ray.remote(num_cpus=1, max_retries=0)(_complaint)
        replies = {}
        for node in nodes:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = probe.options(scheduling_strategy=strategy)
            replies[remote.remote(_versions(), str(mark.absolute()))] = node["NodeManagerAddress"]
        for reply, name in replies.items():
            try:
                complaint = str(ray.get(reply, timeout=120))
            except RayError as error:  # the check itself fails there
                complaint = (
                    f"grls cannot be imported there ({_last_line(error)}) "
                    'Install it there: `pip install "grls[ray]"`.'
                )
            if complaint:
                raise ConfigError(f"the machine {name} of the Ray cluster cannot do the work: {complaint}")

    def do(self, plan: ShardPlan, shards: Sequence[Shard], make: Maker) -> Iterator[int]:
        """Do shards of a plan; yields the number of items of each as it is done."""
        import ray.data
        from ray.exceptions import RayError

        import grls.errors

        context = ray.data.DataContext.get_current()  # the command shows its progress, and Ray Data nothing
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        resources = ray.cluster_resources()
        slots = int(resources.get("CPU", 1) // self._options.cpus)
        if self._options.gpus:
            slots = min(slots, int(resources.get("GPU", 0) / self._options.gpus))
        count = min(len(shards), max(1, min(slots, self._options.count or slots)))
        rows = [shard._asdict() for shard in shards]
        stage = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Stage,
            fn_constructor_args=(plan, make),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=count, max_tasks_in_flight_per_actor=1),
            num_cpus=self._options.cpus,
            num_gpus=self._options.gpus or None,
        )
        try:
            for row in stage.iter_rows():
                if row["kind"]:
                    raise getattr(grls.errors, str(row["kind"]), GrlsError)(str(row["error"]))
                yield int(row["items"])
        except RayError as error:
            raise ConfigError(
                f"a worker failed: {_last_line(error)} Shards that are done are kept in {plan.folder}; the "
                "same command does the rest."
            ) from error


class _Stage:
    """A worker, which opens its models and files with its first shard."""

    def __init__(self, plan: ShardPlan, make: Maker):
        self._plan = plan
        self._make = make
        self._work: Work | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        shard = Shard(*(int(batch[name][0]) for name in Shard._fields))
        kind = error = ""
        try:
            with self._tried(shard):
                self._work = self._work or self._make()
                self._plan.do(shard, self._work)
        except GrlsError as raised:
            kind, error = type(raised).__name__, raised.text
        return {"items": [shard.end - shard.first], "kind": [kind], "error": [error]}

    @contextmanager
    def _tried(self, shard: Shard) -> Iterator[None]:
        """Count the tries of a shard in a file, since Ray starts a worker that dies again and again."""
        folder = self._plan.folder_of(shard)
        tries = folder.with_name(f"{folder.name}.tries")
        count = tries.stat().st_size if tries.exists() else 0
        try:
            if count > RESTARTS:
                raise ConfigError(
                    f"shard {shard.number} (items {shard.first:,} to {shard.end - 1:,}) ended its worker "
                    f"{count} times, perhaps for lack of memory: take fewer workers "
                    f"({Option('workers.count')}), smaller shards ({Option('workers.shard')}; remove "
                    f"{self._plan.folder} before), or larger machines."
                )
            with tries.open("ab") as stream:
                stream.write(b".")
            yield
        finally:  # not after a kill
            tries.unlink(missing_ok=True)


def _open(workers: Workers) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if workers.address == LOCAL:
        count = workers.options.count or os.cpu_count() or 1
        ray.init(
            address="local",  # and not a cluster that this machine belongs to
            num_cpus=count * workers.options.cpus,
            include_dashboard=False,
            **quiet,
        )
        return
    assert workers.address is not None
    if workers.address != "auto":
        host, _, port = workers.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
        except (OSError, OverflowError) as error:
            raise ConfigError(_no_cluster(workers.address, str(error))) from None
    try:
        ray.init(address=workers.address, **quiet)
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise ConfigError(_no_cluster(workers.address, _last_line(error))) from None


def _no_cluster(address: str, reason: str) -> str:
    return (
        f"there is no Ray cluster at {address} ({reason.rstrip('.')}): start one with `ray start --head`, or "
        f"use {Option('ray', 'local')}."
    )


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[-1] if lines else type(error).__name__).strip().rstrip(".") + "."


def _versions() -> dict[str, str]:
    import grls

    versions = {"Python": ".".join(platform.python_version_tuple()[:2]), "grls": grls.__version__}
    for name in _PACKAGES:
        try:
            versions[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _complaint(expected: dict[str, str], mark: str) -> str:
    """On a worker: why it cannot do the work; empty if it can."""
    versions = _versions()
    for name, wanted in expected.items():
        if versions[name] != wanted:
            return (
                f"it has {name} {versions[name]} and this machine {wanted}; install the same there "
                f'(`pip install "grls[ray]"`, with {sys.executable}).'
            )
    if not Path(mark).is_file():
        return (
            f"it does not see {Path(mark).parent}: it must be a folder that all machines share under one "
            "name."
        )
    return ""
