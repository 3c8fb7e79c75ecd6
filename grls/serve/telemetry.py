"""Spans of OpenTelemetry: a request, and within it the queue, the search, what is encoded, and each hop.

Nothing of this is imported without ``--telemetry``. No span holds a text of a client.
"""

from __future__ import annotations

import atexit
import os
from importlib import import_module
from threading import Event, Thread
from time import time_ns

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import grls
from grls.errors import ConfigError, Option
from grls.io.ending import needing
from grls.serve.guards import UNKNOWN
from grls.serve.problems import GONE
from grls.serve.worker import Trace

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_HEADERS = (b"traceparent", b"tracestate")
_PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}
_PROTOCOL = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LAST = 2.0
"""Seconds in which the last spans are sent when the process ends; the SDK tries for 10 and waits for 30."""


def otlp_tracer() -> Tracer:
    """A tracer that sends spans by OTLP, as the environment variables ``OTEL_…`` say."""
    variable = next((name for name in _PROTOCOL if os.environ.get(name)), "")
    protocol = os.environ.get(variable) or "http/protobuf"
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"{variable}: expected {' or '.join(_PROTOCOLS)}, got {protocol!r}.")
    with needing("telemetry", f"{Option('telemetry', 'otlp')}"):
        sender = import_module(f"opentelemetry.exporter.otlp.proto.{_PROTOCOLS[protocol]}.trace_exporter")
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    service = {"service.name": "grls", **OTELResourceDetector().detect().attributes}
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(sender.OTLPSpanExporter()))
    ending = Event()

    def send_last() -> None:
        ending.wait()
        provider.shutdown()

    sending = Thread(target=send_last, name="grls-telemetry", daemon=True)
    sending.start()  # now: no thread can be started while Python ends

    @atexit.register
    def end() -> None:
        ending.set()
        sending.join(_LAST)

    return provider.get_tracer("grls", grls.__version__)


class Traced:
    """The span of each request, in the trace that its header ``traceparent`` names."""

    def __init__(self, app: ASGIApp, tracer: Tracer):
        self._app, self._tracer = app, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        headers = {n.decode(): value.decode("latin-1") for n, value in scope["headers"] if n in _HEADERS}
        caller, status = TraceContextTextMapPropagator().extract(headers), GONE
        span = self._tracer.start_span(method, caller, SpanKind.SERVER)

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._app(scope, receive, told)
        except Exception:
            status = 500
            raise
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN)
            span.update_name(f"{method} {route}")
            span.set_attribute("http.request.method", method)
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(StatusCode.ERROR)
            span.end()


def job_trace(tracer: Tracer) -> Trace:
    """The spans of a job of the request that runs; none where nobody asks for them."""
    return JobTrace(tracer) if trace.get_current_span().is_recording() else Trace()


class JobTrace(Trace):
    """The spans of a job of the request that runs: queue, and search with encode and hop.

    Jobs that are searched together have spans of the same time. A span encode is the encoder's first work
    for a hop.
    """

    def __init__(self, tracer: Tracer):
        self._tracer, self._request = tracer, context.get_current()
        self._queue = tracer.start_span("queue", self._request)
        self._search: Span | None = None
        self._hops, self._encodes, self._begun = 0, True, 0

    def begins(self) -> None:
        if self._search is None:
            _end(self._queue)
            self._search = self._tracer.start_span("search", self._request)
            self._begun = time_ns()

    def encoded(self, seconds: float) -> None:
        if self._encodes:
            self._encodes = False
            self._span("encode", time_ns() - int(seconds * 1e9)).end()

    def hop(self, number: int) -> None:
        if number > self._hops:
            span = self._span("hop", self._begun)
            span.set_attribute("grls.hop", number)
            span.end()
            self._hops, self._encodes, self._begun = number, True, time_ns()

    def ends(self) -> None:
        _end(self._queue if self._search is None else self._search)

    def _span(self, name: str, begun: int) -> Span:
        assert self._search is not None
        within = trace.set_span_in_context(self._search, self._request)
        return self._tracer.start_span(name, within, start_time=begun)


def _end(span: Span) -> None:
    if span.is_recording():  # a job may be withdrawn while it begins
        span.end()
