"""Two segments as one index, and merged into one: against an index built of all passages."""

from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_index_property import DONE, END, corpora, walk

from grls.errors import ConfigError
from grls.index.base import ConstraintIndex, Segment
from grls.index.build import index_sequences
from grls.index.registry import BACKENDS
from grls.index.rows import Form
from grls.index.union import UnionIndex, merge

Corpus = list[tuple[int, ...]]


def built(corpus: Corpus, backend: str = "array", form: Form = "whole") -> Segment:
    return index_sequences([np.array(s) for s in corpus], END, backend, form)


def union(base: Corpus, added: Corpus, backend: str) -> tuple[ConstraintIndex, Corpus]:
    """The union, and the corpus as it is numbered: base passages, added passages, DONE."""
    done = [(DONE, END)]
    return UnionIndex(built(base + done, backend), built(added, backend)), base + added + done


def assert_equal(one: Segment, other: Segment) -> None:
    assert (one.backend, one.rows.end) == (other.backend, other.rows.end)
    assert (one.rows.longest, one.rows.form) == (other.rows.longest, other.rows.form)
    for name in ("tokens", "offsets.blocks", "offsets.within", "members", "member_offsets"):
        mine, its = (attrgetter(name)(index.rows) for index in (one, other))
        assert mine.tolist() == its.tolist(), name
        # A token that only the rest of a passage holds makes the tokens of its prefix wider.
        assert mine.dtype == its.dtype or (name, one.rows.form) == ("tokens", "prefixes"), name
    for name, array in one.arrays().items():
        assert array.tolist() == other.arrays()[name].tolist(), name


@settings(max_examples=180, deadline=None)
@given(backend=st.sampled_from(sorted(BACKENDS)), base=corpora, added=corpora.filter(bool))
def test_a_union_is_an_index_of_both(backend: str, base: Corpus, added: Corpus) -> None:
    index, corpus = union(base, added, backend)
    walk(index, corpus)
    rows = index.rows
    whole = built(corpus, backend).rows
    assert [tuple(index.tokens(n)) for n in range(len(corpus))] == corpus
    assert rows.row_of.tolist() == whole.row_of.tolist()
    assert rows.lengths().tolist() == whole.lengths().tolist()
    every = np.repeat(np.arange(len(whole)), whole.lengths())
    position = np.concatenate([np.arange(n) for n in whole.lengths()])
    assert rows.tokens_at(every, position).tolist() == whole.tokens.tolist()
    assert rows.members_before(np.arange(len(whole) + 1)).tolist() == [
        whole.members_before(r) for r in range(len(whole) + 1)
    ]
    for low in range(len(whole) + 1):
        for high in range(low, len(whole) + 1):
            assert rows.members_in(low, high).tolist() == whole.members_in(low, high).tolist()
    assert (rows.shared, rows.longest) == (whole.shared, whole.longest)


@settings(max_examples=180, deadline=None)
@given(backend=st.sampled_from(sorted(BACKENDS)), base=corpora, added=corpora, data=st.data())
def test_merged_equals_rebuilt(backend: str, base: Corpus, added: Corpus, data: Any) -> None:
    done = [(DONE, END)]
    index = union(base, added, backend)[0] if added else built(base + done, backend)
    corpus = base + added + done
    some = st.lists(st.booleans(), min_size=len(corpus) - 1, max_size=len(corpus) - 1)
    keep = np.array([*data.draw(some), True])
    expected = built([s for s, stays in zip(corpus, keep, strict=True) if stays], backend)
    assert_equal(merge(index, keep), expected)


@settings(max_examples=100, deadline=None)
@given(corpus=corpora.filter(bool), data=st.data())
def test_what_is_left_of_unique_prefixes_is_cut_anew(corpus: Corpus, data: Any) -> None:
    """Without a neighbour, fewer tokens tell a row from the others."""
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(corpus), max_size=len(corpus))))
    expected = built([s for s, stays in zip(corpus, keep, strict=True) if stays], form="prefixes")
    assert_equal(merge(built(corpus, form="prefixes"), keep), expected)


def test_unique_prefixes_are_no_part_of_a_union() -> None:
    whole, prefixes = (built([(3, 4, END), (DONE, END)], form=form) for form in ("whole", "prefixes"))
    for base, added in ((whole, prefixes), (prefixes, whole)):
        with pytest.raises(
            ConfigError, match=r"an index of two segments needs whole.*--index.form whole`\.$"
        ):
            UnionIndex(base, added)
