"""Corpora, queries and gold passages from Python objects, and the folder that is written of them."""

import datetime
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
from failing import raises
from small_data import passages, queries, write_small
from tables import TABLES

from grls.data.corpus import Corpus
from grls.data.dataset import (
    gold_passages,
    read_queries,
    read_split,
    told_unknown,
    write_dataset,
)
from grls.data.inputs.entries import corpus_of, queries_from
from grls.data.inputs.gold import Gold, gold_of, queries_and_qrels
from grls.data.inputs.splits import given_data
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


@pytest.mark.parametrize("named", [
    dict(zip("ab", TEXTS, strict=True)),
    pd.Series(TEXTS, index=["a", "b"]),
    {"a": {"text": TEXTS[0]}, "b": {"text": TEXTS[1], "title": ""}},
    {"a": Passage("a", TEXTS[0]), "b": {"_id": "b", "text": TEXTS[1]}},
    [Passage("a", TEXTS[0]), {"id": "b", "text": TEXTS[1]}],
    [{"docid": "a", "contents": TEXTS[0]}, {"docno": "b", "text": TEXTS[1]}],
    Corpus.from_passages([Passage("a", TEXTS[0]), Passage("b", TEXTS[1])]),
])  # fmt: skip
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


def test_an_index_is_the_ids_where_it_says_so_and_else_refused() -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "text": TEXTS}).set_index("id")
    assert content(corpus_of(frame)) == NAMED
    frame = pd.DataFrame({"text": [*TEXTS, "a third ."]})[1:]
    raises(DataError, r"the index is not 0, 1, 2.*reset_index", corpus_of, frame)
    assert content(corpus_of(frame.reset_index(drop=True)))[0][:2] == ("0", TEXTS[1])
    assert content(corpus_of(frame.rename_axis("id")))[0][:2] == ("1", TEXTS[1])


@pytest.mark.parametrize(("wrong", "why"), [
    ([], "there is no passage"),
    (3, "expected a list of texts or objects.*got int 3"),
    ("otters eat fish .", r"is no file or folder; a list of one text is written \['otters"),
    (Path("gone.jsonl"), "no such file"),
    (Passage("a", "otters"), "a single passage; put it in a list"),
    (datasets.DatasetDict({"train": datasets.Dataset.from_dict(FULL)}), r"data\['train'\]"),
    ([{"id": "a", "body": "x"}],
     "passage 0 has no text: looked for 'text', 'contents'; there are 'id', 'body'"),
    (pd.DataFrame({"id": ["a"], "body": ["x"]}),
     r"looked for 'text', 'contents'; there are 'id', 'body'\. Rename"),
    (pd.DataFrame({"text": ["x", None]}), "passage 1: expected its text to be a string, its text is missing"),
    (["x", "  "], r"passage 1 \('1'\): its text is empty"),
    ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}],
     r"passage 1 \('a'\): its id is that of passage 0 \('a'\) already"),
    ([{"id": "a", "text": "x"}, {"text": "y"}], "passage 1 has no id, and others have one"),
    ([{"id": 1.5, "text": "x"}], "expected an id that is a text or a whole number, got 1.5; a col"),
    ({"a": {"id": "b", "text": "x"}}, "its key in the dict is 'a', its id is 'b'"),
    ([{"id": "DONE", "text": "x"}], "'DONE' is reserved"),
    ([{"text": "x", "year": 1, "metadata": {"year": 2}}], "'year' is a field, and a key of metadata"),
    (pd.DataFrame([["x", "y"]], columns=["text", "text"]), "two columns have the name 'text'"),
])  # fmt: skip
def test_what_is_no_corpus_is_refused(wrong: Any, why: str) -> None:
    raises(DataError, why, corpus_of, wrong)


def test_a_title_makes_up_for_an_empty_text() -> None:
    assert content(corpus_of([{"text": "", "title": "Otters"}])) == [("0", "", "Otters", {})]


CORPUS = corpus_of(["zero", "one", "two", "three"])
QUERIES = {"a": "what ?", "b": "where ?"}
QRELS = {"a": {"2": 1, "0": 1}, "b": {"1": 1}}


def test_a_list_is_evidence_in_order() -> None:
    made = gold_of({"a": ["2", "0"], "b": "1"}, QUERIES, CORPUS)
    assert made.queries == [Query("a", "what ?", ("2", "0")), Query("b", "where ?", ("1",))]
    assert made.qrels == QRELS
    assert gold_of({"a": (2, 0), "b": 1}, QUERIES, CORPUS) == made
    assert gold_of({"a": np.array([2, 0]), "b": [1]}, QUERIES, CORPUS) == made
    assert gold_of(pd.Series({"a": [2, 0], "b": [1]}).to_dict(), QUERIES, CORPUS) == made


def test_a_set_is_evidence_in_any_order_until_a_list_replaces_it() -> None:
    made = gold_of({"a": {2, 0}, "b": frozenset({"1"})}, QUERIES, CORPUS)
    any_order = json.dumps({"any_order": True})
    assert made.queries == [
        Query("a", "what ?", ("0", "2"), metadata=any_order),
        Query("b", "where ?", ("1",), metadata=any_order),
    ]  # fmt: skip
    assert made.qrels == QRELS
    before = gold_of({"a": {2, 0}, "b": {"1"}}, QUERIES).queries
    assert gold_of({"a": ["2", "0"], "b": ["1"]}, before) == gold_of({"a": ["2", "0"], "b": ["1"]}, QUERIES)


def test_grades_are_qrels_and_leave_the_evidence() -> None:
    asked = [Query("a", "what ?", ("2", "0")), Query("b", "where ?")]
    grades: dict[str, dict[Any, Any]] = {"a": {"0": 2, 2: 1.0, "3": 0}, "b": {"1": np.int64(1)}}
    made = gold_of(grades, asked, CORPUS)
    assert made == Gold(asked, {"a": {"0": 2, "2": 1, "3": 0}, "b": {"1": 1}})
    assert gold_passages(made.queries[0], made.qrels) == ["2", "0"]


def test_gold_may_come_in_the_order_of_the_queries() -> None:
    texts = list(QUERIES.values())
    expected = {"0": {"2": 1, "0": 1}, "1": {"1": 1}}
    for given in ([["2", "0"], ["1"]], [{"2", "0"}, {"1"}], [{"2": 1, "0": 1}, {"1": 1}], [[2, 0], 1]):
        assert gold_of(given, texts, CORPUS).qrels == expected
    assert gold_of([["2", "0"], "1"], texts).queries[0].evidence == ("2", "0")
    assert gold_of(np.array([2, 1]), texts).qrels == {"0": {"2": 1}, "1": {"1": 1}}


@pytest.mark.parametrize("library", TABLES)
def test_a_table_holds_qrels(library: str) -> None:
    columns = {"query-id": ["a", "a", "b"], "corpus-id": [2, 0, 1], "score": [1, 1, 1]}
    assert gold_of(TABLES[library](columns), QUERIES, CORPUS).qrels == QRELS
    columns = {"qid": ["a", "a", "b"], "docno": ["2", "0", "1"]}
    assert gold_of(TABLES[library](columns), QUERIES, CORPUS).qrels == QRELS


@pytest.mark.parametrize("library", TABLES)
def test_a_table_holds_ordered_evidence(library: str) -> None:
    make = TABLES[library]
    expected = gold_of({"a": [2, 0], "b": [1]}, QUERIES, CORPUS)
    for columns in (
        {"query-id": ["b", "a"], "evidence": [[1], [2, 0]]},
        {"id": ["b", "a"], "query": ["where ?", "what ?"], "gold": [["1"], ["2", "0"]]},
        {"gold": [[2, 0], [1]]},
        {"qid": ["b", "a", "a"], "docno": ["1", "0", "2"], "order": [1, 2, 1]},
        {"qid": ["a", "b", "a"], "docid": [0, 1, 2], "hop": [1, 0, 0], "label": [1, 1, 1]},
    ):
        assert gold_of(make(columns), QUERIES, CORPUS) == expected
    asked = {"id": ["a", "b"], "text": [*QUERIES.values()], "evidence": [[2, 0], [1]]}
    assert gold_of(None, make(asked), CORPUS) == expected
    assert gold_of(make(asked), QUERIES, CORPUS) == expected


@pytest.mark.parametrize("library", TABLES)
def test_a_table_says_that_any_order_is_correct(library: str) -> None:
    columns = {"query_id": ["a", "b"], "evidence": [[0, 2], [1]], "any_order": [True, True]}
    expected = gold_of({"a": {2, 0}, "b": {1}}, QUERIES, CORPUS)
    assert gold_of(TABLES[library](columns), QUERIES, CORPUS) == expected
    asked = {"id": ["a", "b"], "text": [*QUERIES.values()], **columns}
    assert gold_of(None, TABLES[library](asked), CORPUS).qrels == expected.qrels


def test_a_place_may_have_a_grade_and_rows_of_grade_0_have_none() -> None:
    frame = pd.DataFrame(
        {"qid": ["a", "a", "a", "b"], "docno": [2, 0, 3, 1], "label": [1, 2, 0, 1], "hop": [2, 1, None, 1]}
    )
    made = gold_of(frame, QUERIES, CORPUS)
    assert made.qrels == {"a": {"2": 1, "0": 2, "3": 0}, "b": {"1": 1}}
    assert [query.evidence for query in made.queries] == [("0", "2"), ("1",)]


def test_a_series_is_joined_by_its_index() -> None:
    """By its order, gold would be that of the other query."""
    expected = gold_of({"a": ["2", "0"], "b": ["1"]}, QUERIES, CORPUS)
    assert gold_of(pd.Series({"b": [1], "a": [2, 0]}), pd.Series(QUERIES), CORPUS) == expected
    named = gold_of(pd.Series([[1], [2]]), {1: "where ?", 0: "what ?"}, CORPUS)
    assert named.qrels == {"1": {"2": 1}, "0": {"1": 1}}


def test_cells_may_hold_sets_grades_and_missing_values() -> None:
    frame = pd.DataFrame({"qid": ["a", "b", "c"], "evidence": [{2, 0}, {1: 2, 0: 0}, None]})
    made = gold_of(frame, QUERIES, CORPUS)
    assert made.qrels == {"a": QRELS["a"], "b": {"1": 2, "0": 0}}
    assert json.loads(made.queries[0].metadata) == {"any_order": True}
    structs = datasets.Dataset.from_dict({"qid": ["a", "b"], "gold": [{"0": 1, "2": 1}, {"1": 1}]})
    assert gold_of(structs, QUERIES, CORPUS).qrels == QRELS


def test_a_set_in_a_field_of_queries_has_no_order() -> None:
    asked = [{"id": "a", "text": "what ?", "evidence": {2, 0}}, {"id": "b", "text": "where ?"}]
    made = gold_of(None, pd.DataFrame(asked[:1]), CORPUS)
    assert made == gold_of({"a": {2, 0}}, {"a": "what ?"}, CORPUS)
    with pytest.raises(DataError, match="without gold or qrels, the lists in the field 'evidence'"):
        gold_of(None, asked, CORPUS)


def test_without_gold_the_evidence_counts_and_gold_of_further_queries_does_not() -> None:
    asked = [Query("a", "what ?", ("2", "0")), Query("b", "where ?", ("1",))]
    assert gold_of(None, asked, CORPUS) == Gold(asked, QRELS)
    with pytest.raises(DataError, match="1 query has no gold passage: 'b'"):
        gold_of(None, [asked[0], Query("b", "where ?")], CORPUS)
    assert gold_of({"a": "0", "c": "nowhere"}, {"a": "what ?"}, CORPUS).qrels == {"a": {"0": 1}}


def test_files_are_read_as_evaluation_reads_them_and_one_split_needs_no_name(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "data")
    corpus = Corpus.read(folder)
    expected = Gold(*read_split(folder, "dev", corpus))
    for gold in ("dev", folder / "qrels" / "dev.tsv", str(folder / "qrels" / "dev.tsv")):
        assert gold_of(gold, folder, corpus) == expected
    assert gold_of(folder / "qrels" / "dev.tsv", expected.queries, corpus) == expected
    folder = write_small(tmp_path / "data")
    raises(DataError, r"one qrels file.*'dev.tsv', 'test.tsv', 'train.tsv'", gold_of, folder, folder)
    for split in ("train", "dev"):
        (folder / "qrels" / f"{split}.tsv").unlink()
    assert gold_of(folder, folder) == gold_of(folder / "qrels", folder) == gold_of("test", folder)


def test_qrels_of_other_queries_are_refused(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "data")
    file = folder / "qrels" / "dev.tsv"
    raises(DataError, "no file; the data set has the splits 'dev', 'test', 'train'", gold_of, "tset", folder)
    with pytest.raises(DataError, match=r"1 query has no gold passage: 'a'; there is gold of 'q-"):
        gold_of(file, [*gold_of("dev", folder).queries[:1], Query("a", "what ?")])
    before = gold_of("dev", folder)
    with file.open("a") as stream:
        stream.write("nobody\tr0\t1\n")
    assert gold_of("dev", folder) == before


@pytest.mark.parametrize(("wrong", "why"), [
    ({"a": ["0"], "c": ["1"]}, "'b'; there is gold of 'c', which is no query"),
    ({"a": ["0"], "b": None}, "query 'b': expected a list of passage ids, got None"),
    ({"a": ["9"], "b": ["9", "8"]},
     r"'b': the passage id '9' is not in corpus, nor is any other \(the ids there begin with '0', '1', '2'"),
    ({"a": ["0"], "b": {"1": 0.5}}, "passage '1': expected a grade that is a whole number.*got 0.5"),
    ({"a": ["0"], "b": {"1": 1, 1: 2}}, "it has the grade 1 already, and here 2"),
    ({1: ["0"], "1": ["1"], "a": "0", "b": "1"}, "the query id '1' is used twice"),
    ([["0"]], "got 1 item for 2 queries"),
    ("qrels.tsv", "'qrels.tsv' is no file; expected qrels in BEIR's form"),
    (Path("gone.tsv"), "no such file"),
    (pd.DataFrame({"query": ["a"], "passage": ["0"]}),
     r"passages, one a row \(lists of ids: 'evidence'\): looked for 'corpus-id', .*'query', 'passage'"),
    (pd.DataFrame({"qid": ["a", "b"], "docno": [["0"], ["1"]]}),
     r"row 0, column 'docno': expected the id of one passage, got the list \['0'\]; name"),
    (pd.DataFrame({"qid": ["a", "a"], "gold": [["0"], ["1"]]}), "the query id 'a' is used twice"),
    (pd.DataFrame({"gold": [["0"]]}), "got 1 row for 2 queries, and no column with the ids of queries"),
    (pd.DataFrame({"gold": [["0"], ["1"]]}, index=["b", "a"]), r"rename_axis\('id'\)"),
    (pd.DataFrame({"qid": ["a", "b"], "gold": ["['0', '2']", "['1']"]}), "list as text .* json.loads"),
    (pd.DataFrame({"qid": ["a", "b"], "docno": ["0", "1"], "hop": [1, None]}),
     "row 1, query 'b', column 'hop': expected a whole number, got nan; drop"),
    (pd.DataFrame({"qid": ["a", "a"], "docno": ["0", "1"], "order": [1, 1]}),
     "row 1, query 'a': the passages '0' and '1' have the same place 1 in the column 'order'"),
    (datasets.DatasetDict(train=datasets.Dataset.from_dict({"qid": ["a"]})), "choose one.*'train'"),
])  # fmt: skip
def test_what_is_no_gold_is_refused(wrong: Any, why: str) -> None:
    raises(DataError, why, gold_of, wrong, QUERIES, CORPUS)


def test_gold_that_the_corpus_lacks_is_told_and_left_out_of_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = [
        Query("a", "what ?", ("0", "9"), metadata='{"proofs": [["0"], ["8"]]}'), Query("b", "who ?", ("7",)),
    ]  # fmt: skip
    assert gold_of(None, asked, CORPUS).qrels == {"a": {"0": 1, "9": 1}, "b": {"7": 1}}
    assert "3 judged passages are not in corpus, such as '9' of the query 'a': no search" in caplog.text
    known = gold_of(None, asked, CORPUS, known=True)
    assert known == ([Query("a", "what ?", ("0",), metadata='{"proofs": [["0"]]}')], {"a": {"0": 1}})
    assert "such as '9' of the query 'a': left out" in caplog.text
    raises(DataError, "'7' is not in corpus, nor", gold_of, None, asked[1:], CORPUS)
    grades = {"a": {"1": 0}, "b": {"7": 1}}
    raises(DataError, "no gold passage is in corpus", told_unknown, asked[1:], grades, [CORPUS], "x", True)
    made = gold_of(grades | {"a": {"1": 1}}, {"a": "what ?", "b": "where ?"}, CORPUS, True)
    assert made.qrels == {"a": {"1": 1}}


def test_a_data_set_is_written_with_its_splits(tmp_path: Path) -> None:
    corpus = corpus_of([{"text": "zero", "year": 1999}, {"text": "one", "title": "One"}])
    train = gold_of([[1, 0], {0}], ["what ?", "where ?"], corpus)
    dev = Gold(train.queries[:1], {"0": {"1": 2, "0": 0}})
    write_dataset(tmp_path / "data", corpus, *queries_and_qrels({"train": train, "dev": dev}))
    written = Corpus.read(tmp_path / "data")
    assert (written.fingerprint, written.metadata_fingerprint) == (
        corpus.fingerprint, corpus.metadata_fingerprint,
    )  # fmt: skip
    assert Gold(*read_split(tmp_path / "data", "train", written)) == train
    assert Gold(*read_split(tmp_path / "data", "dev", written)) == dev
    assert sorted(file.name for file in (tmp_path / "data" / "qrels").iterdir()) == ["dev.tsv", "train.tsv"]


@pytest.mark.parametrize(("given", "ids"), [
    (["what ?", "where ?"], ["0", "1"]),
    ({"a": "what ?", "b": "where ?"}, ["a", "b"]),
    ({1: "what ?", 2: {"query": "where ?"}}, ["1", "2"]),
    ([Query("a", "what ?"), {"qid": "b", "question": "where ?"}], ["a", "b"]),
    (pd.DataFrame({"query_id": ["a", "b"], "query": ["what ?", "where ?"]}), ["a", "b"]),
])  # fmt: skip
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


@pytest.mark.parametrize("more", [
    {}, {"year": 1999, "tags": ["x"]}, {"metadata": {"year": 1}}, {"metadata": '{"year": 1}', "lang": "de"},
    {"title": None, "metadata": None, "year": None}, {"answers": "x"}, {"evidence": ["p"], "any_order": True},
])  # fmt: skip
@pytest.mark.parametrize("names", [("_id", "text"), ("id", "text")])
@pytest.mark.parametrize("name", ["a", 7])
def test_a_line_of_a_file_is_read_as_a_dict_in_a_list(
    tmp_path: Path, name: Any, names: tuple[str, str], more: dict[str, Any]
) -> None:
    record = dict(zip(names, (name, "what ?"), strict=True)) | more
    for form, read, made in (("corpus", Corpus.read, corpus_of), ("queries", read_queries, queries_from)):
        (file := tmp_path / f"{form}.jsonl").write_text(json.dumps(record))
        of_file, of_list = read(file), made([record])
        if form == "corpus":
            assert content(of_file) == content(of_list)
        else:
            assert of_file == of_list


@pytest.mark.parametrize(("wrong", "why"), [
    ([], "queries: there is no query"),
    ([Passage("a", "what ?")], "query 0: expected a text, a Query, or an object"),
    ([{"text": "what ?", "evidence": {"p1": 1}}], "query 0 .*evidence: expected a list of passage ids"),
    ([{"text": "what ?", "answers": {"text": ["x"]}}],
     r"query 0 \('0'\): expected metadata.answers to be a list"),
    ([Query("a", "what ?", metadata="nothing")], "expected metadata to be an object"),
])  # fmt: skip
def test_what_are_no_queries_is_refused(wrong: Any, why: str) -> None:
    raises(DataError, why, queries_from, wrong)


@pytest.mark.parametrize("frame", [pd.DataFrame({"a": ["x"]}), pl.LazyFrame({"a": ["x"]})])
def test_a_frame_is_no_id(frame: Any) -> None:
    raises(DataError, "passage 0: expected an id that is a text", corpus_of, [{"id": frame, "text": "x"}])


@pytest.mark.parametrize("given", ["gold", "dev"])
def test_gold_of_any_form_needs_queries(given: str) -> None:
    """A data frame has no truth value."""
    with pytest.raises(DataError, match=f"there are no queries to learn from, and {given} is given"):
        given_data(CORPUS, **{given: pd.DataFrame({"query-id": ["a"], "corpus-id": ["0"]})})
