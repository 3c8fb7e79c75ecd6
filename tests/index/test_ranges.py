"""An index in prefix ranges: it allows, counts and finds what the whole index does."""

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from failing import fails, raises
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import small_retriever, write_small

from grls.cli import main
from grls.data.types import Passage
from grls.errors import ConfigError, IndexFormatError, MismatchError
from grls.index.array import ArrayIndex
from grls.index.base import ConstraintIndex
from grls.index.build import build_index, index_sequences
from grls.index.ranges import (
    PartsHere,
    PrefixRanges,
    RangedIndex,
    cuts_of,
    open_ranges,
    part_of,
)
from grls.io.files import read_json
from grls.io.seal import seal
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever

END = 1
token = st.sampled_from([0, 3, 4, 5, 70_000])
body = st.one_of(st.lists(token, max_size=6), st.lists(st.just(3), max_size=9))
corpora = st.lists(body.map(lambda ids: (*ids, END)), min_size=1, max_size=12)


def built(corpus: list[tuple[int, ...]], form: str = "whole") -> ArrayIndex:
    index = index_sequences([np.array(s) for s in corpus], END, form=form)  # type: ignore[arg-type]
    assert isinstance(index, ArrayIndex)
    return index


def ranged(index: ArrayIndex, cuts: list[int]) -> RangedIndex:
    places = [0, *sorted(cuts), len(index.rows)]
    parts = [part_of(index, low, high) for low, high in pairwise(places)]
    return RangedIndex(PartsHere(parts))


def equal(one: ConstraintIndex, other: ConstraintIndex, unique: bool = False) -> None:
    """Both allow the same under every prefix, over the same rows; ``unique``: as far as one row is left."""
    states = [np.array([index.start()]) for index in (one, other)]
    while len(states[0]):
        spans = [index.span(part) for index, part in zip((one, other), states, strict=True)]
        np.testing.assert_array_equal(*spans)
        if unique:
            several = spans[0][1] - spans[0][0] > 1
            states = [part[several] for part in states]
        allowed = [index.allowed(part) for index, part in zip((one, other), states, strict=True)]
        np.testing.assert_array_equal(allowed[0].tokens, allowed[1].tokens)
        np.testing.assert_array_equal(allowed[0].offsets, allowed[1].offsets)
        np.testing.assert_array_equal(one.count(states[0]), other.count(states[1]))
        states = [each.states for each in allowed]


@settings(max_examples=150, deadline=None)
@given(corpus=corpora, draw=st.data())
def test_any_cuts_make_the_same_index(corpus: list[tuple[int, ...]], draw: st.DataObject) -> None:
    whole = built(corpus)
    inside = st.sets(st.integers(1, len(whole.rows) - 1)) if len(whole.rows) > 1 else st.just(set())
    index = ranged(whole, list(draw.draw(inside)))
    equal(whole, index)
    rows, held = whole.rows, index.rows
    assert (len(held), held.longest, held.shared) == (len(rows), rows.longest, rows.shared)
    np.testing.assert_array_equal(held.row_of, rows.row_of)
    np.testing.assert_array_equal(held.lengths(), rows.lengths())
    every = np.arange(len(rows) + 1)
    np.testing.assert_array_equal(held.members_before(every), rows.members_before(every))
    low, high = sorted(draw.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    np.testing.assert_array_equal(held.members_in(low, high), rows.members_in(low, high))
    assert [tuple(index.tokens(n)) for n in range(len(corpus))] == corpus
    assert index.passages(index.start()).tolist() == whole.passages(whole.start()).tolist()
    np.testing.assert_array_equal(
        held.tokens_at(every[:-1], 0 * every[:-1]), rows.tokens_at(every[:-1], 0 * every[:-1])
    )


@settings(max_examples=50, deadline=None)
@given(corpus=corpora, draw=st.data())
def test_unique_prefixes_are_those_of_the_whole(corpus: list[tuple[int, ...]], draw: st.DataObject) -> None:
    whole = built(corpus, "prefixes")
    inside = st.sets(st.integers(1, len(whole.rows) - 1)) if len(whole.rows) > 1 else st.just(set())
    index = ranged(whole, list(draw.draw(inside)))
    equal(whole, index, unique=True)
    raises(ConfigError, "needs whole passages", index.tokens, 0)


@pytest.mark.parametrize("lengths", [[9, 2, 2, 2], [2, 2, 2, 90], [3, 3, 3, 3], [50, 50]])
@pytest.mark.parametrize("parts", [1, 2])
def test_cuts_leave_no_part_empty(lengths: list[int], parts: int) -> None:
    whole = built([(*range(10 * n + 2, 10 * n + 1 + length), END) for n, length in enumerate(lengths)])
    for count in (parts, len(lengths)):
        cuts = cuts_of(whole, count).tolist()
        assert (cuts[0], cuts[-1], len(cuts)) == (0, len(lengths), count + 1)
        assert cuts == sorted(set(cuts))
    for count in (0, len(lengths) + 1):
        raises(ConfigError, f"got {count}", cuts_of, whole, count)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ranges")
    small_retriever(write_small(place / "data")).save_pretrained(place / "whole")
    return place / "whole"


@pytest.fixture(scope="module")
def split(whole: Path) -> Path:
    folder = whole.parent / "split"
    assert main(["index", "split", f"{whole}", f"--output={folder}", "--parts=2"]) == 0
    return folder


def test_one_beam_over_two_ranges_finds_what_it_finds_in_the_whole(
    whole: Path, split: Path, tmp_path: Path
) -> None:
    texts = ["is the otter calm ?", "is the lynx proud ?", "something", "then it is quick"]
    one, two = (GenerativeRetriever.from_pretrained(folder, "cpu") for folder in (whole, split))
    assert isinstance(two.index, RangedIndex)
    for mode, beams in (("renormalized", 1), ("renormalized", 3), ("full", 3), ("renormalized", 12)):
        one.options = two.options = SearchOptions(beams=beams, mode=mode)  # type: ignore[arg-type]
        hits = one.retrieve(texts, beams)
        assert two.retrieve(texts, beams) == hits
        if beams > 1:
            allowed = [[hit.id for hit in hits[0]][1:], *[["r0", "lynx-calm"]] * 3]
            assert two.retrieve(texts, beams, allowed) == one.retrieve(texts, beams, allowed)
    one.remove([hits[0][0].id])
    one.add([Passage("new", "the otter")])
    one.save_pretrained(tmp_path / "cut", PrefixRanges(2))
    again = GenerativeRetriever.from_pretrained(tmp_path / "cut", "cpu", options=one.options)
    assert isinstance(again.index, RangedIndex)
    assert again.retrieve(texts, 11) == one.retrieve(texts, 11)


def test_a_range_that_is_damaged_is_an_error(split: Path, tmp_path: Path) -> None:
    shutil.copytree(split, tmp_path / "r")
    file = tmp_path / "r" / "index" / "part-1" / "tokens.npy"
    file.write_bytes(file.read_bytes()[:-1])
    raises(IndexFormatError, r"part-1/tokens.npy", GenerativeRetriever.from_pretrained, tmp_path / "r", "cpu")
    shutil.rmtree(tmp_path / "r" / "index" / "part-1")
    shutil.copytree(split / "index" / "part-0", tmp_path / "r" / "index" / "part-1")
    raises(IndexFormatError, "it has changed", open_ranges, tmp_path / "r" / "index")
    seal(tmp_path / "r" / "index" / "ranges.json", read_json(tmp_path / "r" / "index" / "ranges.json"))
    raises(MismatchError, "another corpus", open_ranges, tmp_path / "r" / "index")
    (tmp_path / "r" / "index" / "numbers-0.npy").unlink()
    with pytest.raises(IndexFormatError, match=r"numbers-0.npy: the file is missing"):
        open_ranges(tmp_path / "r" / "index")
    for text in (
        "[]",
        '{"format": 2, "parts": 0, "tokenizer": "", "corpus": "", "files": {}}',
    ):
        (tmp_path / "r" / "index" / "ranges.json").write_text(text, encoding="utf-8")
        with pytest.raises(IndexFormatError):
            open_ranges(tmp_path / "r" / "index")


def test_what_cannot_be_cut_or_changed_is_refused(
    whole: Path, split: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = fails(capsys, "index", "split", whole, f"--output={tmp_path}/r", "--parts=99")
    assert "an index of 11 rows has 1 to 11 parts, got 99." in line
    assert not (tmp_path / "r").exists()
    opened = GenerativeRetriever.from_pretrained(whole, "cpu")
    opened.save_pretrained(tmp_path / "cut", PrefixRanges(3))
    cut = GenerativeRetriever.from_pretrained(tmp_path / "cut", "cpu")
    for change in (
        lambda: cut.save_pretrained(tmp_path / "s"),
        lambda: cut.add([Passage("new", "new words")]),
        lambda: cut.remove(["r0"]),
    ):
        raises(ConfigError, "cut into prefix ranges can neither be saved nor be changed", change)
    assert len(cut.corpus) == len(opened.corpus)
    index = build_index(opened.corpus, opened.codec, "flat")
    flat = GenerativeRetriever(opened.model, opened.codec, opened.corpus, index)
    with pytest.raises(ConfigError, match=r"only an index of the backend 'array' is cut into ranges"):
        flat.save_pretrained(tmp_path / "s", PrefixRanges(2))
    assert not (tmp_path / "s").exists()
