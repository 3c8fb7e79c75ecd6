"""Metadata by field: filters over columns are those over the metadata, and read the metadata once."""

import copy
import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grls.data import columns
from grls.data.columns import MetadataColumns, UnknownFieldError
from grls.data.corpus import Corpus
from grls.data.filters import evaluate_filters, where
from grls.data.types import Passage
from grls.data.where import parse_filter
from grls.errors import ConfigError

SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, 2, -0.0, 2**60, 2**60 + 1, 1e300, "1", "a", "true"])
)
ENTRIES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.just({"f": 1}))
METADATA = st.lists(
    st.dictionaries(st.sampled_from(["f", "g", "h"]), ENTRIES, max_size=3), min_size=1, max_size=9
)
VALUES = st.sampled_from(["0", "1", "1.0", "'1'", "a", "true", "false", str(2**60), "'true'"])
SIGNS = st.sampled_from(["=", "!="])
COMPARISONS = st.one_of(
    st.builds("{}{}{}|{}".format, st.sampled_from("fgh"), SIGNS, VALUES, VALUES),
    st.builds(
        "{}{}{}".format,
        st.sampled_from("fgh"),
        st.sampled_from(["<", ">="]),
        st.sampled_from(["1", "0.5", "b"]),
    ),
)
FILTERS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=4,
)


def corpus_of(metadata: list[dict[str, Any]], first: int = 0) -> Corpus:
    passages = [Passage(str(first + number), "text") for number in range(len(metadata))]
    return Corpus.from_passages(passages, metadata=metadata)


def naive(metadata: list[dict[str, Any]], text: str) -> list[int]:
    expression = parse_filter(text)
    return [number for number, one in enumerate(metadata) if expression.holds(one)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first row of each reading of metadata."""
    made: list[int] = []
    batches = MetadataColumns._batches

    def counted(self: MetadataColumns, start: int) -> Iterator[Any]:
        made.append(start)
        return batches(self, start)

    monkeypatch.setattr(MetadataColumns, "_batches", counted)
    return made


@settings(max_examples=60, deadline=None)
@given(
    METADATA, METADATA, st.lists(FILTERS, min_size=1, max_size=4), st.sampled_from([0, 3, 2**20]), st.data()
)
def test_columns_filter_as_the_metadata_do(
    metadata: list[dict[str, Any]],
    more: list[dict[str, Any]],
    texts: list[str],
    most: int,
    data: st.DataObject,
) -> None:
    """In batches of two passages, with columns of at most ``most`` values, before and after an addition."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_ROWS", 2)
        patch.setattr(columns, "MOST_VALUES", most)
        corpus, held = corpus_of(metadata), metadata
        for text in [*texts, *texts]:
            if data.draw(st.integers(0, 3)) == 0:
                corpus, held = corpus.extended(corpus_of(more, len(held))), [*held, *more]
            known = sorted({name for one in held for name in one})
            if set(parse_filter(text).fields()) <= set(known):
                assert corpus.columns.allowed(parse_filter(text)).tolist() == naive(held, text)
            else:
                with pytest.raises(UnknownFieldError) as refused:
                    corpus.columns.allowed(parse_filter(text))
                assert refused.value.known == known


def test_metadata_are_read_once(reads: list[int]) -> None:
    corpus = corpus_of([{"year": 1990 + n % 30, "lang": "de", "n": n} for n in range(500)])
    for _ in range(3):
        for text in ("year=2001", "year>=2000", "not year in (2000, 2001)"):
            evaluate_filters([where(text)], corpus)
    assert reads == [0]
    evaluate_filters([where("lang=de and year=2001")], corpus)
    assert reads == [0, 0]  # a field that no filter had named
    for _ in range(2):
        with pytest.raises(ConfigError, match="field 'yaer': the fields are lang, n, year"):
            evaluate_filters([where("yaer=2001")], corpus)
    longer = corpus.extended(corpus_of([{"year": 2001, "open": True}], 500))
    assert 500 in evaluate_filters([where("year=2001")], longer)[where("year=2001")]
    assert reads == [0, 0, 500]  # of the longer corpus only what was added
    assert evaluate_filters([where("open=true")], longer)[where("open=true")].tolist() == [500]
    assert 500 not in evaluate_filters([where("year=2001")], corpus)[where("year=2001")]


def test_a_field_of_too_many_values_is_no_column(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_VALUES", 100)
    corpus = corpus_of([{"n": n} for n in range(500)])
    for _ in range(2):
        assert corpus.columns.allowed(parse_filter("n>=498")).tolist() == [498, 499]
    assert reads == [0, 0]  # once for a column, once for the filter
    assert corpus.columns.allowed(parse_filter("n=3")).tolist() == [3]
    assert reads == [0, 0, 0]


def test_what_is_kept_is_bounded(reads: list[int]) -> None:
    made = corpus_of([{"n": n, "m": -n} for n in range(500)])
    small = MetadataColumns(made.table, 120_000)
    for n in range(150):
        assert small.allowed(parse_filter(f"n={n}")).tolist() == [n]
        assert small._kept._bytes <= 120_000
    assert len(small._kept.items()) < 120
    assert small.allowed(parse_filter("m=-1 or n=2")).tolist() == [1, 2]
    none = MetadataColumns(made.table, 0)
    assert none.allowed(parse_filter("m=-1 or n=2")).tolist() == [1, 2]
    assert not none._kept.items()


def test_what_a_caller_changes_stays_its_own() -> None:
    corpus = corpus_of([{"n": n} for n in range(9)])
    for _ in range(2):
        numbers = corpus.columns.allowed(parse_filter("n<3"))
        assert numbers.tolist() == [0, 1, 2]
        numbers[:] = 7


def test_threads_read_once_and_find_the_same(reads: list[int]) -> None:
    metadata = [{"n": n % 7} for n in range(2000)]
    corpus = corpus_of(metadata)
    texts = [f"n={n % 7} or n>{n % 5}" for n in range(64)]
    with ThreadPoolExecutor(8) as pool:
        all_numbers = list(pool.map(lambda text: corpus.columns.allowed(parse_filter(text)), texts))
    assert reads == [0]
    for text, numbers in zip(texts, all_numbers, strict=True):
        assert numbers.tolist() == naive(metadata, text)


def test_a_corpus_travels_to_another_process() -> None:
    corpus = corpus_of([{"n": 1}, {}])
    corpus.columns.allowed(parse_filter("n=1"))
    for copied in (pickle.loads(pickle.dumps(corpus)), copy.deepcopy(corpus)):
        assert copied.columns.allowed(parse_filter("n=1")).tolist() == [0]
    assert np.array_equal(json.loads(json.dumps(list(corpus.metadata()))), [{"n": 1}, {}])
