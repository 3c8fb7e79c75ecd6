"""What the README and the pages of ``docs/`` refer to is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from docs.site import commands, notebooks, prose, reference

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "RELEASING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "docs" / "llms.txt",
]
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


GENERATED = {ROOT / "docs" / place for place in (*commands.places(), *reference.places(), *notebooks.pages())}
"""Pages of the site that are no files."""


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as its readers' browsers name them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if file.resolve() in GENERATED and not anchor:
            continue
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_readme_leads_to_every_guide_as_llms_txt_does() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    for folder, page in ((ROOT, text), (ROOT / "docs", listed)):
        linked = {folder / target.partition("#")[0] for target in LINK.findall(page)}
        assert {*(ROOT / "docs" / "guides").glob("*.md")} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_and_lists_are_shown_as_such(page: Path) -> None:
    """A table has a head, and a blank line stands before tables and lists: the site needs both."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = ["", *text.splitlines(), ""]
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith("|") and not before.startswith("|"):
            assert not before.strip(), line
            assert re.match(r"\| ?--", after), line
        if re.match(r"- |1\. ", line):
            assert re.match(r"- |\d+\. |  |$", before), line


MODULE = r"`((?:grls|data_prep)[\w./]*?)(?:\.py)?`"
LISTED = re.compile(rf"((?:`\w+`(?:, | and ))*`\w+`) in {MODULE}|in {MODULE}: ([^|\n]*)")


def missing_names(text: str) -> list[str]:
    """The names that a page says are in a module, "`f` in `m`" or "in `m`: `f`, `g`", and that are not."""
    missing = []
    for before, where, module, after in LISTED.findall(text):
        place = import_module((where or module).replace("/", "."))
        names = re.findall(r"`(\w+)`", before or after)
        missing += [f"{name} in {place.__name__}" for name in names if not hasattr(place, name)]
    return missing


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "extend").glob("*.md")), ids=lambda page: page.stem)
def test_what_the_pages_on_extending_name_is_in_its_module(page: Path) -> None:
    assert missing_names(page.read_text(encoding="utf-8")) == []


MOST_WORDS, MOST_ON_AVERAGE, MOST_LONG, MOST_WIDE = 54_850, 13.5, 0, 0
"""Bounds of README and docs (``python -m docs.site.prose``): words of prose, tables and code; words a
sentence; sentences of more than 40 words; lines of prose above 100 characters. They may only fall."""


def test_prose_is_counted() -> None:
    text = """# A heading of words

Otters eat `grls fit --k 5` fish. They sleep
in a [holt](holt.md)! Do they?

- An item
- Another one, e.g. This. 2 of them.

| a table | has cells. Two here |
|---|---|

```
code of five words here
```
"""
    assert prose.sentences(text) == [
        "Otters eat `code` fish.", "They sleep in a holt!", "Do they?",
        "An item", "Another one, e.g. This.", "2 of them.",
    ]  # fmt: skip
    assert prose.cells(text) == ["a table", "has cells.", "Two here"]
    assert prose.wide_lines("a " * 51 + "\n" + "a" * 101 + "\n| " + "a " * 51) == ["a " * 51]


def test_pages_are_short_and_so_are_their_sentences() -> None:
    count = prose.count(*prose.pages())
    assert sum(count.lengths) + sum(count.cells) + count.code <= MOST_WORDS
    assert sum(count.lengths) / len(count.lengths) <= MOST_ON_AVERAGE
    assert count.long <= MOST_LONG
    wide = [line for page in prose.pages() for line in prose.wide_lines(page.read_text(encoding="utf-8"))]
    assert len(wide) <= MOST_WIDE
