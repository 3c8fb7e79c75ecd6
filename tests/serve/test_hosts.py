"""The header Host: a server of this machine answers for its own names alone (DNS rebinding)."""

import socket
from pathlib import Path
from typing import Any

import pytest
from serve_helpers import Slow, listening, serving_of
from starlette.testclient import TestClient

from grls.errors import ConfigError
from grls.serve.app import create_app
from grls.serve.guards import accepted_hosts
from grls.serve.options import AccessOptions


def status(host: str, header: str, allowed: tuple[str, ...] = ()) -> int:
    app = create_app(serving_of({"slow": Slow()}), hosts=accepted_hosts(host, allowed))
    response = TestClient(app).get("/health", headers={"Host": header})
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/problem+json"
        assert "access.allowed_hosts in the file of --server" in response.json()["detail"]
        assert header == "" or header not in response.text
    return response.status_code


@pytest.mark.parametrize(
    "header", ["127.0.0.1:8000", "127.0.0.1", "localhost:1", "LOCALHOST", "localhost.", "[::1]:8000", "[::1]"]
)
def test_names_of_this_machine(header: str) -> None:
    for bound in ("127.0.0.1", "localhost", "::1", "127.0.0.7"):
        assert status(bound, header) == 200


@pytest.mark.parametrize(
    "header",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", "10.0.0.1",
     "localhost:x", "", "127.0.0.1 evil.example", "[::1", "::1"],
)  # fmt: skip
def test_other_names(header: str) -> None:
    assert status("127.0.0.1", header) == 400


def test_the_bound_name() -> None:
    assert status("127.0.0.7", "127.0.0.7:80") == 200
    assert status("127.0.0.1", "127.0.0.7:80") == 400


def test_allowed_names() -> None:
    assert status("127.0.0.1", "Search.Example.org:443", ("search.example.ORG",)) == 200
    assert status("127.0.0.1", "evil.example", ("search.example.org",)) == 400
    assert status("127.0.0.1", "evil.example", ("*",)) == 200


def test_an_address_beyond_this_machine() -> None:
    assert status("0.0.0.0", "any.example") == 200
    assert status("0.0.0.0", "any.example", ("search.example.org",)) == 400
    assert status("0.0.0.0", "localhost:8000", ("search.example.org",)) == 200  # a health check


def test_every_header_counts() -> None:
    app = create_app(serving_of({"slow": Slow()}), hosts=accepted_hosts("127.0.0.1", ()))
    headers = [("Host", "127.0.0.1"), ("Host", "evil.example")]
    assert TestClient(app).get("/health", headers=headers).status_code == 400


def test_requests_without_host_and_with_an_absolute_target() -> None:
    """Health checks of proxies are HTTP/1.0; by RFC 9112 the host of a target goes before the header."""
    app = create_app(serving_of({"slow": Slow()}), hosts=accepted_hosts("127.0.0.1", ()))
    with listening(app) as (address, _):
        host, port = address.removeprefix("http://").split(":")
        body = b"Content-Type: application/json\r\nContent-Length: 14\r\n\r\n" + b'{"query": "a"}'
        for expected, request in (
            (200, b"GET /health HTTP/1.0\r\n\r\n"),
            (200, b"GET /ready HTTP/1.0\r\n\r\n"),
            (400, b"GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n"),
            (400, b"GET /health HTTP/1.1\r\n\r\n"),
            (200, b"POST http://localhost:80/v1/search HTTP/1.1\r\nHost: localhost\r\n" + body),
            (200, b"GET HTTP://127.0.0.1?a=b HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
            (400, b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ):
            with socket.create_connection((host, int(port)), 10) as client:
                client.sendall(request)
                assert client.recv(12)[9:] == b"%d" % expected, request


@pytest.mark.parametrize("name", ["https://example.org", "example.org:80", "", "*.example.org", "a b"])
def test_wrong_names(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a host name without port"):
        AccessOptions(allowed_hosts=(name,))


def test_the_command_checks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from serve_helpers import hostile_folder

    from grls.cli import main
    from grls.serve import run

    answered = []

    def serve(server: Any, sockets: Any) -> None:
        client = TestClient(server.config.app)
        for name in ("127.0.0.1:8000", "evil.example"):
            answered.append(client.get("/ready", headers={"Host": name}).status_code)

    monkeypatch.setattr("uvicorn.Server.run", serve)
    monkeypatch.setattr(run, "log_lines", lambda: None)
    assert main(["serve", str(hostile_folder(tmp_path / "one")), "--port=0"]) == 1  # it ends by itself
    assert answered in ([200, 400], [503, 400])  # 503: it is loading
