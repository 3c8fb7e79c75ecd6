"""What a run begins with: the machine, and the models that suit it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grls.errors import ConfigError
from grls.fitting.options import AUTO, NONE, FitOptions
from grls.io.progress import counted, free_memory, usable_cores
from grls.models.load.base_models import BaseModel, find_encoder, find_writer
from grls.models.load.opening import PACKAGED, PACKAGED_ENCODER

_ENCODERS = (PACKAGED_ENCODER, "sentence-transformers/all-MiniLM-L6-v2")
_GENERATORS = (PACKAGED, "HuggingFaceTB/SmolLM2-135M-Instruct")
"""For a CPU: measured on every data set of docs/results.md."""
_LARGE_ENCODERS = ("sentence-transformers/all-mpnet-base-v2",)
_LARGE_GENERATORS = ("HuggingFaceTB/SmolLM2-360M-Instruct", "google-t5/t5-base")
"""For a GPU; the first is that of the recipe ``chains``."""
_OTHER_ENCODERS = ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",)
"""For a corpus that is not in English."""
_LARGE = 12.0  # GiB of GPU memory from which larger models are chosen


@dataclass(frozen=True)
class Machine:
    """Cores that this process may use, bfloat16 on the device that trains, free main memory in GiB (None:
    unknown), name of the GPU (empty: none is used) and its memory in GiB.
    """

    cores: int
    bfloat16: bool
    memory: float | None
    gpu: str
    gpu_memory: float

    @property
    def precision(self) -> str:
        return "bfloat16" if self.bfloat16 else "float32"

    def line(self) -> str:
        memory = "" if self.memory is None else f", {self.memory:.0f} GiB memory free"
        gpu = f"{self.gpu} ({self.gpu_memory:.0f} GiB), " if self.gpu else "no GPU, "
        bits = "bfloat16" if self.bfloat16 else "no bfloat16"
        return f"{gpu}{counted(self.cores, 'core')}, {bits}{memory}"


def this_machine(device: str = "auto") -> Machine:
    import torch

    from grls.models.precision import accelerator, has_bfloat16

    where = accelerator() if device == "auto" else torch.device(device)
    try:
        torch.empty(1, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use device {device!r} ({reason}); choose cpu, or a GPU of this machine."
        ) from error
    gpu, room = "", 0.0
    if where.type == "cuda" and torch.cuda.is_available():
        known = torch.cuda.get_device_properties(where)
        gpu, room = str(known.name), known.total_memory / 2**30
    cores = usable_cores()
    if os.environ.get("OMP_NUM_THREADS"):
        cores = min(cores, torch.get_num_threads())
    return Machine(cores, has_bfloat16(where), free_memory(), gpu, room)


@dataclass(frozen=True)
class BaseModels:
    """The models to begin with, and what is left out (``biencoder``, ``generator``), with the reason."""

    biencoder: BaseModel | None
    generator: BaseModel | None
    reranker: BaseModel | None
    without: dict[str, str]

    def line(self) -> str:
        named = (
            ("bi-encoder", self.biencoder), ("generator", self.generator), ("reranker", self.reranker)
        )  # fmt: skip
        return "; ".join(
            f"{role} {'none' if model is None else f'{model.name} ({model.source})'}" for role, model in named
        )


def licence_of(name: str) -> str | None:
    """The licence of a model that is chosen by itself; None: its holder says it."""
    known = (*_LARGE_ENCODERS, *_ENCODERS, *_LARGE_GENERATORS, *_GENERATORS, *_OTHER_ENCODERS)
    return "Apache-2.0" if name in known else None


def base_models(asked: FitOptions, machine: Machine, language: str | None) -> BaseModels:
    """Find the models that are asked for, or choose them."""
    large = machine.gpu_memory >= _LARGE
    encoders = (*_LARGE_ENCODERS, *_ENCODERS) if large else _ENCODERS
    if language not in (None, "en"):
        encoders = (*_OTHER_ENCODERS, *_ENCODERS)
    generators = (*_LARGE_GENERATORS, *_GENERATORS) if large else _GENERATORS
    without: dict[str, str] = {}

    def chosen(
        role: str, name: str | None, known: Sequence[str], find: Callable[[str], BaseModel]
    ) -> BaseModel | None:
        if name in (NONE, None):
            without[role] = "it was not asked for"
            return None
        if name != AUTO:
            return find(name)
        errors = []
        for candidate in known:
            try:
                return find(candidate)
            except ConfigError as error:
                errors.append(str(error))
        without[role] = f"no model for it: {errors[-2].rstrip('.')}"  # that of the package
        return None

    encoder, reranker = chosen("biencoder", asked.biencoder, encoders, find_encoder), None
    if asked.reranker == AUTO:  # on a CPU it won nothing (docs/experiments.md)
        reranker = encoder if machine.gpu else None
    elif asked.reranker not in (NONE, None):
        reranker = find_encoder(asked.reranker, "reranker")
    return BaseModels(
        encoder,
        chosen("generator", asked.generator, generators, find_writer),
        reranker,
        without,
    )
