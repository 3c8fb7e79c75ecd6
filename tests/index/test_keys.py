"""Both kinds of key index against the naive set of spans."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from grls.errors import DataError, IndexFormatError, MismatchError
from grls.index import substring as module
from grls.index.build import index_sequences
from grls.index.keys import KeyIndex, PrefixKeys
from grls.index.substring import SubstringIndex

END = 1
Key = tuple[int, ...]


@st.composite
def corpora(draw: Any) -> list[Key]:
    """Keys of few distinct tokens, or of ids beyond 16 bits."""
    low = draw(st.sampled_from([3, 70_000, 200_000]))
    key = st.lists(st.integers(low, low + draw(st.integers(1, 5))), min_size=1, max_size=9).map(tuple)
    return draw(st.lists(key, min_size=1, max_size=12))


def spans(keys: list[Key], anywhere: bool) -> set[Key]:
    return {
        key[a:b] for key in keys for a in range(len(key) if anywhere else 1) for b in range(a, len(key) + 1)
    }


def build(keys: list[Key], anywhere: bool) -> KeyIndex:
    if anywhere:
        return SubstringIndex.build([np.array(key) for key in keys])
    return PrefixKeys(index_sequences([np.array([*key, END]) for key in keys], END))


@settings(max_examples=150, deadline=None)
@given(corpora(), st.booleans(), st.booleans())
def test_every_span_and_no_other_can_be_written(keys: list[Key], anywhere: bool, sampled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if sampled:  # so that small intervals are treated like large ones
            patch.setattr(module, "_LARGE", 2)
            patch.setattr(module, "_BLOCK", 2)
            patch.setattr(module, "_CACHED", 3)
        index = build(keys, anywhere)
        expected = spans(keys, anywhere)
        after: dict[Key, set[int]] = {span: set() for span in expected}
        for span in expected - {()}:  # whose beginnings are spans, too
            after[span[:-1]].add(span[-1])
        level: dict[Key, np.ndarray] = {(): index.start()}
        seen: set[Key] = set()
        while level:
            states = np.stack(list(level.values()))
            following = index.follow(states)
            closes = index.closes(states)
            below: dict[Key, np.ndarray] = {}
            for s, span in enumerate(level):
                seen.add(span)
                part = slice(following.offsets[s], following.offsets[s + 1])
                tokens = following.tokens[part].tolist()
                assert tokens == sorted(after[span])
                holding = _holding(keys, span, anywhere, whole=False)
                ending = _holding(keys, span, anywhere, whole=True)
                assert closes[s] == (bool(ending) and span != ())
                if span:
                    assert index.keys(states[s], whole=False).tolist() == holding
                    assert index.keys(states[s]).tolist() == ending
                    limited = index.keys(states[s], whole=False, limit=1).tolist()
                    assert len(limited) == 1
                    assert set(limited) <= set(holding)
                below |= {(*span, t): state for t, state in zip(tokens, following.states[part], strict=True)}
            level = below
        assert seen == expected


def _holding(keys: list[Key], span: Key, anywhere: bool, whole: bool) -> list[int]:
    found = []
    for number, key in enumerate(keys):
        places = range(len(key) - len(span) + 1) if anywhere else range(1)
        if any(key[a : a + len(span)] == span and (not whole or a + len(span) == len(key)) for a in places):
            found.append(number)
    return found


def test_what_cannot_be_indexed_is_refused() -> None:
    raises(DataError, "empty", SubstringIndex.build, [])
    raises(DataError, "key 1 has no token", SubstringIndex.build, [np.array([3]), np.array([], int)])


@pytest.mark.parametrize(("kind", "anywhere"), [(PrefixKeys, False), (SubstringIndex, True)])
def test_an_index_comes_back_from_disk(kind: Any, anywhere: bool, tmp_path: Path) -> None:
    built = build([(5, 70_000, 5), (70_000,)], anywhere)
    built.save(tmp_path / "keys", "tok", "cor")
    loaded = kind.load(tmp_path / "keys", "tok", "cor")
    assert [loaded.tokens(n).tolist() for n in range(len(loaded))] == [[5, 70_000, 5], [70_000]]
    one, other = (index.follow(index.start()[None]) for index in (built, loaded))
    assert [part.tolist() for part in one] == [part.tolist() for part in other]
    raises(MismatchError, "another tokenizer", kind.load, tmp_path / "keys", "other", "cor")
    raises(MismatchError, "another corpus", kind.load, tmp_path / "keys", "tok", "other")


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    build([(5, 70_000, 5), (70_000,)], anywhere=True).save(tmp_path / "spans", "tok", "cor")
    raises(IndexFormatError, r"substring\.json is missing", SubstringIndex.load, tmp_path)
    damaged = tmp_path / "spans" / "suffixes.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    raises(IndexFormatError, r"suffixes\.npy.*checksum", SubstringIndex.load, tmp_path / "spans")
    manifest = tmp_path / "spans" / "substring.json"
    manifest.write_text('{"format": 2, "files": []}', encoding="utf-8")
    raises(
        IndexFormatError,
        "'(tokenizer|files)' is missing or malformed",
        SubstringIndex.load,
        tmp_path / "spans",
    )
    manifest.write_text('{"format": 9}', encoding="utf-8")
    raises(IndexFormatError, "format 9", SubstringIndex.load, tmp_path / "spans")


@pytest.mark.parametrize(("distinct", "bytes_a_token"), [(200, 2), (3000, 2), (70_000, 4)])
def test_many_distinct_tokens(distinct: int, bytes_a_token: int) -> None:
    """Ranks of two and of four bytes, whose order is not that of their first byte."""
    rng = np.random.default_rng(0)
    keys = [rng.integers(3, distinct, rng.integers(1, 6)) for _ in range(200)]
    keys += list(np.array_split(rng.permutation(distinct) + 3, max(1, distinct // 50)))
    index = SubstringIndex.build(keys)
    assert index.arrays()["ranks"].itemsize == bytes_a_token
    texts = [tuple(key.tolist()) for key in keys]
    for key in (0, 50, 199, len(keys) - 1):
        state = index.start()
        for place, token in enumerate(texts[key]):
            following = index.follow(state[None])
            span = texts[key][:place]
            if place:
                after = {
                    text[a + place]
                    for text in texts
                    for a in range(len(text) - place)
                    if text[a : a + place] == span
                }
                assert following.tokens.tolist() == sorted(after)
            state = following.states[int(np.searchsorted(following.tokens, token))]
        assert key in index.keys(state)
