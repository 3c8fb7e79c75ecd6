"""Training on chains, causal models on trees of tokens: the loss held against the plain way."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from models_small import log_probability, small_gpt2, small_llama
from score_all import score_all
from small_data import scratch, small_tokenizer, write_small
from train_helpers import always, chain_module
from transformers import (
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.index.base import ConstraintIndex
from grls.index.build import build_index
from grls.models.causal.slots import CausalGenerator
from grls.models.load.build import Loaded
from grls.models.load.generators import CausalLM, GeneratorSpec
from grls.models.seq2seq.slots import Seq2SeqGenerator
from grls.train.generator.collate import HopCollator, TokenTree, stack
from grls.train.generator.decisions import Decisions, PassageTarget, walk_paths
from grls.train.generator.decisions import Path as Walked
from grls.train.generator.examples import HopExample, RetrieveExamples
from grls.train.generator.module import Retrieve, tree_attention
from grls.train.generator.targets import Teaching


class Small(NamedTuple):
    """A causal model and what it learns from."""

    module: Retrieve
    corpus: Corpus
    codec: Codec
    index: ConstraintIndex
    folder: Path


@pytest.fixture
def small(root: Path) -> Small:
    return opened(root, root / "data")


def opened(root: Path, folder: Path, **limits: int) -> Small:
    module = chain_module(CausalLM(str(root / "llama")), freeze_embeddings=False)
    module.model.eval()
    corpus = Corpus.read(folder)
    codec = Codec(module.tokenizer, Limits(**limits), causal=True)
    return Small(module, corpus, codec, build_index(corpus, codec), folder)


def mean_loss(small: Small, hops: Sequence[HopExample]) -> Any:
    """By the definition, approximately."""
    scores = [log_probability(small.module.model, small.index, hop.source, hop.taken) for hop in hops]
    return pytest.approx(-np.mean(scores), rel=1e-4)


def test_a_node_of_a_tree_is_what_its_path_alone_would_be() -> None:
    model = small_llama()
    tree, other = TokenTree(), TokenTree()
    trunk = tree.insert([3, 4, 5, 6])
    branch = tree.insert([7, 8], trunk[1])
    assert tree.insert([3, 4, 7]) == [*trunk[:2], branch[0]]  # what is there is shared
    other.insert([9])
    batch = stack([tree, other])
    paths = (trunk[-1], [3, 4, 5, 6]), (branch[-1], [3, 4, 7, 8]), (len(tree), [9])
    with torch.no_grad():
        padded = model(
            input_ids=batch.padded(batch.input_ids),
            position_ids=batch.padded(batch.position_ids),
            attention_mask=batch.bias(torch.float32),
        ).logits
        found = [padded.flatten(0, 1)[batch.places]]
        for short in (0, 5, 6):  # by the kernel of torch, by both, by products
            with tree_attention(model, batch, short):
                found += model(
                    input_ids=batch.input_ids[None], position_ids=batch.position_ids[None], use_cache=False
                ).logits
        for node, path in paths:
            expected = model(input_ids=torch.tensor([path])).logits[0, -1]
            for logits in found:
                torch.testing.assert_close(logits[node], expected, rtol=1e-4, atol=1e-4)


def test_the_loss_of_a_chain_is_the_mean_over_its_hops(small: Small) -> None:
    module, corpus, codec, index, folder = small
    some = RetrieveExamples(*read_split(folder, "train", corpus), corpus, codec)
    drawn = [some.draw(n, 0) for n in (0, 2, 3)]
    assert [len(example) for example in drawn] == [2, 3, 3]  # with DONE
    batch = HopCollator(0, index, Teaching(index, len(corpus)))(drawn)
    with torch.no_grad():
        found = float(module.batch_loss(batch))
    assert found == mean_loss(small, [hop for example in drawn for hop in example])
    tokens = sum(len(hop.source) for example in drawn for hop in example)
    assert len(batch.read.input_ids) < tokens  # hops share what they have in common


@pytest.mark.parametrize("inputs", [2, 16])
def test_a_sequence_to_sequence_model_learns_the_same_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: int
) -> None:
    monkeypatch.setattr("grls.train.generator.collate._GROUP", inputs)
    write_small(tmp_path)
    module = chain_module(scratch(tmp_path))
    module.model.eval()
    corpus, codec = Corpus.read(tmp_path), Codec(module.tokenizer)
    index = build_index(corpus, codec)
    some = RetrieveExamples(*read_split(tmp_path, "train", corpus), corpus, codec)
    teaching = Teaching(index, len(corpus), always({1: 0.75, 8: 0.25}), share=0.4, branches=3)
    hops = [hop for n in (0, 2, 2) for hop in some.draw(n, 0)]
    targets, paths = teaching(hops)
    start = int(module.model.config.decoder_start_token_id)
    # A query that comes twice is encoded once, and of paths some are longer than others.
    batch = HopCollator(0, index, teaching, start_token=start)([some.draw(n, 0) for n in (0, 2, 2)])
    assert sum(len(part.input_ids) for part in batch.read) == 5
    assert len(batch.read) == -(-5 // inputs)
    assert max(len(part.stretches) for part in batch.read) > 1
    with torch.no_grad():
        found = float(module.batch_loss(batch))
    scores = [score_all(Seq2SeqGenerator(module.model), index, hop.source) for hop in hops]
    # Each path's cross-entropy with the target, decision by decision, is what the index' own walk gives.
    expected = 0.0
    for path in paths:
        alone = walk_paths(index, targets, [path])
        by_token = scores_of(alone, index, scores[path.hop], path.passage)
        expected -= float((by_token * alone.probabilities * alone.weights[alone.owners]).sum())
    assert found == pytest.approx(expected / len(hops), rel=1e-4)


def scores_of(alone: Decisions, index: ConstraintIndex, scores: np.ndarray, passage: int) -> np.ndarray:
    """Log-probability of every allowed token on a path, from those of all passages under its prefix."""
    rows = [tuple(index.tokens(n).tolist()) for n in range(len(scores))]
    written = rows[passage]
    values = np.empty(len(alone.tokens))
    for entry, (owner, token) in enumerate(zip(alone.owners, alone.tokens, strict=True)):
        before = written[: alone.depths[owner]]
        under = [s for row, s in zip(rows, scores, strict=True) if row[: len(before)] == before]
        child = [
            s for row, s in zip(rows, scores, strict=True) if row[: len(before) + 1] == (*before, int(token))
        ]
        values[entry] = np.logaddexp.reduce(child) - np.logaddexp.reduce(under)
    return values


def test_every_gold_passage_that_is_left_is_right(small: Small) -> None:
    """Averaged over what is drawn, the loss is the mean over the gold passages."""
    module, corpus, codec, index, folder = small
    qs, qrels = read_split(folder, "train", corpus)
    some = RetrieveExamples([qs[2]], qrels, corpus, codec, shuffle=True)
    collate = HopCollator(0, index, Teaching(index, len(corpus)))
    epochs = [some.draw(0, epoch) for epoch in range(40)]
    assert {example[0].taken for example in epochs} == set(epochs[0][0].gold)
    assert len(epochs[0][0].gold) == 2
    assert all(example[1].gold == (example[1].taken,) for example in epochs)
    with torch.no_grad():
        values = {}
        for example in epochs:
            one = example[:1]
            values[one[0].taken] = float(module.batch_loss(collate([one])))
    hop = epochs[0][0]
    expected = [-log_probability(module.model, index, hop.source, gold) for gold in hop.gold]
    assert np.mean(list(values.values())) == pytest.approx(np.mean(expected), rel=1e-4)


def test_branches_give_the_loss_of_the_mixture_without_bias(small: Small) -> None:
    module, corpus, codec, index, folder = small
    some = RetrieveExamples(*read_split(folder, "train", corpus), corpus, codec)
    hop = some.draw(0, 0)[0]
    opinion = {1: 0.75, 8: 0.25}
    every = [Walked(0, hop.taken, 0.6), *(Walked(0, p, 0.4 * w) for p, w in opinion.items())]
    teaching = Teaching(index, len(corpus), always(opinion), share=0.4, branches=1)
    targets, paths = teaching([hop])
    assert [path.weight for path in paths] == pytest.approx([0.6, 0.4])
    assert paths[1].passage in opinion

    class All:
        def __call__(self, hops: list[HopExample]) -> tuple[list[PassageTarget], list[Walked]]:
            return targets, every

    example = (hop,)
    with torch.no_grad():
        found = float(module.batch_loss(HopCollator(0, index, All())([example])))  # type: ignore[arg-type]
    mixture = {hop.taken: 0.6, 1: 0.3, 8: 0.1}
    expected = -sum(w * log_probability(module.model, index, hop.source, p) for p, w in mixture.items())
    assert found == pytest.approx(expected, rel=1e-4)


def test_passages_of_equal_texts_and_beginnings_of_others(root: Path, tmp_path: Path) -> None:
    """Two ids of one text are one answer, one text that begins another is told apart by its end, and DONE."""
    texts = ["the otter is calm .", "the otter is calm .", "the otter is calm . really", "the heron ."]
    some = [Passage(f"p{n}", text) for n, text in enumerate(texts)]
    asked = Query("q", "who ?", ("p1", "p2"))
    write_dataset(tmp_path, some, [asked], {"train": {"q": {"p1": 1, "p2": 1}}})
    small = opened(root, tmp_path)
    index = small.index
    chain = RetrieveExamples([asked], {}, small.corpus, small.codec).draw(0, 0)
    batch = HopCollator(0, index, Teaching(index, 4))([chain])
    with torch.no_grad():
        assert float(small.module.batch_loss(batch)) == mean_loss(small, chain)
    both = PassageTarget.of(index, np.array([0, 1, 3]), np.array([1.0, 1.0, 2.0]))
    found = walk_paths(index, [both], [Walked(0, 0, 1.0), Walked(0, 1, 1.0), Walked(0, 3, 2.0)])
    assert found.weights[found.depths == 0].tolist() == [4.0]
    for decision in range(len(found.weights)):
        assert found.probabilities[found.owners == decision].sum() == pytest.approx(1)
    # A teacher who believes in a passage that is evidence under another number is not heard on it.
    heard = Teaching(index, 4, always({0: 0.5, 3: 0.5}), share=0.5)._opinions(chain)
    assert [dict(opinion) for opinion in heard] == [{0: 0.5, 3: 0.5}, {3: 1.0}, {}]


@pytest.mark.parametrize(("text", "own"), [("the otter is calm . so", {0, 2}), ("the heron .", {0})])
def test_a_query_that_is_a_passage_is_neither_wrong_nor_taught(
    root: Path, tmp_path: Path, text: str, own: set[int]
) -> None:
    """Passage 0 has its text, passage 2 its id, by chance or not; what is known is not rescored or mined."""
    asked = Query("p2", "the otter is calm .", ("p1",))
    some = [Passage(f"p{n}", text) for n, text in enumerate([asked.text, "the lynx .", text])]
    write_dataset(tmp_path, some, [asked], {"train": {"p2": {"p1": 1}}})
    small = opened(root, tmp_path)
    qrels = {"p2": {"p1": 1}}
    (hop,) = RetrieveExamples([asked], qrels, small.corpus, small.codec, done=False).draw(0, 0)
    assert (hop.gold, set(hop.own), set(hop.known)) == ((1,), own, {1, 3} | own)
    heard = Teaching(small.index, 3, always({0: 0.5, 1: 0.5}), share=0.5)._opinions([hop])
    assert heard == [{1: 1.0}]


def test_a_chain_longer_than_the_input_limit_branches_off(root: Path) -> None:
    small = opened(root, root / "data", input=20)
    _, corpus, codec, index, folder = small
    chain = RetrieveExamples(*read_split(folder, "train", corpus), corpus, codec).draw(2, 0)
    assert chain[2].source[: len(chain[1].source)] != chain[1].source  # the oldest went first
    batch = HopCollator(0, index, Teaching(index, len(corpus)))([chain])
    with torch.no_grad():
        assert float(small.module.batch_loss(batch)) == mean_loss(small, chain)


def test_first_tokens_can_weigh_more(small: Small) -> None:
    _, _, _, index, _ = small
    target = [PassageTarget.of(index, np.array([0]), np.array([1.0]))]
    plain = walk_paths(index, target, [Walked(0, 0, 1.0)])
    found = walk_paths(index, target, [Walked(0, 0, 1.0)], decay=0.5)
    assert len(plain.weights) > 1
    assert found.weights.tolist() == pytest.approx((0.5**plain.depths).tolist())


class Given(GeneratorSpec):
    """A model that is there, with the tokenizer of the small data set."""

    def __init__(self, model: torch.nn.Module, folder: Path):
        self.model, self.folder = model, folder

    def load(self) -> Loaded:
        return Loaded(self.model, small_tokenizer(self.folder))


def test_a_model_that_cannot_see_trees_is_refused(tmp_path: Path) -> None:
    """Learned positions are no obstacle; attention within a window is."""
    write_small(tmp_path)
    chain_module(Given(small_gpt2(), tmp_path)).setup("fit")
    shape = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 0.3}
    window = MistralConfig(
        **shape, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, sliding_window=64
    )
    with pytest.raises(ConfigError, match="attends within a window"):
        chain_module(Given(MistralForCausalLM(window), tmp_path)).setup("fit")
    recurrent = MambaForCausalLM(MambaConfig(**shape, state_size=4))
    with pytest.raises(ConfigError, match="Mamba"):
        chain_module(Given(recurrent, tmp_path)).setup("fit")
    with pytest.raises(ConfigError, match="Mamba"):
        CausalGenerator(recurrent)
