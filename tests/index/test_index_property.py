"""All backends against a naive set of sequences."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grls.index.build import index_sequences
from grls.index.registry import BACKENDS
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
