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
    candidates.sort(key=lambda c: c[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grls.decode.select, "_PRUNE_ABOVE", above)
        check([c[0] for c in candidates], [c[1] for c in candidates], [c[2] for c in candidates], beams)
