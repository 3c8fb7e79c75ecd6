"""Files that once ended in an error of Python, or were read as they should not be: each found by the fuzz."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from encoder_models import tiny_colbert
from safetensors.numpy import load_file, save_file
from small_data import tiny_bert, write_small

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, GrlsError
from grls.index.files import map_array
from grls.io.recipes import recipe_values
from grls.io.seal import seal
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.build import Building
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.multi_vector import MultiVectorRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.sparse import SparseRetriever
from grls.retrieve.spec import MANIFEST, read_spec

LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Aliases of aliases: a billion values."""


@pytest.mark.parametrize(
    "text", ["a: 2001-99-99", "a: &a {b: *a}", "? [a]\n: 1", "a: \x00", "[" * 1200, LAUGHS]
)
def test_options_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"options\.yaml (cannot be read|holds no options)"):
        recipe_values([str(file), str(file)])


def test_an_error_does_not_quote_a_whole_file() -> None:
    error = DataError(f"expected a word, got {'x' * 10**6!r}; write one.", "file.txt", 3)
    assert len(str(error)) < 10_000
    assert str(error).startswith("file.txt, line 3: expected a word")
    assert str(error).endswith("; write one.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(GrlsError()) == ""


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
        seal(tmp_path / name / MANIFEST, read_spec(tmp_path / name))
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
