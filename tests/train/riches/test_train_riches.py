"""Fine-tuning on interlaced targets through `grls train`, and `grls answer riches` with what came out."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails
from llama_small import write_untrained
from small_data import queries, write_jsonl, write_small
from train_helpers import SHORT, logged

from grls.answer.riches.prompts import prompted
from grls.answer.riches.targets import Targets
from grls.cli import main
from grls.data.dataset import read_qrels
from grls.errors import ConfigError
from grls.models.load.generators import PretrainedLM
from grls.models.load.language import load_language_model
from grls.train.core.module import GeneratorModule
from grls.train.options import QuoteDataOptions, WriterModelOptions
from grls.train.riches.data import InterlacedData

FORM = "question: « » answer: proved\n"


@pytest.fixture(scope="module")
def causal(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("causal"), data, FORM)


def options(data: Path, output: Path, *more: str, causal: Path | None = None) -> list[str]:
    """A tiny run: 12 queries, 4 a batch."""
    scratch = {
        "data": str(data), "texts": [FORM], "vocabulary": 120, "d_model": 32, "d_ff": 64, "d_kv": 8,
        "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4, "dropout": 0.0,
    }  # fmt: skip
    if causal is None:
        kind, how = "grls.models.load.generators.ScratchT5", scratch
    else:
        kind, how = "grls.models.load.generators.PretrainedLM", {"name_or_path": str(causal)}
    model = {"generator": {"class_path": kind, "init_args": how}}
    config = data.parent / f"{kind}.yaml"  # an option's line break would reach the model as two letters
    config.write_text(json.dumps({"model": model}), encoding="utf-8")
    return [
        "riches", f"--config={config}", f"--output={output}", "--model.learning_rate=3e-3",
        f"--data.data={data}", "--data.answer=proved", "--quotes.max_new_tokens=60", *SHORT, *more,
    ]  # fmt: skip


def run(*given: Any, **named: Any) -> Path:
    assert main(["train", *options(*given, **named)]) == 0
    return Path(given[1])


@pytest.mark.parametrize(("kind", "loss"), [("t5", "allowed"), ("causal", "full")])
def test_a_model_learns_to_quote(
    data: Path, causal: Path, tmp_path: Path, kind: str, loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured on the queries it learned; the folder it writes is all that `grls answer riches` needs."""
    mode = "renormalized" if loss == "allowed" else "full"
    often = ["--trainer.max_epochs=80", "--trainer.check_val_every_n_epoch=20", "--data.dev_split=train"]
    more = [f"--model.loss={loss}", f"--quotes.mode={mode}", "--model.schedule=constant", *often]
    output = run(data, tmp_path / "run", *more, causal=causal if kind == "causal" else None)
    recall = logged(output, "dev_recall")
    assert max(recall.values()) == 1.0
    assert set(logged(output, "dev_hits")) == set(logged(output, "dev_unclosed")) == set(recall)
    best = torch.load(output / "checkpoints" / "best.ckpt", weights_only=True)
    losses = logged(output, "dev_loss")
    level = [step for step in recall if recall[step] == 1.0]
    assert best["global_step"] == min(level, key=lambda step: losses[step]) + 1
    model = load_language_model(str(output / "model"), "cpu").model
    for name, value in model.state_dict().items():
        assert torch.equal(value, best["state_dict"][f"model.{name}"]), name
    assert not [name for name in best["state_dict"] if not name.startswith("model.")]

    written = tmp_path / "written"
    capsys.readouterr()
    assert main(
        ["answer", "riches", f"--data={data}", f"--model={output / 'model'}", "--split=train",
         f"--output={written}", "--prompt.kind=none", f"--search.mode={mode}", "--search.beams=4",
         "--search.max_new_tokens=60", "--device=cpu"]
    ) == 0  # fmt: skip
    assert "hits@1 100.0" in capsys.readouterr().out
    lines = [json.loads(line) for line in Path(f"{written}.answers.jsonl").read_text().splitlines()]
    found = {line["query_id"]: [p for q in line["quotes"] for p in q["passages"]] for line in lines}
    gold = {query.id: list(query.evidence) for query in queries()}
    assert found == {query: gold[query] for query in read_qrels(data / "qrels" / "train.tsv")}
    assert {line["answer"] for line in lines} == {"proved"}
    assert all(line["ended"] for line in lines)


def test_frozen_embeddings_stay(data: Path, causal: Path, tmp_path: Path) -> None:
    before = PretrainedLM(str(causal)).load().model.state_dict()
    output = run(data, tmp_path, "--model.freeze_embeddings=true", "--trainer.max_epochs=1", causal=causal)
    after = PretrainedLM(str(output / "model")).load().model.state_dict()
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert "model.embed_tokens.weight" not in changed
    assert "model.layers.0.mlp.up_proj.weight" in changed
    assert PretrainedLM(str(output / "model")).stages() == ("interlace",)


def drawn(data: Path, causal: Path, **how: Any) -> InterlacedData:
    """The data module as a trainer would have set it up."""
    made = InterlacedData(QuoteDataOptions(data=str(data), **how))
    full = SimpleNamespace(loss="full")
    made.read(SimpleNamespace(options=full, **PretrainedLM(str(causal)).load()._asdict()))
    return made


def test_each_epoch_draws_its_order(data: Path, causal: Path) -> None:
    plain = drawn(data, causal).train_examples
    assert [plain.draw(n, 0) for n in range(12)] == [plain.draw(n, 7) for n in range(12)]
    mixed = drawn(data, causal, shuffle=True).train_examples
    assert [mixed.draw(n, 3) for n in range(12)] == [mixed.draw(n, 3) for n in range(12)]
    assert len({tuple(mixed.draw(2, epoch).target) for epoch in range(9)}) == 2  # of two hops


def test_what_is_too_long_is_counted_and_left_out(
    data: Path, causal: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    every = drawn(data, causal).train_examples
    sizes = [len(every.draw(n, 0).target) for n in range(12)]
    limit = min(sizes)
    with caplog.at_level(logging.WARNING):
        some = drawn(data, causal, max_target_tokens=limit).train_examples
    assert len(some) == sum(size <= limit for size in sizes) < 12
    assert max(len(some.draw(n, e).target) for n in range(len(some)) for e in range(5)) <= limit
    assert f"left out as too long: {12 - len(some)} of 12 queries of train: 0 for a prompt" in caplog.text
    line = fails(capsys, "train", *options(data, data.parent / "none", "--data.max_prompt_tokens=2"))
    assert "no example is left to learn from: too long are 12 of 12 queries of train: 12 for a" in line


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--data.dev_split=nowhere"], "nowhere.tsv"),
        (["--data.keys=title"], "no title to quote"),
        (["--data.markers=['the', '»']"], "holds the marker 'the'"),
        (["--data.markers=['☃', '»']"], "cannot write the marker '☃'"),
        (["--data.answer=☃"], "the tokenizer cannot write"),
        (["--checkpoint.monitor=dev_f1"], "--checkpoint.monitor dev_f1 is not measured"),
        (["--model.freeze_encoder=true"], "no encoder to freeze"),
        (["--data.chat=true"], "no chat template"),
        (["--quotes.max_new_tokens=250"], "lower --quotes.max_new_tokens"),
    ],
)
def test_options_that_cannot_work(
    data: Path, causal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], named: str
) -> None:
    assert named in fails(capsys, "train", *options(data, tmp_path / "run", *more, causal=causal))
    assert not (tmp_path / "run" / "model").exists()


def test_quantized_weights_become_plain_ones(
    data: Path, causal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model from a GGUF file carries a quantization_config, with which it cannot be saved."""
    loaded = load_language_model(str(causal), "cpu")
    loaded.model.config.quantization_config = {"quant_method": "gguf"}
    monkeypatch.setattr("grls.models.load.language.load_writer", lambda *_: loaded)
    model, tokenizer = PretrainedLM("x.gguf").load()
    assert getattr(model.config, "quantization_config", None) is None
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    tokens = torch.tensor([[3, 4, 5]])
    assert torch.equal(model.eval()(tokens).logits, loaded.model(tokens).logits)
    assert np.isfinite(model(tokens).logits.detach().numpy()).all()


def test_targets_are_what_is_learned(data: Path, causal: Path) -> None:
    made = drawn(data, causal, thoughts="none", answer="proved")
    example = made.train_examples.draw(2, 0)
    query = made.train_examples.items[2][0]  # type: ignore[attr-defined]
    again = Targets(made.targets.tokenizer, made.corpus, made.keys, "none", "proved").write(
        query, query.evidence
    )
    assert (example.target, example.spans) == (list(again.tokens), again.spans)
    assert [example.source] == prompted(made.prompt, made.targets.tokenizer, [query.text], causal=True)


def test_a_causal_model_needs_a_position_for_each_token_once(data: Path, causal: Path) -> None:
    module = GeneratorModule(WriterModelOptions(generator=PretrainedLM(str(causal))), "interlace")
    made = drawn(data, causal)
    batch = made.collator([made.train_examples.draw(n, 0) for n in range(2)])
    module.model.config.max_position_embeddings = batch.read.input_ids.shape[1]
    assert torch.isfinite(module.batch_loss(batch))
    module.model.config.max_position_embeddings -= 1
    with pytest.raises(ConfigError, match="positions"):
        module.batch_loss(batch)


def test_a_dev_question_that_is_too_long_is_left_out_of_the_measurement(
    data: Path, causal: Path, tmp_path: Path
) -> None:
    changed = write_small(tmp_path / "data")
    lines = [json.loads(line) for line in (changed / "queries.jsonl").read_text().splitlines()]
    lines[12]["text"] += " why" * 300
    write_jsonl(changed / "queries.jsonl", lines)
    assert main(["train", *options(changed, tmp_path / "out", "--trainer.max_epochs=1", causal=causal)]) == 0
    assert len(logged(tmp_path / "out", "dev_recall")) == 1
