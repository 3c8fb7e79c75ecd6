"""The arrays of an index on disk: one ``.npy`` file each, with sizes and checksums in a manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from grls.errors import IndexFormatError
from grls.index.rows import Array
from grls.io.files import sha256

CHECKED_BYTES = 64 * 2**20
"""The checksums of an index up to this size are compared at every load; it takes a fraction of a second."""
REBUILD = "build it again with `grls index`."
"""The remedy for a damaged index."""

_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16

_verify: ContextVar[bool | None] = ContextVar("verify", default=None)


@contextmanager
def verifying(verify: bool | None) -> Iterator[None]:
    """A context that sets ``verify`` for all loads that do not set it."""
    before = _verify.set(verify)
    try:
        yield
    finally:
        _verify.reset(before)


def asked_to_verify(verify: bool | None) -> bool | None:
    """The ``verify`` of a call or, if None, of the context :func:`verifying`."""
    return _verify.get() if verify is None else verify


def describe_arrays(folder: Path) -> dict[str, dict[str, Any]]:
    """The manifest entries of the arrays in a folder: name -> size and checksums."""
    return {
        file.stem: {"bytes": file.stat().st_size, "sha256": sha256(file), "sample": _sample(file)}
        for file in sorted(folder.glob("*.npy"))
    }


def is_entry(entry: Any) -> bool:
    """Whether the manifest entry of an array is well-formed."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def load_arrays(folder: Path, files: dict[str, dict[str, Any]], verify: bool | None) -> dict[str, Array]:
    """Open the arrays of a folder, memory-mapped.

    Args:
        folder: The folder.
        files: The manifest entries of the arrays.
        verify: True: compare checksums, which reads every byte once; False: compare nothing; None: the value
            of :func:`verifying`; if that is None, too, compare the checksums of small indexes (up to
            ``CHECKED_BYTES``), and sixteen blocks of each file of a larger one.

    Raises:
        IndexFormatError: A file is missing, truncated or damaged.
    """
    verify = True if is_checked(files, verify) else asked_to_verify(verify)
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
            arrays[name] = map_array(file)
        except ValueError:
            raise IndexFormatError(f"{file}: no array can be read, the file is damaged; {REBUILD}") from None
    return arrays


def is_checked(files: dict[str, dict[str, Any]], verify: bool | None) -> bool:
    """Whether :func:`load_arrays` compares the checksums of all bytes."""
    verify = asked_to_verify(verify)
    return bool(verify) or (verify is None and sum(e["bytes"] for e in files.values()) <= CHECKED_BYTES)


def map_array(file: Path) -> Array:
    """The array of a ``.npy`` file, memory-mapped; a plain one, since the memmap class is much slower.

    Raises:
        ValueError: The file holds no array. (NumPy parses its header as Python, and raises as that does.)
    """
    try:
        mapped: Array = np.lib.format.open_memmap(file, mode="r").view(np.ndarray)
    except (
        ArithmeticError,
        EOFError,
        LookupError,
        RecursionError,
        SyntaxError,
        TokenError,
        TypeError,
    ) as error:
        raise ValueError(f"{type(error).__name__} in its header") from None
    return mapped


def _sample(file: Path) -> str:
    """SHA-256 of sixteen blocks of a file, evenly spaced from its beginning to its end."""
    size = file.stat().st_size
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for place in np.linspace(0, max(0, size - _SAMPLE_BYTES), _SAMPLES).astype(np.int64).tolist():
            stream.seek(place)
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()
