"""The fast searches against the plain one, on random models and random corpora."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from decode_helpers import finds_the_same, plain, queries, searches, trees
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, small_bert2bert, small_llama, small_t5

from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.slots import SlotRun
from grls.errors import ConfigError
from grls.index.build import index_sequences
from grls.models.base import alike
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant

MODELS: dict[str, Callable[[int], Any]] = {
    "t5": lambda seed: small_t5(seed, scale=2.0),
    "t5-untied": lambda seed: small_t5(seed, scale=2.0, tie=False),
    "bert2bert": small_bert2bert,
    "llama": small_llama,
}
GENERATORS = {(name, seed): plain(make(seed)) for name, make in MODELS.items() for seed in (0, 1)}
TREES = {key: trees(generator.model) for key, generator in GENERATORS.items()}


def test_long_inputs_are_read_in_parts() -> None:
    """Attention with a bias keeps a number for each pair of tokens: 25 GB for 32 inputs of 5,000."""
    groups = [group.tolist() for group in alike(np.array([5000, 30, 5000, 1000, *[1000] * 40]))]
    assert groups[:2] == [[0], [2]]
    assert len(groups[2]) == 33
    assert sorted(number for group in groups for number in group) == list(range(44))


@pytest.mark.parametrize("kind", [FastDecoder, DeviceDecoder])
@settings(max_examples=75, deadline=None)
@given(searches(), st.sampled_from(sorted(GENERATORS)))
def test_the_fast_search_finds_what_the_plain_one_finds(
    kind: Any, search: dict[str, Any], model: tuple[str, int]
) -> None:
    finds_the_same(search, GENERATORS[model], TREES[model], kind)


@pytest.mark.parametrize("kind", [Decoder, FastDecoder, DeviceDecoder])
def test_a_normalizer_that_is_no_number_is_refused(kind: Any) -> None:
    """The damaged token is none that may be written, so only the sum over the vocabulary knows of it."""
    model = small_t5(0, tie=False)
    generator = Seq2SeqGenerator(model)
    found = plant(generator)
    index = index_sequences([np.array([t, u, END]) for t in (3, 4) for u in (5, 6)], END)
    model.get_output_embeddings().weight.data[9] = float("nan")
    decoder = kind(generator if kind is Decoder else found, index, 2, "full")
    with pytest.raises(ConfigError, match="not numbers"):
        decoder.search(queries(1))


def test_a_forced_stretch_is_fed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passages that part at the first token and again after a long common stretch."""
    stretch = [7] * 30
    rows = [[3, *stretch, 3], [3, *stretch, 4], [4, *stretch, 5], [4, *stretch, 6]]
    index = index_sequences([np.array([*row, END]) for row in rows], END)
    fast = FastDecoder(TREES["t5", 0], index, beams=4)
    session = fast.generator.open_trees(1, 9)
    fed: list[list[int]] = []
    feed = type(session).feed
    monkeypatch.setattr(
        type(session), "feed", lambda self, some: fed.append(some.lengths.tolist()) or feed(self, some)
    )
    found = fast.search(queries(1))[0]
    assert len(found) == 4
    assert fed == [[31, 31]]


def test_weights_that_change_are_noticed() -> None:
    model = small_t5(3, tie=False)
    generator = Seq2SeqGenerator(model)
    found = plant(generator)
    index = index_sequences([np.array([t, END]) for t in range(3, 20)], END)
    fast = FastDecoder(found, index, beams=5)
    before = fast.search(queries(1))[0]
    model.get_output_embeddings().weight.data.mul_(-1)  # which no counter of writes sees
    after = fast.search(queries(1))[0]
    expected = Decoder(generator, index, beams=5).search(queries(1))[0]
    assert [f.passage for f in after] == [f.passage for f in expected]
    assert [f.score for f in after] == pytest.approx([f.score for f in expected], abs=1e-4)
    assert [f.passage for f in after] != [f.passage for f in before]


@pytest.mark.parametrize("kind", [FastDecoder, DeviceDecoder])
@pytest.mark.parametrize("model", [small_llama(), small_t5(0, scale=2.0)])
def test_a_long_input_is_read_apart_from_short_ones(
    model: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together, all short ones would be padded to its length; up to 64 tokens an input counts as 64."""
    read, load = list[int](), SlotRun._load

    def counted(self: SlotRun, slots: Any) -> None:
        read.append(len(slots))
        load(self, slots)

    monkeypatch.setattr(SlotRun, "_load", counted)
    index = index_sequences([np.array([a, b, c, END]) for a in (3, 4) for b in (3, 5) for c in (4, 6)], END)
    inputs = [*queries(5), [*range(3, 13)] * 20, *queries(6, seed=3)]
    found = kind(trees(model), index, 3, slots=12).search(inputs)
    assert read == [3, 9]  # of 200, 64 and 64 tokens, then what is left: padding at most doubles
    for hits, expected in zip(found, Decoder(plain(model), index, 3).search(inputs), strict=True):
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-4)


def test_wrong_k_is_refused() -> None:
    with pytest.raises(ConfigError, match="k must be between 1 and the beam width 5, got 6"):
        FastDecoder(TREES["t5", 0], index_sequences([], END)).search(queries(1), k=6)


def test_no_queries_and_no_passages() -> None:
    assert FastDecoder(TREES["t5", 0], index_sequences([], END)).search([]) == []
    assert FastDecoder(TREES["t5", 0], index_sequences([], END)).search(queries(2)) == [[], []]
