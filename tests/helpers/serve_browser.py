"""What the tests of the page of the server do in a browser."""

from typing import Any

from serve_helpers import Slow

from grls.retrieve.hops.options import HopOptions

QUESTION = "is the otter kind ?"
PATIENCE = 20_000
"""Milliseconds: the machine of a test may have much to do."""


class Walking(Slow):
    """Hops that wait for the gate, which is open once; the server says that it has hops."""

    hops = HopOptions(steps="dynamic", max=3)

    @property
    def retriever(self) -> "Walking":
        return self

    def work(self) -> None:
        super().work()
        self.gate.clear()


def ask(page: Any, text: str = QUESTION, **chosen: str) -> None:
    page.wait_for_selector("#start:not([hidden]), #results:not([hidden])")  # the page is connected
    for name, value in chosen.items():
        page.select_option(f"#{name}", value)
    page.fill("#question", text)
    page.press("#question", "Enter")
    page.wait_for_selector("#results[aria-busy=false]")


def ids(page: Any, letter: str = "A") -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        f".answer[data-letter={letter}] li[data-id]", "all => all.map(one => one.dataset.id)"
    )
    return found


def local(url: str, faults: list[str]) -> None:
    if not url.startswith("http://127.0.0.1:"):
        faults.append(f"asked {url}")
