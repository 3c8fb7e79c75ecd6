"""The choice of candidates against its rule written down naively."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grls.decode.select
from grls.decode.select import select


def naive(queries, scores, complete, beams):
    """Finished: finished ones among the K best. Live: the K best that are not. Ties go by place."""
    finished, live = [], []
    for query in sorted(set(queries)):
        own = [n for n in range(len(queries)) if queries[n] == query and scores[n] > -np.inf]
        own.sort(key=lambda n: (-scores[n], n))
        finished += [n for n in own[:beams] if complete[n]]
        live += [n for n in own if not complete[n]][:beams]
    return finished, live


def check(queries, scores, complete, beams):
    found = select(
        np.array(queries, np.int64), np.array(scores, np.float64), np.array(complete, np.bool_), beams
    )
    assert (found.finished.tolist(), found.live.tolist()) == naive(queries, scores, complete, beams)


candidate = st.tuples(
    st.integers(0, 3), st.sampled_from([-np.inf, -3.0, -2.0, -1.0, -0.5, 0.0]), st.booleans()
)


@pytest.mark.parametrize("above", [0, 4096])
@given(candidates=st.lists(candidate, max_size=30), beams=st.integers(1, 5))
def test_small_steps(above, candidates, beams):
    """With pruning from the first candidate on, and without."""
    candidates.sort(key=lambda c: c[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grls.decode.select, "_PRUNE_ABOVE", above)
        check([c[0] for c in candidates], [c[1] for c in candidates], [c[2] for c in candidates], beams)


@pytest.mark.parametrize("seed", range(12))
def test_steps_that_are_pruned(seed, monkeypatch):
    """More than 4096 candidates; every third case has few distinct scores, every other a query of -inf."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(5000, 9000))
    queries = np.sort(rng.choice([0, 1, 2, 5], count, p=[0.6, 0.25, 0.149, 0.001]))
    scores = -rng.integers(0, 4, count).astype(float) if seed % 3 == 0 else -rng.random(count)
    scores[rng.random(count) < 0.1] = -np.inf
    if seed % 2:
        scores[queries == 2] = -np.inf
    complete = rng.random(count) < [0.0, 0.02, 0.5, 1.0][seed % 4]
    pruned = []
    prune = grls.decode.select._prune
    monkeypatch.setattr(
        grls.decode.select, "_prune", lambda *given: pruned.append(prune(*given)) or pruned[-1]
    )
    for beams in (1, 7, 100):
        check(queries.tolist(), scores.tolist(), complete.tolist(), beams)
    assert len(pruned) == 3
    assert len(pruned[0]) < count
