"""The arrays of an index in its folder: sizes and checksums in a manifest, damage, and memory maps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from grls.errors import IndexFormatError, MismatchError
from grls.index.rows import Array
from grls.io.files import note_mapped, sha256
from grls.io.progress import value_of

CHECKED_BYTES = 64 * 2**20
"""The checksums of an index up to this size are compared at every load; it takes a fraction of a second."""
REBUILD = "build it again with `grls index`."
"""The remedy for a damaged index."""

_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16

_verify: ContextVar[bool | None] = ContextVar("verify", default=None)


def verifying(verify: bool | None) -> AbstractContextManager[None]:
    """A context that sets ``verify`` for all loads that do not set it."""
    return value_of(_verify, verify)


def chosen_verify(verify: bool | None, files: Mapping[str, dict[str, Any]] | None = None) -> bool | None:
    """``verify``, or that of :func:`verifying`, or true if ``files`` (manifest entries) are small."""
    verify = _verify.get() if verify is None else verify
    small = files is not None and sum(entry["bytes"] for entry in files.values()) <= CHECKED_BYTES
    return True if small and verify is None else verify


def describe_arrays(folder: Path) -> dict[str, dict[str, Any]]:
    """Manifest entries of the arrays in a folder: name -> size and checksums."""
    return {
        file.stem: {"bytes": file.stat().st_size, "sha256": sha256(file), "sample": _sample(file)}
        for file in sorted(folder.glob("*.npy"))
    }


def is_entry(entry: Any) -> bool:
    known = isinstance(entry, dict)
    return known and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)


def refuse_other_origin(
    manifest: dict[str, Any], folder: Path, tokenizer: str | None, corpus: str | None
) -> None:
    for name, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and manifest.get(name) != expected:
            raise MismatchError(f"{folder}: the index was built with another {name}; {REBUILD}")


def load_arrays(folder: Path, files: dict[str, dict[str, Any]], verify: bool | None) -> dict[str, Array]:
    """Open the arrays of a folder by their manifest entries; those of a larger index are memory-mapped.

    ``verify`` True: compare checksums, which reads every byte; False: nothing; None: as :func:`verifying`
    says, else checksums of small indexes (up to ``CHECKED_BYTES``) and sixteen blocks of each file of
    larger ones.
    """
    verify = chosen_verify(verify, files)
    small = sum(entry["bytes"] for entry in files.values()) <= CHECKED_BYTES
    arrays = {}
    for name, entry in files.items():
        file = folder / f"{name}.npy"
        if not file.is_file():
            raise IndexFormatError(f"{file}: the file is missing; {REBUILD}")
        if (size := file.stat().st_size) != entry["bytes"]:
            raise IndexFormatError(f"{file}: {size} bytes, expected {entry['bytes']} (truncated?); {REBUILD}")
        sampled = verify is None and "sample" in entry
        if (verify and sha256(file) != entry["sha256"]) or (sampled and _sample(file) != entry["sample"]):
            raise IndexFormatError(f"{file}: the checksum differs, the file is damaged; {REBUILD}")
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


def _sample(file: Path) -> str:
    """SHA-256 of sixteen evenly spaced blocks of a file."""
    size = file.stat().st_size
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for start in np.linspace(0, max(0, size - _SAMPLE_BYTES), _SAMPLES).astype(np.int64).tolist():
            stream.seek(start)
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()
