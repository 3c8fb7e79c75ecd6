"""The counts of the front process, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest

from grls.serve.guards import RequestCounts


class FrontCounts:
    """What the front process counts: requests, repeated ones, and starts of worker processes."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = RequestCounts(registry)
        self.restarts = Counter(
            "grls_worker_restarts", "Worker processes that were started again.", registry=registry
        )
        self.repeated = Counter(
            "grls_repeated_requests",
            "Requests repeated after a worker process died.",
            registry=registry,
        )

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return bytes(generate_latest(self._registry))
