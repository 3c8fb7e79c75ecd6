"""How the page at / looks and is used: what fits, where the focus goes, keys, screen readers."""

from typing import Any

from serve_browser import QUESTION, ask, ids, until


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


def test_the_theme_and_a_narrow_screen(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{address}/#q=is+the+otter+kind+%3F&beam=A1.1&with=bm25")
    page.wait_for_selector(".tree")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".options").is_hidden()
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate(background) != light


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
