"""The page at / in a browser, through a front process and its worker process."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_browser import QUESTION, ask, ids
from serve_front import Running, until

import grls


@pytest.fixture(scope="module")
def front(browser: Any, kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Hops and BM25 behind a front process; needs a browser."""
    one = Running(tmp_path_factory.mktemp("front"), folders=(str(kinds / "hops"), str(kinds / "bm25")))
    yield one
    one.close()


def test_hops_appear_and_an_error_is_shown(page: Any, front: Running, kinds: Path) -> None:
    *_, last = grls.load(kinds / "hops", device="cpu").stream(QUESTION)
    page.goto(front.address)
    ask(page)
    assert ids(page) == [hit.id for hit in last.chain]
    page.click(".card-head >> nth=0")
    page.click("text=See the beam")
    page.wait_for_selector(".tree")
    page.fill("#where", "year>=")
    ask(page)
    problem = page.locator("[role=alert]").text_content()
    assert "cannot be answered like this" in problem
    assert "expected a value" in problem


def test_a_stream_is_cancelled(page: Any, front: Running) -> None:
    """The worker process stands still meanwhile; it is told, and goes on."""
    page.goto(front.address)
    ask(page)
    first = ids(page)
    worker = front.process
    gone = 'grls_requests_total{route="/v1/stream",status="499"}'
    os.kill(worker, signal.SIGSTOP)
    try:
        page.press("#question", "Enter")
        page.wait_for_selector("#cancel:not([hidden])")
        page.keyboard.press("Escape")
        page.wait_for_selector("text=Cancelled")
        assert ids(page) == []
    finally:
        os.kill(worker, signal.SIGCONT)
    until(lambda: gone in front.client.get("/metrics").text and front.metric(gone) >= 1)
    until(lambda: front.metric('grls_queue_requests{retriever="hops"}') == 0)
    ask(page)
    assert ids(page) == first
    assert front.process == worker
