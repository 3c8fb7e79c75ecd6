"""From spans to passages: the arithmetic of scores, candidates and priors, without a model."""

import math

import numpy as np
import pytest

from grls.data.corpus import Corpus
from grls.data.spans import Spans
from grls.data.types import Passage
from grls.decode import ScoredPassage
from grls.decode.frontier import Frontier
from grls.decode.prior import Fixed, Prior, WeightedPrior
from grls.index import Subset, index_sequences
from grls.retrieve.generative import span_scores as views_module
from grls.retrieve.generative.span_scores import (
    PassageScores,
    Reach,
    SpanCandidates,
    SpanRanking,
    candidates,
    log_shares,
    passage_scores,
    ranked,
    said_of,
)


def weighed(
    texts: list[str], probabilities: list[float], passages: list[int], temperature: float = 1.0
) -> PassageScores:
    """Of a search that knows the probability of every span of two words, DONE last, each its own row."""
    spans = Spans(Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)]), 2)
    rows = index_sequences([np.array([3 + n, 1]) for n in range(len(spans) + 1)], 1).rows
    assert [int(row) for row in rows.row_of] == [*range(len(spans) + 1)]
    low = np.arange(len(spans) + 1)
    logs = np.log(np.maximum(probabilities, 1e-300))
    frontier = Frontier(low, low + 1, np.ones_like(low), logs, logs)
    chosen = SpanCandidates(np.array(passages), np.zeros(len(passages), dtype=np.int64))
    return passage_scores(frontier, chosen, Reach(spans, rows, [], None), temperature)


def probabilities(found: list[ScoredPassage]) -> dict[int, float]:
    return {some.passage: math.exp(some.score) for some in found}


def test_a_passage_is_as_likely_as_its_views_together() -> None:
    scores = weighed(["a b", "c"], [0.3, 0.2, 0.4, 0.1], [0, 1])
    assert [some.passage for some in ranked(scores, 2, 1.0, 1)] == [0]
    assert probabilities(ranked(scores, 2, 1.0, 5)) == pytest.approx({0: 0.5, 1: 0.4})
    scores = weighed(["a b", "c"], [0.3, 0.2, 0.4, 0.1], [0, 1], 2.0)
    means = [(math.sqrt(0.3) + math.sqrt(0.2)) / math.sqrt(2), math.sqrt(0.4)]
    best = ranked(scores, 2, 2.0, 5)
    assert probabilities(best) == pytest.approx({n: mean / sum(means) for n, mean in enumerate(means)})
    nothing, none = np.empty(0), np.empty(0, dtype=np.int64)
    assert ranked(PassageScores(none, nothing, nothing, nothing, none), 2, 1.0, 3) == []


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_views_that_are_equally_likely_make_long_and_short_passages_so(temperature: float) -> None:
    """Of n spans with p / n each a passage has p, and p of it to the power of 1 / T, whatever n is."""
    scores = weighed(["a b c d", "e f"], [0.1] * 4 + [0.2] * 2 + [0.2], [0, 1], temperature)
    assert scores.mean[0] == pytest.approx(scores.mean[1])
    assert scores.mean[0] == pytest.approx(math.log(0.4) / temperature)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_done_is_as_likely_at_every_temperature(temperature: float) -> None:
    scores = weighed(["a b", "c"], [0.05, 0.03, 0.02, 0.9], [0, 1, 2], temperature)
    best = probabilities(ranked(scores, 2, temperature, 5))
    assert best[2] == pytest.approx(0.9)
    assert best[0] + best[1] == pytest.approx(0.1)
    alone = weighed(["a b", "c"], [0.0, 0.0, 0.0, 1.0], [2], temperature)
    assert probabilities(ranked(alone, 2, temperature, 5)) == pytest.approx({2: 1.0})


def test_what_priors_say_counts_for_all_views_of_a_passage() -> None:
    scores = weighed(["a b", "c"], [0.3, 0.2, 0.4, 0.1], [0, 1], 2.0).beside(np.log([0.1, 0.9]))
    means = [math.sqrt(0.1) * (math.sqrt(0.3) + math.sqrt(0.2)) / math.sqrt(2), math.sqrt(0.9 * 0.4)]
    best = ranked(scores, 2, 2.0, 5)
    assert probabilities(best) == pytest.approx({n: mean / sum(means) for n, mean in enumerate(means)})


def test_k_passages_come_where_there_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passages of many likely spans do not keep the others out."""
    monkeypatch.setattr(views_module, "_ROWS", 1)
    spans = Spans(Corpus.from_passages([Passage(f"p{n}", "a b c d e f") for n in range(10)]), 2)
    rows = index_sequences([np.array([3 + n, 1]) for n in range(len(spans) + 1)], 1).rows
    low = np.arange(len(spans) + 1)
    logs = -low.astype(float)
    frontier, done = Frontier(low, low + 1, np.ones_like(low), logs, logs), 10
    for k in (1, 4, 10):
        some = candidates(frontier, Reach(spans, rows, [done], None), k).passages.tolist()
        assert some == list(range(len(some)))
        assert len(some) >= k
        assert candidates(frontier, Reach(spans, rows, [], None), k).passages[-1] == done


@pytest.mark.parametrize(
    ("k", "gone", "some", "expected"),
    [
        (1, [], None, [0, 1, 6]),
        (1, [1], None, [0, 6]),
        (4, [], None, [0, 1, 2, 3, 4, 5, 6]),
        (7, [], None, [0, 1, 2, 3, 4, 5, 6]),
        (1, [], [0, 4, 5], [4, 5]),
        (3, [], [0, 4, 5], [0, 4, 5]),
    ],
)
def test_candidates_are_those_of_the_densest_rows(
    monkeypatch: pytest.MonkeyPatch, k: int, gone: list[int], some: list[int] | None, expected: list[int]
) -> None:
    spans = Spans(Corpus.from_passages([Passage(f"p{n}", "a") for n in range(6)]), 2)
    index = index_sequences([np.array([3 + n, 1]) for n in range(7)], 1)
    subset = None if some is None else Subset(index.rows, np.array(some))
    low, high = np.array([0, 1, 2, 6]), np.array([1, 2, 6, 7])
    counts = [len(set(range(*span)) & set(some or range(7))) for span in zip(low, high, strict=True)]
    logs = np.log([0.1, 0.5, 0.3, 0.1])
    frontier = Frontier(*(part[np.array(counts) > 0] for part in (low, high, np.array(counts), logs, logs)))
    monkeypatch.setattr(views_module, "_ROWS", 2)
    monkeypatch.setattr(views_module, "_OF_PRIORS", 2)
    reach = Reach(spans, index.rows, gone, subset)
    assert candidates(frontier, reach, k).passages.tolist() == expected
    allowed = [n for n in some or range(7) if n not in gone]
    assert reach.every().tolist() == allowed
    said = np.array([0, 0, 0, 5.0, 0, 4.0, 0])
    best = [n for n in (3, 5) if n in allowed]
    first, beside = (candidates(frontier, reach, k, *more) for more in ([], [said]))
    assert set(beside.passages[beside.tiers == 0]) == {*first.passages[first.tiers == 0], *best}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("with_done", [False, True])
@pytest.mark.parametrize("with_prior", [False, True])
def test_no_score_or_place_depends_on_k(
    monkeypatch: pytest.MonkeyPatch, temperature: float, with_done: bool, with_prior: bool
) -> None:
    """Before, scores followed k at a temperature other than 1, and passages of more rows came between."""
    monkeypatch.setattr(views_module, "_ROWS", 7)
    monkeypatch.setattr(views_module, "_OF_PRIORS", 2)
    rng = np.random.default_rng(0)
    texts = [" ".join("abcdefgh"[: int(rng.integers(1, 9))]) for _ in range(30)]
    spans = Spans(Corpus.from_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)]), 2)
    rows = index_sequences([np.array([3 + n, 1]) for n in range(len(spans) + 1)], 1).rows
    logs = rng.normal(-4, 2, len(spans) + 1)
    low = np.arange(len(spans) + 1)
    frontier = Frontier(low, low + 1, np.ones_like(low), logs, logs)
    reach = Reach(spans, rows, [] if with_done else [len(texts)], None)
    weights = rng.normal(0, 3, (1, len(texts) + 1))
    prior = Prior((WeightedPrior(lambda numbers: weights[numbers], 1.0),), normalized=False)

    def ranking(k: int) -> list[ScoredPassage]:
        return SpanRanking(reach, k, temperature, prior if with_prior else None)(frontier)

    whole = ranking(len(texts) + 1)
    assert len(whole) == len(texts) + with_done
    scores = [one.score for one in whole]
    assert scores == sorted(scores, reverse=True)
    assert [ranking(k) for k in range(1, 32)] == [whole[:k] for k in range(1, 32)]


def test_priors_share_what_may_be_found() -> None:
    weights = np.log([[1.0, 2.0, 5.0, 1.0]])
    known = WeightedPrior(lambda numbers: weights[numbers], 2.0)
    fixed = WeightedPrior(lambda numbers: weights[numbers], 1.0, Fixed(3, math.log(0.25)))

    def shares(part: WeightedPrior, *allowed: int) -> list[float]:
        return np.exp(log_shares(part, 0, np.array(allowed))).round(6).tolist()

    assert shares(known, 0, 1, 3) == [0.25, 0.5, 0, 0.25]
    assert shares(fixed, 0, 1, 3) == [0.25, 0.5, 0, 0.25]
    assert shares(fixed, 0, 2) == [round(1 / 6, 6), 0, round(5 / 6, 6), 0]
    assert shares(fixed, 3) == [0, 0, 0, 1]
    said = said_of(Prior((known, fixed)), 0, np.array([0, 1, 3]))
    assert said.tolist() == pytest.approx(
        [3 * math.log(0.25), 3 * math.log(0.5), -math.inf, 3 * math.log(0.25)]
    )
