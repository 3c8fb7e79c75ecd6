"""The study of in-context RALM and its benchmark, with a small model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ralm_helpers import PASSAGES, TEXT, write_model
from small_data import tiny_bert

from benchmarks import ralm, ralm_study
from grls.cli import main
from grls.data.corpus import Corpus
from grls.errors import MismatchError
from grls.models.biencoder import BiEncoderModel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_model(path / "model", positions=1024)
    Corpus.from_passages(PASSAGES).write(path / "data" / "corpus.jsonl")
    (path / "text.txt").write_text(TEXT * 14, encoding="utf-8")
    return path


def test_every_configuration_is_run_once_and_tabled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def study(limit: int = 60) -> str:
        ralm_study.main(
            str(folder / "data"), str(folder / "text.txt"), str(folder / "out"), str(folder / "model"),
            limit=limit, strides=(4, 16), query_tokens=(16, 32), candidates=3,
        )  # fmt: skip
        return capsys.readouterr().out

    first = study()
    made = {file.name for file in folder.glob("out-*.json") if not file.stem.endswith(".options")}
    assert made == {f"out-{n}.json" for n in ("none", "s4-l32", "s16-l32", "s4-l16", "zero-shot", "oracle")}
    scores = {name: json.loads((folder / name).read_text())["token"] for name in made}
    assert scores["out-oracle.json"] <= scores["out-s4-l32.json"]
    rows = [line for line in first.splitlines() if line.startswith("| ") and "---" not in line]
    named = [row.split("|")[1].strip() for row in rows]
    assert named[:5] == ["run", "no retrieval", "BM25", "BM25, zero-shot reranking", "BM25, oracle"]
    assert named[5:] == ["stride", "4", "16", "tokens", "16", "32"]
    assert f"{scores['out-none.json']:.2f}" in rows[1]
    assert (folder / "out.svg").read_text().startswith("<?xml")
    times = {name: (folder / name).stat().st_mtime_ns for name in made}
    assert "perplexity" in study()
    assert {name: (folder / name).stat().st_mtime_ns for name in made} == times
    with pytest.raises(MismatchError, match="other settings"):  # not the old figures under new options
        study(limit=50)


def test_a_smaller_judge_and_a_dense_retriever_have_rows(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu").save(tmp_path / "sentence")
    dense, data = str(tmp_path / "dense"), str(folder / "data")
    made = [f"{tmp_path / 'sentence'}", f"--corpus={data}", f"--output={dense}"]
    assert main(["index", *made, "--device=cpu"]) == 0
    write_model(tmp_path / "small", positions=1024, seed=3)
    capsys.readouterr()
    ralm_study.main(
        data, str(folder / "text.txt"), str(tmp_path / "out"), str(folder / "model"), limit=60, dense=dense,
        judge=str(tmp_path / "small"), strides=(), query_tokens=(), candidates=3,
    )  # fmt: skip
    printed = capsys.readouterr().out.splitlines()
    rows = [line for line in printed if line.startswith("| ") and "---" not in line]
    assert [row.split("|")[1].strip() for row in rows[1:]] == [
        "no retrieval", "BM25", "dense", "BM25, zero-shot reranking", "BM25, zero-shot reranking by small",
        "BM25, oracle", "dense, zero-shot reranking", "dense, zero-shot reranking by small", "dense, oracle",
    ]  # fmt: skip

    def chosen(name: str) -> tuple[list[list[str]], dict[str, Any]]:
        lines = (tmp_path / f"out-{name}.strides.jsonl").read_text().splitlines()
        head, *rows = map(json.loads, lines)
        return [row["passages"] for row in rows], head["settings"]

    for retriever, own in (("", "bm25"), ("dense-", dense)):
        by_itself, by_judge = chosen(f"{retriever}zero-shot"), chosen(f"{retriever}judge")
        assert by_itself[0] != by_judge[0]  # another model judges otherwise
        assert (by_judge[1]["judge"], by_judge[1]["retriever"]) == (str(tmp_path / "small"), own)
        assert by_itself[1]["judge"] is None
    assert chosen("dense-oracle")[1]["candidates"] == 3


def test_the_benchmark_compares_with_a_plain_loop(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ralm.main(
        str(folder / "data"), str(folder / "text.txt"), str(folder / "model"), stride=(4,), cut=(1, 64),
        begin=840, tokens=16, repeats=1,
    )  # fmt: skip
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| 4")]
    assert [row[2].strip() for row in rows] == ["1", "64"]
    assert all(float(row[7]) < 1e-3 * float(row[6]) for row in rows)
