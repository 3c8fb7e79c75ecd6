"""The names of precisions, for options; see :mod:`grls.models.precision`."""

from __future__ import annotations

from typing import Literal

Precision = Literal["float32", "bfloat16", "float16-weights", "int8", "auto"]

Numbers = Literal["float32", "bfloat16"]
"""The precisions that every model supports."""
