"""Stand-ins for the engines that take a processor of logits, written from their published interfaces."""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, auto
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch


class LogitsProcessor(ABC):
    """``vllm.v1.sample.logits_processor.LogitsProcessor``."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        return None

    @abstractmethod
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool: ...

    @abstractmethod
    def update_state(self, batch_update: Any) -> None: ...


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


@dataclass(frozen=True)
class BatchUpdate:
    """Removed, then added, then moved."""

    batch_size: int
    removed: list[int] = field(default_factory=list)
    added: list[tuple[int, Any, list[int] | None, list[int]]] = field(default_factory=list)
    moved: list[tuple[int, int, MoveDirectionality]] = field(default_factory=list)


class SamplingParams(NamedTuple):
    extra_args: dict[str, Any] | None = None


class CustomLogitProcessor(ABC):
    """``sglang.srt.sampling.custom_logit_processor.CustomLogitProcessor``."""

    @abstractmethod
    def __call__(self, logits: torch.Tensor, custom_param_list: Any = None) -> torch.Tensor: ...


@dataclass
class Req:
    """``sglang.srt.managers.schedule_batch.Req``, as a processor sees it."""

    origin_input_ids: list[int]
    output_ids: list[int]


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both engines importable."""
    names: dict[str, dict[str, Any]] = {
        "vllm.v1.sample.logits_processor": {
            "LogitsProcessor": LogitsProcessor, "MoveDirectionality": MoveDirectionality
        },
        "sglang.srt.sampling.custom_logit_processor": {"CustomLogitProcessor": CustomLogitProcessor},
    }  # fmt: skip
    for name, content in names.items():
        parts = name.split(".")
        for last in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:last]), ModuleType(".".join(parts[:last])))
        vars(sys.modules[name]).update(content)


class VllmBatch:
    """The persistent batch of vLLM's V1 runner: rows that requests enter, leave and are moved in."""

    def __init__(self, processor: Any):
        self.processor, self.rows = processor, list[Any]()

    def step(self, arrivals: list[Any], width: int, generator: torch.Generator) -> list[Any]:
        """Drop requests that have written their end, admit others, let each write its likeliest token."""
        update = BatchUpdate(0)
        for row in reversed(range(len(self.rows))):
            if self.rows[row].done:
                update.removed.append(row)
        for request in arrivals:  # a free row first, else behind the last
            row = update.removed.pop() if update.removed else len(self.rows)
            self.rows[row:row] = [] if row < len(self.rows) else [None]
            self.rows[row] = request
            update.added.append((row, SamplingParams(request.arguments), [7, 7], request.output))
        for row in sorted(update.removed):  # the last ones move down into rows that stay free
            while self.rows and self.rows[-1].done:
                self.rows.pop()
            if row < len(self.rows):
                update.moved.append((len(self.rows) - 1, row, MoveDirectionality.UNIDIRECTIONAL))
                self.rows[row] = self.rows.pop()
        if len(self.rows) > 2:  # vLLM sorts requests by their attention
            update.moved.append((0, 2, MoveDirectionality.SWAP))
            self.rows[0], self.rows[2] = self.rows[2], self.rows[0]
        changed = update.removed or update.added or update.moved
        self.processor.update_state(update if changed else None)
        logits = self.processor.apply(torch.randn(len(self.rows), width, generator=generator))
        for request, token in zip(self.rows, logits.argmax(1).tolist(), strict=True):
            request.output.append(token)
        return self.rows
