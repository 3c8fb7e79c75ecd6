"""A ``.npy`` file that grows at its end."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from grls.index.rows import Array


class GrowingArray:
    """Writes an array piece by piece; the final file has the same bytes as a file of ``np.save``.

    NumPy pads the header so that the first axis can grow in place. At the end the header is written again
    with the final length.

    Args:
        file: The file.
        dtype: The type of the elements; appended values are converted.
        columns: Length of the second axis; 0 for an array with one axis.
    """

    def __init__(self, file: Path, dtype: npt.DTypeLike, columns: int = 0):
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.length = 0
        self._columns = columns
        self._stream = file.open("wb")
        self._write_header()
        self._begin = self._stream.tell()

    def _write_header(self) -> None:
        shape = (self.length, self._columns) if self._columns else (self.length,)
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(self._stream, header)

    def append(self, values: Array) -> None:
        """Add rows at the end."""
        np.ascontiguousarray(values, dtype=self.dtype).tofile(self._stream)
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._stream.flush()
                self._stream.seek(0)
                self._write_header()
                assert self._stream.tell() == self._begin, "NumPy's header grew"
        finally:
            self._stream.close()
