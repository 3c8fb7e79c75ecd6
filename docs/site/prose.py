"""Counts the prose of README and pages: ``python -m docs.site.prose [PAGE …]``; ``make docs`` ends with it.

Headings are not counted; tables and blocks of code are counted apart. A word is what stands between blanks;
code within a line is one word. A paragraph and an item of a list end a sentence.

Columns, page by page and in all: words of prose, words a sentence (mean), sentences of more than ``LONG``
words (in tables, too), words in tables, words in blocks of code. It prints the long sentences of named pages.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LONG = 40
"""A sentence with more words is too long."""
WIDTH = 100
"""Characters of a line of prose. A line of a single word, such as an address, may be longer."""

FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$|<!--.*?-->|^    .*?$", re.MULTILINE | re.DOTALL)
NO_PROSE = re.compile(r"^(\||#|!\[[^]]*\]\([^)]*\)$|---+$)")
ITEM = re.compile(r"^ *([-*]|\d+\.) ")
LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
ABBREVIATED = re.compile(r"\b(e\.g|i\.e|cf|vs|al|etc|No|Fig|Sec|App)\.$")
NAMES = "grls|vLLM"
"""Names that begin with a small letter, also at the beginning of a sentence."""
END = re.compile(
    rf"(?<=[.!?])[\"'”)\]*_]*\s+(?=[\"'“(\[*_`]*(?:[A-Z0-9`]|{NAMES}))"
    rf"|(?<=[.!?][\"'”)\]*_])\s+(?=[A-Z0-9`(\[*]|{NAMES})"
)


class Count(NamedTuple):
    """The words of one page or of several.

    Args:
        lengths: Words of each sentence of prose.
        cells: Words of each sentence within tables.
        code: Words of blocks of code.
    """

    lengths: list[int]
    cells: list[int]
    code: int

    def __str__(self) -> str:
        average = f"{mean(self.lengths):.1f}" if self.lengths else "-"
        return f"{sum(self.lengths):7,d} {average:>6} {self.long:6d} {sum(self.cells):8,d} {self.code:7,d} "

    @property
    def long(self) -> int:
        """Sentences of more than ``LONG`` words, those of tables too."""
        return sum(length > LONG for length in (*self.lengths, *self.cells))


HEAD = "  prose   mean   long   tables    code"


def pages() -> list[Path]:
    """The README and the pages that are written by hand."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def sentences(text: str) -> list[str]:
    """The sentences of a page in Markdown."""
    found = [one for block in _blocks(text) for one in _split(block)]
    return [" ".join(one.split()) for one in found if words(one)]


def words(sentence: str) -> int:
    """The words of a sentence; a sign alone, such as a dash, is none."""
    return sum(any(map(str.isalnum, word)) for word in sentence.split())


def wide_lines(text: str) -> list[str]:
    """The lines of prose that are longer than ``WIDTH`` characters."""
    lines = FENCED.sub("", text).splitlines()
    return [one for one in lines if len(one) > WIDTH and not NO_PROSE.match(one) and " " in one.strip()]


def cells(text: str) -> list[str]:
    """The sentences in the cells of tables, and the items of their lists, which semicolons part."""
    rows = [_plain(line) for line in FENCED.sub("", text).splitlines() if line.startswith("|")]
    items = [item for row in rows for item in re.split(r"(?<!\\)\||;", row)]
    return [one.strip() for item in items for one in _split(item) if words(one)]


def count(*pages: Path) -> Count:
    """The words of pages."""
    texts = [page.read_text(encoding="utf-8") for page in pages]
    code = " ".join(match[0] for text in texts for match in FENCED.finditer(text))
    return Count(
        [words(one) for text in texts for one in sentences(text)],
        [words(one) for text in texts for one in cells(text)],
        words(code),
    )


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs and items of lists."""
    block: list[str] = []
    for line in [*FENCED.sub("", text).splitlines(), ""]:
        ends = not line.strip() or NO_PROSE.match(line)
        if (ends or ITEM.match(line)) and block:
            yield _plain(" ".join(block))
            block = []
        if not ends:
            block.append(ITEM.sub("", line))


def _plain(text: str) -> str:
    """Without marks of links, and with one word for code."""
    return LINK.sub(r"\1", re.sub(r"`[^`]*`", "`code`", text))


def _split(block: str) -> Iterator[str]:
    start = 0
    for end in END.finditer(block):
        if not ABBREVIATED.search(block[: end.start()]):
            yield block[start : end.start()]
            start = end.end()
    yield block[start:]


def main() -> None:
    """Print the table."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    print(HEAD)
    for page in named or pages():
        print(count(page), page.relative_to(ROOT))
        text = page.read_text(encoding="utf-8")
        for sentence in (*sentences(text), *cells(text)) if named else ():
            if words(sentence) > LONG:
                print(f"{words(sentence):9d}: {sentence}")
    print(count(*named or pages()), "in all")


if __name__ == "__main__":
    main()
