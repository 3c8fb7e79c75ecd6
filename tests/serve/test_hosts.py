"""The header Host: a server of this machine answers for its own names alone (DNS rebinding)."""

import socket

import pytest
from failing import raises
from serve_helpers import Slow, listening, serving_of
from starlette.testclient import TestClient

from grls.errors import ConfigError
from grls.serve.app import create_app
from grls.serve.guards import accepted_hosts
from grls.serve.options import AccessOptions

OWN = ["127.0.0.1:8000", "127.0.0.1", "localhost:1", "LOCALHOST", "localhost.", "[::1]:8000", "[::1]"]
OTHERS = [
    "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", "10.0.0.1",
    "localhost:x", "", "127.0.0.1 evil.example", "[::1", "::1", "127.0.0.7:80",
]  # fmt: skip


def client_at(host: str, allowed: tuple[str, ...] = ()) -> TestClient:
    return TestClient(create_app(serving_of({"slow": Slow()}), hosts=accepted_hosts(host, allowed)))


@pytest.mark.parametrize(
    ("host", "allowed", "accepted", "refused"),
    [
        ("127.0.0.1", (), OWN, OTHERS),
        ("localhost", (), OWN, []),
        ("::1", (), OWN, []),
        ("127.0.0.7", (), [*OWN, "127.0.0.7:80"], []),
        ("127.0.0.1", ("search.example.ORG",), ["Search.Example.org:443"], ["evil.example"]),
        ("127.0.0.1", ("*",), ["evil.example"], []),
        ("0.0.0.0", (), ["any.example"], []),
        ("0.0.0.0", ("search.example.org",), ["localhost:8000"], ["any.example"]),  # a health check
    ],
)
def test_names_of_the_server(
    host: str, allowed: tuple[str, ...], accepted: list[str], refused: list[str]
) -> None:
    client = client_at(host, allowed)
    for name in (*accepted, *refused):
        response = client.get("/health", headers={"Host": name})
        assert response.status_code == (200 if name in accepted else 400), name
        if name in refused:
            assert response.headers["content-type"] == "application/problem+json"
            assert "access.allowed_hosts in the file of --server" in response.json()["detail"]
            assert name == "" or name not in response.text


def test_every_header_counts() -> None:
    headers = [("Host", "127.0.0.1"), ("Host", "evil.example")]
    assert client_at("127.0.0.1").get("/health", headers=headers).status_code == 400


def test_requests_without_host_and_with_an_absolute_target() -> None:
    """Health checks of proxies are HTTP/1.0; by RFC 9112 the host of a target goes before the header."""
    with listening(client_at("127.0.0.1").app) as (address, _):
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
    raises(ConfigError, "expected a host name without port", AccessOptions, allowed_hosts=(name,))
