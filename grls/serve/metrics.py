"""Counts for Prometheus: requests, queues, batches, parts of searches. No label holds what a client sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from grls.io.parts import PARTS, PartCounts

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class RequestCounts:
    """Counts requests.

    Args:
        registry: What reports them; None: nothing does.
    """

    def __init__(self, registry: CollectorRegistry | None):
        self._requests = Counter(
            "grls_requests", "Requests, by address and status.", ("route", "status"), registry=registry
        )
        self._took = Histogram(
            "grls_request_seconds", "Seconds of a request.", ("route",), buckets=_SECONDS, registry=registry
        )

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._took.labels(route).observe(seconds)


class Metrics:
    """The counts of one server.

    Args:
        requests: Report requests, too; else the process before this one does.
    """

    def __init__(self, requests: bool = True) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = RequestCounts(registry if requests else None)
        self._sizes = Histogram(
            "grls_batch_queries",
            "Queries that are searched together.",
            ("retriever",),
            buckets=_SIZES,
            registry=registry,
        )
        self._batches = Histogram(
            "grls_batch_seconds",
            "Seconds of a batch that none joins.",
            ("retriever",),
            buckets=_SECONDS,
            registry=registry,
        )

        self._questions = Histogram(
            "grls_answer_questions", "Questions of a batch.", buckets=_SIZES, registry=registry
        )
        self._answers = Histogram(
            "grls_answer_seconds", "Seconds of a batch of questions.", buckets=_SECONDS, registry=registry
        )
        self._spent: dict[str, PartCounts] = {}
        self._queues: tuple[Callable[[], Iterable[tuple[str, int]]], Callable[[], int]] | None = None
        registry.register(self)

    def batch(self, retriever: str, queries: int, seconds: float | None = None) -> None:
        """Count queries that are searched together; ``seconds``: of a batch that is done."""
        self._sizes.labels(retriever).observe(queries)
        if seconds is not None:
            self._batches.labels(retriever).observe(seconds)

    def parts(self, retriever: str) -> PartCounts:
        """The counts of the parts of a retriever's searches."""
        return self._spent.setdefault(retriever, PartCounts())

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
        self._queues = lengths, questions

    def collect(self) -> Iterable[Any]:
        """What is read only when it is asked for: seconds and tokens of searches, and lengths of queues."""
        labels = ("retriever", "part")
        text = "Seconds of the parts of searches: encoder, decoder, constraint."
        seconds = CounterMetricFamily("grls_part_seconds", text, labels=labels)
        text = "Tokens read (encoder), scored (decoder), allowed (constraint)."
        tokens = CounterMetricFamily("grls_part_tokens", text, labels=labels)
        for name, spent in list(self._spent.items()):
            for part in PARTS:
                seconds.add_metric((name, part), spent[part].seconds)
                tokens.add_metric((name, part), spent[part].tokens)
        yield seconds
        yield tokens
        if self._queues is not None:
            lengths, questions = self._queues
            family = GaugeMetricFamily("grls_queue_requests", "Requests that wait.", labels=("retriever",))
            for name, length in lengths():
                family.add_metric((name,), length)
            yield family
            yield GaugeMetricFamily("grls_answer_queue_questions", "Questions that wait.", questions())

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return bytes(generate_latest(self._registry))
