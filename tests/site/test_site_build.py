"""The site builds strictly, holds what is generated, and loads nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

from grls.cli import VERBS

ROOT = Path(__file__).parents[2]
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


class Prose(HTMLParser):
    """The text of a page without its code, and its code within lines."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.text = self.code = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in CODE:
            self.inside.append(tag)
        elif not self.inside:
            self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        self.text += "" if self.inside else data
        self.code += f"{data}\0" if self.inside == ["code"] else ""


CODE = ("code", "pre", "script", "style", "svg", "title")
LEFT_OVER = re.compile(r"`|\*\*|~~~|^ *\|.*\|$|^#+ |\]\(|<!--|:::|no-run|^[-*] [a-z]", re.MULTILINE)
"""Marks of Markdown that a reader sees where a page is written in a way that the site does not know."""
BLOCK = re.compile(r"(?:^|\0)\w+(?: [\w-]+)?\n[^\0]*\n")
"""Code within a line that is a block with its language."""


def test_no_mark_of_markdown_is_left_over(site: Path) -> None:
    pages = {}
    for page in sorted(site.rglob("*.html")):
        reader = Prose()
        reader.feed(page.read_text(encoding="utf-8"))
        pages[page] = reader.text
        assert not BLOCK.search(reader.code), page
    assert sum(map(len, pages.values())) > 200_000
    left_over = [
        (page.relative_to(site).as_posix(), text[max(0, mark.start() - 40) : mark.end() + 40])
        for page, text in pages.items()
        for mark in LEFT_OVER.finditer(text)
    ]
    assert left_over == []


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


def test_blocks_of_code_are_shown_as_such(site: Path) -> None:
    """A page of the site has as many blocks of code as its source has fences, marks between them or not."""
    docs = ROOT / "docs"
    for page in sorted(docs.rglob("*.md")):
        fences = len(re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE))
        built = (site / page.relative_to(docs).with_suffix(".html")).read_text(encoding="utf-8")
        assert 2 * len(re.findall(r'<div class="(?:language-\w+ )?highlight"', built)) == fences, page
