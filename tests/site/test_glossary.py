"""The pages use the terms of the glossary, and no other words for the same things."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GLOSSARY = DOCS / "start" / "glossary.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    found = ROW.findall(GLOSSARY.read_text(encoding="utf-8"))
    return [row for row in found if row[0] not in ("term", "---")]


def test_a_term_stands_there_once() -> None:
    terms = [term for term, _, _ in rows()]
    assert len(terms) == len(set(terms)) > 40


def test_the_pages_use_the_terms() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md") if page != GLOSSARY)
    words = " ".join(text.split()).lower()
    stems = [term.lower().removesuffix("y") for term, _, _ in rows()]
    assert [stem for stem in stems if stem not in words] == []


@pytest.mark.parametrize(
    "page", [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda p: p.name
)
def test_no_other_words_for_them(page: Path) -> None:
    if page == GLOSSARY:
        return
    text = " ".join(page.read_text(encoding="utf-8").split())
    others = [word for _, _, words in rows() for word in words.split(", ")]
    assert [word for word in others if re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE)] == []
