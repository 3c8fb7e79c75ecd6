"""Files that once ended in an error of Python, or were read as they should not be: each found by the fuzz."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from encoder_models import tiny_colbert
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
    for name, file in (("dense", "embeddings.npy"), ("vectors", "embeddings/vectors.npy")):
        rows = np.load(tmp_path / name / file)
        rows[0, 0] = number
        np.save(tmp_path / name / file, rows)
        seal(tmp_path / name / MANIFEST, read_spec(tmp_path / name))
        with pytest.raises(DataError, match=f"{name}/embeddings.*is not finite, or above 1e15"):
            load_retriever(tmp_path / name, Opening("cpu"))


@pytest.mark.parametrize(("bound", "number"), [(-1, 2**31 - 2), (-1, 0), (2, 0), (3, 9), (3, -1)])
def test_sparse_weights_of_passages_that_are_none(tmp_path: Path, bound: int, number: int) -> None:
    """SciPy looks at no number if the last bound is negative."""

    def write(numbers: list[int], bounds: list[int]) -> None:
        np.save(tmp_path / "data", np.ones(3, np.float32))
        np.save(tmp_path / "numbers", np.array(numbers, np.int32))
        np.save(tmp_path / "bounds", np.array(bounds, np.int32))

    write([0, 1, number], [0, 1, bound])
    with pytest.raises(DataError, match="the weights cannot be read"):
        SparseRetriever.read(tmp_path, 4, 2)
    write([0, 1, 3], [0, 1, 3])
    assert SparseRetriever.read(tmp_path, 4, 2).nnz == 3


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
