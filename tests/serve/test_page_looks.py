"""How the page at / looks and is used: what fits, where the focus goes, keys, screen readers."""

import json
from typing import Any

import pytest
from serve_browser import PATIENCE, QUESTION, ask, ids, until


def test_the_keyboard(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".example")
    page.keyboard.press("/")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.wait_for_selector("#results[aria-busy=false] li[data-id]")
    page.keyboard.press("ArrowDown")
    focused = "document.activeElement.closest('li')?.dataset.id"
    assert page.evaluate(focused) == ids(page)[0]
    page.keyboard.press("Enter")
    assert page.get_attribute(".card-head >> nth=0", "aria-expanded") == "true"
    page.keyboard.press("b")
    page.wait_for_selector(".tree")
    page.focus("#question")
    page.keyboard.press("Escape")
    assert page.locator("#beam").is_hidden()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()


def test_the_time_counts_passages_of_the_chain_and_no_hops(page: Any, address: str) -> None:
    """A chain of one passage may be the best after three hops."""
    hit = {"id": "otter-calm", "title": "", "text": "the otter is calm .", "score": -1.0}
    same = {"hit": hit, "chain": [hit["id"]], "score": -1.0, "scores": [-1.0]}
    hops = [same | {"number": n, "last": n == 3, "done": n == 3} for n in (1, 2, 3)]
    events = [f"event: hop\ndata: {json.dumps(hop)}\n\n" for hop in hops]
    text = "".join([*events, "event: end\ndata: {}\n\n"])
    page.route("**/v1/stream", lambda route: route.fulfill(body=text, content_type="text/event-stream"))
    page.goto(address)
    ask(page)
    assert ids(page) == ["otter-calm"]
    assert page.text_content(".timing").startswith("1 passage and DONE in ")


def test_the_choice_of_steps_is_never_cut(page: Any, address: str) -> None:
    """The text of each way fits beside the arrow, with one and with two retrievers."""
    page.goto(address)
    ask(page)
    fits = """list => { const pen = document.createElement("canvas").getContext("2d");
        pen.font = getComputedStyle(list).font; const room = list.clientWidth - 40;
        return [...list.options].map(one => one.text).filter(text => pen.measureText(text).width > room); }"""
    for width in (1300, 1000, 830, 701, 700, 400, 340):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate("document.getElementById('options').open = true")
        for steps in ("own", "fixed"):
            for other in ("", "bm25"):
                page.select_option("#steps", steps)
                page.select_option("#other", other)
                assert page.eval_on_selector("#steps", fits) == [], width
                assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_example_is_asked_of_a_retriever_that_has_its_passages(page: Any, address: str) -> None:
    def retrievers(route: Any) -> None:
        body = route.fetch().json()
        for one in body["retrievers"]:
            one["examples"] = [QUESTION] if one["retriever"] == "bm25" else []
        route.fulfill(json=body)

    page.route("**/v1/retrievers", retrievers)
    page.goto(address)
    page.click(".example")
    page.wait_for_selector("li[data-id]")
    assert page.input_value("#retriever") == "bm25"


def test_the_focus_stays_where_the_keys_are(page: Any, address: str) -> None:
    """A beam that closes hands it back to its passage; Ask and Cancel hand it to each other."""
    focused = "document.activeElement.id || document.activeElement.className"
    page.goto(address)
    ask(page)
    page.focus(".card-head >> nth=0")
    page.keyboard.press("b")
    page.wait_for_selector(".tree")
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "card-head"
    held: list[Any] = []
    page.route("**/v1/stream", lambda route: held.append(route))
    page.focus("#ask")
    page.keyboard.press("Enter")
    until(lambda: page.evaluate(focused) == "cancel")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Cancelled")
    assert page.evaluate(focused) == "ask"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens(browser: Any, address: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{address}/#q=is+the+otter+kind+%3F&beam=A1.1&with=bm25")
    page.wait_for_selector(".tree")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".options").is_hidden()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == dark) == (scheme == "dark")
    context.close()


def test_what_readers_of_a_screen_need(page: Any, address: str) -> None:
    page.goto(address)
    ask(page)
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, textarea, button, svg[role=img]")].filter(one =>
        !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim())).length"""
    )
    assert nameless == 0
    for landmark in ("main", "header.top", "nav", "section[aria-label=Question]", "[role=status]"):
        assert page.locator(landmark).count() == 1
    page.reload()
    page.wait_for_selector("li[data-id]")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
