"""A passage followed through the beam search, against a search written down naively."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, small_t5
from score_all import score_all

from grls.decode.beam import Decoder
from grls.decode.trace import beaten, follow, score_passages, trace
from grls.index.build import index_sequences
from grls.models.seq2seq.slots import Seq2SeqGenerator

INPUT = [7, 9, 30, END]


@cache
def generator(seed: int = 0) -> Seq2SeqGenerator:
    return Seq2SeqGenerator(small_t5(seed, scale=1.0))


@cache
def logits(seed: int, prefix: tuple[int, ...]) -> torch.Tensor:
    g = generator(seed)
    encoded, mask = g.encode([INPUT])
    with torch.inference_mode():
        hidden = g.forward(encoded, mask, torch.tensor([[g.start_token, *prefix]]))
        return g.head.all(hidden[0])[-1].double()


def naive(
    rows: list[tuple[int, ...]], seed: int, beams: int, k: int, mode: str, stop: bool, gold: tuple[int, ...]
) -> tuple[list[tuple[int, ...]], str, int, int | None]:
    """The search over prefixes as tuples.

    Returns the rows found, the gold row's last fate, the step of it (from 0), and its rank there.
    """
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    results: list[tuple[tuple[int, ...], float]] = []
    fate, at, place, step = "kept", -1, None, 0
    while live:
        candidates = []
        for prefix, score in live:
            allowed = sorted({r[len(prefix)] for r in rows if r[: len(prefix)] == prefix})
            values = logits(seed, prefix)
            pool = values if mode == "full" else values[allowed]
            for token in allowed:
                longer = (*prefix, token)
                under = [r for r in rows if r[: len(longer)] == longer]
                whole = token == END or (stop and len(under) == 1)
                candidates.append((longer, score + float(values[token] - pool.logsumexp(0)), whole, under[0]))
        candidates.sort(key=lambda c: -c[1])
        finished = [c for c in candidates[:beams] if c[2]]
        onward = [c for c in candidates if not c[2]][:beams]
        results = sorted([*results, *((c[3], c[1]) for c in finished)], key=lambda r: -r[1])[:k]
        bar = results[-1][1] if len(results) == k else -np.inf
        kept = [c for c in onward if c[1] > bar]
        mine = [c for c in candidates if gold[: len(c[0])] == c[0]]
        if mine and fate == "kept":
            c, at = mine[0], step
            rivals = candidates if c[2] else [x for x in candidates if not x[2]]
            place = 1 + rivals.index(c)
            fate = (
                "finished"
                if c in finished
                else "kept"
                if c in kept
                else "beaten"
                if c in onward
                else "pruned"
            )
        live, step = [(c[0], c[1]) for c in kept], step + 1
    return [r for r, _ in results], fate, at, place


def draw_rows(seed: int, count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    some = {(*rng.integers(3, 7, rng.integers(1, 6)).tolist(), END) for _ in range(count)}
    return sorted(some)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2), corpus=st.integers(0, 9), count=st.integers(2, 40), beams=st.integers(1, 6),
    less=st.integers(0, 5), mode=st.sampled_from(["full", "renormalized"]), stop=st.booleans(),
    pick=st.integers(0, 99),
)  # fmt: skip
def test_equals_a_naive_search(
    seed: int, corpus: int, count: int, beams: int, less: int, mode: Any, stop: bool, pick: int
) -> None:
    rows = draw_rows(corpus, count)
    if len(rows) < 2:
        return
    k = max(1, beams - less)
    gold = pick % len(rows)
    index = index_sequences([np.array(r) for r in rows], END)
    decoder = Decoder(generator(seed), index, beams, mode, stop)
    search = trace(decoder, INPUT, k)
    found, fate, at, place = naive(rows, seed, beams, k, mode, stop, rows[gold])
    assert list(search.found) == decoder.search([INPUT], k)[0]
    assert [rows[hit.passage] for hit in search.found] == found
    path = follow(search, score_passages(decoder, INPUT, [gold])[0])
    last = [n for n, step in enumerate(path) if step.fate is not None][-1]
    assert (path[last].fate, last, path[last].rank) == (fate, at, place)
    assert all(step.fate == "kept" for step in path[:last])
    for step in path[: last + 1]:
        assert step.margin is not None
        assert step.rank is not None
        assert (step.rank <= beams) == (step.fate != "pruned")
        assert step.margin <= 0 if step.fate in ("pruned", "beaten") else step.margin >= 0


@pytest.mark.parametrize("mode", ["full", "renormalized"])
@pytest.mark.parametrize("stop", [False, True])
def test_teacher_forcing_equals_exhaustive_scores(mode: Any, stop: bool) -> None:
    rows = [np.array(r) for r in draw_rows(3, 30)]
    index = index_sequences([*rows, rows[0]], END)
    decoder = Decoder(generator(), index, 5, mode, stop)
    exact = score_all(generator(), index, INPUT, mode)
    every = score_passages(decoder, INPUT, range(len(index)))
    assert [s.complete for s in every] == pytest.approx(exact, abs=1e-4)
    assert [[t.token for t in s.tokens] for s in every] == [
        index.tokens(p).tolist() for p in range(len(index))
    ]
    wide = Decoder(generator(), index, len(index), mode, stop).search([INPUT])[0]
    assert [every[hit.passage].score for hit in wide] == pytest.approx([h.score for h in wide], abs=1e-4)
    if not stop:
        assert all(s.score == s.complete for s in every)
    else:
        assert any(s.stop < len(s.tokens) for s in every)


def test_scores_and_search_share_the_exclusion() -> None:
    rows = [np.array(r) for r in draw_rows(3, 30)]
    index = index_sequences(rows, END)
    decoder = Decoder(generator(), index, len(rows))
    hidden = [hit.passage for hit in decoder.search([INPUT], 4)[0]]
    hits = trace(decoder, INPUT, len(rows), hidden).found
    scores = score_passages(decoder, INPUT, [hit.passage for hit in hits], hidden)
    assert [s.score for s in scores] == pytest.approx([hit.score for hit in hits], abs=1e-4)
    assert np.exp([s.score for s in scores]).sum() == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(ValueError, match=f"passage {hidden[0]} is excluded"):
        score_passages(decoder, INPUT, [hidden[0]], hidden)


def test_a_token_knows_what_was_preferred() -> None:
    index = index_sequences([np.array([3, END]), np.array([4, END]), np.array([5, END])], END)
    decoder = Decoder(generator(), index, 3)
    scores = score_passages(decoder, INPUT, [0, 1, 2])
    order = sorted(range(3), key=lambda p: -scores[p].score)
    for place, passage in enumerate(order):
        first = scores[passage].tokens[0]
        assert first.allowed == 3
        assert [rival.token for rival in first.rivals] == [3 + p for p in order[:place]]
    assert len(score_passages(decoder, INPUT, [order[2]], rivals=1)[0].tokens[0].rivals) == 1


def test_one_passage_is_decided_without_a_step() -> None:
    index = index_sequences([np.array([3, 4, END])], END)
    decoder = Decoder(generator(), index, 2)
    search = trace(decoder, INPUT, 1)
    score = score_passages(decoder, INPUT, [0])[0]
    assert (search.steps, [hit.passage for hit in search.found]) == ((), [0])
    assert (score.stop, score.score, follow(search, score)) == (0, 0.0, ())


def test_beaten_candidates_are_those_that_k_results_stopped() -> None:
    rows = [np.array(r) for r in draw_rows(5, 40)]
    decoder = Decoder(generator(), index_sequences(rows, END), 6)
    steps = trace(decoder, INPUT, 1).steps
    stopped = [(step, c) for step in steps for c in beaten(step)]
    assert stopped
    for step, c in stopped:
        assert step.scores[c] <= step.worst[0]
        assert c not in step.live
