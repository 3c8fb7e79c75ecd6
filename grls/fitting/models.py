"""The models that a run begins with: which there are, and which are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grls.errors import ConfigError
from grls.fitting.machine import Machine
from grls.fitting.options import AUTO, NONE
from grls.models.load.base_models import PACKAGED_ENCODER, BaseModel, find_encoder, find_writer
from grls.models.load.sources import PACKAGED

_ENCODERS = (PACKAGED_ENCODER, "sentence-transformers/all-MiniLM-L6-v2")
_WRITERS = (PACKAGED, "HuggingFaceTB/SmolLM2-135M-Instruct")
"""For a CPU: measured on every data set of docs/results.md."""

_LARGE_ENCODERS = ("sentence-transformers/all-mpnet-base-v2",)
_LARGE_WRITERS = ("HuggingFaceTB/SmolLM2-360M-Instruct", "google-t5/t5-base")
"""For a GPU; the first is that of the recipe ``chains``."""

_OTHER_ENCODERS = ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",)
"""For a corpus that is not in English."""

_LICENCE = "Apache-2.0"
"""The licence of all of these models."""

_LARGE = 12.0
"""GiB of GPU memory from which larger models are chosen."""


@dataclass(frozen=True)
class BaseModels:
    """The models to begin with, and what is left out (``biencoder``, ``generator``), with the reason."""

    biencoder: BaseModel | None
    generator: BaseModel | None
    without: dict[str, str]

    def line(self) -> str:
        """The models, for people."""
        named = (("bi-encoder", self.biencoder), ("generator", self.generator))
        return "; ".join(
            f"{what} {'none' if model is None else f'{model.name} ({model.place})'}" for what, model in named
        )


def licence_of(name: str) -> str | None:
    """The licence of a model that is chosen by itself; None: its holder says it."""
    known = (*_LARGE_ENCODERS, *_ENCODERS, *_LARGE_WRITERS, *_WRITERS, *_OTHER_ENCODERS)
    return _LICENCE if name in known else None


def base_models(
    biencoder: str | None, generator: str | None, machine: Machine, language: str | None
) -> BaseModels:
    """Find the models that are asked for (:class:`~grls.fitting.options.FitOptions`), or choose them.

    Raises:
        ConfigError: A model is neither folder nor package nor a hub name that can be reached.
    """
    large = machine.gpu_memory >= _LARGE
    encoders = (*_LARGE_ENCODERS, *_ENCODERS) if large else _ENCODERS
    if language not in (None, "en"):
        encoders = (*_OTHER_ENCODERS, *_ENCODERS)
    writers = (*_LARGE_WRITERS, *_WRITERS) if large else _WRITERS
    without: dict[str, str] = {}
    return BaseModels(
        _chosen("biencoder", biencoder, encoders, find_encoder, without),
        _chosen("generator", generator, writers, find_writer, without),
        without,
    )


def _chosen(
    what: str,
    asked: str | None,
    candidates: Sequence[str],
    find: Callable[[str], BaseModel],
    without: dict[str, str],
) -> BaseModel | None:
    """The model asked for, or the first candidate that there is."""
    if asked in (NONE, None):
        without[what] = f"--{what} none"
        return None
    if asked != AUTO:
        return find(asked)
    errors = []
    for name in candidates:
        try:
            return find(name)
        except ConfigError as error:
            errors.append(str(error))
    without[what] = f"no model for it: {errors[-2] if len(errors) > 1 else errors[-1]}"
    return None
