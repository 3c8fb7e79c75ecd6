"""Retrieval by a causal language model: the fast search against the plain one, on disk, and trained."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from llama_small import write_llama
from small_data import queries, write_small

from grls.cli import main
from grls.data.codec import EVIDENCE, SPECIAL_TOKENS
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import ConfigError
from grls.models.load.build import Pretrained
from grls.models.load.language import CausalLM
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("causal") / "data")


@pytest.fixture(scope="module")
def llama(data: Path) -> Path:
    return write_llama(data.parent / "llama", data)


@pytest.fixture
def retriever(data: Path, llama: Path) -> GenerativeRetriever:
    loaded = CausalLM(str(llama)).load()
    return GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), options=SearchOptions(beams=4)
    )


def test_markers_begin_with_the_meaning_of_a_word(llama: Path) -> None:
    bare = Pretrained(str(llama)).load()  # adds them, too
    weight = bare.model.get_input_embeddings().weight
    ids = [bare.tokenizer.get_vocab()[marker] for marker in SPECIAL_TOKENS]
    assert len({tuple(weight[i].tolist()) for i in ids}) == 4
    done = bare.tokenizer(" done", add_special_tokens=False)["input_ids"]
    torch.testing.assert_close(weight[ids[3]], weight[done].mean(0))
    assert bare.tokenizer.pad_token_id is not None
    assert bare.model.get_output_embeddings().weight is weight  # they stay tied


@pytest.mark.parametrize("mode", ["renormalized", "full"])
def test_the_fast_search_finds_what_the_plain_one_finds(retriever: GenerativeRetriever, mode: str) -> None:
    retriever.options = SearchOptions(beams=4, mode=mode, batch_size=3)  # type: ignore[arg-type]
    found = retriever.retrieve(queries()[:8], 4)
    assert retriever.trees is not None
    retriever.trees = None  # the plain search
    for fast, plain in zip(found, retriever.retrieve(queries()[:8], 4), strict=True):
        assert [hit.id for hit in fast] == [hit.id for hit in plain]
        np.testing.assert_allclose([h.score for h in fast], [h.score for h in plain], rtol=1e-4, atol=1e-4)


def test_scores_are_those_of_the_language_model(retriever: GenerativeRetriever) -> None:
    """Its own log-probabilities of the passage behind question and marker, over the whole vocabulary."""
    retriever.options = SearchOptions(beams=10, mode="full", early_stop=False)
    query = queries()[0]
    source = retriever.codec.model_input(retriever.encode([query])[0])
    assert source[-1] == retriever.codec.evidence
    for hit in retriever.retrieve([query], 10)[0]:
        number = retriever.corpus.numbers([hit.id])[0]
        assert number is not None
        tokens = retriever.index.tokens(number).tolist()
        with torch.no_grad():
            logits = retriever.model(input_ids=torch.tensor([source + tokens[:-1]])).logits[0]
        steps = logits[len(source) - 1 :].log_softmax(-1)
        expected = sum(float(steps[place, token]) for place, token in enumerate(tokens))
        assert hit.score == pytest.approx(expected, rel=1e-4)


def test_the_input_of_a_hop_is_the_beginning_of_the_next_ones(retriever: GenerativeRetriever) -> None:
    codec = retriever.codec
    query = retriever.encode(queries()[:1])[0]
    rows = [retriever.index.tokens(n) for n in (0, 3)]
    inputs = [codec.model_input(query, rows[:n]) for n in range(3)]
    for n in range(2):
        assert inputs[n + 1] == [*inputs[n], *rows[n][:-1].tolist(), codec.evidence]


def test_saved_and_opened_it_finds_the_same(retriever: GenerativeRetriever, tmp_path: Path) -> None:
    expected = retriever.retrieve(queries(), 3)
    retriever.save_pretrained(tmp_path / "saved")
    opened = GenerativeRetriever.from_pretrained(tmp_path / "saved", options=retriever.options)
    assert opened.codec.causal
    for some, others in zip(opened.retrieve(queries(), 3), expected, strict=True):
        assert [hit.id for hit in some] == [hit.id for hit in others]
    opened.add([Passage("new", "the otter is calm and quick .")])
    assert "new" in [hit.id for hit in opened.retrieve(queries()[:1], 11)[0]]


def test_what_cannot_be_done_is_refused(retriever: GenerativeRetriever, data: Path, llama: Path) -> None:
    retriever.options = SearchOptions(compile=True)
    with pytest.raises(ConfigError, match="LlamaForCausalLM's decoder cannot be driven"):
        retriever.retrieve(queries()[:1], 1)
    with pytest.raises(ConfigError, match="between 1 and 2, got 3"):
        CausalLM(str(llama), layers=3).load()
    assert CausalLM(str(llama), layers=1).load().model.config.num_hidden_layers == 1
    short = write_llama(data.parent / "short", data, positions=12)
    loaded = CausalLM(str(short)).load()
    small = GenerativeRetriever.assemble(loaded.model, loaded.tokenizer, Corpus.read(data))
    with pytest.raises(ConfigError, match="12 positions"):
        small.retrieve([queries()[0]._replace(text="is the otter calm or quick or calm ?")], 1)
    before = small.index, len(small.corpus)
    with pytest.raises(ConfigError, match="12 positions"):
        small.add([Passage("long", "the otter is calm " * 9)])
    assert before == (small.index, len(small.corpus))


def test_trained_indexed_and_retrieving_hop_by_hop(data: Path, llama: Path, tmp_path: Path) -> None:
    """Through the real commands; the small data set is learned by heart."""
    output = tmp_path / "run"
    options = [
        "train", "chains", "--config=configs/chains.yaml", f"--output={output}", f"--data.data={data}",
        f"--model.generator.name_or_path={llama}", "--model.learning_rate=1e-2",
        "--model.freeze_embeddings=false", "--data.batch_size=4", "--data.train_split=train",
        "--data.dev_split=train", "--trainer.max_epochs=60",
        "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false", "--recall.k=2",
        "--last.every_n_epochs=60", "--trainer.check_val_every_n_epoch=60",
    ]  # fmt: skip
    assert main(options) == 0
    folder = tmp_path / "retriever"
    assert main(["index", f"--corpus={data}", f"{output / 'model'}", f"--output={folder}"]) == 0
    assert json.loads((folder / "grls.json").read_text())["stages"] == ["retrieve"]
    opened = GenerativeRetriever.from_pretrained(folder)
    assert opened.codec.tokenizer.get_vocab()[EVIDENCE] == opened.codec.evidence
    asked = queries()[:12]
    chains = HopsRetriever(opened, HopOptions("dynamic", 4)).retrieve_chains(asked)
    right = [
        {hit.id for hit in found[0].hits} == set(query.evidence) and found[0].done
        for query, found in zip(asked, chains, strict=True)
    ]
    assert sum(right) >= 11
