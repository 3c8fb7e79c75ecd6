"""Changes of the passages of a retriever: which are removed, and which are added behind the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Numbers
from grls.errors import ConfigError, DataError
from grls.io.listed import list_texts
from grls.retrieve.queries import check_counts


@dataclass(frozen=True)
class Changes:
    """Changes of a corpus, and how the added passages are encoded.

    Args:
        add: Passages to add, behind the others; None: none.
        remove: Ids of passages to remove, before others are added.
        merge: Merge the index of a generative retriever; others have nothing to merge.
        device: Where added passages are encoded.
        batch_size: Passages encoded together.

    Raises:
        ConfigError: ``batch_size`` is below 1.
    """

    add: Corpus | None = None
    remove: Sequence[str] = ()
    merge: bool = False
    device: str = "auto"
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_counts(batch_size=self.batch_size)
        list_texts(self, "remove")

    def over(self, corpus: Corpus) -> ChangedCorpus:
        """The corpus after the changes.

        Raises:
            ConfigError: No passage would be left.
            DataError: A passage to remove is not in the corpus, or the id of an added one is taken.
        """
        kept = self._kept(corpus)
        changed = corpus.select(kept.tolist()) if self.remove else corpus
        changed.source = corpus.source
        if self.add is not None:
            changed = changed.extended(self.add)
        if not len(changed):
            raise ConfigError("the last passage cannot be removed: nothing would be left to retrieve.")
        return ChangedCorpus(changed, kept)

    def _kept(self, corpus: Corpus) -> Numbers:
        """The numbers of the passages that stay, ascending."""
        keep = np.ones(len(corpus), dtype=bool)
        for name, number in zip(self.remove, corpus.numbers(list(self.remove)), strict=True):
            if number is None:
                raise DataError(
                    f"the passage {name!r} is not in the corpus, so it cannot be removed.", corpus.source
                )
            keep[number] = False
        return np.flatnonzero(keep)


class ChangedCorpus(NamedTuple):
    """A corpus after changes.

    Attributes:
        corpus: The passages.
        kept: Their numbers before; the added passages follow and had none.
    """

    corpus: Corpus
    kept: Numbers


class ChangedCount(NamedTuple):
    """The passages of a folder after changes.

    Attributes:
        found: Number of passages that searches find.
        removed: Number of passages that were removed and are in the index until it is merged.
    """

    found: int
    removed: int = 0
