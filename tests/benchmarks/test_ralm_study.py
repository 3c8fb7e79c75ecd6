"""The study of in-context RALM and its benchmark, with a small model."""

import json
from pathlib import Path

import pytest
from ralm_helpers import PASSAGES, TEXT, write_model

from benchmarks import ralm, ralm_study
from grls.data.corpus import Corpus
from grls.errors import MismatchError


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


def test_the_benchmark_compares_with_a_plain_loop(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ralm.main(
        str(folder / "data"), str(folder / "text.txt"), str(folder / "model"), stride=(4,), cut=(1, 64),
        begin=840, tokens=16, repeats=1,
    )  # fmt: skip
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| 4")]
    assert [row[2].strip() for row in rows] == ["1", "64"]
    assert all(float(row[7]) < 1e-3 * float(row[6]) for row in rows)
