"""Two processes on the CPU through the real entry point."""

from pathlib import Path

from small_data import tiny_bert
from train_helpers import arguments, callback, logged, start

TWO = ["--trainer.devices=2", "--trainer.strategy=ddp"]


def test_a_warm_started_model_has_no_unused_parameter(data: Path, tmp_path: Path) -> None:
    """A pooler without a gradient would stop DDP with an error."""
    options = [o for o in arguments("memorise", data, tmp_path / "out", *TWO) if "generator" not in o]
    bert = tiny_bert(tmp_path / "bert")
    generator = [
        "--model.generator=WarmStart",
        f"--model.generator.encoder={bert}",
    ]
    done = start([*options, *generator, "--model.generator.decoder_layers=1", "--trainer.max_epochs=2"])
    assert done.returncode == 0, done.stderr
    assert len(logged(tmp_path / "out", "train_loss")) == 2 * 2  # 10 passages, 2 times 4 a step
    assert len(logged(tmp_path / "out", "dev_recall")) == 2


def test_a_process_without_a_dev_input_measures_with_the_others(data: Path, tmp_path: Path) -> None:
    hops = ["--recall.hops=3", "--checkpoint.monitor=dev_f1", "--data.dev_size=1", "--trainer.max_epochs=1"]
    done = start(arguments("retrieve", data, tmp_path, *TWO, *hops))
    assert done.returncode == 0, done.stderr
    for name in ("dev_recall", "dev_f1"):
        (value,) = logged(tmp_path, name).values()
        assert 0 <= value <= 1


def test_a_loss_that_is_no_number_in_one_process_ends_both(data: Path, tmp_path: Path) -> None:
    spoilt = callback("train_helpers.Spoil", step=3, rank=1)
    done = start(arguments("retrieve", data, tmp_path, *TWO, spoilt), timeout=120)
    assert done.returncode == 1, done.stderr
    assert "the training has diverged: the loss is" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists()
