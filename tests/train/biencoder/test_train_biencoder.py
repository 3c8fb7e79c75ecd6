"""`grls train biencoder` with a tiny model: losses, the best epoch, shipped configs, refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from biencoder_helpers import logged, options, settings, train
from failing import fails
from small_data import passages, queries, scratch

from benchmarks import trainings
from data_prep.ruletaker import prepare
from data_prep.theory import TheoryOptions
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split, write_dataset
from grls.evaluation.metrics import recall_at
from grls.io.files import write_json
from grls.models.biencoder import BiEncoderModel
from grls.models.load.build import TRAINING
from grls.models.text_encoder import passage_text
from grls.train.biencoder import dev
from grls.train.biencoder import module as biencoder
from grls.train.core import trainer

ROOT = Path(__file__).parents[3]
SETS = sorted(name for name, runs in trainings.TRAININGS.items() if "biencoder" in runs)
NAMED = ("default", "paper", "released")


def test_training_lowers_the_loss_and_writes_a_model_that_loads(place: Path, trained: Path) -> None:
    losses = list(logged(trained, "train_loss").values())
    assert len(losses) == 24
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])
    assert json.loads((trained / "model" / TRAINING).read_text()) == {"stages": ["biencoder"], "done": True}
    assert not [f for f in (trained / "model").rglob("*") if f.suffix in (".bin", ".pt", ".pth", ".pkl")]
    before = BiEncoderModel.load(str(place / "bert"), device="cpu").encode(["is the otter kind ?"], "query")
    after = BiEncoderModel.load(str(trained / "model"), device="cpu").encode(["is the otter kind ?"], "query")
    assert abs(before - after).max() > 1e-3


def own_recall(encoder: BiEncoderModel, data: Path, k: int) -> float:
    """Recall over the whole corpus, by hand."""
    corpus = Corpus.read(data)
    some, qrels = read_split(data, "dev", corpus)
    found = list(corpus)
    scores = (
        encoder.encode([q.text for q in some], "query")
        @ encoder.encode([passage_text(p) for p in found], "passage").T
    )
    ranked = [[found[n].id for n in row] for row in (-scores).argsort(axis=1)]
    values = [recall_at(ids, gold_passages(q, qrels), k) for ids, q in zip(ranked, some, strict=True)]
    return sum(values) / len(values)


def test_the_model_is_that_of_the_epoch_with_the_best_dev_recall(place: Path, tmp_path: Path) -> None:
    """Dev of twelve queries, so that recall varies over the epochs."""
    every = queries()
    parts = {"train": every[:10], "dev": every[4:]}
    qrels = {name: {q.id: dict.fromkeys(q.evidence, 1) for q in some} for name, some in parts.items()}
    write_dataset(tmp_path / "data", passages(), every, qrels)
    # The rate does not fall, and is so high that later epochs are not simply better; which seed shows it
    # depends on the processor's rounding.
    rate = ("--fit.schedule=constant", "--fit.learning_rate=3e-2")
    changed = (f"--data={tmp_path / 'data'}", "--fit.k=3", *rate)
    for seed in range(10):
        output = train(place, tmp_path / f"out{seed}", *changed, f"--fit.seed={seed}")
        recalls = list(logged(output, "dev_recall").values())
        assert len(recalls) == 3
        if recalls[-1] < max(recalls):
            break
    else:
        pytest.fail("the last epoch is always the best: no proof")
    kept = BiEncoderModel.load(str(output / "model"), device="cpu")
    assert own_recall(kept, tmp_path / "data", 3) == pytest.approx(max(recalls), abs=1e-6)


def test_passages_that_are_cut_in_training_are_told_of(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = ("--fit.max_steps=1", "--dev_split=null")
    train(place, tmp_path / "cut", *given, "--max_tokens=8")
    assert caplog.text.count("2 of 8 passages are longer than 8 tokens") == 1
    assert "raise --max_tokens (of grls train biencoder), to 64 at most" in caplog.text
    train(place, tmp_path / "negatives", *given, "--max_tokens=8", "--fit.hard_negatives=1")
    assert "2 of 10 passages are longer" in caplog.text


@pytest.mark.parametrize(("limit", "steps"), [(3, 3), (9, 8)])
def test_training_ends_with_the_steps_or_with_the_epochs(
    limit: int,
    steps: int,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("grls.io.progress.EVERY", 0.0)
    given = ("--fit.epochs=1", f"--fit.max_steps={limit}")
    output = train(place, tmp_path / "out", *given)
    assert list(logged(output, "train_loss")) == [*range(1, steps + 1)]
    assert f"train {steps} of {steps} steps" in capsys.readouterr().err


def test_bfloat16_needs_no_gpu_and_rounds(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(trainer, "warn_of_emulation", lambda device, remedy: warned.append(remedy))
    losses = {}
    for precision, able in (("auto", False), ("bfloat16", False), ("auto", True)):
        monkeypatch.setattr(trainer, "has_bfloat16", lambda device, able=able: able)
        given = ("--fit.max_steps=2", "--fit.device=auto", f"--fit.precision={precision}")
        losses[precision, able] = logged(train(place, tmp_path / f"{precision}-{able}", *given), "train_loss")
    assert warned == ["--fit.precision float32 or auto"]
    plain, half = losses["auto", False], losses["auto", True]
    assert losses["bfloat16", False] == half != plain
    assert list(half.values()) == pytest.approx(list(plain.values()), rel=0.05)


def test_a_generator_becomes_a_biencoder(place: Path, tmp_path: Path) -> None:
    generator = scratch(place / "data").load()
    for part in generator:
        part.save_pretrained(tmp_path / "generator")
    write_json(tmp_path / "generator" / TRAINING, {"stages": ["memorise"]})
    output = train(place, tmp_path / "out", f"--source={tmp_path / 'generator'}", "--fit.hard_negatives=2")
    losses = list(logged(output, "train_loss").values())
    assert sum(losses[-8:]) < sum(losses[:8])
    assert BiEncoderModel.load(str(tmp_path / "generator"), "st5", device="cpu").learned_done is False
    made = BiEncoderModel.load(str(output / "model"), "st5", device="cpu")
    assert made.stages == ("memorise", "biencoder")
    assert made.dimension == 32


def test_adafactor_without_dev_and_done(place: Path, tmp_path: Path) -> None:
    given = options(
        place, tmp_path / "out", "--dev_split=null", "--fit.max_steps=3", "--fit.done=false",
        "--fit.gradient_checkpointing=true", "--fit.optimizer=adafactor",
    )  # fmt: skip
    assert main(given) == 0
    assert logged(tmp_path / "out", "dev_recall") == {}
    assert BiEncoderModel.load(str(tmp_path / "out" / "model"), device="cpu").learned_done is False
    last = torch.load(tmp_path / "out" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["optimizer_states"][0]["state"]
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", [*SETS, *NAMED])
def test_shipped_configs_train(
    name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    prepare(Path("data") / name, TheoryOptions(6, 6, 10, max_depth=3), train=12, dev=4, test=4)
    where = [f"--data=data/{name}", f"--output=runs/{name}/biencoder"]
    named = [word for layer in ("", f"{name}/") for word in ("--config", f"configs/{layer}biencoder.yaml")]
    shipped = trainings.options(name, "biencoder") if name in SETS else ["biencoder", *named, *where]
    asked: dict[str, Any] = {}
    for word in shipped[1:]:
        if word.startswith("configs/"):
            layer = yaml.safe_load(Path(word).read_text())
            asked |= layer.pop("fit") | layer
        elif word != "--config":
            key, _, value = word.removeprefix("--").removeprefix("fit.").partition("=")
            asked[key] = float(value) if key == "learning_rate" else yaml.safe_load(value)
    if asked["kind"] == "st5":
        generator = scratch(Path("data") / name).load()
        for part in generator:
            part.save_pretrained("tiny")
        source = "tiny"
    else:
        source = str(place / "bert")
    limits = [] if asked["kind"] == "st5" else ["--max_tokens=64"]
    assert main(["train", *shipped, f"--source={source}", *limits, "--fit.max_steps=2"]) == 0
    assert Path(f"runs/{name}/biencoder/model/modules.json").is_file()
    used = settings(Path(f"runs/{name}/biencoder"))
    asked |= {"max_steps": 2, "source": source, "max_tokens": used["max_tokens"]}
    used |= used.pop("fit")
    assert {key: used[key] for key in asked} == asked


def test_refusals_before_the_work_begins(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*args: Any, **named: Any) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(trainer.L.Trainer, "fit", forbidden)
    output = tmp_path / "out"
    for given, words in (
        (["--train_split=none"], "none.tsv: no such file"),
        (["--dev_split=none"], "none.tsv: no such file"),
        (["--source=/none/such"], "no such folder: /none/such"),
        (["--fit.batch_size=1"], "a batch_size of 1 leaves no negatives: raise it"),
        (["--fit.hard_negatives=20"], "lower it"),
    ):
        assert words in fails(capsys, *options(place, output, *given)), given
    assert not output.exists()


def test_bad_splits_are_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(place / "data", tmp_path / "data")
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "empty.tsv").write_text(header)
    (folder / "qrels" / "zero.tsv").write_text(header + "q-otter-calm\tr0\t0\n")
    (folder / "qrels" / "one.tsv").write_text(header + "q-otter-calm\totter-calm\t1\n")
    for given, words in (
        ("--train_split=empty", "empty.tsv: the split holds no query: add judgements"),
        ("--dev_split=empty", "empty.tsv: the split holds no query: add judgements"),
        (
            "--train_split=gone",
            "gone.tsv: no such file; there are dev, empty, one, test, train, zero: give another",
        ),
        ("--dev_split=gone", "give another --dev_split"),
        ("--dev_split=zero", "no dev query has a gold passage"),
    ):
        assert words in fails(capsys, *options(place, tmp_path / "o", f"--data={folder}", given))
    message = fails(
        capsys, *options(place, tmp_path / "o", f"--data={folder}", "--train_split=one", "--fit.done=false")
    )
    assert "one training example leaves no negatives" in message


def test_hard_negatives_need_words_in_common(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strangers = [q._replace(text="zzz") for q in queries()[:2]]
    write_dataset(
        tmp_path / "data", passages(), strangers, {"train": {q.id: {q.evidence[0]: 1} for q in strangers}}
    )
    given = options(place, tmp_path / "o", f"--data={tmp_path / 'data'}", "--dev_split=null")
    assert "no training query shares a word with" in fails(capsys, *given, "--fit.hard_negatives=1")


def test_a_loss_or_a_last_gradient_that_is_no_number_ends_the_run(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = train(place, tmp_path / "out", "--fit.max_steps=1", "--dev_split=null")
    before = (output / "model" / "model.safetensors").read_bytes()
    factors = iter([1.0, float("inf")])
    monkeypatch.setattr(
        biencoder.MaskedRankingLoss,
        "compute_loss_from_embeddings",
        lambda self, embeddings, labels, teacher: embeddings[0].pow(2).sum() * next(factors),
    )
    given = options(place, output, "--fit.max_steps=3", "--dev_split=null")
    assert "the loss is inf at step 2" in fails(capsys, *given)
    monkeypatch.setattr(
        biencoder.MaskedRankingLoss,
        "compute_loss_from_embeddings",
        lambda self, embeddings, labels, teacher: (embeddings[0].sum() * 0).sqrt(),  # its gradient is none
    )
    given = options(place, output, "--fit.max_steps=1", "--dev_split=null")  # nothing follows the step
    assert "the gradient is not finite at step 1" in fails(capsys, *given)
    assert (output / "model" / "model.safetensors").read_bytes() == before


def test_of_the_same_recall_the_higher_ndcg_is_kept(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([(0.5, 0.1), (0.5, 0.3), (0.5, 0.2)])

    def evaluate(*_: object, **__: object) -> dict[str, float]:
        recall, ndcg = next(found)
        return {"dev_dot_recall@1": recall, "dev_dot_ndcg@1": ndcg}

    monkeypatch.setattr(dev.InformationRetrievalEvaluator, "__call__", evaluate)
    output = train(place, tmp_path / "out")
    best = torch.load(output / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == 16
    kept = BiEncoderModel.load(str(output / "model"), device="cpu").model.state_dict()
    for name, weights in kept.items():
        assert torch.equal(weights, best["state_dict"][f"model.{name}"]), name
