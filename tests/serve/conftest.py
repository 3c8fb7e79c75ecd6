"""Servers over small retrievers: in the process of the test, or behind a socket of their own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from composite_specs import COMPOSITES, write_kinds, written


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRLS_ADMIN_TOKEN", raising=False)


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one folder of every kind."""
    place = write_kinds(tmp_path_factory.mktemp("served"))
    for name, spec in COMPOSITES.items():
        written(place / name, spec)
    return place


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from serve_helpers import hostile_folder

    return hostile_folder(tmp_path_factory.mktemp("hostile") / "retriever")


@pytest.fixture
def client(kinds: Path, hostile: Path) -> Iterator[Any]:
    """BM25, a generator, hops and hostile texts behind one application."""
    from serve_helpers import client_of, serving_of

    folders = {name: kinds / name for name in ("bm25", "generative", "hops")} | {"hostile": hostile}
    with client_of(serving_of(folders)) as one:
        yield one


@pytest.fixture
def slow() -> Iterator[Callable[..., Any]]:
    """Makes clients of a server whose retriever takes its time."""
    from serve_helpers import Slow, client_of, serving_of

    from grls.serve.options import OPEN_ACCESS, RequestLimits

    with ExitStack() as opened:

        def make(takes: float = 0.0, access: Any = OPEN_ACCESS, **limits: Any) -> tuple[Any, Slow]:
            retriever = Slow(takes)
            serving = serving_of({"slow": retriever}, RequestLimits(**limits))
            return opened.enter_context(client_of(serving, access)), retriever

        yield make


@pytest.fixture(scope="session")
def socket_server() -> Any:
    """Serves behind a socket, in a thread; yields the address."""
    from serve_helpers import behind_socket

    return behind_socket
