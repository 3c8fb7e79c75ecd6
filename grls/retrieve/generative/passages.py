"""The passages of a generative retriever: corpus and index together, with changes in place.

Passages can be removed from every search, and added after the others, without building the index again. No
model is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.spans import Spans
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index import ConstraintIndex, Segment, Subset, UnionIndex
from grls.index.array import ArrayIndex
from grls.index.build import build_segment
from grls.index.merge import merge
from grls.index.ranges.ranged import RangedIndex
from grls.index.rows import Ints
from grls.io.progress import Progress
from grls.retrieve.queries import reachable


class IndexedPassages:
    """A corpus and its constraint index.

    Args:
        codec: Text to tokens.
        corpus: The passages; passage n of the index is passage n here.
        index: The constraint index of that corpus (or of its spans), DONE last.
        removed: Numbers of removed passages, which no search returns.
        spans: The spans that the index holds; None: it holds whole passages.
    """

    def __init__(
        self,
        codec: Codec,
        corpus: Corpus,
        index: ConstraintIndex,
        removed: Collection[int] = (),
        spans: Spans | None = None,
    ):
        self.codec = codec
        self.spans = spans
        self.corpus = corpus
        self.index = index
        self.removed = frozenset(removed)
        self._live: Subset | None = None
        self._complete()

    def sequences(self, passages: Sequence[int]) -> list[TokenIds]:
        """The token sequences of passages, title and text."""
        if self.spans is None:
            return [self.index.tokens(passage) for passage in passages]
        return self.codec.passages(self.corpus.passages(passages))

    def evidence(self, question: str, passages: Sequence[int]) -> list[TokenIds]:
        """The token sequences of evidence in a model input for a question."""
        if not self.codec.limits.evidence:
            return self.sequences(passages)
        return self.codec.excerpts(question, self.corpus.passages(passages))

    def invariants(self, folder: Path) -> Iterator[tuple[str, Path, Callable[[], object]]]:
        """See :class:`~grls.retrieve.base.ChecksFolder`."""
        yield (
            "the index holds the passages of corpus.jsonl",
            folder,
            lambda: self._refuse_other_tokens(folder),
        )

    def _refuse_other_tokens(self, folder: Path) -> None:
        """Refuse an index (MismatchError) whose sequences are not those of the passages, and DONE."""
        listed, rows, number = self.spans or self.corpus, self.index.rows, 0
        done = [self.codec.done_sequence]
        with Progress(len(self.index), "compare", "passages", shown=None) as bar:
            for batch in chain(map(self.codec.passages, listed.batches()), [done]):
                for sequence in batch:
                    held = rows.row(int(rows.row_of[number]))
                    due = sequence if rows.form == "whole" else sequence[: len(held)]
                    if not np.array_equal(held, due):
                        raise MismatchError(
                            f"{folder}: the index holds other tokens for number {number} than corpus.jsonl; "
                            "make it again with `grls index`."
                        )
                    number += 1
                bar.update(len(batch))

    @property
    def done(self) -> int:
        """The passage number of DONE."""
        return len(self.corpus)

    def remove(self, ids: Sequence[str], adding: bool = False) -> None:
        """Remove passages from every search; saving the retriever keeps the change.

        Nothing is rebuilt. The passages stay in corpus and index until :meth:`merge`.

        Args:
            ids: Their ids.
            adding: Whether passages are added next, so that none may be left.

        Raises:
            DataError: An id is unknown, or its passage is removed already.
            ConfigError: No passage would be left.
        """
        gone = set(self.removed)
        for name, number in zip(ids, self.corpus.numbers(ids), strict=True):
            if number is None or number in self.removed:
                why = "is not in the corpus" if number is None else "is removed already"
                raise DataError(f"the passage {name!r} {why}, so it cannot be removed.", self.corpus.source)
            gone.add(number)
        if len(gone) == len(self.corpus) and not adding:
            raise ConfigError("the last passage cannot be removed: nothing would be left to retrieve.")
        self._change(self.corpus, self.index, gone, self.spans)

    def add(self, passages: Iterable[Passage] | Corpus) -> None:
        """Add passages to every search; saving the retriever keeps the change.

        They go into a second segment of the index; the first one does not change until :meth:`merge`, which
        is done first where an added passage has the id of a removed one: so an id stands for one passage.
        The model has not memorised the new passages, so it may score them lower.

        Raises:
            DataError: There is no passage, or an id is reserved, used twice or taken.
            ConfigError: The index holds only unique prefixes, or a passage is too long for the model.
        """
        self._segments()[0].rows.refuse_prefixes("adding passages", decoding=False)
        new = (
            passages if isinstance(passages, Corpus) else Corpus.from_passages(passages, "the added passages")
        )
        if self.removed.intersection(self.corpus.numbers(new.ids(range(len(new))))):
            self.merge()
        base, added = self._segments()
        written = None if self.spans is None else Spans(new, self.spans.words)
        segment = build_segment(written or new, self.codec, base.backend, added)
        corpus = self.corpus.extended(new)
        spans = None if self.spans is None or written is None else self.spans.extended(written, corpus)
        self._change(corpus, UnionIndex(base, segment), self.removed, spans)

    def merge(self) -> None:
        """Merge the index into one segment, and drop removed passages from corpus and index.

        Linear in the number of tokens: no sequence is sorted or tokenised again, and the result is that of
        ``grls index``. Passages keep their order, with added passages last.
        """
        if not self.removed and isinstance(self.index, Segment):
            return
        keep = np.ones(len(self.index), dtype=bool)
        keep[self.numbers(sorted(self.removed))] = False
        index, corpus, spans = merge(self.index, keep), self.corpus, self.spans
        if self.removed:
            left = np.setdiff1d(np.arange(len(corpus)), sorted(self.removed))
            corpus = corpus.select(left.tolist())
            spans = None if spans is None else spans.select(left, corpus)
        self._change(corpus, index, (), spans)

    def numbers(self, passages: Sequence[int] | Ints) -> Ints:
        """The numbers of passages (or DONE) in the index: those of their spans where it holds spans."""
        return np.asarray(passages, dtype=np.int64) if self.spans is None else self.spans.of(passages)

    def subsets(self, queries: Sequence[Query], allow: Allow) -> list[Subset | None]:
        """The part of the index that each query may retrieve, DONE included; None: everything.

        Queries with equal filters share one subset, which is made once.
        """
        within = reachable(queries, allow, self.corpus, self.removed)
        rows = self.index.rows
        made = [Subset(rows, self.numbers(np.append(numbers, self.done))) for numbers in within.sets]
        return [self._everything() if place is None else made[place] for place in within.places]

    def _segments(self) -> tuple[Segment, Segment | None]:
        """The first segment of the index, and the second one; None: it has none."""
        if isinstance(self.index, UnionIndex):
            return self.index.base, self.index.added
        if not isinstance(self.index, Segment):
            raise ConfigError(
                "an index that is cut into prefix ranges can neither be saved nor be added to: change the "
                "retriever it was cut from (`grls index split`), and cut that one again."
            )
        return self.index, None

    def _everything(self) -> Subset | None:
        """The part of the index for a search without a filter; None where nothing is removed."""
        if self.removed and self._live is None:
            gone = self.numbers(sorted(self.removed))
            live = np.setdiff1d(np.arange(len(self.index)), gone, assume_unique=True)
            self._live = Subset(self.index.rows, live)
        return self._live

    def _change(
        self, corpus: Corpus, index: ConstraintIndex, removed: Collection[int], spans: Spans | None
    ) -> None:
        """Replace corpus, index, removed passages and spans."""
        self.corpus, self.index, self.removed, self.spans = corpus, index, frozenset(removed), spans
        self._live = None
        self._complete()

    def _complete(self) -> None:
        """Let an index of unique prefixes take whole passages from the corpus."""
        if self.index.rows.form == "prefixes" and isinstance(self.index, ArrayIndex | RangedIndex):
            self.index.complete = self._sequence

    def _sequence(self, number: int) -> Ints:
        """The whole token sequence of number ``number`` in the index, from its text."""
        listed = self.corpus if self.spans is None else self.spans
        if number == len(listed):
            return self.codec.done_sequence
        return self.codec.passages(listed.passages([number]))[0]
