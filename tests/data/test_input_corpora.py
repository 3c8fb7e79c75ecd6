"""Corpora from Python objects."""

import datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
from small_data import passages, write_small
from tables import TABLES

from grls.data.corpus import Corpus
from grls.data.inputs.entries import corpus_of
from grls.data.types import Passage, Query
from grls.errors import DataError

TEXTS = ["otters eat fish .", "a holt is a den ."]


def content(made: Corpus) -> list[tuple[Any, ...]]:
    return [(*passage, metadata) for passage, metadata in zip(made, made.metadata(), strict=True)]


PLAIN = [("0", TEXTS[0], "", {}), ("1", TEXTS[1], "", {})]
NAMED = [("a", TEXTS[0], "", {}), ("b", TEXTS[1], "", {})]


@pytest.mark.parametrize(
    "texts",
    [TEXTS, tuple(TEXTS), iter(TEXTS), np.array(TEXTS), pd.Series(TEXTS), [{"text": text} for text in TEXTS],
     datasets.Dataset.from_dict({"text": TEXTS})["text"], pd.DataFrame({"text": TEXTS})],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_texts_have_their_places_as_ids(texts: Any) -> None:
    assert content(corpus_of(texts)) == PLAIN


@pytest.mark.parametrize(
    "named",
    [
        dict(zip("ab", TEXTS, strict=True)),
        pd.Series(TEXTS, index=["a", "b"]),
        {"a": {"text": TEXTS[0]}, "b": {"text": TEXTS[1], "title": ""}},
        {"a": Passage("a", TEXTS[0]), "b": {"_id": "b", "text": TEXTS[1]}},
        [Passage("a", TEXTS[0]), {"id": "b", "text": TEXTS[1]}],
        [{"docid": "a", "contents": TEXTS[0]}, {"docno": "b", "text": TEXTS[1]}],
        Corpus.from_passages([Passage("a", TEXTS[0]), Passage("b", TEXTS[1])]),
    ],
)
def test_ids_are_kept(named: Any) -> None:
    assert content(corpus_of(named)) == NAMED


FULL = {
    "_id": ["a", "b"], "text": TEXTS, "title": ["Otters", None], "year": [1999, 2001],
    "tags": [["x", "y"], []],
}  # fmt: skip


@pytest.mark.parametrize("library", TABLES)
def test_columns_of_tables_are_title_and_metadata(library: str) -> None:
    assert content(corpus_of(TABLES[library](FULL))) == [
        ("a", TEXTS[0], "Otters", {"year": 1999, "tags": ["x", "y"]}),
        ("b", TEXTS[1], "", {"year": 2001, "tags": []}),
    ]


@pytest.mark.parametrize("library", TABLES)
def test_a_column_metadata_holds_objects_or_json(library: str) -> None:
    columns = {"id": [1, 2], "text": TEXTS, "metadata": ['{"year": 1999}', "{}"], "more": ["x", None]}
    expected = [("1", TEXTS[0], "", {"year": 1999, "more": "x"}), ("2", TEXTS[1], "", {})]
    assert content(corpus_of(TABLES[library](columns))) == expected
    columns["metadata"] = [{"year": 1999}, {"year": None}]
    metadata = list(corpus_of(TABLES[library](columns)).metadata())
    assert metadata == [{"year": 1999, "more": "x"}, {"year": None}]


def test_what_a_corpus_writes_is_read_again(tmp_path: Path) -> None:
    write_small(tmp_path / "data")
    made = corpus_of(tmp_path / "data")
    assert list(made) == passages()
    for given in (
        tmp_path / "data" / "corpus.jsonl",
        str(tmp_path / "data"),
        made,
        made.table.data,
        datasets.Dataset(datasets.table.InMemoryTable(made.table.data)),
        list(made.records()),
    ):
        assert corpus_of(given).fingerprint == made.fingerprint
        assert corpus_of(given).metadata_fingerprint == made.metadata_fingerprint


def test_values_of_pandas_become_values_of_json() -> None:
    frame = pd.DataFrame(
        {
            "id": np.array([3, 4]),
            "text": TEXTS,
            "when": [pd.Timestamp("2020-01-02"), pd.NaT],
            "weight": [0.5, float("nan")],
            "vector": [np.array([1, 2]), np.array([3])],
            "count": pd.array([1, None], dtype="Int64"),
            "day": [datetime.date(2020, 1, 2), None],
        }
    )
    assert content(corpus_of(frame)) == [
        ("3", TEXTS[0], "", {"when": "2020-01-02T00:00:00", "weight": 0.5, "vector": [1, 2], "count": 1,
                             "day": "2020-01-02"}),
        ("4", TEXTS[1], "", {"vector": [3]}),
    ]  # fmt: skip


def test_a_named_index_of_pandas_is_a_column() -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "text": TEXTS}).set_index("id")
    assert content(corpus_of(frame)) == NAMED


def test_an_index_that_may_hold_ids_is_refused() -> None:
    frame = pd.DataFrame({"text": [*TEXTS, "a third ."]})[1:]
    with pytest.raises(DataError, match=r"the index is not 0, 1, 2.*reset_index"):
        corpus_of(frame)
    assert content(corpus_of(frame.reset_index(drop=True)))[0][:2] == ("0", TEXTS[1])
    assert content(corpus_of(frame.rename_axis("id")))[0][:2] == ("1", TEXTS[1])


@pytest.mark.parametrize("library", [name for name in TABLES if name != "rows"])
def test_a_table_without_texts_says_what_was_looked_for_and_what_is_there(library: str) -> None:
    with pytest.raises(DataError, match=r"looked for 'text', 'contents'; there are 'id', 'body'\. Rename"):
        corpus_of(TABLES[library]({"id": ["a"], "body": ["otters"]}))


NOT_JSON = {"id": "a", "text": "x", "when": 1j}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([], "there is no passage"),
        ({}, "there is no passage"),
        (pd.DataFrame({"text": []}), "there is no passage"),
        (Corpus.from_passages([]), "there is no passage"),
        (3, "expected a list of texts or objects.*got int 3"),
        ({"otters", "fish"}, "expected a list of texts.*got set"),
        ("otters eat fish .", r"is no file or folder; a list of one text is written \['otters"),
        ("x" * 5000, "is no file or folder"),
        (b"otters", "is no file or folder"),
        (Path("gone.jsonl"), "no such file"),
        (Passage("a", "otters"), "a single passage; put it in a list"),
        ({"id": "a", "text": "otters"}, "a single passage; put it in a list"),
        (datasets.DatasetDict({"train": datasets.Dataset.from_dict(FULL)}), r"data\['train'\]"),
        ([Query("a", "otters")], "passage 0: expected a text, a Passage, or an object"),
        ([("a", "otters")], "passage 0: expected a text, a Passage, or an object"),
        ([3], "passage 0: expected a text"),
        ({"a": ["otters"]}, "passage 0: expected a text"),
        ([{"id": "a", "body": "x"}],
         "passage 0 has no text: looked for 'text', 'contents'; there are 'id', 'body'"),
        (pd.DataFrame({"text": ["x", None]}),
         "passage 1: expected its text to be a string, its text is missing"),
        ([{"text": 3}], "passage 0: expected its text to be a string, got 3"),
        ([{"text": "x", "title": 3}], "passage 0: expected its title to be a string, got 3"),
        (["x", "  "], r"passage 1 \('1'\): its text is empty"),
        ([{"text": "", "title": " "}], "its text is empty"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}],
         r"passage 1 \('a'\): its id is that of passage 0 \('a'\) already"),
        ([{"id": 1, "text": "x"}, {"id": "1", "text": "y"}], "its id is that of passage 0"),
        ([{"id": "a", "text": "x"}, {"text": "y"}], "passage 1 has no id, and others have one"),
        ([{"id": "a", "text": "x"}, "y"], "passage 1 has no id, and others have one"),
        ([{"id": "", "text": "x"}], "passage 0 has an empty id"),
        ([{"id": 1.5, "text": "x"}], "expected an id that is a text or a whole number, got 1.5; a col"),
        ([{"id": True, "text": "x"}], "expected an id that is a text or a whole number, got True"),
        ([{"id": ["a"], "text": "x"}], "expected an id that is a text or a whole number"),
        ({"a": {"id": "b", "text": "x"}}, "its key in the dict is 'a', its id is 'b'"),
        ([{"id": "DONE", "text": "x"}], "'DONE' is reserved"),
        ([{"text": "x", "metadata": 3}], "expected metadata to be an object, got 3"),
        ([{"text": "x", "metadata": "[1]"}], "expected metadata to be an object"),
        ([{"text": "x", "metadata": "{"}], "expected metadata to be an object"),
        ([{"text": "x", "year": 1, "metadata": {"year": 2}}], "'year' is a field, and a key of metadata"),
        ([NOT_JSON], "expected metadata that JSON can hold"),
        ([{"text": "x", "size": float("inf")}], "expected metadata that JSON can hold"),
        (["half \ud83d"], "half a character"),
        (pd.DataFrame([["x", "y"]], columns=["text", "text"]), "two columns have the name 'text'"),
    ],
)  # fmt: skip
def test_what_is_no_corpus_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        corpus_of(wrong)


def test_a_title_makes_up_for_an_empty_text() -> None:
    assert content(corpus_of([{"text": "", "title": "Otters"}])) == [("0", "", "Otters", {})]
