"""A file of the nearest passages of each passage (:mod:`grls.retrieve.neighbours` computes them).

One safetensors file holds the matrix of passage numbers. Its metadata hold the fingerprint of the corpus and
the retriever that ranked the passages.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from grls.data.corpus import Corpus
from grls.errors import DataError, MismatchError
from grls.io.files import atomic_path

Numbers = npt.NDArray[np.int32]

_NAME = "neighbours"
_NONE = -1


@dataclass(frozen=True)
class Neighbours:
    """The nearest passages of each passage of a corpus.

    Args:
        numbers: ``[N, k]`` passage numbers, the nearest first; -1 if there are fewer than k.
        by: The retriever that ranked them, such as ``bm25``.
    """

    numbers: Numbers
    by: str

    @classmethod
    def of_lists(cls, lists: list[list[int]], k: int, by: str) -> Neighbours:
        numbers = np.full((len(lists), k), _NONE, dtype=np.int32)
        for row, nearest in enumerate(lists):
            numbers[row, : len(nearest)] = nearest
        return cls(numbers, by)

    @classmethod
    def read(cls, path: str | Path, corpus: Corpus) -> Neighbours:
        file = Path(path)
        remedy = "make it with `grls prepare neighbours`"
        if not file.is_file():
            raise DataError(f"no such file; {remedy}.", file)
        try:
            with safe_open(file, "numpy") as opened:
                metadata = opened.metadata() or {}
                numbers = opened.get_tensor(_NAME)
        except SafetensorError as error:
            raise DataError(f"expected a file of neighbours ({error}); {remedy}.", file) from None
        if metadata.get("corpus") != corpus.fingerprint:
            raise MismatchError(
                f"{file} holds the neighbours of another corpus, not of {corpus.source}; {remedy}."
            )
        fits = numbers.ndim == 2 and len(numbers) == len(corpus) and numbers.dtype == np.int32
        if fits and numbers.size:
            fits = numbers.min() >= _NONE and numbers.max() < len(corpus)
        if not fits or "by" not in metadata:
            raise DataError(f"these are not numbers of the passages of {corpus.source}; {remedy}.", file)
        return cls(numbers, metadata["by"])

    def write(self, path: str | Path, corpus: Corpus) -> None:
        with atomic_path(path) as temporary:
            save_file({_NAME: self.numbers}, temporary, {"corpus": corpus.fingerprint, "by": self.by})

    def of(self, number: int, most: int | None = None) -> list[int]:
        """At most ``most``, the nearest first."""
        row: list[int] = self.numbers[number, :most].tolist()
        return [other for other in row if other != _NONE]


def copies(corpus: Corpus) -> list[int]:
    """For each passage, the number of the first passage with the same title and text."""
    first: dict[tuple[str, str], int] = {}
    return [first.setdefault((passage.title, passage.text), n) for n, passage in enumerate(corpus)]
