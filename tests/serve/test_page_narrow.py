"""The page at 400 pixels with words, ids and names that no line holds: all of it is seen, nothing is cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_browser import PATIENCE, ask
from serve_helpers import behind_socket, serving_of

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.retrieve.bm25 import BM25Retriever

LONG = "otters" * 25
CUT = """() => [...document.querySelectorAll("body *")].filter(one => {
    const texts = [...one.childNodes].filter(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const ranges = texts.map(node => { const of = document.createRange();
        of.selectNode(node); return of; });
    const right = Math.max(...[one, ...ranges].map(each => each.getBoundingClientRect().right));
    if (right <= innerWidth + 1 || !one.checkVisibility()) return false;
    for (let at = one; at && at !== document.body; at = at.parentElement) {
        const style = getComputedStyle(at);
        if (["auto", "scroll"].includes(style.overflowX) || style.textOverflow === "ellipsis") return false;
        if (at.matches(".hidden, svg")) return false;
    }
    return true;
}).map(one => `${one.tagName} ${one.className}: ${one.textContent.slice(0, 60)}`)"""
"""What stands beyond the right edge, outside of a box that scrolls by itself."""


@pytest.fixture(scope="module")
def long_words(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose passages, ids, fields and retriever have long names."""
    texts = [f"kind {LONG} otter {n} {LONG}" for n in range(3)]
    passages = [Passage(f"{LONG}{n}", text, f"{LONG} title") for n, text in enumerate(texts)]
    place = tmp_path_factory.mktemp("long") / "retriever"
    metadata = [{f"name{LONG}": LONG}] * len(passages)
    BM25Retriever(Corpus.from_passages(passages, metadata=metadata)).save_pretrained(place)
    folders = {f"retriever-{LONG[:100]}": place, "hops": kinds / "hops", "generative": kinds / "generative"}
    with behind_socket(serving_of(folders)) as one:
        yield one


@pytest.fixture
def narrow(browser: Any, long_words: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 400, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    one = context.new_page()
    one.goto(long_words)
    one.wait_for_selector("#start:not([hidden])")
    one.evaluate("document.getElementById('options').open = true")
    yield one
    context.close()


def fits(page: Any) -> None:
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def explained(page: Any, place: int) -> Any:
    page.click(f".card-head >> nth={place}")
    card = page.locator(".card").nth(place)
    card.locator(".metadata .data, .metadata :text('No metadata')").wait_for()
    card.locator("text=Why is it here?").click()
    card.locator(".report").wait_for()
    return card


def test_long_words_are_broken(narrow: Any) -> None:
    fits(narrow)
    ask(narrow, f"kind {LONG}")
    fits(narrow)
    report = explained(narrow, 1).locator(".report")
    fits(narrow)
    table = report.locator(".scroll")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    narrow.fill("#where", f"{LONG}>=")
    narrow.press("#question", "Enter")
    narrow.wait_for_selector("[role=alert]")
    fits(narrow)
    for opener, dialog in (("#code-open", "#code"), ("#key-open", "#key"), ("#help-open", "#help")):
        if narrow.locator(opener).is_visible():
            narrow.click(opener)
            narrow.wait_for_selector(f"{dialog}[open]")
            fits(narrow)
            narrow.keyboard.press("Escape")
