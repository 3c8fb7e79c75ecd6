"""A generator and a bi-encoder from Python: recipes, data, teachers, resumed, and refused."""

import gc
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from biencoder_helpers import settings
from failing import raises
from llama_small import write_llama
from small_data import passages, queries, scratch, tiny_bert, write_small

import grls
from grls.api.training import BIENCODER_RECIPES, GENERATOR_RECIPES
from grls.data.dataset import read_split
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.recipes import recipe_values
from grls.models.load.base_models import find_writer
from grls.retrieve.registry import index_seconds
from grls.train.core.clock import TrainingClock, TrainingStep
from grls.train.options import suited

FAST = {
    "trainer.max_epochs": 1, "trainer.limit_train_batches": 2, "trainer.accelerator": "cpu",
    "trainer.precision": "32-true",
    "trainer.check_val_every_n_epoch": 1, "data.batch_size": 4, "data.dev_size": 1,
}  # fmt: skip
CORPUS = {passage.id: passage.text for passage in passages()}
QUERIES = {query.id: query.text for query in queries()}
GOLD = {query.id: list(query.evidence) for query in queries()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``data``, a causal model ``llama``, an encoder-decoder ``t5``, an encoder ``bert``."""
    root = tmp_path_factory.mktemp("fit-generator")
    write_small(root / "data")
    write_llama(root / "llama", root / "data")
    tiny_bert(root / "bert")
    torch.manual_seed(0)
    model, tokenizer = scratch(root / "data").load()
    model.save_pretrained(root / "t5")
    tokenizer.save_pretrained(root / "t5")
    return root


def test_the_chain_of_the_readme(root: Path) -> None:
    dense = grls.BiEncoder(root / "bert").index(CORPUS, device="cpu")
    trained = grls.Generator(root / "llama").fit(
        CORPUS, QUERIES, GOLD, recipe="spans", teacher=dense, options=FAST
    )
    assert trained.results["chains"].steps == 2
    assert trained.results["chains"].best is not None
    retriever = trained.index(CORPUS, device="cpu").with_priors(dense, "bm25")
    model = Path(trained.name)
    del trained
    gc.collect()
    assert not model.exists()
    hits = retriever.search("is the otter calm ?", k=2)
    assert [hit.text for hit in hits] == [CORPUS[hit.id] for hit in hits]


@pytest.mark.parametrize(("model", "recipe"), [("llama", "rescore"), ("t5", "single-step"), ("t5", "chains")])
def test_recipes_for_both_kinds_of_models(root: Path, tmp_path: Path, model: str, recipe: str) -> None:
    trained = grls.Generator(root / model).fit(root / "data", recipe=recipe, options=FAST, output=tmp_path)
    assert list(trained.results) == ["chains"]
    assert trained.results["chains"].steps == 2
    made = trained.index(root / "data", tmp_path / "retriever", device="cpu", form="whole", passage=32)
    assert len(made.search("is the lynx calm ?", k=3)) == 3


def test_recipes_suit_the_model(root: Path) -> None:
    causal, other = find_writer(str(root / "llama")), find_writer(str(root / "t5"))
    rescore = GENERATOR_RECIPES["rescore"]["chains"]
    frozen = [suited(causal, rescore, layers) for layers in (None, 10, 40)]
    assert frozen == [{"model.freeze_layers": layers} for layers in (0, 4, 12)]
    assert suited(other, rescore) == {"model.freeze_layers": 0}
    assert suited(causal, ["chains"]) == {}


def test_the_stages_of_the_paper(root: Path, tmp_path: Path) -> None:
    stages = list(GENERATOR_RECIPES["paper"])
    trained = grls.Generator(root / "t5").fit(root / "data", recipe="paper", options=FAST, output=tmp_path)
    assert list(trained.results) == stages
    assert trained.results[stages[-1]].model == tmp_path / "model"
    assert len(trained.index(root / "data", device="cpu").search("is the lynx calm ?", k=3)) == 3


def test_stages_share_the_time_and_go_on(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def clock(name: str, seconds: float | None, meter: Any) -> TrainingClock:
        limits.append(seconds or 0)
        return TrainingClock(name, seconds, meter)

    monkeypatch.setattr("grls.api.training.TrainingClock", clock)
    generator, only = grls.Generator(root / "t5"), {**FAST, "retrieve.trainer.limit_train_batches": 3}

    def killed(step: TrainingStep) -> None:
        if (step.stage, step.step) == ("retrieve", 1):
            raise KeyboardInterrupt

    def fit(**more: Any) -> grls.Generator:
        return generator.fit(
            root / "data", recipe="memorise+retrieve", options=only, output=tmp_path, max_seconds=600, **more
        )

    with pytest.raises(KeyboardInterrupt):
        fit(meter=killed)
    assert limits[0] == pytest.approx(300, abs=1)
    assert 300 < limits[1] < 600
    rest = fit(resume=True)  # nothing of the second stage was saved, so it begins anew
    assert {stage: result.steps for stage, result in rest.results.items()} == {"retrieve": 3}


def test_a_run_is_not_spoiled_by_another_one(root: Path, tmp_path: Path) -> None:
    generator = grls.Generator(root / "llama")
    generator.fit(root / "data", options=FAST, output=tmp_path)
    shutil.rmtree(tmp_path / "model")  # as if it had been killed
    before = (tmp_path / "data" / "queries.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="is of a run that did not finish"):
        generator.fit(CORPUS, QUERIES, GOLD, options=FAST, output=tmp_path)
    with pytest.raises(MismatchError, match="had other data than this call"):
        generator.fit(CORPUS, QUERIES, GOLD, options=FAST, output=tmp_path, resume=True)
    assert (tmp_path / "data" / "queries.jsonl").read_bytes() == before
    with pytest.raises(MismatchError, match=r"had trainer.max_epochs=1, now it is 2"):
        generator.fit(root / "data", options={**FAST, "trainer.max_epochs": 2}, output=tmp_path, resume=True)
    rest = generator.fit(root / "data", options=FAST, output=tmp_path, resume=True)
    assert rest.results["chains"].steps == 2


def test_what_cannot_be_trained_is_refused_before_anything_is_written(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"

    def refused(text: str, model: str = "llama", **more: Any) -> None:
        with pytest.raises(ConfigError, match=text):
            grls.Generator(root / model).fit(root / "data", **{"output": output, **more})
        assert not (output / "checkpoints").exists()
        assert not (output / "model").exists()

    refused("no recipe 'span' for generators; did you mean 'spans'", recipe="span")
    refused("'otter' for generators. There are default, single-step, chains, spans, rescore,", recipe="otter")
    refused("trains encoder-decoders .memorise and retrieve.*llama is a causal", recipe="memorise+retrieve")
    refused(
        "a teacher teaches chains, and the recipe trains retrieve", "t5", recipe="retrieve", teacher="bm25"
    )
    refused("options may not hold 'data.teacher': give teacher", options={"data.teacher": "bm25"})
    refused("options may not hold 'chains.output': give output", options={"chains.output": "x"})
    refused(
        "'memorise.data.front' is for the stage memorise, and the recipe has chains",
        options={"memorise.data.front": 1},
    )
    refused(
        "there is no option model.learning_rat; did you mean model.learning_rate",
        options={"model.learning_rat": 1},
    )
    refused("resume needs output", output=None, resume=True)
    refused("teacher must be a Searcher or a path, got 3", teacher=3)
    with pytest.raises(
        ConfigError, match=r"Generator\.index has no argument 'passages'; did you mean passage"
    ):
        grls.Generator(root / "llama").index(CORPUS, passages=3)


def test_models_that_cannot_write(root: Path, tmp_path: Path) -> None:
    raises(ConfigError, "is an encoder", grls.Generator, root / "bert")
    raises(ConfigError, "no such folder", grls.Generator, tmp_path / "nothing")
    with pytest.raises(
        ConfigError, match=r"layers is for causal language models, and .*t5 is an encoder-decoder"
    ):
        grls.Generator(root / "t5", layers=1)


def test_a_file_is_a_recipe_over_chains(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("trainer:\n  max_steps: 1\n")
    made = grls.Generator(root / "llama", layers=1)
    assert made.fit(root / "data", recipe=file, options=FAST).results["chains"].steps == 1


def test_the_guide_names_every_recipe() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "train.md").read_text()
    assert [name for name in (*GENERATOR_RECIPES, *BIENCODER_RECIPES) if f"`{name}`" not in guide] == []


def test_every_layer_of_a_recipe_is_there() -> None:
    for stages in GENERATOR_RECIPES.values():
        for layers in stages.values():
            assert recipe_values(layers)["model"]


@pytest.fixture
def bert(root: Path) -> Path:
    return root / "bert"


QUICK: dict[str, Any] = {
    "epochs": 1, "batch_size": 4, "max_steps": 3, "device": "cpu", "precision": "float32",
}  # fmt: skip


def test_from_dicts_to_hits(bert: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trained = grls.BiEncoder(bert, max_tokens=32).fit(CORPUS, QUERIES, GOLD, **QUICK)
    assert "there are no dev queries, so 1 of the 16 training queries are taken out for dev." in caplog.text
    result = trained.results["biencoder"]
    assert (result.steps, result.monitor) == (3, "dev_recall")
    assert result.best is not None
    assert Path(trained.name) == result.model
    retriever = trained.index(CORPUS, device="cpu")
    hits = retriever.search("is the otter calm ?", k=2)
    assert [hit.text for hit in hits] == [CORPUS[hit.id] for hit in hits]

    model, folder = result.model, retriever.folder
    del trained
    gc.collect()
    assert not model.exists()  # the temporary folder of the training
    assert retriever.search("is the otter calm ?", k=2) == hits  # a retriever has a copy of the model
    del retriever
    gc.collect()
    assert not folder.exists()


def test_a_data_set_folder_alone_has_queries_gold_and_dev(bert: Path, data: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    trained = grls.BiEncoder(bert).fit(
        data, output=tmp_path / "run", recipe="single-step", meter=lambda step: steps.append(step.step),
        hard_negatives=1, max_seconds=600, **QUICK,
    )  # fmt: skip
    assert steps == [0, 1, 2, 3]
    kept = tmp_path / "run" / "data"
    for split in ("train", "dev"):
        assert read_split(kept, split) == read_split(data, split)
    made = trained.index(data, tmp_path / "dense", device="cpu", batch_size=2)
    assert made.folder == tmp_path / "dense"
    assert index_seconds(tmp_path / "dense") is not None
    assert grls.load(tmp_path / "dense", device="cpu").search("is the lynx calm ?") == made.search(
        "is the lynx calm ?"
    )


def test_a_run_is_resumed_and_refuses_other_data(bert: Path, data: Path, tmp_path: Path) -> None:
    encoder, output = grls.BiEncoder(bert), tmp_path / "run"
    encoder.fit(data, output=output, **QUICK)
    shutil.rmtree(output / "model")  # as if it had been killed
    with pytest.raises(ConfigError, match="is of a run that did not finish"):
        encoder.fit(CORPUS, QUERIES, GOLD, output=output, **QUICK)
    with pytest.raises(MismatchError, match=r"had other data than this call \(.*run/data/.* differs\)"):
        encoder.fit(CORPUS, QUERIES, GOLD, (data, "dev"), output=output, resume=True, **QUICK)
    assert read_split(output / "data", "train") == read_split(data, "train")
    trained = encoder.fit(data, output=output, resume=True, **QUICK)
    assert trained.results["biencoder"].steps == 3


def test_lists_have_places_as_ids_in_train_and_in_dev(bert: Path, tmp_path: Path) -> None:
    texts, asked = list(CORPUS.values()), list(QUERIES.values())
    gold = [[str(list(CORPUS).index(name)) for name in names] for names in GOLD.values()]
    dev = (asked[12:14], gold[12:14])
    grls.BiEncoder(bert).fit(texts, asked[:12], gold[:12], dev, output=tmp_path / "run", **QUICK)
    held = read_split(tmp_path / "run" / "data", "dev")[0]
    assert [(query.id, query.text) for query in held] == [("dev-0", asked[12]), ("dev-1", asked[13])]


def test_the_scale_is_that_of_the_model_and_not_of_the_recipe(bert: Path, data: Path, tmp_path: Path) -> None:
    def scale(**more: Any) -> Any:
        grls.BiEncoder(bert).fit(data, output=tmp_path, dev="dev", **{**QUICK, "max_steps": 1, **more})
        return settings(tmp_path)["fit"]["scale"]

    assert recipe_values(BIENCODER_RECIPES["default"])["fit"]["scale"] == 20
    assert (scale(), scale(scale=5.0)) == (None, 5.0)


def test_what_no_bi_encoder_is_trained_on_is_refused(bert: Path, data: Path, tmp_path: Path) -> None:
    encoder, output = grls.BiEncoder(bert), tmp_path / "run"

    def refused(error: type[Exception], text: str, *given: Any, **more: Any) -> None:
        raises(error, text, encoder.fit, *given, **{"output": output, **QUICK, **more})
        assert not output.exists()

    refused(
        ConfigError, "no recipe 'defualt' for bi-encoders; did you mean 'default'", data, recipe="defualt"
    )
    refused(ConfigError, "BiEncoder.fit has no argument 'epoch'; did you mean epochs", data, epoch=1)
    refused(ConfigError, "epochs must be at least 1, got 0", data, epochs=0)
    refused(ConfigError, "resume needs output", data, resume=True, output=None)
    refused(DataError, "there are no queries to learn from: give queries and gold, or the folder", CORPUS)
    refused(DataError, "the passage id 'x' is not in corpus", CORPUS, QUERIES, dict.fromkeys(GOLD, "x"))
    refused(DataError, r"dev: expected a pair \(queries, gold\)", CORPUS, QUERIES, GOLD, {"q": 1})
    refused(DataError, "one training query, of which no dev", CORPUS, ["otter ?"], [["r0"]])
    refused(ConfigError, "negatives must be a Searcher or a path, got 3", data, negatives=3)


def test_a_model_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    raises(ConfigError, "no such folder", grls.BiEncoder, tmp_path / "nothing")
    with pytest.raises(ConfigError, match="BiEncoder: kind must be one of auto, sentence, st5, got 'splade'"):
        grls.BiEncoder(tmp_path, kind="splade")  # type: ignore[arg-type]
