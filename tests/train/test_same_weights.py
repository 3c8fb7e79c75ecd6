"""The same seed and data give the same weights, for every training, whatever ran before in the process."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import biencoder_helpers
import numpy as np
import pytest
import torch
from small_data import passages, tiny_bert
from train_helpers import arguments, chain_options, write_chain_parts

from grls.answer.ralm.reranker import Reranker, RerankExample
from grls.cli import main
from grls.data.corpus import Corpus
from grls.train.reranker.module import fit_reranker
from grls.train.reranker.options import RerankerOptions

SHORT = ("--trainer.max_steps=3", "--trainer.limit_val_batches=0", "--data.workers=0")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chain_parts(tmp_path_factory.mktemp("same"))


def stage(name: str) -> Callable[[Path, Path], None]:
    def run(root: Path, output: Path) -> None:
        loss = "full" if name == "doc2query" else "allowed"
        assert main(["train", *arguments(name, root / "data", output, *SHORT, f"--model.loss={loss}")]) == 0

    return run


def riches(root: Path, output: Path) -> None:
    given = arguments("riches", root / "data", output, *SHORT)
    names = [option.partition("--model.generator.")[2].split("=") for option in given]
    small: dict[str, object] = {name[0]: name[1] for name in names if len(name) == 2}
    small |= {"texts": ["question: « » answer: proved\n"]}
    generator = {"class_path": "grls.models.load.build.ScratchT5", "init_args": small}
    config = output.parent / "riches.yaml"  # an option's line break would reach the model as two letters
    config.write_text(json.dumps({"model": {"init_args": {"generator": generator}}}))
    kept = [option for option in given[1:] if "generator" not in option]
    assert main(["train", "riches", f"--config={config}", *kept]) == 0


def chains(root: Path, output: Path) -> None:
    lora = ["--model.lora_rank=2", "--model.lora_dropout=0.2"]
    assert main([*chain_options(root, output, *SHORT), *lora]) == 0


def biencoder(root: Path, output: Path) -> None:
    given = ["--fit.max_steps=3", "--fit.hard_negatives=1", "--dev_split=null"]
    assert main(biencoder_helpers.options(root, output, *given)) == 0


def reranker(root: Path, output: Path) -> None:
    names = tuple(passage.id for passage in passages()[:4])
    examples = [RerankExample(f"is the {n} calm", names, (-1.0, -2.0, -9.0, -9.0)) for n in ("otter", "lynx")]
    torch.manual_seed(0)
    new = Reranker.load(str(root / "bert"), 8, 32, "cpu")
    fit_reranker(
        new, Corpus.from_passages(passages()), examples, examples, output, RerankerOptions(2, 1, 1e-3)
    )


TRAININGS = {
    **{name: stage(name) for name in ("memorise", "retrieve", "doc2query")},
    "riches": riches, "chains": chains, "biencoder": biencoder, "reranker": reranker,
}  # fmt: skip


@pytest.mark.parametrize("name", TRAININGS)
def test_the_weights_repeat(name: str, root: Path, tmp_path: Path) -> None:
    if not (root / "bert").exists():
        tiny_bert(root / "bert")
    files = []
    for turn in ("first", "second"):
        torch.manual_seed(len(turn))
        np.random.seed(len(turn))
        random.seed(turn)
        TRAININGS[name](root, tmp_path / turn)
        files.append((tmp_path / turn / "model" / "model.safetensors").read_bytes())
    assert files[0] == files[1]
