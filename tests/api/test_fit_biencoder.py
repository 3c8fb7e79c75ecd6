"""A bi-encoder from Python: trained on Python objects, indexed, resumed, and what is refused."""

import gc
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from biencoder_helpers import settings
from failing import raises
from small_data import passages, queries, tiny_bert, write_small

import grls
from grls.api.generator import BIENCODER_RECIPES
from grls.data.dataset import read_split
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.recipes import recipe_values

FAST: dict[str, Any] = {"epochs": 1, "batch_size": 4, "max_steps": 3, "device": "cpu", "precision": "float32"}
CORPUS = {passage.id: passage.text for passage in passages()}
QUERIES = {query.id: query.text for query in queries()}
GOLD = {query.id: list(query.evidence) for query in queries()}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("fit-biencoder") / "bert")


@pytest.fixture(scope="module")
def data(bert: Path) -> Path:
    return write_small(bert.parent / "data")


def test_from_dicts_to_hits(bert: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trained = grls.BiEncoder(bert, max_tokens=32).fit(CORPUS, QUERIES, GOLD, **FAST)
    assert "there are no dev queries, so 1 of the 16 training queries are taken out for dev." in caplog.text
    result = trained.results["biencoder"]
    assert (result.steps, result.monitor) == (3, "recall@5")
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
        hard_negatives=1, max_seconds=600, **FAST,
    )  # fmt: skip
    assert steps == [0, 1, 2, 3]
    kept = tmp_path / "run" / "data"
    for split in ("train", "dev"):
        assert read_split(kept, split) == read_split(data, split)
    made = trained.index(data, tmp_path / "dense", device="cpu", batch_size=2)
    assert made.folder == tmp_path / "dense"
    assert grls.load(tmp_path / "dense", device="cpu").search("is the lynx calm ?") == made.search(
        "is the lynx calm ?"
    )


def test_a_run_is_resumed_and_refuses_other_data(bert: Path, data: Path, tmp_path: Path) -> None:
    encoder, output = grls.BiEncoder(bert), tmp_path / "run"
    encoder.fit(data, output=output, **FAST)
    shutil.rmtree(output / "model")  # as if it had been killed
    with pytest.raises(ConfigError, match="is of a run that did not finish"):
        encoder.fit(CORPUS, QUERIES, GOLD, output=output, **FAST)
    with pytest.raises(MismatchError, match=r"had other data than this call \(.*run/data/.* differs\)"):
        encoder.fit(CORPUS, QUERIES, GOLD, (data, "dev"), output=output, resume=True, **FAST)
    assert read_split(output / "data", "train") == read_split(data, "train")
    trained = encoder.fit(data, output=output, resume=True, **FAST)
    assert trained.results["biencoder"].steps == 3


def test_lists_have_places_as_ids_in_train_and_in_dev(bert: Path, tmp_path: Path) -> None:
    texts, asked = list(CORPUS.values()), list(QUERIES.values())
    gold = [[str(list(CORPUS).index(name)) for name in names] for names in GOLD.values()]
    dev = (asked[12:14], gold[12:14])
    grls.BiEncoder(bert).fit(texts, asked[:12], gold[:12], dev, output=tmp_path / "run", **FAST)
    held = read_split(tmp_path / "run" / "data", "dev")[0]
    assert [(query.id, query.text) for query in held] == [("dev-0", asked[12]), ("dev-1", asked[13])]


def test_the_scale_is_that_of_the_model_and_not_of_the_recipe(bert: Path, data: Path, tmp_path: Path) -> None:
    def scale(**more: Any) -> Any:
        grls.BiEncoder(bert).fit(data, output=tmp_path, dev="dev", **{**FAST, "max_steps": 1, **more})
        return settings(tmp_path)["scale"]

    assert recipe_values(BIENCODER_RECIPES["default"])["fit"]["scale"] == 20
    assert (scale(), scale(scale=5.0)) == (None, 5.0)


def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    bert: Path, data: Path, tmp_path: Path
) -> None:
    encoder, output = grls.BiEncoder(bert), tmp_path / "run"

    def refused(error: type[Exception], text: str, *given: Any, **more: Any) -> None:
        raises(error, text, encoder.fit, *given, **{"output": output, **FAST, **more})
        assert not output.exists()

    refused(
        ConfigError, "no recipe 'defualt' for bi-encoders; did you mean 'default'", data, recipe="defualt"
    )
    refused(ConfigError, "BiEncoder.fit has no argument 'epoch'; did you mean epochs", data, epoch=1)
    refused(ConfigError, "epochs must be at least 1, got 0", data, epochs=0)
    refused(ConfigError, "resume needs output", data, resume=True, output=None)
    refused(DataError, "there are no queries: give queries and gold, or the folder of a data set", CORPUS)
    refused(
        DataError, "the passage id 'x' is not in corpus", CORPUS, QUERIES, {**GOLD, "q-otter-calm": ["x"]}
    )
    refused(DataError, r"dev: expected a pair \(queries, gold\)", CORPUS, QUERIES, GOLD, {"q": 1})
    refused(DataError, "one training query, of which no dev", CORPUS, ["otter ?"], [["r0"]])
    refused(ConfigError, "negatives must be a Searcher or a path, got 3", data, negatives=3)


def test_a_model_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    raises(ConfigError, "no such folder", grls.BiEncoder, tmp_path / "nothing")
    with pytest.raises(ConfigError, match="BiEncoder: kind must be one of auto, sentence, st5, got 'splade'"):
        grls.BiEncoder(tmp_path, kind="splade")  # type: ignore[arg-type]
