"""Queries from Python objects."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_data import queries, write_small
from tables import TABLES

from grls.data.dataset import read_queries
from grls.data.inputs.entries import queries_from
from grls.data.types import Passage, Query
from grls.errors import DataError


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        (["what ?", "where ?"], ["0", "1"]),
        ({"a": "what ?", "b": "where ?"}, ["a", "b"]),
        ({1: "what ?", 2: {"query": "where ?"}}, ["1", "2"]),
        ([Query("a", "what ?"), {"qid": "b", "question": "where ?"}], ["a", "b"]),
        (pd.DataFrame({"query_id": ["a", "b"], "query": ["what ?", "where ?"]}), ["a", "b"]),
    ],
)
def test_ids_and_texts(given: Any, ids: list[str]) -> None:
    assert queries_from(given) == [Query(ids[0], "what ?"), Query(ids[1], "where ?")]


@pytest.mark.parametrize("library", TABLES)
def test_columns_are_evidence_answers_and_metadata(library: str) -> None:
    columns = {
        "id": ["a", "b"], "text": ["what ?", "where ?"], "evidence": [["p2", "p1"], []],
        "answers": [["x"], []], "type": ["bridge", "comparison"],
    }  # fmt: skip
    made = queries_from(TABLES[library](columns))
    assert [query[:4] for query in made] == [("a", "what ?", ("p2", "p1"), ("x",)), ("b", "where ?", (), ())]
    assert json.loads(made[0].metadata) == {"type": "bridge", "answers": ["x"]}
    assert json.loads(made[1].metadata) == {"type": "comparison"}


def test_single_answers_and_arrays_of_evidence() -> None:
    frame = pd.DataFrame(
        {"text": ["what ?"], "evidence": [np.array([2, 1])], "answers": ["x"], "metadata": ['{"k": 1}']}
    )
    assert queries_from(frame) == [Query("0", "what ?", ("2", "1"), ("x",), '{"k": 1, "answers": ["x"]}')]


def test_queries_of_files_stay_as_they_are(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "data")
    read = [q._replace(answers=("x",), metadata='{"answers": ["x"]}') for q in read_queries(folder)]
    assert queries_from(read) == read
    assert queries_from(folder) == queries_from(folder / "queries.jsonl") == queries()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([], "queries: there is no query"),
        ("what do otters eat?", r"is no file or folder; a list of one text is written \['what"),
        (Query("a", "what ?"), "a single query; put it in a list"),
        ([Passage("a", "what ?")], "query 0: expected a text, a Query, or an object"),
        ([""], r"query 0 \('0'\): its text is empty"),
        ({"a": "what ?", "b": " "}, r"query 1 \('b'\): its text is empty"),
        ([Query("a", "what ?"), Query("a", "where ?")], "its id is that of query 0"),
        (pd.DataFrame({"id": ["a"], "body": ["x"]}),
         "looked for 'text', 'query', 'question'; there are 'id', 'body'"),
        ([{"text": "what ?", "evidence": {"p1": 1}}], "query 0 .*evidence: expected a list of passage ids"),
        ([{"text": "what ?", "evidence": ["p1", "p1"]}], "the passage id 'p1' is repeated"),
        ([{"text": "what ?", "evidence": [1.5]}], "expected an id"),
        ([{"text": "what ?", "answers": {"text": ["x"]}}],
         r"query 0 \('0'\): expected metadata.answers to be a list"),
        ([{"text": "what ?", "answers": [1]}], "expected metadata.answers to be a list of strings"),
        ([{"text": "what ?", "proofs": [1]}], "expected metadata.proofs"),
        ([{"text": "what ?", "when": 1j}], "query 0 .*metadata that JSON can hold"),
        ([Query("a", "what ?", metadata="nothing")], "expected metadata to be an object"),
        (["half \ud83d"], "query 0 .*half a character"),
    ],
)  # fmt: skip
def test_what_are_no_queries_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        queries_from(wrong)
