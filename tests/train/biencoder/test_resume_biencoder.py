"""`grls train biencoder` goes on from its checkpoints, or says why not."""

import shutil
from pathlib import Path

import pytest
import torch
from biencoder_helpers import options, train
from failing import fails
from full_disk import full_disk
from small_data import tiny_bert
from train_helpers import flip

from grls.cli import main
from grls.data.corpus import Corpus
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Options, BM25Retriever


def test_a_full_disk_is_told_in_one_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever writes: ourselves, safetensors or torch."""
    for limit in (0, 20_000, 50_000):
        output = tmp_path / f"run-{limit}"
        with full_disk(limit):
            told = fails(capsys, *options(place, output, "--dev_split=null"))
        assert "cannot write" in told, limit
        assert "Free disk space" in told, limit
    train(place, output, "--fit.max_steps=2")


def test_resuming_needs_a_checkpoint_and_the_same_settings(
    place: Path,
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = fails(capsys, *options(place, trained, "--resume=true", "--fit.learning_rate=0.02"))
    assert "had --fit.learning_rate 0.01, now it is 0.02" in message
    copy = shutil.copytree(trained, tmp_path / "copy")
    flip(copy / "checkpoints" / "best.ckpt")
    train(
        place, copy, "--resume=true", "--fit.mini_batch_size=2"
    )  # what does not decide the losses may change
    assert "the model of the last step is written. Dev is measured after every epoch" in caplog.text


def test_a_run_whose_data_has_changed_is_not_resumed(
    place: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = (
        shutil.copytree(place / "data", tmp_path / "data"),
        shutil.copytree(trained, tmp_path / "out"),
    )
    given = (f"--data={data}", "--resume=true")
    for file, old, new, named in (
        ("corpus.jsonl", "the lynx is calm .", "the lynx is still .", "corpus.jsonl"),
        ("queries.jsonl", '["otter-calm", "r0"]', '["r0", "otter-calm"]', "queries.jsonl (split train)"),
        ("queries.jsonl", "is the lynx calm ?", "is the lynx mild ?", "queries.jsonl (split dev)"),
        ("qrels/train.tsv", "otter-calm\t1", "otter-calm\t2", "qrels/train.tsv"),
    ):
        text = (data / file).read_text()
        assert old in text
        (data / file).write_text(text.replace(old, new))
        assert f"{named} has changed since" in fails(capsys, *options(place, output, *given))
        (data / file).write_text(text)
    text = (data / "queries.jsonl").read_text()
    (data / "queries.jsonl").write_text(text.replace("is the lynx kind ?", "is the lynx mild ?"))  # of test
    train(place, output, *given)


def test_a_run_whose_retriever_of_negatives_has_changed_is_not_resumed(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, folder = Corpus.read(place / "data"), tmp_path / "negatives"
    BM25Retriever(corpus).save_pretrained(folder)
    given = (f"--negatives={folder}", "--fit.hard_negatives=2", "--fit.epochs=1", "--fit.max_steps=2")
    output = train(place, tmp_path / "out", *given)
    train(place, output, *given, "--resume=true")
    shutil.rmtree(folder)
    BM25Retriever(corpus, BM25Options(b=0.1)).save_pretrained(folder)
    message = fails(capsys, *options(place, output, *given, "--resume=true"))
    assert f"the retriever {folder} (negatives) has changed since" in message


@pytest.mark.parametrize("more", [(), ("--fit.lora_rank=2",)])
def test_a_run_whose_first_weights_have_changed_is_not_resumed(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """A checkpoint of adapters lacks the other weights."""
    shutil.copytree(place / "bert", tmp_path / "bert")
    given = (f"--source={tmp_path / 'bert'}", "--fit.epochs=1", "--fit.max_steps=2", *more)
    output = train(place, tmp_path / "out", *given)
    shutil.rmtree(tmp_path / "bert")
    torch.manual_seed(1)
    tiny_bert(tmp_path / "bert")
    message = fails(capsys, *options(place, output, *given, "--resume=true"))
    assert f"the model {tmp_path / 'bert'} has changed since" in message


def test_a_new_run_is_not_mistaken_for_the_old_one(place: Path, tmp_path: Path) -> None:
    output = train(place, tmp_path / "out")
    train(place, output, "--fit.max_steps=3")
    last = output / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == 3
    # Checkpoints of a run that did not finish are not thrown away for want of an option.
    (output / "model" / "modules.json").rename(tmp_path / "modules.json")
    (output / "model").rename(tmp_path / "aside")
    assert main(options(place, output)) == 1
    assert last.is_file()
    (tmp_path / "aside").rename(output / "model")
    (tmp_path / "modules.json").rename(output / "model" / "modules.json")
    # A refused run takes nothing away, and a run may go on in another place.
    assert main(options(place, output, "--fit.hard_negatives=20")) == 1
    moved = output.rename(tmp_path / "moved")
    shutil.rmtree(moved / "model")
    state = torch.load(moved / "checkpoints" / "best.ckpt", weights_only=True)
    for weights in state["state_dict"].values():  # they are not those of the last step
        weights.div_(2)
    torch.save(state, moved / "checkpoints" / "best.ckpt")
    train(place, moved, "--fit.max_steps=3", "--resume=true")
    saved = BiEncoderModel.load(str(moved / "model"), device="cpu").model.state_dict()
    for name, value in saved.items():
        assert torch.equal(value, state["state_dict"][f"model.{name}"]), name
