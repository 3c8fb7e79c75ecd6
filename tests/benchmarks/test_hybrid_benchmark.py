"""The benchmark of hybrid decoding runs and prints what it says."""

from pathlib import Path

import pytest
import torch
from small_data import small_retriever, tiny_bert, write_small

from benchmarks.hybrid import main
from grls.data.corpus import Corpus
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.dense import DenseRetriever


def test_the_table_has_every_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_small(tmp_path / "data")
    small_retriever(data).save_pretrained(tmp_path / "generator")
    torch.manual_seed(0)
    biencoder = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    DenseRetriever.assemble(biencoder, Corpus.read(data)).save_pretrained(tmp_path / "dense")
    main(
        str(data), str(tmp_path / "generator"), str(tmp_path / "dense"), weights=(4.0,), empty_weights=(0.5,),
        beams=10, k=1, repeats=1, device="cpu",
    )  # fmt: skip
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0].split(" (")[0].strip() for row in rows[2:]] == [
        "generator",
        "bi-encoder",
        "BM25",
        "generator + bi-encoder, fused after the fact",
        "generator, less the empty prompt",
        "generator, bi-encoder ahead",
        "generator, BM25 ahead",
        "generator, bi-encoder and BM25 ahead, less the empty prompt",
    ]
    assert float(rows[2][-1]) == 1.0
    assert all(0 <= float(cell) <= 100 for row in rows[2:] for cell in row[1:5])
    assert all(float(cell) > 0 for row in rows[2:] for cell in row[5:])
