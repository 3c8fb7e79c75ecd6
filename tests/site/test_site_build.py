"""The site builds strictly, holds what is generated, and loads nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

from grls.cli import VERBS

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Element -> the attribute that a browser loads."""


class Loaded(HTMLParser):
    """What a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in LOADS and values.get("rel") not in ("canonical", "next", "prev"):
            self.places.append(values.get(LOADS[tag]) or "")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        reader = Loaded()
        reader.feed(page.read_text(encoding="utf-8"))
        assert not [place for place in reader.places if re.match(r"(https?:)?//", place)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_llms_txt_leads_to_pages(site: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert len(links) > 30
    assert [link for link in links if not (site / link).is_file()] == []


def test_every_command_has_its_help(site: Path) -> None:
    for name, verb in VERBS.items():
        page = (site / "reference" / "commands" / f"{name}.html").read_text(encoding="utf-8")
        for word in ("", *verb.names):
            words = f"grls {name} {word}".strip()
            assert f"usage: {words} " in page, words


def test_every_public_name_has_its_docstring(site: Path) -> None:
    import grls

    page = (site / "reference" / "python" / "grls.html").read_text(encoding="utf-8")
    for name in grls.__all__:
        assert re.search(rf'id="grls\.(\w+\.)*{name}"', page), name
    assert ":class:" not in page
