"""Which passages of a corpus are near to which: a file that memorisation and chains of passages read.

How near is judged elsewhere (:mod:`grls.retrieve.neighbours`). One safetensors file holds the matrix of
passage numbers and, as its metadata, the corpus it belongs to and what judged.
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
    """The passages near to each passage of a corpus.

    Args:
        numbers: ``[N, k]`` passage numbers, the nearest first; -1 where there are fewer than k.
        by: What judged, as ``bm25``.
    """

    numbers: Numbers
    by: str

    @classmethod
    def of_lists(cls, lists: list[list[int]], k: int, by: str) -> Neighbours:
        """From a list of at most k passage numbers for each of N passages."""
        numbers = np.full((len(lists), k), _NONE, dtype=np.int32)
        for row, some in enumerate(lists):
            numbers[row, : len(some)] = some
        return cls(numbers, by)

    @classmethod
    def read(cls, path: str | Path, corpus: Corpus) -> Neighbours:
        """Read what :meth:`write` wrote for this corpus.

        Raises:
            DataError: There is no such file, or it is another one.
            MismatchError: It belongs to another corpus.
        """
        file = Path(path)
        remedy = "make it with `grls prepare neighbours`"
        if not file.is_file():
            raise DataError(f"no such file; {remedy}.", file)
        try:
            with safe_open(file, "numpy") as opened:
                about = opened.metadata() or {}
                numbers = opened.get_tensor(_NAME)
        except SafetensorError as error:
            raise DataError(f"expected a file of neighbours ({error}); {remedy}.", file) from None
        if about.get("corpus") != corpus.fingerprint:
            raise MismatchError(
                f"{file} has the neighbours of another corpus than {corpus.source}; {remedy}."
            )
        return cls(numbers, about["by"])

    def write(self, path: str | Path, corpus: Corpus) -> None:
        """Write them, atomically, as those of ``corpus``."""
        with atomic_path(path) as temporary:
            save_file({_NAME: self.numbers}, temporary, {"corpus": corpus.fingerprint, "by": self.by})

    def of(self, number: int, most: int | None = None) -> list[int]:
        """The passages near to one, the nearest first, at most so many; none where it has none."""
        row: list[int] = self.numbers[number, :most].tolist()
        return [other for other in row if other != _NONE]


def copies(corpus: Corpus) -> list[int]:
    """For each passage the number of the first one with its title and text."""
    first: dict[tuple[str, str], int] = {}
    return [first.setdefault((passage.title, passage.text), n) for n, passage in enumerate(corpus)]
