"""The benchmark of hybrid decoding runs and prints what it says."""

from pathlib import Path

import pytest

from benchmarks.hybrid import main


def test_the_table_has_every_system(kinds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        *(str(kinds / name) for name in ("data", "generative", "dense")), weights=(4.0,),
        empty_weights=(0.5,), beams=10, k=1, repeats=1, device="cpu",
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
