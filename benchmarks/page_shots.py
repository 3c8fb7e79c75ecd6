"""Pictures of the page of the server, for the docs: light and dark, wide and narrow.

    python -m benchmarks.page_shots RETRIEVER DATA --output docs/images

The retriever (a generator) is served with its hops until DONE, and beside BM25. The question is
the test query with the most evidence, or that of ``--question``. Needs Chromium, and the packages playwright
and Pillow.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jsonargparse import auto_cli
from PIL import Image

import grls
from grls.data.dataset import read_split
from grls.retrieve.bm25 import BM25Retriever


class Shot(NamedTuple):
    """A picture of the page, its address holding ``state``; of the element ``part``, or of the window.

    It is taken once the page holds ``ready``.
    """

    name: str
    state: dict[str, str]
    width: int
    height: int
    scheme: str
    ready: str
    part: str | None = None


def shots(question: str) -> list[Shot]:
    """All pictures for a question."""
    hops = {"q": question, "r": "hops"}
    beam = hops | {"beam": "A2.4"}
    return [
        Shot("page", hops, 1300, 1040, "light", ".done, .stopped"),
        Shot("page-beam", beam, 1300, 900, "light", ".tree", "#beam"),
        Shot("page-narrow", hops, 400, 900, "light", ".done, .stopped"),
        Shot("page-compare", {**hops, "r": "generator", "with": "bm25"}, 1300, 900, "dark", ".agrees"),
    ]


@contextmanager
def served(retriever: str, folder: Path) -> Iterator[str]:
    """A server with the retriever, alone and hop by hop, and BM25; yields its address."""
    import uvicorn

    from grls.serve.app import create_app
    from grls.serve.options import ServerOptions
    from grls.serve.serving import Serving

    searcher = grls.load(retriever, device="cpu")
    BM25Retriever(searcher.corpus).save_pretrained(folder / "bm25")
    searcher.hops(8, "dynamic", output=folder / "hops")
    folders = {"hops": f"{folder / 'hops'}", "generator": retriever, "bm25": f"{folder / 'bm25'}"}
    options = ServerOptions(folders, device="cpu")
    serving = Serving(options)
    serving.load()
    server = uvicorn.Server(uvicorn.Config(create_app(serving), port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def take(browser: Any, address: str, shot: Shot, folder: Path) -> Path:
    """Take one picture."""
    size = {"width": shot.width, "height": shot.height}
    context = browser.new_context(viewport=size, color_scheme=shot.scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{address}/#{urlencode(shot.state)}")
    page.wait_for_selector(shot.ready, timeout=60_000)
    page.wait_for_timeout(500)
    file = folder / f"{shot.name}.png"
    (page if shot.part is None else page.locator(shot.part)).screenshot(path=file)
    context.close()
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128).save(file, optimize=True)
    return file


def main(retriever: str, data: str, output: str = "build/page", question: str | None = None) -> None:
    """Take all pictures.

    Args:
        retriever: Folder of a generator.
        data: Its data set folder.
        output: Folder of the pictures.
        question: The question; null: the test query with the most evidence.
    """
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("there is no Chromium: install the package chromium of the system.")
    queries, _ = read_split(data, "test")
    text = question or max(queries, key=lambda query: len(query.evidence)).text
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory() as temporary,
        served(retriever, Path(temporary)) as address,
        sync_playwright() as started,
    ):
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in shots(text):
            print(take(browser, address, shot, folder))
        browser.close()


if __name__ == "__main__":
    auto_cli(main, as_positional=True)
