"""Files that once ended in an error of Python, or were read as they should not be: each found by the fuzz."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_models import tiny_colbert
from safetensors.numpy import load_file, save_file
from small_data import tiny_bert, write_small

from grls.answer.ralm.reranker import read_examples
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours
from grls.data.types import Query
from grls.errors import ConfigError, DataError, GrlsError, MismatchError
from grls.evaluation.answers import read_answers
from grls.fitting.journal import JOURNAL, FitJournal
from grls.index.array_files import map_array
from grls.io.files import sha256, write_json
from grls.io.recipes import recipe_values
from grls.io.resumable import GrowingFile
from grls.models.biencoder import BiEncoderModel
from grls.models.load.build import TRAINING
from grls.models.sentence_model import evidence_words_of, learned_done_of
from grls.retrieve.build import Building
from grls.retrieve.card import figures_beside
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.multi_vector import MultiVectorRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.sparse import SparseRetriever
from grls.runs.portions import KeptResults
from grls.train.doc2query.form import FORM, QueryForm
from grls.tune.journal import Journal

LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Aliases of aliases: a billion values."""


@pytest.mark.parametrize(
    "text", ["a: 2001-99-99", "a: &a {b: *a}", "? [a]\n: 1", "a: \x00", "[" * 1200, LAUGHS]
)
@pytest.mark.parametrize("read", [recipe_values])
def test_options_that_cannot_be_read(tmp_path: Path, text: str, read: Callable[[list[str]], Any]) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"options\.yaml (cannot be read|holds no options)"):
        read([str(file), str(file)])


@pytest.mark.parametrize("read", [recipe_values])
def test_options_with_a_byte_order_mark(tmp_path: Path, read: Callable[[list[str]], Any]) -> None:
    (tmp_path / "options.yaml").write_text("\ufeffa: {b: 1}\n")
    assert read([str(tmp_path / "options.yaml")]) == {"a": {"b": 1}}


def test_an_error_does_not_quote_a_whole_file() -> None:
    error = DataError(f"expected a word, got {'x' * 10**6!r}; write one.", "file.txt", 3)
    assert len(str(error)) < 10_000
    assert str(error).startswith("file.txt, line 3: expected a word")
    assert str(error).endswith("; write one.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(GrlsError()) == ""


def written(file: Path, *lines: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_records_of_work_without_their_fields(tmp_path: Path) -> None:
    file = written(tmp_path / "tuned.jsonl", {"settings": {}}, {"of": {"n": 1}, "found": 1}, {"of": {"n": 2}})
    with pytest.raises(DataError, match=r"tuned.jsonl, line 3: the field 'found' is missing"):
        Journal(file, {})
    step = {"stage": "bm25", "inputs": "x", "seconds": "long", "result": {}}
    written(tmp_path / "fit" / JOURNAL, {"settings": {"data": "d"}}, step)
    with pytest.raises(DataError, match="line 2: the field 'seconds' is missing or malformed"):
        FitJournal(tmp_path / "fit", "d")
    file = written(tmp_path / "any.jsonl", {"settings": [{}]}, {})
    with pytest.raises(DataError, match="holds no settings"):
        GrowingFile(file, {})


def test_a_journal_of_other_settings_with_damaged_steps(tmp_path: Path) -> None:
    for line in ({"steps": "plan"}, [], "plan"):
        written(tmp_path / JOURNAL, {"settings": {"data": "d"}}, line)
        with pytest.raises(MismatchError, match="holds a run over other data"):
            FitJournal(tmp_path, "e")


def test_kept_results_that_are_damaged(tmp_path: Path) -> None:
    for hits in ([["a"]], 3, [1]):
        file = written(tmp_path / "kept.jsonl", {"settings": {}}, {"query_id": "q", "hits": hits})
        kept = GrowingFile(file, {}, keep=False)
        with pytest.raises(DataError, match=r"kept.jsonl: the record of query 'q' is damaged"):
            list(KeptResults(kept, [Query("q", "text")]))
        kept.close()


@pytest.mark.parametrize(
    "content", [[], {"passages": "none"}, {"query_tokens": "64"}, {"passage_tokens": 0}, {"more": 1}, None]
)
def test_a_form_of_queries_that_is_none(tmp_path: Path, content: Any) -> None:
    write_json(tmp_path / FORM, content)
    with pytest.raises(DataError, match="expected the form of a query generator"):
        QueryForm.read(tmp_path)


@pytest.mark.parametrize("read", [learned_done_of, evidence_words_of])
@pytest.mark.parametrize("content", [[], 3, None, "done"])
def test_a_training_file_that_is_no_object(tmp_path: Path, content: Any, read: Callable[[str], Any]) -> None:
    write_json(tmp_path / TRAINING, content)
    with pytest.raises(DataError, match="expected an object of what was trained"):
        read(str(tmp_path))


def test_measures_that_no_float_holds(tmp_path: Path) -> None:
    write_json(tmp_path / "metrics.json", {"nDCG": 0.5, "huge": 10**400})
    assert figures_beside(tmp_path) == {"this retriever": {"nDCG": 0.5}}


@pytest.mark.parametrize(
    "field", [{"scores": ["1", 2]}, {"scores": [10**400, 1]}, {"passages": [["r0"], "r1"]}]
)
def test_examples_of_other_types(tmp_path: Path, field: dict[str, Any]) -> None:
    good = {"prefix": "the", "passages": ["r0", "r1"], "scores": [0.5, 1]}
    assert len(read_examples(written(tmp_path / "examples.jsonl", good))) == 1
    with pytest.raises(DataError, match=r"examples.jsonl, line 1: expected 'prefix'"):
        read_examples(written(tmp_path / "examples.jsonl", {**good, **field}))


def test_an_answer_whose_end_is_no_truth_value(tmp_path: Path) -> None:
    line = {"query_id": "q", "answer": "a", "ended": "no", "quotes": []}
    with pytest.raises(DataError, match="expected true or false, got 'no'"):
        read_answers(written(tmp_path / "answers.jsonl", line))


@pytest.mark.parametrize("number", [np.inf, np.nan, 3e38])
def test_numbers_that_no_search_can_use(tmp_path: Path, number: float) -> None:
    """In a file whose checksum fits they were not looked at, and scores were infinite."""
    data = write_small(tmp_path / "data")
    encoder = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    DenseRetriever.assemble(encoder, Corpus.read(data)).save_pretrained(tmp_path / "dense")
    late = tiny_colbert(tmp_path / "late")
    MultiVectorRetriever.build(
        str(late), str(data), Building(str(tmp_path / "vectors"), "auto", device="cpu")
    )
    vectors = load_file(tmp_path / "vectors" / MultiVectorRetriever.file)
    vectors["vectors"][0, 0] = number
    save_file(vectors, tmp_path / "vectors" / MultiVectorRetriever.file)
    rows = np.load(tmp_path / "dense" / DenseRetriever.file)
    rows[0, 0] = number
    np.save(tmp_path / "dense" / DenseRetriever.file, rows)
    for name, kind in (("dense", DenseRetriever), ("vectors", MultiVectorRetriever)):
        file = tmp_path / name / kind.file
        spec = json.loads((tmp_path / name / "grls.json").read_text())
        spec |= {"embeddings": {"bytes": file.stat().st_size, "sha256": sha256(file)}}
        spec.pop("seal")
        (tmp_path / name / "grls.json").write_text(json.dumps(spec))
        with pytest.raises(DataError, match=f"{kind.file}: .*is not finite, or above 1e15") as error:
            load_retriever(tmp_path / name, Opening("cpu"))
        assert str(file) in str(error.value)


@pytest.mark.parametrize(("bound", "number"), [(-1, 2**31 - 2), (-1, 0), (2, 0), (3, 9), (3, -1)])
def test_sparse_weights_of_passages_that_are_none(tmp_path: Path, bound: int, number: int) -> None:
    """SciPy looks at no number if the last bound is negative."""
    file, ids = tmp_path / "weights.safetensors", np.array([0, 1, number], dtype=np.int32)
    arrays = {"data": np.ones(3, np.float32), "numbers": ids, "bounds": np.array([0, 1, bound], np.int32)}
    save_file(arrays, file)
    with pytest.raises(DataError, match=r"weights\.safetensors: the weights cannot be read"):
        SparseRetriever.read(file, 4, 2)
    arrays |= {"numbers": np.array([0, 1, 3], np.int32), "bounds": np.array([0, 1, 3], np.int32)}
    save_file(arrays, file)
    assert SparseRetriever.read(file, 4, 2).nnz == 3


@pytest.mark.parametrize("header", [b"]" * 20, b"(" * 118, b"{'descr': '<f4', 'shape': (1e9,)}", b"\0" * 60])
def test_arrays_whose_header_is_no_header(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "rows.npy"
    np.save(file, np.zeros((3, 2), dtype=np.float32))
    content = file.read_bytes()
    assert map_array(file).shape == (3, 2)
    file.write_bytes(content[:10] + header.ljust(118) + content[128:])
    with pytest.raises(ValueError, match=r"."):
        map_array(file)
    file.write_bytes(b"PK\x03\x04" + content)
    with pytest.raises(ValueError, match="magic"):
        map_array(file)


@pytest.mark.parametrize("numbers", [[[10]] * 10, [[-2]] * 10, [[1]] * 9, [1] * 10, [[1.0]] * 10])
def test_neighbours_that_are_no_passages(tmp_path: Path, numbers: Any) -> None:
    """Numbers beyond the corpus ended in an error of Arrow when a training took them."""
    corpus, file = Corpus.read(write_small(tmp_path / "data")), tmp_path / "near.safetensors"
    array = np.array(numbers)
    array = array.astype(np.int32) if array.dtype.kind == "i" else array
    save_file({"neighbours": array}, file, {"corpus": corpus.fingerprint, "by": "bm25"})
    with pytest.raises(DataError, match=r"near\.safetensors: these are not numbers of the passages"):
        Neighbours.read(file, corpus)
    save_file({"neighbours": np.zeros((10, 1), np.int32)}, file, {"corpus": corpus.fingerprint})
    with pytest.raises(DataError, match="these are not numbers of the passages"):
        Neighbours.read(file, corpus)
