"""Counts for Prometheus: requests, queues, batches. No label holds what a client sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "grls_requests", "Requests, by address and status.", ("route", "status"), registry=registry
        )
        self._took = Histogram(
            "grls_request_seconds", "Seconds of a request.", ("route",), buckets=_SECONDS, registry=registry
        )
        self._sizes = Histogram(
            "grls_batch_queries", "Queries of a batch.", ("retriever",), buckets=_SIZES, registry=registry
        )
        self._batches = Histogram(
            "grls_batch_seconds", "Seconds of a batch.", ("retriever",), buckets=_SECONDS, registry=registry
        )

        self._questions = Histogram(
            "grls_answer_questions", "Questions of a batch.", buckets=_SIZES, registry=registry
        )
        self._answers = Histogram(
            "grls_answer_seconds", "Seconds of a batch of questions.", buckets=_SECONDS, registry=registry
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._took.labels(route).observe(seconds)

    def batch(self, retriever: str, queries: int, seconds: float) -> None:
        """Count a batch."""
        self._sizes.labels(retriever).observe(queries)
        self._batches.labels(retriever).observe(seconds)

    def answers(self, questions: int, seconds: float) -> None:
        """Count questions that were answered together."""
        self._questions.observe(questions)
        self._answers.observe(seconds)

    def watch_queues(
        self, lengths: Callable[[], Iterable[tuple[str, int]]], questions: Callable[[], int]
    ) -> None:
        """Report the lengths of queues.

        Args:
            lengths: Returns the requests that wait for each retriever.
            questions: Returns the questions that wait for the language model.
        """
        self._registry.register(_Queues(lengths, questions))

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return bytes(generate_latest(self._registry))


class _Queues:
    """The lengths of queues, read when they are asked for."""

    def __init__(self, lengths: Callable[[], Iterable[tuple[str, int]]], questions: Callable[[], int]):
        self._lengths, self._questions = lengths, questions

    def collect(self) -> Iterable[Any]:
        """The lengths now."""
        family = GaugeMetricFamily("grls_queue_requests", "Requests that wait.", labels=("retriever",))
        for name, length in self._lengths():
            family.add_metric((name,), length)
        yield family
        yield GaugeMetricFamily("grls_answer_queue_questions", "Questions that wait.", self._questions())
