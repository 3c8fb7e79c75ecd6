"""What the search on the device promises beside its results (those are compared in test_fast)."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from decode_helpers import plain, trees
from models_small import END, VOCABULARY, small_llama, small_t5
from other_device import other_device
from torch.utils._python_dispatch import TorchDispatchMode

from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.decode.gpu import search as device_search
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import Prior, WeightedPrior
from grls.errors import ConfigError
from grls.index.build import index_sequences
from grls.index.subset import Subset
from grls.index.tensors import TensorIndex
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever

WAITS = {
    "item", "is_nonzero", "_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2",
    "repeat_interleave",
}  # fmt: skip
"""Operations after which the host must wait for a GPU, because their result or its shape is needed."""


class Recorder(TorchDispatchMode):
    """Counts operations and names those that would make the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.on = True
        self.operations = 0
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if self.on:
            self.operations += 1
            masked = name in ("index", "index_put_") and any(
                index is not None and index.dtype == torch.bool for index in args[1]
            )
            if name in WAITS or masked:
                self.waits.append(name)
        return func(*args, **(kwargs or {}))


def passages(count: int = 300, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.array([*rng.integers(3, 9, rng.integers(2, 12)).tolist(), END]) for _ in range(count)]


def inputs(count: int, seed: int = 2) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(3, VOCABULARY, 5).tolist(), END] for _ in range(count)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", ["renormalized", "full"])
@pytest.mark.parametrize("model", [small_t5(0, scale=2.0), small_llama()])
def test_a_step_does_not_wait_for_the_device(
    monkeypatch: pytest.MonkeyPatch, model: Any, mode: Any, compiled: bool
) -> None:
    """Filters, priors and frontier included; the stop test is the one exception, and asks once."""
    monkeypatch.setattr(torch, "compile", lambda work, **how: work)
    index = index_sequences(passages(), END)
    how: Any = {"beams": 4, "mode": mode, "slots": 4, "compiled": compiled, "threshold": 4.0}
    decoder = DeviceDecoder(trees(model), index, **how)
    recorder = Recorder()
    search = device_search._DeviceRun
    stop, enter, let_in = search._release, search.enter, search._let_in

    def paused(work: Any) -> Any:
        def run(*arguments: Any) -> Any:
            before, recorder.on = recorder.on, False
            try:
                return work(*arguments)
            finally:
                recorder.on = before

        return run

    monkeypatch.setattr(search, "_release", paused(stop))
    monkeypatch.setattr(search, "enter", paused(enter))
    monkeypatch.setattr(search, "_let_in", paused(let_in))
    allow = [Subset(index.rows, np.arange(0, 300, 2)), None, None, None, None, None]
    table = np.random.default_rng(3).standard_normal((6, 300))
    prior = Prior((WeightedPrior(lambda numbers: table[numbers], -0.5),))
    with recorder:
        decoder.frontier(inputs(6), exclude=[[1]] * 6, subsets=allow, prior=prior)
    assert recorder.operations > 100
    assert recorder.waits == []


@pytest.mark.parametrize("kind", [FastDecoder, DeviceDecoder])
@pytest.mark.parametrize("make", [partial(small_t5, 0, scale=2.0), small_llama])
def test_tensors_of_two_devices_do_not_meet(make: Any, kind: Any) -> None:
    """Found without a GPU: whatever the host makes is moved before it is used, and read by the host after."""
    index, model = index_sequences(passages(), END), make()
    table = np.random.default_rng(3).standard_normal((6, 300))
    prior = Prior((WeightedPrior(lambda numbers: table[numbers], -0.5),))
    what: Any = inputs(6), [[1]] * 6, [Subset(index.rows, np.arange(0, 300, 2)), *[None] * 5], None, prior
    reference, decoder = Decoder(plain(make()), index, 4), kind(trees(model), index, 4, slots=4)
    expected, frontiers = reference.search(what[0], None, *what[1:]), reference.frontier(*what)
    with other_device(model):
        assert decoder.generator.device.type == "cuda"
        found, others = decoder.search(what[0], None, *what[1:]), decoder.frontier(*what)
    for one, other in zip(found, expected, strict=True):
        assert [f.score for f in one] == pytest.approx([f.score for f in other], abs=1e-4)
    for mine, its in zip(frontiers, others, strict=True):
        np.testing.assert_allclose(its.scores, mine.scores, atol=1e-4)


def test_room_is_made_for_the_most_candidates() -> None:
    """Of K prefixes of equal length; and that bound is met by the widest ones."""
    rows = passages(400, seed=3)
    index = index_sequences(rows, END)
    tensors = TensorIndex(index, torch.device("cpu"))
    prefixes = {tuple(row[:n].tolist()) for row in rows for n in range(len(row))}
    for written in range(8):
        fanouts = sorted(
            (
                len({int(row[written]) for row in rows if tuple(row[:written].tolist()) == prefix})
                for prefix in prefixes
                if len(prefix) == written
            ),
            reverse=True,
        )
        for beams in (1, 3, 10):
            widest = sum(fanouts[:beams])
            most = tensors.most(beams, written)
            assert widest <= most <= widest + beams


def test_logits_that_are_not_numbers_are_refused() -> None:
    model = small_t5(0, tie=False)
    found = plant(Seq2SeqGenerator(model))
    # Token 7 begins no passage, so that the first step sees nothing of it.
    index = index_sequences([np.array([t, 7, u, END]) for t in (3, 4) for u in (5, 6)], END)
    model.get_output_embeddings().weight.data[5] = torch.nan
    with pytest.raises(ConfigError, match="not numbers"):
        DeviceDecoder(found, index, beams=2).search(inputs(1))


def test_only_a_gpu_and_the_default_index_suit() -> None:
    array, flat = (index_sequences(passages(5), END, backend) for backend in ("array", "flat"))
    for kind, index, compiled, expected in (
        ("cuda", array, False, True),
        ("cuda", flat, False, False), ("cpu", array, False, False), ("cpu", array, True, True),
    ):  # fmt: skip
        generator: Any = SimpleNamespace(index=index, options=SearchOptions(compile=compiled))
        planted: Any = SimpleNamespace(device=torch.device(kind))
        assert GenerativeRetriever._on_device(generator, planted) == expected


def test_what_does_not_suit_is_refused() -> None:
    with pytest.raises(ConfigError, match="got FlatIndex; use FastDecoder"):
        DeviceDecoder(trees(small_t5(0, scale=2.0)), index_sequences(passages(5), END, "flat"))  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("model", [small_t5(0, scale=2.0), small_llama()])
def test_a_gpu_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    """CUDA's own word on it: outside of loading and of the stop test, waiting is an error."""
    search = device_search._DeviceRun
    for name in ("_release", "enter", "_let_in"):
        work = getattr(search, name)

        def paused(*arguments: Any, work: Any = work) -> Any:
            torch.cuda.set_sync_debug_mode("default")
            try:
                return work(*arguments)
            finally:
                torch.cuda.set_sync_debug_mode("error")

        monkeypatch.setattr(search, name, paused)
    table = np.random.default_rng(3).standard_normal((6, 300))
    prior = Prior((WeightedPrior(lambda numbers: table[numbers], -0.5),))
    decoder = DeviceDecoder(trees(model.to("cuda")), index_sequences(passages(), END), beams=4, slots=4)
    try:
        assert len(decoder.search(inputs(6), exclude=[[1]] * 6)) == 6
        assert len(decoder.frontier(inputs(6), prior=prior)) == 6
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", ["renormalized", "full"])
@pytest.mark.parametrize("make", [partial(small_t5, 0, scale=2.0), small_llama])
def test_a_gpu_finds_what_the_cpu_finds(make: Any, mode: Any, compiled: bool) -> None:
    """With and without a prior; the other tests do so with ``GRLS_TEST_DEVICE=cuda``."""
    index = index_sequences(passages(2000), END)
    reference = Decoder(plain(make()), index, beams=5, mode=mode)
    how: Any = {"beams": 5, "mode": mode, "slots": 8, "compiled": compiled}
    gpu = DeviceDecoder(trees(make().to("cuda")), index, **how)
    table = np.random.default_rng(3).standard_normal((30, 2000))
    for prior in (None, Prior((WeightedPrior(lambda numbers: table[numbers], 0.5),))):
        searches = reference.search(inputs(30), prior=prior), gpu.search(inputs(30), prior=prior)
        for expected, found in zip(*searches, strict=True):
            assert [f.score for f in found] == pytest.approx([f.score for f in expected], abs=1e-3)
            assert found[0].passage == expected[0].passage
