"""The arrays of an index in its folder: opened where they are as they were sealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from grls.errors import DataError, IndexFormatError, MismatchError
from grls.index.rows import Array
from grls.io.files import note_mapped, other_format, read_json
from grls.io.seal import CHECKED_BYTES, FILES, changed

REBUILD = "build it again with `grls index`."
"""The remedy for a damaged index."""


def read_manifest(
    file: Path, version: int, fields: Mapping[str, type], tokenizer: str | None, corpus: str | None
) -> dict[str, Any]:
    """The manifest of an index, of this format, with fields of these types.

    ``tokenizer``, ``corpus``: the fingerprints that it must name; None accepts any.
    """
    if not file.is_file():
        raise IndexFormatError(f"{file.parent}: no index here ({file.name} is missing); {REBUILD}")
    try:
        manifest = read_json(file)
    except DataError as error:
        raise IndexFormatError(f"{error} The file is damaged; {REBUILD}") from None
    if not isinstance(manifest, dict):
        raise IndexFormatError(f"{file}: expected a JSON object; {REBUILD}")
    if manifest.get("format") != version:
        raise IndexFormatError(f"{file.parent}: {other_format(manifest.get('format'), version)}")
    for name, kind in {"tokenizer": str, "corpus": str, FILES: dict, **fields}.items():
        if not isinstance(manifest.get(name), kind):
            raise IndexFormatError(f"{file}: the key {name!r} is missing or malformed; {REBUILD}")
    for name, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and manifest[name] != expected:
            raise MismatchError(f"{file.parent}: the index was built with another {name}; {REBUILD}")
    return manifest


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
