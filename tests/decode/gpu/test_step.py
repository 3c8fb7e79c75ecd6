"""The whole step of the search on the device as one piece: compiled, and captured and replayed."""

import re
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from decode_helpers import plain, trees
from models_small import END, PAD, VOCABULARY, small_bert2bert, small_llama, small_t5
from peft import LoraConfig
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import T5Config, T5ForConditionalGeneration

from grls.decode.beam import Decoder
from grls.decode.gpu import search
from grls.decode.gpu.search import DeviceDecoder, Replays
from grls.decode.prior import Prior, WeightedPrior
from grls.index.array import ArrayIndex
from grls.index.build import index_sequences
from grls.index.subset import Subset


def one_layer() -> T5ForConditionalGeneration:
    """As small as can be: it is compiled once for every size."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2,
        decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=END,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


def index_of(longest: int, count: int = 200, tokens: int = 9) -> ArrayIndex:
    rng = np.random.default_rng(1)
    rows = [[*rng.integers(3, tokens, rng.integers(2, longest)).tolist(), END] for _ in range(count)]
    index = index_sequences([np.array(row) for row in rows], END)
    assert isinstance(index, ArrayIndex)
    return index


def inputs(count: int, seed: int = 2) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(3, VOCABULARY, 5).tolist(), END] for _ in range(count)]


def same(found: Any, expected: Any) -> None:
    for some, others in zip(found, expected, strict=True):
        assert [f.score for f in some] == pytest.approx([f.score for f in others], abs=1e-4)
        assert [f.passage for f in some] == [f.passage for f in others]


class Tape(TorchDispatchMode):
    """What a CUDA graph is, on a CPU: the operations of a piece of work, and the tensors they read and write.

    A number that the host put in is on the tape for good, as it would be in a graph.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        # What is kept lies where the tensor lies now, even if the tensor is given another place later.
        here = tree_map_only(Tensor, Tensor.detach, (args, kwargs or {}))
        self._operations.append((func, *here, found))
        return found

    def play(self) -> None:
        for func, args, kwargs, found in self._operations:
            new = func(*args, **kwargs)
            for old, some in zip(_tensors(found), _tensors(new), strict=True):
                if old.data_ptr() != some.data_ptr():
                    old.copy_(some)


def _tensors(found: Any) -> list[Tensor]:
    some = found if isinstance(found, tuple | list) else [found]
    return [one for one in some if isinstance(one, Tensor)]


def taping(board: search.Board) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Captures as a GPU does: what is captured is not done."""

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        session: Any = board.session
        rooms = [part for room in session._own for part in room]
        left = [] if board.left is None else [board.left.counts, board.left.nodes, board.left.scores]
        touched = [*board.standing, board.flags, session.written, session.visible, *rooms, *left]
        with torch.inference_mode():
            before = [some.clone() for some in touched]
            with Tape() as tape:
                work()
            for some, old in zip(touched, before, strict=True):
                some.copy_(old)
        return torch.inference_mode()(tape.play)

    return capture


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> list[search.DeviceStep]:
    """Compiled decoders replay their steps from tapes; the steps, as they are made."""
    made: list[search.DeviceStep] = []
    begin = search.DeviceStep.__init__

    def taped(self: search.DeviceStep, *arguments: Any) -> None:
        begin(self, *arguments)
        self.replays = Replays(taping(self.board))
        made.append(self)

    monkeypatch.setattr(torch, "compile", lambda work, **how: work)
    monkeypatch.setattr(search.DeviceStep, "__init__", taped)
    return made


@pytest.mark.parametrize(
    ("make", "mode"),
    [(partial(small_t5, scale=2.0), "full"), (small_bert2bert, "renormalized"), (small_llama, "full")],
)
def test_replayed_steps_find_what_the_plain_search_finds(
    make: Any, mode: Any, replaying: list[search.DeviceStep]
) -> None:
    """Whatever varies between steps and searches is in tensors: queries, filters, k's memory, the room."""
    index = index_of(longest=30, tokens=5)
    how: Any = {"beams": 4, "mode": mode, "early_stop": False}
    reference = Decoder(plain(make()), index, **how)
    decoder = DeviceDecoder(trees(make()), index, slots=3, compiled=True, **how)
    some = Subset(index.rows, np.arange(0, 200, 2))
    for seed, asked in enumerate(
        (
            {},
            {"exclude": [[seed, 5] for seed in range(9)]},
            {"subsets": [some, None] * 4 + [some]},
            {"k": 2},
            {"k": 2, "exclude": [[7]] * 9},
        )
    ):
        same(decoder.search(inputs(9, seed), **asked), reference.search(inputs(9, seed), **asked))
    assert len(replaying) == 1  # for any k
    table = np.random.default_rng(3).standard_normal((9, 200))
    prior = Prior((WeightedPrior(lambda numbers: table[numbers], -0.5),))
    for seed in range(2):
        asked = inputs(9, seed), [[seed]] * 9, [None] * 8 + [some], None, prior
        for found, expected in zip(decoder.frontier(*asked), reference.frontier(*asked), strict=True):
            for part, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(part, other, atol=1e-4)
    assert all(one.replays is not None and one.replays.captured for one in replaying)


def test_a_search_like_the_last_one_captures_nothing(replaying: list[search.DeviceStep]) -> None:
    decoder = DeviceDecoder(
        trees(one_layer()), index_of(longest=20, tokens=5), beams=3, slots=4, compiled=True
    )
    captured = []
    for seed in range(4):
        decoder.search(inputs(6 if seed else 9, seed))
        replays = replaying[0].replays
        assert replays is not None
        captured.append(replays.captured)
    assert len(replaying) == 1
    assert captured[0] > 0
    assert captured[-1] == captured[-2]


def test_what_is_captured_is_dropped_when_weights_move(replaying: list[search.DeviceStep]) -> None:
    index, model = index_of(longest=20, tokens=5), one_layer()
    decoder = DeviceDecoder(trees(model), index, beams=3, slots=4, compiled=True)
    before = decoder.search(inputs(6))
    with torch.no_grad():
        for weight in model.parameters():
            weight.data = weight.data * 1.5
    found = decoder.search(inputs(6))
    same(found, Decoder(plain(model), index, beams=3).search(inputs(6)))
    assert [f.score for f in found[0]] != [f.score for f in before[0]]


def test_what_is_captured_is_dropped_when_an_adapter_is_switched_off(
    replaying: list[search.DeviceStep],
) -> None:
    """Its weights stay where they are."""
    index, model = index_of(longest=20, tokens=5), one_layer()
    model.add_adapter(LoraConfig(init_lora_weights=False, target_modules=["q", "v"]))
    decoder = DeviceDecoder(trees(model), index, beams=3, slots=4, compiled=True)
    for _ in range(2):
        with_it = decoder.search(inputs(6))
    model.disable_adapters()
    found = decoder.search(inputs(6))
    same(found, Decoder(plain(model), index, beams=3).search(inputs(6)))
    assert [f.score for f in found[0]] != [f.score for f in with_it[0]]


def test_weights_that_are_written_to_are_heeded(replaying: list[search.DeviceStep]) -> None:
    index, model = index_of(longest=20, tokens=5), one_layer()
    decoder = DeviceDecoder(trees(model), index, beams=3, slots=4, compiled=True)
    for _ in range(2):
        decoder.search(inputs(6))
    replays = replaying[0].replays
    assert replays is not None
    captured = replays.captured
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    same(decoder.search(inputs(6)), Decoder(plain(model), index, beams=3).search(inputs(6)))
    assert replays.captured == captured


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile without making kernels: the tracing is the same."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize(
    ("make", "mode", "longest", "rooms"),
    [(one_layer, "renormalized", 12, 2), (one_layer, "full", 7, 1), (small_llama, "renormalized", 7, 1)],
)
def test_a_compiled_step_finds_what_the_plain_search_finds(
    make: Any, mode: Any, longest: int, rooms: int
) -> None:
    """In whole graphs, or compiling fails. With filters, more queries than slots and the other way round; and
    once all sizes have come, no search compiles anything."""
    index = index_of(longest, tokens=5)
    how: Any = {"beams": 4, "mode": mode, "early_stop": False}
    reference = Decoder(plain(make()), index, **how)
    decoder = DeviceDecoder(trees(make()), index, slots=4, compiled=True, **how)
    half = Subset(index.rows, np.arange(0, 200, 2))
    before = counters["stats"]["unique_graphs"]
    prior = Prior((WeightedPrior(lambda numbers: np.arange(200.0)[None] / (10 + numbers[:, None]), 1.0),))
    asked: Any = {"prior": prior} if make is small_llama else {}
    scope: Any = {"exclude": [[1]] * 6, "subsets": [*[None] * 5, half]}  # the last one enters first
    same(decoder.search(inputs(6), **scope, **asked), reference.search(inputs(6), **scope, **asked))
    graphs = counters["stats"]["unique_graphs"]
    assert decoder._compiled_step is not None
    session: Any = decoder._compiled_step[-1].board.session
    assert session._capacity == session._first + 4 * 8 * rooms  # it has grown, or not
    assert rooms + 1 <= graphs - before <= rooms + 2  # candidates: 4 or 16
    for count, what in ((9, {}), (2, {"exclude": [[3], [4]]})):
        what |= asked
        same(decoder.search(inputs(count, 7), **what), reference.search(inputs(count, 7), **what))
    assert counters["stats"]["unique_graphs"] == graphs


@pytest.mark.usefixtures("quickly")
def test_more_sizes_may_be_compiled_than_torch_allows() -> None:
    """Its limit is eight of a function in a process; here it is one, for time."""
    index = index_of(longest=3, tokens=5)
    reference = Decoder(plain(one_layer()), index, beams=2)
    with torch._dynamo.config.patch(recompile_limit=1):
        for slots in (1, 2, 3):
            decoder = DeviceDecoder(trees(one_layer()), index, beams=2, slots=slots, compiled=True)
            decoder.step(slots, 6).write = search.write  # only the other one is compiled, for time
            same(decoder.search(inputs(2)), reference.search(inputs(2)))


def test_a_step_can_be_made_into_kernels() -> None:
    """By torch's own compiler, for this machine's processor: keys and values are written where they lie."""
    torch._dynamo.reset()
    index = index_of(longest=6)
    decoder = DeviceDecoder(trees(one_layer()), index, beams=3, slots=4, compiled=True)
    expected = Decoder(plain(one_layer()), index, beams=3).search(inputs(5))
    found, codes = run_and_get_code(lambda: decoder.search(inputs(5)))
    same(found, expected)
    [model] = [code for code in codes if "scaled_dot_product" in code]
    shapes = re.findall(r"empty_strided_\w+\(\(([\d, ]+)\)", model)
    made = [prod(int(size) for size in shape.split(",") if size.strip()) for shape in shapes]
    assert decoder._compiled_step is not None
    session: Any = decoder._compiled_step[-1].board.session
    assert made
    assert max(made) < session._own[0].keys.numel()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("mode", ["renormalized", "full"])
def test_a_gpu_replays_what_the_cpu_finds(mode: Any) -> None:
    index = index_of(longest=30, tokens=5)
    how: Any = {"beams": 4, "mode": mode, "early_stop": False}
    reference = Decoder(plain(small_t5(0, scale=2.0)), index, **how)
    decoder = DeviceDecoder(trees(small_t5(0, scale=2.0).to("cuda")), index, slots=3, compiled=True, **how)
    for seed in range(3):
        asked: Any = {"exclude": [[seed]] * 9}
        expected, found = reference.search(inputs(9, seed), **asked), decoder.search(inputs(9, seed), **asked)
        for some, others in zip(found, expected, strict=True):
            assert [f.score for f in some] == pytest.approx([f.score for f in others], abs=1e-3)
    assert decoder._compiled_step is not None
    replays = decoder._compiled_step[-1].replays
    assert replays is not None
    assert replays.captured > 0
