"""Ray Serve runs replicas of the server: it starts them, routes requests, and replaces those that die.

Each replica is the application of ``grls serve`` with models of its own. A new version of a folder is
tried by the replica that is asked for it; then all replicas are replaced, one after the other.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from fastapi import FastAPI

from grls.cluster.options import LOCAL, WorkerOptions, workers_of
from grls.cluster.workers import Cluster
from grls.errors import ConfigError, GrlsError, Option
from grls.io.ending import needing, quiet
from grls.retrieve.spec import MANIFEST
from grls.serve.app import create_app
from grls.serve.guards import accepted_hosts, guards, log_lines
from grls.serve.options import ServerOptions
from grls.serve.run import bound, signals_ignored
from grls.serve.served import Served, Version, reloading
from grls.serve.serving import Serving
from grls.serve.start import address_of, loading, say

NAME = "grls"
"""The name of the application on Ray Serve."""
_TRIES = 3
"""Most times that a replica is started if it fails before it answers."""
_SLACK = 10.0
"""Seconds in which replicas end once their requests are finished."""
_PERIOD = 5.0
"""Seconds between two checks of the replicas."""
_PATIENCE = 10.0
"""Seconds within which Ray answers a call."""
_LEAST, _STARTS = 30.0, 3
"""The command ends once no replica has run for the time of so many starts, at least for so many seconds."""
_LOGGING = {"enable_access_log": False}  # its lines would hold ids that clients give


class Replicas(NamedTuple):
    """What is deployed.

    Attributes:
        options: The options of each replica; its paths are the same on all machines.
        hosts: The host names that requests may have; None: any.
        admin: The hash of the administrator's token.
        size: Number of replicas.
        cpus: Processors of a replica, which are also its threads.
        numbers: Name -> number of the version of each retriever; else 1.
    """

    options: ServerOptions
    hosts: frozenset[str] | None
    admin: bytes | None
    size: int
    cpus: int
    numbers: Mapping[str, int]


def run_replicas(options: ServerOptions, host: str, port: int, ray: str, count: int) -> None:
    """Serve by replicas on a Ray cluster until a signal; running requests are finished.

    All machines must see the folders and files. ``ray``: the address of the cluster, or
    :data:`~grls.cluster.options.LOCAL`. ``port`` 0: one that is free on this machine.
    """
    with needing("ray", f"{Option('ray')}"):
        import ray as library
        from ray import serve
    if ":" in options.device:
        raise ConfigError(
            f"{Option('device', options.device)}: Ray chooses the GPUs; use {Option('device', 'cuda')}."
        )
    keys = options.answer.keys.folder
    if keys is not None and not (Path(keys) / MANIFEST).exists():
        raise ConfigError(
            f"answer.keys.folder: {keys} holds no keys, which each replica would make: start this server "
            f"once without {Option('ray')}, which writes them."
        )
    cpus = max(1, (os.cpu_count() or 1) // count) if ray == LOCAL else 1
    workers = workers_of(ray, WorkerOptions(count, cpus=cpus))
    assert workers is not None
    folders, options = options.folders, with_absolute_paths(options)
    serving, hosts = Serving(options), accepted_hosts(host, options.access.allowed_hosts)
    guards(options, hosts, serving.metrics, serving.admin)  # reads the keys
    listeners = bound(host, port)
    port = listeners[0].getsockname()[1]
    for listener in listeners:
        listener.close()
    say(loading(folders, address_of(host, port)))
    with Cluster.opened(workers) as cluster:
        room = int(library.cluster_resources().get("CPU", 0)) // cpus
        if room < count:
            raise ConfigError(
                f"{Option('replicas', count)}: the cluster has room for {room} of {cpus} processors: start "
                "fewer, or add machines."
            )
        for folder in options.folders.values():
            cluster.check_sees(Path(folder) / MANIFEST)
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        if serve.status().proxies:
            raise ConfigError(
                f"Ray Serve runs on the cluster {Option('ray', ray)} already: end it there "
                "(`serve shutdown`), or name another cluster."
            )
        ready, begun = False, time.monotonic()
        try:
            with ray_errors():
                serve.start(http_options={"host": host.strip("[]"), "port": port}, logging_config=_LOGGING)
            deploy(Replicas(options, hosts, serving.admin, count, cpus, {}))
            ready = True
            say(f"Ready: open {address_of(host, port)}")
            watch_replicas(max(_LEAST, _STARTS * (time.monotonic() - begun)))
        except (KeyboardInterrupt, SystemExit):
            if not ready:
                raise
        finally:
            with signals_ignored():
                with suppress(ReplicaError):  # Ray Serve may have been ended from elsewhere
                    if ready:
                        answer_of_ray(partial(serve.delete, NAME, _blocking=False))
                    end = time.monotonic() + options.limits.seconds + _SLACK  # requests are finished
                    while ready and time.monotonic() < end:
                        ready = NAME in answer_of_ray(serve.status).applications
                        time.sleep(0.2)
                with suppress(ReplicaError):
                    answer_of_ray(serve.shutdown)


def with_absolute_paths(options: ServerOptions) -> ServerOptions:
    """Options with absolute paths, since replicas run in other folders."""

    def absolute(file: str | None) -> str | None:
        return None if file is None else str(Path(file).absolute())

    access, answer = options.access, options.answer
    if answer.model is not None:
        model = absolute(answer.model) if Path(answer.model).exists() else answer.model  # a name of the hub
        folder, file = absolute(answer.keys.folder), absolute(answer.keys.propositions)
        keys = replace(answer.keys, folder=folder, propositions=file)
        answer = replace(answer, model=model, keys=keys)
    return options._replace(
        folders={name: str(Path(folder).absolute()) for name, folder in options.folders.items()},
        access=replace(access, keys=absolute(access.keys), admin=absolute(access.admin)),
        answer=answer,
        examples=absolute(options.examples),
    )


class ReplicaError(GrlsError):
    """No replica of the server can be started, or none runs any more."""


@contextmanager
def ray_errors() -> Iterator[None]:
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        yield
    except (RayError, RayServeException, RuntimeError, TimeoutError) as error:
        raise ReplicaError(f"Ray Serve cannot run the replicas: {' '.join(str(error).split())}") from error


def answer_of_ray(call: Callable[[], Any]) -> Any:
    """The result of a call of Ray, which would wait for ever where a process of Ray has died."""
    future = Future[Any]()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="grls-serve-ray", daemon=True).start()
    if not wait([future], _PATIENCE).done:
        raise ReplicaError(f"Ray does not answer (within {_PATIENCE:g} s): a process of it may have died.")
    with ray_errors():
        return future.result()


def watch_replicas(seconds: float) -> None:
    """Wait until a signal, while replicas run: Ray Serve restarts those that end, without end."""
    from ray import serve

    ran, why = time.monotonic(), ""
    while time.monotonic() - ran <= seconds:
        time.sleep(_PERIOD)
        try:
            application = answer_of_ray(serve.status).applications.get(NAME)
        except ReplicaError as error:
            why = error.text
            continue
        if application is None:
            raise ReplicaError("the replicas have been ended from elsewhere, perhaps by `serve shutdown`.")
        deployments = application.deployments.values()
        said = [application.message, *(deployment.message for deployment in deployments)]
        why = "\n".join(said).strip().rpartition("\n")[2]  # of a traceback, the error
        if any(deployment.replica_states.get("RUNNING") for deployment in deployments):
            ran = time.monotonic()
    raise ReplicaError(f"no replica has run for {seconds:.0f} s: {why or 'Ray does not say why.'}")


def deploy(replicas: Replicas, wait: bool = True) -> None:
    """Deploy replicas on Ray Serve; those that are deployed already are replaced, one after the other."""
    import ray
    from ray import serve

    options, limits, gpus = replicas.options, replicas.options.limits, 0.0
    if options.device != "cpu":
        gpus = ray.cluster_resources().get("GPU", 0.0)
    share = 1 / ceil(replicas.size / gpus) if gpus else 0  # of a GPU, which several replicas may use
    deployment = serve.deployment(
        name=NAME,
        num_replicas=replicas.size,
        ray_actor_options={"num_cpus": replicas.cpus, "num_gpus": share},
        max_ongoing_requests=options.most_requests,
        logging_config=_LOGGING,
        max_queued_requests=limits.queue,
        graceful_shutdown_timeout_s=limits.seconds,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=5.0,
        max_constructor_retry_count=_TRIES,
    )(serve.ingress()(Replica))
    with ray_errors():
        serve.run_many(
            [serve.RunTarget(deployment.bind(replicas), NAME, "/")],
            wait_for_ingress_deployment_creation=wait,
            wait_for_applications_running=wait,
        )


class ReloadLock:
    """An actor of Ray with a unique name, which ends with the replica that has started it."""


class Replica:
    def __init__(self, replicas: Replicas):
        quiet()
        log_lines()
        self._replicas, self._serving = replicas, Serving(replicas.options)
        self._serving.admin, self._serving.reload = replicas.admin, self._reload
        self._serving.load(replicas.numbers)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self._serving, self._replicas.hosts)

    def _reload(self, served: Served) -> Version:
        """Load a new version here, and let replicas that have it take the place of all."""
        import ray
        from ray import serve

        def refuse_while_replaced() -> None:
            if serve.status().applications[NAME].status in ("DEPLOYING", "DELETING"):
                raise reloading(served.name)

        def accept(version: Version) -> None:
            numbers = {name: other.version.number for name, other in self._serving.retrievers.items()}
            numbers[served.name] = version.number
            deploy(self._replicas._replace(numbers=numbers), wait=False)

        refuse_while_replaced()
        try:
            lock = ray.remote(ReloadLock).options(name="reload", namespace=NAME, num_cpus=0).remote()
        except ValueError as error:  # the name is taken
            raise reloading(served.name) from error
        try:
            refuse_while_replaced()  # by the one that had the lock before
            return served.reload(accept)
        finally:
            ray.kill(lock)
