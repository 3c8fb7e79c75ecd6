"""Causal language models as trees of tokens, against their own forward pass."""

from typing import Any

import numpy as np
import pytest
import torch
from decode_helpers import trees as on_device
from failing import raises
from fixture_types import Patch
from hypothesis import given, settings
from hypothesis import strategies as st
from models_small import END, VOCABULARY, small_gpt2, small_llama
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import DeviceDecoder
from grls.errors import ConfigError
from grls.index.build import index_sequences
from grls.models.base import cache_argument
from grls.models.causal import slots as causal
from grls.models.causal.slots import CausalGenerator, CausalTrees, plant_causal
from grls.models.sessions.forest import Branches

MODELS: dict[str, Any] = {"llama": small_llama(), "gpt2": small_gpt2()}


class Naive:
    """A generator that computes every prefix from its beginning: the oracle."""

    def __init__(self, model: Any, prompt: list[int]):
        self.model, self.prompt = model, prompt

    def open(self, inputs: Any) -> "Naive":
        self.rows = [[*self.prompt, *tokens] for tokens in inputs]
        return self

    def first(self) -> None:
        self._run()

    def step(self, parents: Any, tokens: Any) -> None:
        self.rows = [[*self.rows[p], int(t)] for p, t in zip(parents, tokens, strict=True)]
        self._run()

    def _run(self) -> None:
        with torch.no_grad():
            some = [self.model(input_ids=torch.tensor([row])).logits[0, -1] for row in self.rows]
        self.all = torch.stack(some).float()

    def logits(self, rows: Any, tokens: Any) -> Any:
        return self.all[torch.from_numpy(rows), torch.from_numpy(tokens)].numpy()

    def log_normalizer(self) -> Any:
        return self.all.logsumexp(-1).numpy()


@pytest.mark.parametrize("kind", [FastDecoder, DeviceDecoder])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_fast_search_finds_what_the_naive_one_finds(kind: Any, data: Any) -> None:
    token = st.integers(3, VOCABULARY - 1)
    name = data.draw(st.sampled_from(sorted(MODELS)))
    prompt = data.draw(st.lists(token, max_size=5))
    passages = st.lists(st.integers(3, 6), max_size=8)
    rows = data.draw(st.lists(passages, min_size=1, max_size=20))
    inputs = data.draw(st.lists(st.lists(token, min_size=1, max_size=6), min_size=1, max_size=4))
    mode = data.draw(st.sampled_from(["renormalized", "full"]))
    index = index_sequences([np.array([*row, END]) for row in rows], END)
    naive: Any = Naive(MODELS[name], prompt)
    plain = Decoder(naive, index, 3, mode)
    fast = kind(on_device(MODELS[name], prompt), index, 3, mode, slots=2)
    for expected, found in zip(plain.search(inputs), fast.search(inputs), strict=True):
        assert [f.score for f in found] == pytest.approx([f.score for f in expected], abs=1e-3)
        assert {f.passage for f in found if f.score > found[-1].score + 1e-2} == {
            f.passage for f in expected if f.score > expected[-1].score + 1e-2
        }


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("prompt", [[], [7, 8, 9]])
def test_long_branches_of_a_deep_tree(name: str, prompt: list[int]) -> None:
    model = MODELS[name]
    trees = plant_causal(model, prompt)
    session = trees.open_trees(3, 50)
    rng = np.random.default_rng(0)
    texts = [rng.integers(3, VOCABULARY, n).tolist() for n in (50, 3, 20)]
    session.load(np.arange(3), texts)
    again = rng.integers(3, VOCABULARY, 9).tolist()
    tip = session.load(np.array([1]), [again])
    texts[1] = again
    branch = rng.integers(3, VOCABULARY, 30)
    node = session.feed(Branches(np.array([1]), tip, np.array([30]), branch))
    session.feed(Branches(np.array([1, 1]), node[[0, 0]], np.array([1, 1]), np.array([5, 6])))
    for row, last in enumerate((5, 6)):
        tokens = torch.tensor([[*prompt, *again, *branch.tolist(), last]])
        with torch.inference_mode():
            expected = model(input_ids=tokens).logits[0, -1]
            found = trees.head.all(session._hidden[row])
        assert torch.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("cached", [1, 200, 1 << 20])
def test_grouped_attention_is_attention(scale: float | None, cached: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(causal, "_CACHED", cached)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(5, 3, 6, 8, generator=generator)
    key, value = (torch.randn(5, 2, 5, 8, generator=generator) for _ in range(2))
    hidden = torch.rand(5, 1, 3, 5, generator=generator) < 0.4
    hidden[..., 0] = False
    bias = torch.zeros(5, 1, 3, 5).masked_fill(hidden, -torch.inf)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2), key, value, attn_mask=bias, scale=scale, enable_gqa=True
    ).transpose(1, 2)
    found = causal.grouped_attention(query, key, value, bias, scale)
    torch.testing.assert_close(found, expected)


def test_a_prompt_is_read_anew_when_the_weights_change() -> None:
    model = small_llama(3)
    index = index_sequences([np.array([t, END]) for t in range(3, 9)], END)
    decoder = FastDecoder(plant_causal(model, [5, 6, 7]), index, 2)
    before = decoder.search([[9, 10]])[0]
    model.model.layers[0].self_attn.v_proj.weight.data.mul_(-3)
    after = decoder.search([[9, 10]])[0]
    assert [f.score for f in after] != pytest.approx([f.score for f in before], abs=1e-4)
    naive: Any = Naive(model, [5, 6, 7])
    expected = Decoder(naive, index, 2).search([[9, 10]])[0]
    assert [f.score for f in after] == pytest.approx([f.score for f in expected], abs=1e-3)


def test_what_cannot_be_driven_is_refused() -> None:
    config = MistralConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=4,
    )  # fmt: skip
    raises(ConfigError, "within a window", plant_causal, MistralForCausalLM(config))
    chunked = small_llama()
    chunked.config.layer_types = ["chunked_attention"] * 2
    raises(ConfigError, "within a window", plant_causal, chunked)
    raises(ConfigError, "256 positions; shorten", plant_causal, small_llama(), [3] * 256)
    with pytest.raises(ValueError, match="at least one token"):
        plant_causal(small_llama()).open_trees(1, 1).load(np.array([0]), [[]])


STATES = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8}
EXPERTS = {"num_experts_per_tok": 1, "num_experts": 2, "num_local_experts": 2}
HYBRIDS: dict[str, dict[str, Any]] = {
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_ff_dim": 48},
    "jamba": {**EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4},
    "qwen3_next": {
        **EXPERTS, "layer_types": ["linear_attention", "full_attention"], "head_dim": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    },
    "falcon_h1": {**STATES, "head_dim": 8, "mamba_d_ssm": 64},
    "granitemoehybrid": {**STATES, **EXPERTS, "layers_block_type": ["mamba", "attention"]},
    "bamba": {**STATES, "attn_layer_indices": [1]},
    "mistral": {"sliding_window": 4},
}  # fmt: skip
"""Models with convolutions, states of fixed size, or windows beside attention to all tokens."""


@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_that_keep_states_are_searched_as_the_naive_search_does(name: str) -> None:
    torch.manual_seed(0)
    config = CONFIG_MAPPING[name](
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, **HYBRIDS[name],
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2 if weight.dim() > 1 else 1)  # so that what was read before counts
    rows = [np.array([*row, END]) for row in ([3], [3, 4, 5, 6, 3], [3, 4, 4], [5, 5], [6, 3, 4, 4, 5, 5, 6])]
    index, inputs = index_sequences(rows, END), [[5, 6, 7, 8, 9, 10, 11, 12], [7], [9, 8]]
    naive: Any = Naive(model, [])
    for beams in (2, 5):
        expected = Decoder(naive, index, beams).search(inputs)
        found = Decoder(CausalGenerator(model), index, beams).search(inputs)
        assert [[f.passage for f in row] for row in found] == [[f.passage for f in row] for row in expected]
        for some, truth in zip(found, expected, strict=True):
            assert [f.score for f in some] == pytest.approx([f.score for f in truth], abs=1e-5)
    raises(ConfigError, "within a window or keeps states", plant_causal, model)


def test_too_little_memory_is_not_taken_for_a_model_that_cannot_be_driven(monkeypatch: Patch) -> None:
    def full(self: Any) -> bool:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(CausalGenerator, "_agrees", full)
    raises(RuntimeError, "allocate memory", CausalGenerator, MODELS["llama"])


def test_a_cache_has_the_name_that_the_forward_method_has_for_it() -> None:
    class Before(torch.nn.Module):
        def forward(self, input_ids: Any = None, past_key_values: Any = None) -> None:
            """As transformers had it before 5.24."""

    class Since(torch.nn.Module):
        def forward(self, input_ids: Any = None, cache: Any = None) -> None:
            """As transformers has it since."""

    assert [cache_argument(model) for model in (Before(), Since())] == ["past_key_values", "cache"]


@pytest.mark.parametrize("grid", [False, True])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
@torch.inference_mode()
def test_an_input_that_continues_others_gets_the_logits_of_one_that_is_read_anew(
    grid: bool, data: Any
) -> None:
    name = data.draw(st.sampled_from(sorted(MODELS)))
    prompt = data.draw(st.sampled_from([[], [7, 8, 9]]))
    token = st.integers(3, VOCABULARY - 1)
    known: list[list[int]] = [[]]
    trees = plant_causal(MODELS[name], prompt)
    for _ in range(4):
        begun = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        rows = [[*first, *data.draw(st.lists(token, max_size=4)), data.draw(token)] for first in begun]
        count = len(rows) + 1
        session: Any = trees.open_grid(count, 1, 30) if grid else trees.open_trees(count, 30)
        slots = np.arange(1, count)
        nodes = session.load(slots, rows)
        for hidden, row in zip(session._hidden, rows, strict=True):
            expected = trees.model(input_ids=torch.tensor([[*prompt, *row]])).logits[0, -1]
            assert torch.allclose(trees.head.all(hidden), expected, atol=1e-4)
        if grid:
            room, same = session.room(), torch.zeros((count, 1), dtype=torch.long)
            with session.attending():
                logits = session.write(same, same + 5, room)[1:, 0]
        else:
            session.feed(Branches(slots, nodes, np.ones_like(slots), np.full(len(slots), 5)))
            logits = session.every()
        for found, row in zip(logits, rows, strict=True):
            expected = trees.model(input_ids=torch.tensor([[*prompt, *row, 5]])).logits[0, -1]
            assert torch.allclose(found, expected, atol=1e-4)
        known += rows


@torch.inference_mode()
def test_a_grid_makes_room_for_a_longer_input_beside_others() -> None:
    trees, rows = plant_causal(small_llama(1)), ([13, 4, 5], [*range(3, 12)] * 8)
    session: Any = trees.open_grid(2, 1, 90)
    session.load(np.array([0]), rows[:1])
    assert session._capacity < len(rows[1])  # none is kept for what might come
    session.load(np.array([1]), rows[1:])
    room, same = session.room(), torch.zeros((2, 1), dtype=torch.long)
    with session.attending():
        logits = session.write(same, same + 5, room)[:, 0]
    for found, row in zip(logits, rows, strict=True):
        expected = trees.model(input_ids=torch.tensor([[*row, 5]])).logits[0, -1]
        assert torch.allclose(found, expected, atol=1e-4)


def test_a_long_known_beginning_does_not_pad_inputs_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, long = plant_causal(small_llama(1)), [3, 4, 5] * 100
    trees.open_trees(1, 400).load(np.arange(1), [long])
    held: list[list[int]] = []
    forward = causal.CausalTreeSession._forward

    def watched(session: Any, inputs: Any, known: Any, new: Any) -> Any:
        held.append([count for _, count in known])
        return forward(session, inputs, known, new)

    monkeypatch.setattr(causal.CausalTreeSession, "_forward", watched)
    rows = [[6, 7], [*long, 6], [7, 6], [8, 9]]
    session: Any = trees.open_trees(4, 400)
    session.load(np.arange(4), rows)
    assert sorted(held) == [[0, 0], [0, 300]]  # padding at most doubles a batch
    with torch.inference_mode():
        for found, row in zip(session.every(), rows, strict=True):
            expected = trees.model(input_ids=torch.tensor([row])).logits[0, -1]
            assert torch.allclose(found, expected, atol=1e-4)


@torch.inference_mode()
def test_inputs_are_read_by_an_attention_that_takes_their_mask() -> None:
    trees = plant_causal(small_llama(1), [7, 8])
    expected = trees.model(input_ids=torch.tensor([[7, 8, 3, 4]])).logits[0, -1]
    trees.model.config._attn_implementation = "one without masks"
    session = trees.open_trees(1, 2)
    session.load(np.arange(1), [[3, 4]])
    assert torch.allclose(session.every()[0], expected, atol=1e-4)


def test_a_known_beginning_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = plant_causal(small_llama(1))
    fed: list[int] = []
    forward = causal.CausalTreeSession._forward

    def counted(session: Any, inputs: Any, known: Any, new: Any) -> Any:
        fed.append(int(new.sum()))
        return forward(session, inputs, known, new)

    monkeypatch.setattr(causal.CausalTreeSession, "_forward", counted)
    for row in ([13, 4, 5], [13, 4, 5, 6, 7], [13, 4, 5, 6, 7, 8], [13, 4, 5]):
        trees.open_trees(1, 10).load(np.arange(1), [row])
    assert fed == [3, 2, 1, 3]  # what is known as a whole is read again
    with torch.no_grad():  # other weights have read nothing
        trees.model.get_input_embeddings().weight.mul_(2)
    trees.open_trees(1, 10).load(np.arange(1), [[13, 4, 5]])
    assert fed[4:] == [3]
    known, length = read_by(trees).longest([13, 4, 5, 6])
    assert length == 3
    monkeypatch.setattr(causal, "PREFIX_BYTES", sum(prefix.size for prefix in known) * 5 // 3)
    for first in (19, 20, 21, 19, 19):
        trees.open_trees(1, 10).load(np.arange(1), [[first, 4, 5]])
    assert fed[5:] == [3] * 5
    trees.open_trees(1, 10).load(np.arange(1), [[19, 4, 5, 6]])
    assert fed[10:] == [1]
    assert len(read_by(trees)) == 2


def read_by(trees: CausalTrees) -> causal.Prefixes:
    """The inputs that the weights of a model have read."""
    return trees.known(causal.version(trees.model))[1]


def test_memory_of_known_inputs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a chain continued was held as long as the chain, and was not counted."""
    monkeypatch.setattr(causal, "PREFIX_BYTES", 1000)
    known, part = causal.Prefixes(), torch.zeros(1, 25)  # 100 bytes
    for chain in range(50):
        for row in ([1, 2, 3], [1, 2, 3, chain + 4], [1, 2, 3, chain + 4, 99]):
            _, length = known.longest(row)
            assert length == max(0, len(row) - 1 if len(row) > 3 else 0)
            known.add(row, causal.Prefix(length, [part.clone() for _ in row[length:]]))
    assert len(known) == 8  # 300 bytes of three tokens, and seven of one
    alive = {id(part) for prefix in known._kept.values() for part in prefix.parts}
    assert len(alive) == 10
    known._kept.pop((1, 2, 3))
    assert known.longest([1, 2, 3, 53, 99, 5]) == ([], 0)  # without its beginning


def test_a_model_that_was_tried_before_reads_on_from_what_a_device_has_read() -> None:
    """Its heads were known from its trial alone."""
    index = index_sequences([np.array([*row, END]) for row in ([3, 4], [4, 6], [6])], END)
    inputs = [[[7, 8, 9]], [[7, 8, 9, 10, 11]]]
    expected, found = (
        [DeviceDecoder(model, index, 3).search(some) for some in inputs]
        for model in (plant_causal(small_llama()), CausalTrees(small_llama(), tried=True))
    )
    assert found == expected


def test_weights_that_are_written_to_in_any_way_have_read_nothing() -> None:
    trees = plant_causal(small_llama(2))
    changes = [
        lambda: trees.model.get_input_embeddings().weight.data[3].mul_(1.5),
        lambda: trees.model.lm_head.weight.data[:, 5].add_(0.1),
        lambda: [buffer.mul_(1.01) for buffer in trees.model.buffers()],
    ]
    with torch.no_grad():
        for change in changes:
            before = read_by(trees)
            assert read_by(trees) is before
            change()
            assert read_by(trees) is not before
