"""The arrays of an index in its folder: opened where they are as they were sealed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from grls.errors import IndexFormatError, MismatchError
from grls.index.rows import Array
from grls.io.files import note_mapped
from grls.io.seal import CHECKED_BYTES, changed

REBUILD = "build it again with `grls index`."
"""The remedy for a damaged index."""


def refuse_other_origin(
    manifest: dict[str, Any], folder: Path, tokenizer: str | None, corpus: str | None
) -> None:
    for name, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and manifest.get(name) != expected:
            raise MismatchError(f"{folder}: the index was built with another {name}; {REBUILD}")


def load_arrays(
    manifest: Path, content: dict[str, Any], names: Iterable[str], verify: bool | None
) -> dict[str, Array]:
    """Open arrays beside the manifest of a sealed folder; those of a larger index are memory-mapped.

    ``verify``: see :func:`grls.io.seal.changed`.
    """
    if fault := changed(manifest, content, verify):
        raise IndexFormatError(f"{fault}; {REBUILD}")
    files = {name: manifest.parent / f"{name}.npy" for name in names}
    if missing := [file for file in files.values() if not file.is_file()]:
        raise IndexFormatError(f"{missing[0]}: the file is missing; {REBUILD}")
    small = sum(file.stat().st_size for file in files.values()) <= CHECKED_BYTES
    arrays = {}
    for name, file in files.items():
        try:
            arrays[name] = map_array(file, CHECKED_BYTES if small else 0)
        except ValueError:
            raise IndexFormatError(f"{file}: no array can be read, the file is damaged; {REBUILD}") from None
    return arrays


def map_array(file: Path, small: int = CHECKED_BYTES) -> Array:
    """The array of a ``.npy`` file: read, or memory-mapped if it has more than ``small`` bytes.

    A mapped array is a plain one, since the memmap class is much slower. Neither can be written.
    """
    python = ArithmeticError, EOFError, LookupError, RecursionError, SyntaxError, TokenError, TypeError
    try:
        mapped: Array = np.lib.format.open_memmap(file, mode="r").view(np.ndarray)
        if file.stat().st_size <= small:
            mapped = mapped.copy()
            mapped.setflags(write=False)
            return mapped
        note_mapped(file)
    except python as error:
        raise ValueError(f"{type(error).__name__} in its header") from None
    return mapped
