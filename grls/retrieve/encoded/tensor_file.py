"""Safetensors files that are larger than memory: written a block at a time, and memory-mapped.

The module does not know what the arrays mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from grls.errors import DataError
from grls.index.rows import Array
from grls.retrieve.encoded.folder import REBUILD

KINDS = {"F32": "<f4", "I32": "<i4", "I64": "<i8"}
"""Names of the types of elements in a file -> those of NumPy."""
_BLOCK = 1 << 22
"""Bytes that are written together."""


class TensorForm(NamedTuple):
    """The form of an array in a file.

    Attributes:
        kind: The type of its elements, a key of :data:`KINDS`.
        shape: Its shape.
    """

    kind: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Array) -> TensorForm:
        """The form of an array.

        Raises:
            StopIteration: No file has elements of its type.
        """
        return cls(next(name for name, kind in KINDS.items() if np.dtype(kind) == array.dtype), array.shape)

    @property
    def bytes(self) -> int:
        """Size in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(KINDS[self.kind]).itemsize


def write_tensors(file: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays, which may be memory-mapped, a block at a time.

    Args:
        file: The file.
        arrays: The arrays by name, those with the widest elements first.
    """
    with file.open("wb") as stream:
        _write_header(stream, {name: TensorForm.of(array) for name, array in arrays.items()})
        for array in arrays.values():
            rows = max(1, _BLOCK // max(1, array[:1].nbytes))
            for start in range(0, len(array), rows):
                block = array[start : start + rows]
                stream.write(np.ascontiguousarray(block, KINDS[TensorForm.of(array).kind]).data)


def begin_tensors(file: Path, forms: Mapping[str, TensorForm]) -> dict[str, Any]:
    """Make a file of arrays, memory-mapped, which the caller fills.

    Args:
        file: The file; its whole size is written at once, since a full disk would end a process that fills
            a mapped file.
        forms: The forms of the arrays by name, those with the widest elements first.

    Raises:
        OSError: The disk is full.
    """
    with file.open("wb") as stream:
        _write_header(stream, forms)
        place = stream.tell()
        for form in forms.values():
            for start in range(0, form.bytes, _BLOCK):
                stream.write(bytes(min(_BLOCK, form.bytes - start)))
    arrays = {}
    for name, form in forms.items():
        arrays[name] = _mapped(file, form, place, "r+")
        place += form.bytes
    return arrays


def map_tensors(file: Path, kinds: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Open the arrays of a file, memory-mapped.

    Args:
        file: The file.
        kinds: The types that each array may have, by its name.

    Raises:
        DataError: The file is damaged, lacks an array, or holds one of another type.
    """
    try:
        with safe_open(file, "numpy"):  # checks that the header fits the size of the file
            pass
        with file.open("rb") as stream:
            head = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(head))
        arrays = {}
        for name, allowed in kinds.items():
            form = TensorForm(header[name]["dtype"], tuple(header[name]["shape"]))
            if form.kind not in allowed:
                raise ValueError(f"{name} is {form.kind}, not {' or '.join(allowed)}")
            arrays[name] = _mapped(file, form, 8 + head + header[name]["data_offsets"][0], "r")
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"the embeddings cannot be read ({error}); {REBUILD}", file) from None
    return arrays


def _write_header(stream: BinaryIO, forms: Mapping[str, TensorForm]) -> None:
    header, place = {}, 0
    for name, form in forms.items():
        end = place + form.bytes
        header[name] = {"dtype": form.kind, "shape": list(form.shape), "data_offsets": [place, end]}
        place = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    stream.write(len(head).to_bytes(8, "little") + head)


def _mapped(file: Path, form: TensorForm, offset: int, mode: Any) -> Any:
    """An array of a file, as a plain array: indexing through the memmap class is several times slower."""
    if not form.bytes:
        return np.empty(form.shape, KINDS[form.kind])
    return np.memmap(file, KINDS[form.kind], mode, offset, form.shape).view(np.ndarray)
