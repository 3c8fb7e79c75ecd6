"""``grls.fit`` on Python objects, without models: what is trained is tested beside the run."""

import gc
import shutil
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from failing import raises
from fit_helpers import WORDS_ALONE, write_fit_data
from fixture_types import Capsys

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.inputs.splits import given_data
from grls.errors import DataError, GrlsError, MismatchError

CORPUS = {
    f"p{n}": f"the otter number {n} eats {what} ." for n, what in enumerate(["fish", "crab", "eel", "frog"])
}
QUERIES = {f"q{n}": f"which otter eats {what} ?" for n, what in enumerate(["fish", "crab", "eel", "frog"])}
GOLD = {f"q{n}": [f"p{n}"] for n in range(4)}
ALONE: dict[str, Any] = {**WORDS_ALONE, "device": "cpu", "precision": "float32", "k": 1}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> grls.FitResult:
    output = tmp_path_factory.mktemp("face") / "out"
    test = (["who eats an eel ?"], [["p2"]])
    return grls.fit(CORPUS, QUERIES, GOLD, output=output, test=test, **ALONE)


def test_the_result_searches_and_shows_itself(result: grls.FitResult) -> None:
    assert [hit.id for hit in result.retriever.search("crab", 1)] == ["p1"]
    assert result.kept == "bm25"
    assert result.table["bm25"]["test R@1"] == 1.0
    assert result.report.is_file()
    assert "* bm25" in repr(result)
    assert grls.load(result.output, device="cpu").search("frog", 1)[0].text == CORPUS["p3"]


def test_the_same_call_reads_what_is_done_and_other_data_are_refused(result: grls.FitResult) -> None:
    test = (["who eats an eel ?"], [["p2"]])
    again = grls.fit(CORPUS, QUERIES, GOLD, output=result.output, test=test, **ALONE)
    assert again.table == result.table
    with pytest.raises(MismatchError, match="holds a run over other data: give the same data"):
        grls.fit(CORPUS, QUERIES, GOLD, output=result.output, **ALONE)


def test_tables_keep_ordered_evidence(tmp_path: Path) -> None:
    lists = [[f"p{(n + 1) % 4}", f"p{n}"] for n in range(4)]
    queries = {"id": [*QUERIES], "text": [*QUERIES.values()]}
    places: dict[str, list[Any]] = {
        "qid": [name for name in QUERIES for _ in "ab"], "docid": [one for pair in lists for one in pair],
        "order": [0, 1] * 4,
    }  # fmt: skip
    passages = datasets.Dataset.from_dict({"id": [*CORPUS], "text": [*CORPUS.values()]})
    train = datasets.Dataset.from_dict({**queries, "evidence": lists})
    dev = pd.DataFrame(queries | {"id": [f"d{n}" for n in range(4)]}), pd.DataFrame({"gold": lists})
    test = pd.DataFrame(queries), pd.DataFrame(places)
    made = grls.fit(passages, train, output=tmp_path / "out", dev=dev, test=test, **ALONE)
    for split in ("dev", "test"):
        read = read_split(made.output / "data", split)[0]
        assert [query.evidence for query in read] == [tuple(pair) for pair in lists]


def test_without_output_the_folder_goes_with_result_and_retriever(capsys: Capsys) -> None:
    made = grls.fit(CORPUS, QUERIES, GOLD, dev=({"d": "an eel ?"}, {"d": ["p2"]}), **ALONE)
    output, retriever = made.output, made.retriever
    assert made.table["bm25"]["dev R@1"] == 1.0
    shown = f"{capsys.readouterr().out}{made!r}"
    assert "kept: bm25, the only candidate" in shown
    assert ".tmp" not in shown + (output / "README.md").read_text()  # it is named nowhere
    del made
    gc.collect()
    assert retriever.search("eel", 1)[0].id == "p2"
    del retriever
    gc.collect()
    assert not output.exists()


def test_a_corpus_alone_and_a_data_set_folder(tmp_path: Path) -> None:
    alone = grls.fit([*CORPUS.values()], output=tmp_path / "alone", **ALONE)
    assert (alone.kept, alone.run.queries) == ("bm25", {"cut sentences": 1})
    assert alone.table["bm25"].keys() == {
        f"cut sentences {name}" for name in ("R@1", "R@20", "nDCG@10", "RR")
    }
    of_folder = grls.fit(write_fit_data(tmp_path / "data"), output=tmp_path / "out", **ALONE)
    assert of_folder.run.queries == {"dev": 4, "test": 3}


def test_a_file_that_judges_no_passage_as_gold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t0\n")
    with pytest.raises(DataError, match="1 query has no gold passage: 'q0'"):
        grls.fit(CORPUS, {"q0": "who ?"}, tmp_path / "none.tsv", output=tmp_path / "out", **ALONE)


def test_test_queries_beside_a_data_set_folder_leave_its_own_splits(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data")
    (other,) = (query for query in read_split(data, "test")[0][:1])
    gold = read_split(data, "test")[1][other.id]
    plain = grls.fit(data, output=tmp_path / "plain", **ALONE)
    made = grls.fit(data, output=tmp_path / "out", test=({"mine": other.text}, {"mine": gold}), **ALONE)
    for split in ("train", "dev"):
        assert read_split(made.output / "data", split) == read_split(plain.output / "data", split)
    assert [query.id for query in read_split(made.output / "data", "test")[0]] == ["mine"]
    assert not any("pseudo" in note for note in made.run.notes)


def test_queries_of_a_folder_keep_its_splits_apart(tmp_path: Path) -> None:
    """Without gold its test queries are not among those to learn from."""
    data = write_fit_data(tmp_path / "data")
    made = grls.fit(Corpus.read(data), data, output=tmp_path / "out", **ALONE)
    for split in ("train", "dev", "test"):
        assert read_split(made.output / "data", split)[1] == read_split(data, split)[1]


def renamed_splits(folder: Path) -> Path:
    data = write_fit_data(folder)
    for usual, name in (("train", "training"), ("dev", "validation")):
        (data / "qrels" / f"{usual}.tsv").rename(data / "qrels" / f"{name}.tsv")
    return data


def test_splits_of_a_folder_have_names_of_their_own_beside_dev_and_test(tmp_path: Path) -> None:
    """They were looked for in the data that the call writes, which has the usual names."""
    data = renamed_splits(tmp_path / "data")
    names = {"train_split": "training", "dev_split": "validation"}
    made = grls.fit(data, output=tmp_path / "out", test="test", **names, **ALONE)
    for split, name in (("train", "training"), ("dev", "validation"), ("test", "test")):
        assert read_split(made.output / "data", split) == read_split(data, name)
    assert not any("pseudo" in note or "split off" in note for note in made.run.notes)
    with pytest.raises(DataError, match=r"other.tsv: no such file; there are test, training, validation"):
        grls.fit(data, output=tmp_path / "other", test="test", **names | {"dev_split": "other"}, **ALONE)


OF_OBJECTS, GIVEN = {"queries": QUERIES, "gold": GOLD}, "there are no queries to learn from, and "
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"queries": QUERIES, "gold": {name: ["p9"] for name in GOLD}}, "p9"),
    ({"queries": {"q\t0": "who ?"}, "gold": {"q\t0": ["p0"]}}, "holds a tab or a line end"),
    ({"gold": GOLD}, f"{GIVEN}gold is given"),
    ({"dev": (QUERIES, GOLD)}, f"{GIVEN}dev is given"),
    *((OF_OBJECTS | {"test": one}, "test: expected a pair") for one in ("test", (QUERIES,), 7)),
    (OF_OBJECTS | {"epochs": 3}, "fit has no argument 'epochs'. It takes"),
    (OF_OBJECTS | {"dev_split": "d"}, "dev_split='d' .* of none: leave dev_split"),
    ({"test_split": "t", "test": "test"}, "test_split='t' .* test is given, too: leave test_split out"),
    ({"train_split": "t", "gold": "training"}, "train_split='t' .* gold is given, too: leave"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_cannot_work_is_an_error_before_anything_is_written(
    tmp_path: Path, given: dict[str, Any], complaint: str
) -> None:
    in_folder = any(name.endswith("_split") for name in given) and "queries" not in given
    corpus = renamed_splits(tmp_path / "data") if in_folder else CORPUS
    raises(GrlsError, complaint, grls.fit, corpus, output=tmp_path / "out", **given, **ALONE)
    assert not (tmp_path / "out").exists()


def test_a_folder_without_qrels_has_no_split(tmp_path: Path) -> None:
    data = write_fit_data(tmp_path / "data")
    shutil.rmtree(data / "qrels")
    with pytest.raises(DataError, match="have `evidence`: write qrels of it with `grls prepare beir"):
        given_data(data, gold="train")


def test_a_folder_of_documents_is_a_corpus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From the shell as from Python."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "otter.md").write_text("# Otter\nAn otter eats [fish](fish.md).\n\n## Den\nA holt is its den.")
    (docs / "fish.md").write_text("# Fish\nFish live in rivers and in the sea.")
    (docs / "empty.txt").touch()
    result = grls.fit(docs, output=tmp_path / "a", biencoder=None, generator=None)
    (hit,) = result.retriever.search("what is a holt?", k=1)
    assert hit.metadata == {"file": "otter.md", "line": 4, "heading": "Den"}
    options = ["--biencoder", "none", "--generator", "none"]
    assert main(["fit", str(docs), "--output", str(tmp_path / "b"), *options]) == 0
    assert "empty.txt  no text" in caplog.text
    assert (tmp_path / "b" / "data" / "corpus.jsonl").read_bytes() == (
        tmp_path / "a" / "data" / "corpus.jsonl"
    ).read_bytes()
