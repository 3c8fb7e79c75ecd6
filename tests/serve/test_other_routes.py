"""Passages, health, metrics, description, keys, origins."""

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from failing import raises
from prometheus_client.parser import text_string_to_metric_families
from serve_helpers import HOSTILE, Slow, serving_of
from starlette.testclient import TestClient

from grls.errors import DataError
from grls.io.timing import PARTS
from grls.serve.guards import JsonLines, read_admin_token, read_keys
from grls.serve.options import AccessOptions

Serve = Callable[..., tuple[TestClient, Slow]]


def test_a_passage_by_any_id(hostile: Path, socket_server: Any) -> None:
    with socket_server(serving_of({"hostile": hostile})) as address:
        for passage in HOSTILE:
            body = httpx.get(f"{address}/v1/passages/{quote(passage.id, safe='')}").json()
            assert tuple(body.values())[:-1] == ("hostile", passage.id, passage.title, passage.text)
            assert body["metadata"] == {"year": 2000 + HOSTILE.index(passage)}


@pytest.mark.parametrize("name", ["", "no", "%00", "%ff%fe", "..%2f..%2fetc%2fpasswd", "a" * 5000])
def test_an_unknown_passage(client: TestClient, name: str) -> None:
    response = client.get(f"/v1/passages/{name}")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert client.get("/v1/passages/p1?retriever=no").status_code == 404


def test_health_and_ready(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("/health", "/ready"):
        body = client.get(address).json()
        assert body["status"] == "ok"
        assert [one["retriever"] for one in body["retrievers"]] == ["bm25", "generative", "hops", "hostile"]
    monkeypatch.setattr(client.app.state.serving, "ending", True)
    assert client.get("/health").json()["status"] == "ending"
    response = client.get("/ready")
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")


def test_metrics_count_by_template_and_hold_nothing_of_a_client(client: TestClient) -> None:
    client.post("/v1/search", json={"query": "otter"})
    client.post("/v1/search", json={"query": ["otter", "secret words"]})
    client.get("/v1/passages/secret")
    client.get("/secret/address")
    text = client.get("/metrics").text
    assert 'grls_requests_total{route="/v1/search",status="200"} 2.0' in text
    assert 'grls_requests_total{route="unknown",status="404"} 1.0' in text
    assert 'grls_batch_queries_sum{retriever="bm25"} 3.0' in text
    assert 'grls_queue_requests{retriever="bm25"} 0.0' in text
    client.post("/v1/search", json={"query": "otter", "retriever": "generative"})
    after = client.get("/metrics").text
    counted = {
        (one.name, one.labels.get("part")): one.value
        for family in text_string_to_metric_families(after)
        for one in family.samples
        if one.labels.get("retriever") == "generative"
    }
    for part in PARTS:
        assert counted["grls_part_seconds_total", part] > 0
        assert counted["grls_part_tokens_total", part] > 0
    assert "secret" not in text


def test_the_description_has_the_errors(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in json.dumps(described)
    errors = described["paths"]["/v1/search"]["post"]["responses"]
    assert {"400", "404", "413", "422", "429", "503"} < errors.keys()


def test_keys(tmp_path: Path, slow: Serve) -> None:
    file = tmp_path / "keys"
    file.write_text("a-key-of-a-team-1\nanother-key-of-a-team\n")
    client, _ = slow(access=AccessOptions(keys=str(file)))
    ask = {"json": {"query": "a"}}
    for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic a-key-of-a-team-1"}):
        response = client.post("/v1/search", headers=headers, **ask)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/problem+json"
    right = {"Authorization": "Bearer a-key-of-a-team-1"}
    assert client.post("/v1/search", headers=right, **ask).status_code == 200
    assert client.get("/health").status_code == client.get("/").status_code == 200


def test_files_of_keys_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    raises(DataError, "no such file", read_keys, file)
    file.write_text("long enough to be a key\nshort\n")
    raises(DataError, "line 2: a key has at least 16", read_keys, file)
    raises(DataError, "one line with a token", read_admin_token, file)
    assert read_admin_token(None) is None
    monkeypatch.setenv("GRLS_ADMIN_TOKEN", "short")
    raises(DataError, "GRLS_ADMIN_TOKEN has fewer", read_admin_token, None)
    monkeypatch.setenv("GRLS_ADMIN_TOKEN_FILE", str(file))  # it goes before the token itself
    raises(DataError, "one line with a token", read_admin_token, None)
    file.write_text("a-token-of-the-administrator\n")
    assert read_admin_token(None) == read_admin_token(file)


def test_origins(slow: Serve) -> None:
    closed, _ = slow()
    asked = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in closed.get("/health", headers=asked).headers
    opened, _ = slow(access=AccessOptions(origins=("https://example.org",)))
    headers = opened.get("/health", headers=asked).headers
    assert headers["access-control-allow-origin"] == "https://example.org"
    other = opened.get("/health", headers={"Origin": "https://example.com"}).headers
    assert "access-control-allow-origin" not in other


def test_a_log_line_is_one_line_and_holds_nothing_of_a_client(client: TestClient) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("grls.serve.requests")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        client.post("/v1/search", json={"query": "secret\n{}"}, headers={"X-Request-ID": "secret"})
        response = client.get("/v1/passages/secret%0a%7b%22level%22:%22error%22%7d")
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["route"] for line in lines] == ["/v1/search", "/v1/passages/{passage:any_id}"]
    assert [line["status"] for line in lines] == [200, 404]
    assert lines[1]["request"] == response.headers["x-request-id"]
    assert "secret" not in stream.getvalue()
