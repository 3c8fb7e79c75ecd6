"""Servers over small retrievers: in the process of the test, or behind a socket of their own."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRLS_ADMIN_TOKEN", "GRLS_ADMIN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from serve_helpers import hostile_folder

    return hostile_folder(tmp_path_factory.mktemp("hostile") / "retriever")


@pytest.fixture(scope="module")
def client(kinds: Path, hostile: Path) -> Iterator[Any]:
    """BM25, a generator, hops and hostile texts behind one application, for all tests of a file."""
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser. It ends with the file: other tests need the event loop of the thread."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        one = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of its own; what goes wrong in it fails the test."""
    from serve_browser import PATIENCE, local

    context = browser.new_context(viewport={"width": 1300, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    one = context.new_page()
    faults: list[str] = []
    one.on("pageerror", lambda error: faults.append(str(error)))
    one.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    one.on("request", lambda request: local(request.url, faults))
    yield one
    context.close()
    assert faults == []


@pytest.fixture(scope="module")
def address(kinds: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with hops, a generator, BM25 and hostile texts, and with questions to try."""
    from serve_browser import QUESTION
    from serve_helpers import behind_socket, serving_of

    from grls.serve.served import queries_to_try

    folders: dict[str, Any] = {name: kinds / name for name in ("hops", "generative", "bm25")}
    file = tmp_path_factory.mktemp("examples") / "queries.txt"
    file.write_text(f"{QUESTION}\n<b>bold</b>\n")
    serving = serving_of(folders | {"hostile": hostile})
    serving.examples = queries_to_try(file)
    with behind_socket(serving) as one:
        yield one
