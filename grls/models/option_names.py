"""Names for options: of precisions (:mod:`grls.models.precision`), devices, and kinds of bi-encoders."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal

from grls.io.arguments import UnfitError, fitted

Precision = Literal["float32", "bfloat16", "auto"]

PrecisionName = Annotated[str, partial(fitted, kind=Precision)]
"""A precision as a call gets it, which may be none."""

Numbers = Literal["float32", "bfloat16"]
"""The precisions that every model supports."""

_DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d+)?")


def _device(value: Any) -> str:
    name: str = fitted(value, str)
    if not _DEVICE.fullmatch(name):
        raise UnfitError("auto, cpu, mps, cuda, or one of several such as cuda:1", name)
    return name


Device = Annotated[str, _device]
"""Where models are loaded; ``auto`` takes a GPU if there is one. Whether it is there, torch says."""


Kind = Literal["auto", "sentence", "st5"]

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
"""How two vectors are compared, by the names of sentence-transformers; distances have their sign turned."""

TrainerPrecision = Literal["auto", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"]
"""Lightning's precisions, and ``auto``."""
