"""Fits of a causal language model with a teacher, and what is refused."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from failing import fails
from train_helpers import chain_options, logged, opened_chains

from benchmarks.steps import main as steps_benchmark
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.retrieve.bm25 import BM25Options, BM25Retriever
from grls.train.generator.data import RetrieverTeacher

BM25 = ["--data.prior.retrievers=[bm25]"]


def test_a_teacher_has_an_opinion_of_what_is_not_evidence(root: Path) -> None:
    data, _ = opened_chains(root)
    teacher = RetrieverTeacher(str(root / "dense"), data.corpus)
    teacher.temperature, teacher.passages = 0.5, 4
    hops = data.train_examples.draw(2, 0)[:2]  # type: ignore[attr-defined]
    opinions = teacher.opinions(hops)
    for hop, opinion in zip(hops, opinions, strict=True):
        assert len(opinion) == 4
        assert sum(opinion.values()) == pytest.approx(1)
        assert not set(opinion) & set(hop.evidence)
    assert len(hops[1].evidence) == 1
    # The softmax of its scores: their differences are those of the logarithms, times the temperature.
    hits = teacher.retriever.retrieve_hop([Query("q", hops[0].query)], [()], 4)[0].hits
    numbers = data.corpus.numbers([hit.id for hit in hits])
    gap = math.log(opinions[0][numbers[0]]) - math.log(opinions[0][numbers[3]])  # type: ignore[index]
    assert gap == pytest.approx((hits[0].score - hits[3].score) / 0.5, rel=1e-4)


@pytest.mark.parametrize(("option", "changed"), [
    ("--data.teacher=FOLDER", "the retriever of data.teacher"),
    ("--data.prior.retrievers=[FOLDER]", "a retriever of data.prior"),
    ("--data.rescore.retrievers=[FOLDER]", "a retriever of data.rescore"),
])  # fmt: skip
def test_a_run_whose_retriever_has_changed_is_not_resumed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, changed: str
) -> None:
    folder, corpus = tmp_path / "bm25", Corpus.read(root / "data")
    BM25Retriever(corpus).save_pretrained(folder)
    given = [option.replace("FOLDER", str(folder)), "--trainer.max_epochs=1"]
    given += ["--model.rescore_weight=1"] if "rescore" in option else []
    assert main(chain_options(root, tmp_path / "run", *given)) == 0
    again = [*chain_options(root, tmp_path / "run", *given), "--resume=true"]
    assert main(again) == 0
    shutil.rmtree(folder)
    BM25Retriever(corpus, BM25Options(b=0.1)).save_pretrained(folder)
    assert f"{changed} has changed since the run on {root / 'data'} began" in fails(capsys, *again)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--data.branches=2"], "branches need a teacher"),
        (["--model.loss=full", *BM25], "set --model.loss allowed"),
        (["--model.freeze_encoder=true"], "no encoder to freeze"),
        (["--model.freeze_layers=2"], "freeze_layers must be from 0 to less than the layers"),
        (["--data.prior.retrievers=[]"], "prior needs retrievers"),
        ([*BM25, "--data.prior.weights=[1,2]"], "got 1 retrievers and 2 weights"),
        (["--data.prior.retrievers=[nowhere]"], "no retriever here"),
        (["--data.rescore.retrievers=[]"], "data.rescore.retrievers is empty"),
        (["--recall.rescore=3"], "--recall.rescore needs a generator that learns to rescore"),
    ],
)
def test_options_that_cannot_work_are_refused(
    root: Path, tmp_path: Path, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, *chain_options(root, tmp_path / "run", *given))


def test_the_usual_temperature_of_a_teacher_is_that_of_its_kind(root: Path) -> None:
    """Scores of BM25 divided by a bi-encoder's temperature leave one passage."""
    data, _ = opened_chains(root)
    usual = {name: RetrieverTeacher(name, data.corpus) for name in (str(root / "dense"), "bm25")}
    assert [teacher.temperature for teacher in usual.values()] == [0.05, 2.0]


@pytest.mark.parametrize("loss", ["full", "allowed"])
def test_a_causal_model_learns_hops_alone_too(root: Path, tmp_path: Path, loss: str) -> None:
    plain = [o for o in chain_options(root, tmp_path / "run") if not o.startswith("--config")]
    kept = [o for o in plain[2:] if "name_or_path" not in o]
    source = ["--model.generator=CausalLM"]
    source.append(f"--model.generator.name_or_path={root / 'llama'}")
    assert main(["train", "retrieve", *source, f"--model.loss={loss}", *kept]) == 0
    losses = list(logged(tmp_path / "run", "train_loss").values())
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


def test_the_benchmark_of_steps_measures_a_training(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = [
        option
        for option in chain_options(root, tmp_path, "--trainer.max_epochs=9")[1:]
        if "--output" not in option
    ]
    steps_benchmark(["--steps", "1", *training])
    name, *figures = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")[1:-1]]
    assert name == "this code"
    assert all(float(figure.replace(",", "")) > 0 for figure in figures)
