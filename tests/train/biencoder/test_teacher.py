"""A bi-encoder that learns from a teacher's scores in a file."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from biencoder_helpers import options
from failing import fails
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss
from sentence_transformers.util import dot_score, pairwise_dot_score

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.models.biencoder import BiEncoderModel
from grls.models.text_encoder import passage_text
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.options import BiEncoderOptions

Rows = list[dict[str, Any]]


def scored(place: Path) -> Rows:
    """For every training query all passages; the later one in the corpus has the higher score."""
    corpus = Corpus.read(place / "data")
    queries, _ = read_split(place / "data", "train", corpus)
    return [
        {"query": query.id, "passage": passage.id, "score": 2.0 * row}
        for query in queries
        for row, passage in enumerate(corpus)
    ]


def write(rows: Rows, file: Path) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def command(place: Path, output: Path, file: Path, *more: str) -> list[str]:
    pairs = ("--fit.multistep=false", "--fit.hard_negatives=3", "--dev_split=null")
    return options(place, output, f"--teacher={file}", *pairs, *more)


def order_kept(model: Path, data: Path) -> float:
    """The share of pairs of passages that a model ranks as the teacher does, over the training queries."""
    encoder, corpus = BiEncoderModel.load(str(model), device="cpu"), Corpus.read(data)
    queries, _ = read_split(data, "train", corpus)
    passages = encoder.encode([passage_text(passage) for passage in corpus], "passage")
    scores = encoder.encode([query.text for query in queries], "query") @ passages.T
    first, second = np.triu_indices(len(corpus), 1)
    return float((scores[:, first] < scores[:, second]).mean())


def test_a_student_learns_the_order_of_its_teacher(place: Path, tmp_path: Path) -> None:
    file = write(scored(place), tmp_path / "scores.jsonl")
    before = order_kept(place / "bert", place / "data")
    assert main(command(place, tmp_path / "out", file, "--fit.teacher_share=1", "--fit.epochs=12")) == 0
    assert before < 0.7
    assert order_kept(tmp_path / "out" / "model", place / "data") > 0.9


def test_the_share_of_the_teacher_is_the_librarys_loss(place: Path) -> None:
    torch.manual_seed(0)
    model = BiEncoderModel.load(str(place / "bert"), device="cpu").model
    embeddings, scores = [torch.randn(5, 8) for _ in range(4)], torch.randn(5, 3)
    keys = torch.arange(15).view(3, 5).T
    labels = torch.cat((keys, keys[:, :1]), dim=1)
    theirs = DistillKLDivLoss(model, lambda query, passage: 3.0 * pairwise_dot_score(query, passage))
    distilled = theirs.compute_loss_from_embeddings(embeddings, scores)

    def loss(share: float, teacher: torch.Tensor | None) -> torch.Tensor:
        ours = MaskedRankingLoss(model, 3.0, dot_score, BiEncoderOptions(teacher_share=share))
        return ours.compute_loss_from_embeddings(embeddings, labels, teacher)

    torch.testing.assert_close(loss(1.0, scores), distilled)
    torch.testing.assert_close(loss(0.25, scores), 0.75 * loss(0.25, None) + 0.25 * distilled)


def test_bad_scores_are_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = scored(place)
    corpus = Corpus.read(place / "data")
    queries, qrels = read_split(place / "data", "train", corpus)
    query, gold = queries[0].id, gold_passages(queries[0], qrels)
    for changed, words in (
        (
            [*rows, {**rows[0], "query": "nobody"}],
            f"line {len(rows) + 1}: query 'nobody' is not in the",
        ),
        ([{**rows[0], "passage": "none"}, *rows], "line 1: passage 'none' is not in"),
        ([*rows, rows[3]], f"line {len(rows) + 1}: query {rows[3]['query']!r} and passage"),
        (
            [{**rows[0], "score": "high"}, *rows[1:]],
            "line 1: expected 'score' to be a finite number",
        ),
        ([{**rows[0], "score": True}, *rows[1:]], "line 1: expected 'score' to be a finite number"),
        ([{**rows[0], "score": float("inf")}, *rows[1:]], "line 1: expected a JSON object (Infinity is no"),
        ([{"query": query, "score": 1.0}], "line 1: expected 'passage' to be a non-empty string"),
        (
            [row for row in rows if (row["query"], row["passage"]) != (query, gold[0])],
            f"the score of query {query!r} and its gold passage {gold[0]!r} is missing: add it",
        ),
        (
            [row for row in rows if row["query"] != query or row["passage"] in gold],
            f"scores.jsonl has 0 passages that are not gold for query {query!r}; hard_negatives of 3",
        ),
    ):
        file = write(changed, tmp_path / "scores.jsonl")
        message = fails(capsys, *command(place, tmp_path / "out", file))
        assert "scores.jsonl" in message
        assert words in message
    file = write(rows, tmp_path / "scores.jsonl")
    for option, words in (
        (f"--teacher={tmp_path / 'none.jsonl'}", "none.jsonl: no such file"),
        ("--fit.hard_negatives=0", "set --fit.hard_negatives above 0"),
        ("--fit.multistep=null", "set --fit.multistep false"),
        (f"--negatives={place}", "--teacher names the hard negatives, too: leave out --negatives"),
    ):
        assert words in fails(capsys, *command(place, tmp_path / "out", file, option))


def test_a_run_whose_scores_have_changed_is_not_resumed(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, output = scored(place), tmp_path / "out"
    file = write(rows, tmp_path / "scores.jsonl")
    given = command(place, output, file, "--fit.epochs=1", "--fit.max_steps=2")
    assert main(given) == 0
    resumed = shutil.copytree(output, tmp_path / "resumed")
    assert main([*given, f"--output={resumed}", "--resume=true"]) == 0
    write([{**rows[0], "score": 0.5}, *rows[1:]], file)
    message = fails(capsys, *given, "--resume=true")
    assert f"the teacher {file} has changed since" in message
    assert "had --teacher" in fails(capsys, *given, "--resume=true", "--teacher=null", "--negatives=bm25")
