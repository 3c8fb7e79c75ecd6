"""All backends against a naive set of sequences, and changed indexes against built ones."""

from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_data import small_tokenizer

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.index.backends import BACKENDS
from grls.index.base import Segment
from grls.index.build import build_index, changed_index, index_sequences
from grls.index.storage import load_index, save_index
from grls.io.recipes import load_plugins

load_plugins()  # backends of GRLS_PLUGINS are tested, too

END = 1
DONE = 2
BIG = 70_000  # needs 32-bit tokens, and lies beyond the surrogates

token = st.sampled_from([0, 3, 4, 5, BIG])
body = st.one_of(st.lists(token, max_size=6), st.just([DONE]), st.lists(st.just(3), max_size=9))
corpora = st.lists(body.map(lambda ids: (*ids, END)), max_size=12)


def walk(index, corpus):
    """Visit every prefix of the naive corpus in the index, a level at a time."""
    frontier = {(): index.start()}
    while frontier:
        prefixes = list(frontier)
        states = np.array([frontier[p] for p in prefixes], dtype=np.int64)
        allowed = index.allowed(states)
        counts, unique = index.count(states), index.unique(states)
        frontier = {}
        for i, prefix in enumerate(prefixes):
            under = [n for n, s in enumerate(corpus) if s[: len(prefix)] == prefix]
            expected = sorted({corpus[n][len(prefix)] for n in under if len(corpus[n]) > len(prefix)})
            span = slice(allowed.offsets[i], allowed.offsets[i + 1])
            assert allowed.tokens[span].tolist() == expected
            assert sorted(index.passages(int(states[i]))) == under
            assert counts[i] == len(under)
            assert unique[i] == (len({corpus[n] for n in under}) == 1)
            assert expected or not under or prefix[-1] == END, "a dead end"
            children = zip(allowed.tokens[span], allowed.states[span], strict=True)
            frontier.update({(*prefix, int(t)): int(s) for t, s in children})


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=corpora)
@example(corpus=[(3, 4, END), (3, END), (3, 4, END), (DONE, END)])  # duplicates and prefixes
@example(corpus=[(3, 4, END)])
@example(corpus=[])
@example(corpus=[(END,)])
@example(corpus=[(DONE, END)])
def test_backend_equals_the_naive_set(backend: str, corpus: list[tuple[int, ...]], tmp_path: Path) -> None:
    index = index_sequences([np.array(s) for s in corpus], END, backend)
    walk(index, corpus)
    assert [tuple(index.tokens(n)) for n in range(len(corpus))] == corpus
    save_index(index, tmp_path / "index")
    walk(load_index(tmp_path / "index"), corpus)


@pytest.fixture(scope="module")
def codec(data: Path) -> Codec:
    return Codec(small_tokenizer(data))


def assert_equal(one: Segment, other: Segment) -> None:
    assert (one.backend, one.rows.end) == (other.backend, other.rows.end)
    assert (one.rows.longest, one.rows.form) == (other.rows.longest, other.rows.form)
    assert one.rows.lengths().tolist() == other.rows.lengths().tolist()
    np.testing.assert_array_equal(one.rows.row_of, other.rows.row_of)
    for name in ("tokens", "offsets.blocks", "offsets.within", "members", "member_offsets"):
        mine, its = (attrgetter(name)(index.rows) for index in (one, other))
        assert (mine.tolist(), mine.dtype) == (its.tolist(), its.dtype), name
    for name, array in one.arrays().items():
        assert array.tolist() == other.arrays()[name].tolist(), name


words = st.sampled_from(["the", "otter", "lynx", "is", "calm", "<DONE>"])
texts = st.lists(st.lists(words, max_size=5).map(" ".join), max_size=8)


@pytest.mark.parametrize(
    ("backend", "form"), [*((name, "whole") for name in BACKENDS), ("array", "prefixes")]
)
@settings(max_examples=60, deadline=None)
@given(base=texts.filter(bool), added=texts, data=st.data())
def test_a_changed_index_is_that_of_the_changed_corpus(
    codec: Codec, backend: str, form: Any, base: list[str], added: list[str], data: st.DataObject
) -> None:
    """Without a neighbour, fewer tokens tell a row from the others; with another, more."""
    old = [Passage(f"p{number}", text) for number, text in enumerate(base)]
    new = [Passage(f"n{number}", text) for number, text in enumerate(added)]
    removed = data.draw(st.sets(st.sampled_from(range(len(old))), max_size=len(old) - (not new)))
    kept = [number for number in range(len(old)) if number not in removed]
    corpus = Corpus.from_passages(old)
    index = build_index(corpus, codec, backend, form=form)
    if form == "prefixes":
        index.complete = lambda number: codec.passages(corpus.passages([number]))[0]
    more = Corpus.from_passages(new) if new else None
    changed = changed_index(index, np.array(kept, dtype=np.int64), more, codec)
    left = Corpus.from_passages([*(old[number] for number in kept), *new])
    assert_equal(changed, build_index(left, codec, backend, form=form))
