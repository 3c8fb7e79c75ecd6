"""Sharded trainings on two and three processes: the losses of one, kill and resume, and what is refused."""

import os
from pathlib import Path
from typing import Any

import biencoder_helpers
import pytest
import torch
from failing import fails
from models_without_dropout import still_bert
from process_group import together
from rerank_examples import fitted
from small_data import write_small
from train_helpers import arguments, callback, chain_options, logged, same

from grls.answer.ralm.reranker import Reranker
from grls.cli import main
from grls.errors import ConfigError
from grls.models.biencoder import BiEncoderModel
from grls.models.load.generators import Pretrained
from grls.train.core.processes import FullyShard
from grls.train.options import EncoderOptions
from grls.train.reranker.module import RerankerModule

FSDP = ["--trainer.strategy=fsdp", "--model.gradient_checkpointing=true", "--trainer.gradient_clip_val=0.5"]
GLOBAL = ["--data.global_batch_size=8", "--trainer.max_epochs=1"]
"""30 examples, 8 a batch: the last one has 6."""


def test_shards_have_the_losses_of_one_process_and_resume_on_another_number(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def options(name: str, *more: str) -> list[str]:
        given = [*GLOBAL, "--trainer.gradient_clip_val=0.5", *more]
        return ["train", *arguments("retrieve", root / "data", tmp_path / name, *given, dropout=0.0)]

    assert main(options("one")) == 0
    kill = ["--last.every_n_train_steps=2", callback("train_helpers.KillAfter", batches=3)]
    killed = [*FSDP, *kill]
    assert any(together(2, lambda: main(options("two", *killed))))
    same(tmp_path / "one", tmp_path / "two", "train_loss", within=5e-4)
    last = tmp_path / "two" / "checkpoints" / "last.ckpt"
    assert last.is_dir()
    assert together(3, lambda: main(options("two", *FSDP, "--resume=true"))) == [0, 0, 0]
    same(tmp_path / "one", tmp_path / "two", "train_loss", "dev_loss", "dev_recall", version=1, within=5e-4)
    one, two = (Pretrained(str(tmp_path / name / "model")).load().model for name in ("one", "two"))
    for name, weight in two.state_dict().items():
        assert weight == pytest.approx(one.state_dict()[name], abs=2e-3), name

    of_shards = options("two", "--resume=true")
    assert "resume it as it began (--trainer.strategy fsdp)" in fails(capsys, *of_shards)
    of_one = options("one", *FSDP, "--resume=true")
    assert "is not sharded" in fails(capsys, *of_one)
    shard = next(last.glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-9])
    assert f"{shard.name} has changed" in fails(capsys, *options("two", *FSDP, "--resume=true"))


@pytest.mark.parametrize("kind", ["causal", "sequence"])
def test_chains_in_bfloat16_with_adapters_or_many_reads(kind: str, root: Path, tmp_path: Path) -> None:
    """Hops of a sequence-to-sequence model are read in groups, whose number differs between processes."""
    few = ["--trainer.max_epochs=1", "--data.global_batch_size=5"]
    if kind == "causal":
        few += ["--model.lora_rank=2", "--trainer.precision=bf16-mixed"]
    options = chain_options(root, tmp_path / "two", *few, t5=kind == "sequence")
    assert together(2, lambda: main([*options, *FSDP])) == [0, 0]
    Pretrained(str(tmp_path / "two" / "model")).load()
    if kind == "sequence":
        clipped = ["--trainer.gradient_clip_val=0.5", f"--output={tmp_path / 'one'}"]
        assert main([*options, *clipped]) == 0
        same(tmp_path / "one", tmp_path / "two", "train_loss", "dev_loss", within=5e-4)
    else:
        assert all(0 < loss < 9 for loss in logged(tmp_path / "two", "train_loss").values())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data and the model of a bi-encoder."""
    folder = tmp_path_factory.mktemp("encoder")
    write_small(folder / "data")
    still_bert(folder / "bert")
    return folder


def biencoder(root: Path, output: Path, *more: str) -> list[str]:
    given = ["--fit.batch_size=16", "--fit.epochs=2", "--fit.learning_rate=1e-3"]
    return biencoder_helpers.options(root, output, *given, *more)


def ended_after_a_checkpoint(options: list[str]) -> None:
    """A training whose processes are killed when their first checkpoint is written."""
    save = FullyShard.save_checkpoint

    def dying(self: Any, checkpoint: Any, filepath: Any, *rest: Any, **more: Any) -> None:
        save(self, checkpoint, filepath, *rest, **more)
        if Path(filepath).stem == "last":
            torch.distributed.barrier()
            os._exit(9)

    FullyShard.save_checkpoint = dying  # type: ignore[method-assign]
    main(options)


def test_a_bi_encoder_in_shards_has_the_losses_of_one_process_and_resumes_on_another_number(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def options(name: str, *more: str) -> list[str]:
        return biencoder(place, tmp_path / name, "--fit.lora_rank=2", *more)

    shards = ["--fit.strategy=fsdp", "--fit.gradient_checkpointing=true"]
    torch.manual_seed(0)
    assert main(options("one")) == 0
    expected = biencoder_helpers.logged(tmp_path / "one", "train_loss")
    assert len(expected) == 2 * 2
    assert together(2, lambda: ended_after_a_checkpoint(options("two", *shards))) == [9, 9]
    assert "--resume true" in fails(capsys, *options("two", *shards))
    assert "resume it as it began (--fit.strategy fsdp)" in fails(capsys, *options("two", "--resume=true"))
    assert together(3, lambda: main(options("two", *shards, "--resume=true"))) == [0, 0, 0]
    assert biencoder_helpers.logged(tmp_path / "two", "train_loss") == pytest.approx(expected, abs=5e-4)
    recalls = [biencoder_helpers.logged(tmp_path / name, "dev_recall") for name in ("one", "two")]
    assert recalls[0] == recalls[1]
    one, two = (BiEncoderModel.load(str(tmp_path / name / "model"), device="cpu") for name in ("one", "two"))
    for name, weight in two.model.state_dict().items():
        assert weight == pytest.approx(one.model.state_dict()[name], abs=2e-3), name


def test_a_bi_encoder_in_bfloat16_shards_without_dev(place: Path, tmp_path: Path) -> None:
    options = biencoder(place, tmp_path / "two", "--fit.strategy=fsdp", "--fit.precision=bfloat16")
    assert together(2, lambda: main([*options, "--dev_split=null", "--fit.epochs=1"])) == [0, 0]
    losses = biencoder_helpers.logged(tmp_path / "two", "train_loss")
    assert all(0 < loss < 9 for loss in losses.values())
    BiEncoderModel.load(str(tmp_path / "two" / "model"), device="cpu")


def test_what_needs_whole_weights_is_refused(
    place: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = arguments("retrieve", root / "data", tmp_path, *FSDP, "--model.optimizer=adafactor")
    assert "set --model.optimizer adamw" in fails(capsys, "train", *options)
    options = biencoder(place, tmp_path / "r", "--fit.strategy=fsdp", "--fit.optimizer=adafactor")
    assert "set optimizer to adamw" in fails(capsys, *options)


def test_a_reranker_in_shards_has_the_losses_of_one_process_and_resumes_on_another_number(
    tmp_path: Path,
) -> None:
    still_bert(tmp_path / "bert")

    def fit(name: str, strategy: Any, resume: bool = False, killed: bool = False) -> None:
        sharded = strategy != "ddp"
        options = EncoderOptions(2, 4, 1e-3, strategy=strategy, gradient_checkpointing=sharded)
        if killed:
            RerankerModule.training_step = dying  # type: ignore[method-assign]
        fitted(tmp_path / "bert", 17, 5, tmp_path / name, options, resume)

    step = RerankerModule.training_step

    def dying(self: Any, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch == 1 and batch_idx == 1:
            os._exit(9)
        return step(self, batch, batch_idx)

    fit("one", "ddp")
    assert any(together(2, lambda: fit("two", "fsdp", killed=True)))
    assert not (tmp_path / "two" / "model").exists()
    with pytest.raises(ConfigError, match="is sharded"):
        fit("two", "ddp", resume=True)
    assert together(3, lambda: fit("two", "fsdp", resume=True)) == [0, 0, 0]
    same(tmp_path / "one", tmp_path / "two", "train_loss", "dev_loss", version=1, within=5e-4)
    one, two = (Reranker.load(str(tmp_path / name / "model"), device="cpu").model for name in ("one", "two"))
    for name, weight in two.state_dict().items():
        # These biases shift all scores of a query alike: their gradients are 0 but for rounding.
        if not name.endswith(("key.bias", "classifier.bias")):
            assert weight == pytest.approx(one.state_dict()[name], abs=2e-3), name


def test_a_training_of_one_process_leaves_no_group(root: Path, tmp_path: Path) -> None:
    options = arguments("retrieve", root / "data", tmp_path, *FSDP, "--trainer.max_steps=1")
    assert main(["train", *options]) == 0
    assert not torch.distributed.is_initialized()
    assert not {"MASTER_ADDR", "LOCAL_RANK", "RANK", "WORLD_SIZE"} & {*os.environ}
