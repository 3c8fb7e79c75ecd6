"""Spans of OpenTelemetry."""

import json
import logging
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serve_helpers import Slow, behind_socket, client_of, events, serving_of

from grls.cli import main

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the SDK of OpenTelemetry")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Any:
    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider.get_tracer("test")


def tree(exporter: InMemorySpanExporter) -> dict[str, list[str]]:
    """The names of spans, by that of the span around them; ``caller``: that of the client."""
    found = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in found}
    rows: dict[str, list[str]] = {}
    for span in sorted(found, key=lambda span: span.start_time):
        above = "none" if span.parent is None else names.get(span.parent.span_id, "caller")
        rows.setdefault(above, []).append(span.name)
    exporter.clear()
    return rows


def test_a_request_in_spans(kinds: Path, spans: Any) -> None:
    exporter, tracer = spans
    folders = {name: kinds / name for name in ("bm25", "hops", "dense")}
    with client_of(serving_of(folders, tracer=tracer)) as client:
        client.post("/v1/search", json={"query": "secret otter"}, headers={"traceparent": CALLER})
        ids = {span.context.trace_id for span in exporter.get_finished_spans()}
        assert ids == {0x0AF7651916CD43DD8448EB211C80319C}
        said = "".join(span.to_json() for span in exporter.get_finished_spans())
        assert "secret" not in said
        assert '"http.response.status_code": 200' in said
        inner = {"POST /v1/search": ["queue", "search"]}
        assert tree(exporter) == {"caller": ["POST /v1/search"]} | inner
        fixed = {"steps": "fixed", "max": 2}
        client.post("/v1/search", json={"query": "otter", "hops": fixed})
        assert tree(exporter) == {"none": ["POST /v1/search"], "search": ["hop", "hop"]} | inner
        client.post("/v1/search", json={"query": "otter", "retriever": "dense"})
        assert tree(exporter)["search"] == ["encode"]
        for address in ("/v1/search", "/v1/stream"):  # hops of a generator, which join a search
            answer = client.post(address, json={"query": "is the otter calm ?", "retriever": "hops"})
            assert answer.status_code == 200
            hops = [span for span in exporter.get_finished_spans() if span.name == "hop"]
            assert [span.attributes["grls.hop"] for span in hops] == [*range(1, len(hops) + 1)]
            assert len(hops) >= 1
            if address == "/v1/stream":
                assert len(hops) == len([name for name, _ in events(answer.text) if name == "hop"])
            inside = tree(exporter)["search"]
            assert set(inside) == {"hop", "encode"}
        client.get("/no/such/secret?secret=1", headers={"User-Agent": "secret"})
        assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())
        assert tree(exporter) == {"none": ["GET unknown"]}


def test_a_request_that_fails_or_goes(spans: Any) -> None:
    exporter, tracer = spans
    with client_of(serving_of({"slow": Slow()}, tracer=tracer)) as client:
        assert client.post("/v1/search", json={"query": "boom"}).status_code == 500
        (request,) = [span for span in exporter.get_finished_spans() if span.parent is None]
        assert not request.status.is_ok
        assert not [span for span in exporter.get_finished_spans() if span.events]  # no text of an error
        assert tree(exporter)["POST /v1/search"] == ["queue", "search"]


def test_a_tool_of_an_agent_in_spans(hostile: Path, spans: Any) -> None:
    pytest.importorskip("mcp", reason="needs the extra mcp")
    exporter, tracer = spans
    call = {"name": "hops", "arguments": {"query": "line", "steps": "fixed", "max": 2}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"traceparent": CALLER, "accept": "application/json, text/event-stream"}
    with behind_socket(serving_of({"one": hostile}, tracer=tracer), tools=True) as address:
        assert httpx.post(f"{address}/mcp", json=body, headers=headers).status_code == 200
    assert tree(exporter) == {
        "caller": ["POST /mcp"],
        "POST /mcp": ["queue", "search"],
        "search": ["hop", "hop"],
    }


EXPORTER = "opentelemetry.exporter.otlp.proto.{}.trace_exporter"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


def test_wrong_exporters(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, EXPORTER.format("http"), None)
    for protocol, said in (("", 'pip install "grls[telemetry]"'), ("json", f"{PROTOCOL}: expected http/pro")):
        monkeypatch.setenv(PROTOCOL, protocol)
        assert main(["serve", str(hostile), "--telemetry", "otlp"]) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_variables_of_the_sdk(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    from grls.serve.telemetry import otlp_tracer

    sent = InMemorySpanExporter()
    module = SimpleNamespace(OTLPSpanExporter=lambda: sent)
    monkeypatch.setitem(sys.modules, EXPORTER.format(protocol), module)
    monkeypatch.setenv(PROTOCOL, {"http": "", "grpc": "grpc"}[protocol])
    for variable in ({}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=two"}, {"OTEL_SERVICE_NAME": "three"}):
        for name, value in variable.items():
            monkeypatch.setenv(name, value)
        tracer = otlp_tracer()
        tracer.start_span("a").end()
        tracer.span_processor.force_flush()
    names = [span.resource.attributes["service.name"] for span in sent.get_finished_spans()]
    assert names == ["grls", "two", "three"]


ENDS = f"""
import sys, time, types
class Exporter:
    def export(self, spans):
        time.sleep(float(sys.argv[1]))
        print(spans[0].name, flush=True)
    def shutdown(self):
        pass
sys.modules["{EXPORTER.format("http")}"] = types.SimpleNamespace(OTLPSpanExporter=Exporter)
from grls.serve.telemetry import otlp_tracer
otlp_tracer().start_span("last").end()
print("ends", flush=True)
"""


@pytest.mark.parametrize(("seconds", "said"), [("0", "last\n"), ("100", "")])
def test_the_last_spans_are_sent_unless_the_collector_is_away(seconds: str, said: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDS, seconds], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        try:
            assert process.wait(20) == 0  # the SDK would wait for 30 seconds
        finally:
            process.kill()
        assert process.stdout.read() == said


def test_a_collector_that_is_away_is_told_of_in_lines_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from grls.serve import guards

    for logger in map(logging.getLogger, guards._LOGS):
        for field in ("handlers", "propagate", "level"):  # which are as before in the end
            monkeypatch.setattr(logger, field, getattr(logger, field))
    guards.log_lines()
    logging.getLogger("opentelemetry.exporter").warning("away")
    assert json.loads(capsys.readouterr().err)["event"] == "away"


def test_spans_are_sent(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra telemetry")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from grls.serve.options import ServerOptions
    from grls.serve.serving import serving_to_load

    got: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_address[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        options = ServerOptions((f"one={hostile}",), device="cpu", telemetry="otlp")
        serving = serving_to_load(options)
        serving.load()
        with client_of(serving) as client:
            assert client.post("/v1/search", json={"query": "alert"}).status_code == 200
        serving.tracer.span_processor.force_flush()
        collector.shutdown()
    sent = ExportTraceServiceRequest.FromString(got[0]).resource_spans[0]
    assert {span.name for span in sent.scope_spans[0].spans} == {"POST /v1/search", "queue", "search"}
    names = {pair.key: pair.value.string_value for pair in sent.resource.attributes}
    assert names["service.name"] == "grls"
