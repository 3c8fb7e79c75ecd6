"""Sharded trainings on two and three processes: the losses of one, kill and resume, and what is refused."""

from pathlib import Path

import pytest
from failing import fails
from process_group import together
from train_helpers import arguments, chain_options, logged, write_chain_parts

from grls.cli import main
from grls.models.load.build import Pretrained

FSDP = ["--trainer.strategy=fsdp", "--model.gradient_checkpointing=true", "--trainer.gradient_clip_val=0.5"]
GLOBAL = ["--data.global_batch_size=8", "--trainer.max_epochs=2"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chain_parts(tmp_path_factory.mktemp("sharded"))


def same(alone: Path, output: Path, *names: str, version: int = 0) -> None:
    for name in names:
        expected, values = logged(alone, name), logged(output, name, version)
        assert values
        assert values == pytest.approx({step: expected[step] for step in values}, abs=5e-4), name


def test_shards_have_the_losses_of_one_process_and_resume_on_another_number(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def options(name: str, *more: str) -> list[str]:
        given = [*GLOBAL, "--trainer.gradient_clip_val=0.5", *more]
        return ["train", *arguments("retrieve", root / "data", tmp_path / name, *given, dropout=0.0)]

    assert main(options("one")) == 0
    kill = ["--last.every_n_train_steps=3", "--trainer.callbacks+=train_helpers.KillAfter"]
    killed = [*FSDP, *kill, "--trainer.callbacks.batches=7"]
    assert any(together(2, lambda: main(options("two", *killed))))
    same(tmp_path / "one", tmp_path / "two", "train_loss")
    last = tmp_path / "two" / "checkpoints" / "last.ckpt"
    assert last.is_dir()
    assert together(3, lambda: main(options("two", *FSDP, "--resume=true"))) == [0, 0, 0]
    same(tmp_path / "one", tmp_path / "two", "train_loss", "dev_loss", "dev_recall", version=1)
    one, two = (Pretrained(str(tmp_path / name / "model")).load().model for name in ("one", "two"))
    for name, weight in two.state_dict().items():
        assert weight == pytest.approx(one.state_dict()[name], abs=2e-3), name

    of_shards = options("two", f"--ckpt_path={last}")
    assert "resume it as it began (--trainer.strategy fsdp)" in fails(capsys, *of_shards)
    of_one = options("one", *FSDP, f"--ckpt_path={tmp_path / 'one' / 'checkpoints' / 'last.ckpt'}")
    assert "is not sharded" in fails(capsys, *of_one)
    shard = next(last.glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-9])
    assert f"{shard.name} has changed" in fails(capsys, *options("two", *FSDP, f"--ckpt_path={last}"))


@pytest.mark.parametrize("kind", ["causal", "sequence"])
def test_chains_in_bfloat16_with_adapters_or_many_reads(kind: str, root: Path, tmp_path: Path) -> None:
    """Hops of a sequence-to-sequence model are read in groups, whose number differs between processes."""
    options = chain_options(root, tmp_path / "two", "--trainer.max_epochs=1", "--data.global_batch_size=5")
    if kind == "causal":
        options += ["--model.lora_rank=2", "--trainer.precision=bf16-mixed"]
    else:
        options = [option for option in options if "name_or_path" not in option]
        small = {"data": root / "data", "vocabulary": 120, "d_model": 32, "d_ff": 64, "d_kv": 8,
                 "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4, "dropout": 0.0}  # fmt: skip
        options += ["--model.generator=grls.models.load.build.ScratchT5"]
        options += [f"--model.generator.{name}={value}" for name, value in small.items()]
    assert together(2, lambda: main([*options, *FSDP])) == [0, 0]
    Pretrained(str(tmp_path / "two" / "model")).load()
    if kind == "sequence":
        clipped = ["--trainer.gradient_clip_val=0.5", f"--output={tmp_path / 'one'}"]
        assert main([*options, *clipped]) == 0
        same(tmp_path / "one", tmp_path / "two", "train_loss", "dev_loss")
    else:
        assert all(0 < loss < 9 for loss in logged(tmp_path / "two", "train_loss").values())


def test_what_needs_whole_weights_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = arguments("retrieve", root / "data", tmp_path, *FSDP, "--model.optimizer=adafactor")
    assert "set --model.optimizer adamw" in fails(capsys, "train", *options)
