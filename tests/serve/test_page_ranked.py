"""The page at / with ranked hops: the ranking is the answer, the hops are the way to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_browser import QUESTION, ask, ids
from serve_helpers import behind_socket, serving_of

import grls


@pytest.fixture(scope="module")
def ranked(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ranked") / "ranked"
    grls.load(kinds / "dense", device="cpu").hops(max=2, steps="ranked", output=place)
    return place


@pytest.fixture(scope="module")
def alone(ranked: Path) -> Iterator[str]:
    """The address of a server that has ranked hops over a bi-encoder and nothing else."""
    with behind_socket(serving_of({"ranked": ranked})) as one:
        yield one


def test_ranked_hops_show_the_ranking_and_the_way_to_it(page: Any, alone: str, ranked: Path) -> None:
    page.goto(alone)
    page.fill("#k", "4")
    ask(page)
    searcher = grls.load(ranked, device="cpu")
    *_, last = searcher.stream(QUESTION)
    assert ids(page) == [hit.id for hit in searcher.search(QUESTION, 4)]
    assert page.locator("#k").is_visible()
    assert page.text_content(".way h3") == "How it was found"
    assert page.locator(".way .trail-passage").count() == len(last.chain)
    said = page.text_content(".way > .quiet")
    assert "little left to find: 2 hops here" in said
    assert "The ranking above decides" in said
    assert page.locator(".stopped").count() == 0
    assert page.text_content(".timing").startswith("4 passages in ")
    page.click("text=Copy as code")
    assert "/v1/search" in page.text_content("#code-text")


def test_a_page_without_beams_promises_none(page: Any, alone: str, address: str) -> None:
    page.goto(alone)
    assert "beam" not in page.inner_text(".lead")
    assert page.text_content("#retriever option") == "ranked (bi-encoder, 2 ranked hops)"
    ask(page)
    assert page.text_content("#agreement") == ""
    page.goto(address)
    page.wait_for_selector("#lead-beam:not([hidden])")
    assert "beam" in page.inner_text(".lead")


def test_ranked_hops_of_a_generator_keep_the_beam_of_a_hop(page: Any, address: str) -> None:
    page.goto(f"{address}/#q=is+the+otter+kind+%3F&r=generative&steps=ranked&hops=2&k=3")
    page.wait_for_selector("#results[aria-busy=false]")
    assert len(ids(page)) == 3
    page.click(".card-head >> nth=0")
    page.click("text=See the beam")
    page.wait_for_selector(".tree")
    assert page.text_content("#beam h2").startswith("The beam of hop ")
