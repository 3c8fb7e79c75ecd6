"""Spans of passages: which there are, how they are numbered, and their text."""

import pytest
from small_data import TRICKY, passages

from grls.data.corpus import Corpus
from grls.data.spans import Spans
from grls.data.types import Passage
from grls.errors import ConfigError

TWO = [Passage("p", "– a river in Spain .", "The Ebro"), Passage("q", "... !"), Passage("r", "")]


def test_a_view_begins_at_every_word_and_ends_after_some() -> None:
    spans = Spans(Corpus.from_passages(TWO), words=3)
    texts = [span.text for span in spans.passages(range(len(spans)))]
    assert texts == [
        "The Ebro –", "Ebro – a", "a river in", "river in Spain", "in Spain .", "Spain .",
        "... !",  # no word in it: one span, from its beginning
        "",
    ]  # fmt: skip
    assert spans.owners.tolist() == [0] * 6 + [1, 2, 3]  # DONE is its own


def test_passages_have_their_views_side_by_side_and_done_the_last_one() -> None:
    spans = Spans(Corpus.from_passages(TWO), words=3)
    assert spans.of([0]).tolist() == [0, 1, 2, 3, 4, 5]
    assert spans.of([3, 1]).tolist() == [8, 6]
    assert spans.of([]).tolist() == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batches_are_all_views_in_order(size: int) -> None:
    spans = Spans(Corpus.from_passages([*passages(), *TRICKY]), words=4)
    batches = list(spans.batches(size))
    assert all(len(batch) == size for batch in batches[:-1])
    every = [span for batch in batches for span in batch]
    assert every == spans.passages(range(len(spans)))
    assert len({span.id for span in every}) == len(spans)


def test_a_view_has_a_word() -> None:
    with pytest.raises(ConfigError, match="words must be at least 1, got 0"):
        Spans(Corpus.from_passages(TWO), words=0)
