"""Inputs and rankings of searches on the small random models, and what joins a search."""

import copy
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from models_small import END, VOCABULARY

from grls.decode import slots
from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import Prior
from grls.index.build import index_sequences
from grls.index.subset import Subset
from grls.models.causal.slots import CausalGenerator, plant_causal
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant


def queries(count: int, seed: int = 2) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(3, VOCABULARY, rng.integers(2, 9)).tolist(), END] for _ in range(count)]


def passage(longest: int = 9) -> st.SearchStrategy[list[int]]:
    """Few tokens, so that prefixes are shared and stretches are forced."""
    return st.lists(st.integers(3, 6), max_size=longest).map(lambda tokens: [*tokens, END])


def trees(model: Any, prompt: Sequence[int] = ()) -> Any:
    """Trees of a model of either family, on the device that ``GRLS_TEST_DEVICE`` names."""
    if "GRLS_TEST_DEVICE" in os.environ:  # all tests of searches in slots, on a GPU
        model = copy.deepcopy(model).to(os.environ["GRLS_TEST_DEVICE"])
    if not model.config.is_encoder_decoder:
        return plant_causal(model, prompt)
    return plant(Seq2SeqGenerator(model))


def plain(model: Any) -> Any:
    """The generator of a model of either family for the plain search."""
    return (Seq2SeqGenerator if model.config.is_encoder_decoder else CausalGenerator)(model)


def ranking(found: Sequence[Any]) -> list[int]:
    """The passages, those of (nearly) equal score in order of number."""
    return [hit.passage for hit in sorted(found, key=lambda hit: (-round(hit.score, 3), hit.passage))]


@st.composite
def searches(draw: Any) -> dict[str, Any]:
    """What a search is asked, and how it works."""
    rows = draw(st.lists(passage(), min_size=1, max_size=30))
    count, beams = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    some = st.lists(st.integers(0, len(rows) - 1), max_size=len(rows))
    return {
        "rows": rows,
        "inputs": queries(count, draw(st.integers(0, 99))),
        "beams": beams,
        "k": draw(st.integers(1, beams)),
        "exclude": draw(st.one_of(st.just(()), st.lists(some, min_size=count, max_size=count))),
        "mode": draw(st.sampled_from(["renormalized", "full"])),
        "early_stop": draw(st.sampled_from([None, True, False])),
        "slots": draw(st.integers(1, 9)),
        "group": draw(st.sampled_from([1, 8])),
        "backend": draw(st.sampled_from(["array", "flat"])),
        "allow": [draw(st.none() | some) for _ in range(count)] if draw(st.booleans()) else (),
    }


def finds_the_same(
    search: dict[str, Any],
    generator: Any,
    planted: Any,
    kind: Any = FastDecoder,
    prior: Prior | None = None,
) -> None:
    """A fast search has the results of the plain one; that for devices takes no index of the backend flat."""
    if kind is DeviceDecoder and search["backend"] == "flat":
        search["backend"] = "array"
    index = index_sequences([np.array(row) for row in search["rows"]], END, search["backend"])
    how = (index, search["beams"], search["mode"], search["early_stop"])
    allow = [None if some is None else Subset(index.rows, np.array(some, int)) for some in search["allow"]]
    what = (search["inputs"], search["k"], search["exclude"], allow)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_GROUP", search["group"])  # 1: a slot is given away beside others at work
        outputs = kind(planted, *how, slots=search["slots"]).search(*what, prior=prior)
    for expected, found in zip(Decoder(generator, *how).search(*what, prior=prior), outputs, strict=True):
        assert [f.score for f in found] == pytest.approx([f.score for f in expected], abs=1e-4)
        assert ranking(found) == ranking(expected)


class Arrivals:
    """What comes in at given turns, to join a search; what ``leave`` numbers goes at its turn."""

    def __init__(self, asked: Sequence[Any], arrive: Sequence[int], leave: dict[int, int]):
        self.later = sorted(zip(arrive, range(len(asked)), asked, strict=True), key=lambda one: one[:2])
        self.leave, self.turn = leave, 0
        self.answers: dict[int, Any] = {}
        self.errors: dict[int, Exception] = {}
        self.taken: list[int] = []

    def waiting(self) -> int:
        self.turn += 1
        busy = any(n not in self.answers | self.errors and not self.gone(n) for n in self.taken)
        if self.later and not busy:
            self.turn = max(self.turn, self.later[0][0])
        return sum(turn <= self.turn for turn, *_ in self.later)

    def take(self, most: int) -> list[Any]:
        ready = [one for one in self.later if one[0] <= self.turn][:most]
        self.later = self.later[len(ready) :]
        self.taken += [n for _, n, _ in ready]
        return [self.joining(n, one) for _, n, one in ready]

    def joining(self, n: int, asked: Any) -> Any:
        return asked

    def gone(self, owner: int) -> bool:
        return self.leave.get(owner, 10**9) <= self.turn

    def answer(self, owner: int, result: Any) -> None:
        assert owner not in self.answers
        self.answers[owner] = result

    def fail(self, owner: int, error: Exception) -> None:
        self.errors[owner] = error
