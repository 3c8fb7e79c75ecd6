"""The drawings of the pages are those that the command draws, and their texts stay within."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from docs.drawings import beam, trie
from docs.drawings.__main__ import DRAWINGS
from docs.drawings.sketch import WIDTH

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_files_are_what_the_command_draws(name: str) -> None:
    """`python -m docs.drawings` writes them anew."""
    assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name]()


@pytest.mark.parametrize("name", DRAWINGS)
def test_texts_stay_within(name: str) -> None:
    root = ElementTree.fromstring(DRAWINGS[name]())
    for text in root.iter(f"{SVG}text"):
        style, x, words = text.get("class") or "", float(text.get("x") or 0), text.text or ""
        wide = len(words) * (8.0 if "code" in style else 7.0)
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor") or "start"]
        assert left >= 0, words
        assert left + wide <= WIDTH + 4, words
        assert 0 < float(text.get("y") or 0) < float(root.get("height") or 0), words


def test_a_state_is_a_range_of_rows() -> None:
    assert trie.ranges()[1:3] == [("ben", 1, 3, ["is"]), ("ben is", 1, 3, ["cold", "old"])]


def test_the_beam_finds_the_likeliest_passages() -> None:
    kept = beam.steps()[-1].kept
    assert [prefix for prefix, _ in kept] == sorted(beam.PASSAGES, key=lambda p: -beam.PASSAGES[p])[:2]
