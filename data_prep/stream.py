"""Writes data sets whose corpus is larger than memory: passages as they are read, queries at the end.

Errors in the queries alone are found before the corpus is read, which takes minutes. Errors between queries
and corpus are found after the last passage, and then nothing is left of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from data_prep import common
from grls.data.dataset import Qrels, write_dataset
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.progress import counted

Item = TypeVar("Item")


def finish_stream(
    out: Path,
    passages: Iterable[Passage],
    splits: Callable[[], Mapping[str, Sequence[Query]]],
    tokenizer: Path | None = None,
    grades: Qrels | None = None,
) -> common.Statistics:
    """The same as :func:`data_prep.common.finish`, for a corpus that is too large to hold or to walk twice.

    Args:
        out: Folder to write.
        passages: The corpus; each passage is written as it comes and not kept.
        splits: Returns split -> queries with their evidence; one without a query is not written. It is called
            after the last passage was written, so it may use facts gathered while the passages went by.
        tokenizer: Folder of a Hugging Face tokenizer; None counts whitespace tokens.
        grades: Query id -> passage id -> grade of judged queries; None: the evidence, each with grade 1.

    Raises:
        DataError: A query text stands in two splits, a query has no text, two have one id, or ``passages`` or
            ``splits`` raises it; nothing is left under ``out``.
    """
    tally, qrels = common.Tally(passages, tokenizer), dict[str, Qrels]()

    def late_queries() -> Iterator[Query]:
        # write_dataset asks for queries after the last passage, and for qrels after the last query.
        data = common.dataset([], {name: queries for name, queries in splits().items() if queries})
        common.refuse_faulty(data)
        for name, judged in data.qrels.items():
            qrels[name] = judged if grades is None else {query: grades[query] for query in judged}
        yield from data.queries

    write_dataset(out, tally, late_queries(), qrels)
    numbers = tally.statistics(qrels)
    print(f"{common.describe(numbers)}\n{'written to':<20} {out}")
    return numbers


def without_leaks(
    splits: Mapping[str, Sequence[Item]], text: Callable[[Item], str], drop: bool
) -> dict[str, list[Item]]:
    """The splits with each query text in one split only; called before a large corpus is read.

    Args:
        splits: Split -> its items; a text in two splits stays in the later one.
        text: Returns the query text of an item.
        drop: Leave the earlier items out (and print their number) instead of raising.

    Raises:
        DataError: A text stands in two splits, and ``drop`` is false.
    """
    owner = {common.query_key(text(item)): name for name, items in splits.items() for item in items}
    rest: dict[str, list[Item]] = {name: [] for name in splits}
    leaked: list[tuple[str, str]] = []
    for name, items in splits.items():
        for item in items:
            if owner[common.query_key(text(item))] == name:
                rest[name].append(item)
            else:
                leaked.append((name, text(item)))
    if leaked and not drop:
        name, example = leaked[0]
        raise DataError(
            f"{counted(len(leaked), 'query text stands', 'query texts stand')} in two splits, such as "
            f"{example!r:.80} in {name} and in "
            f"{owner[common.query_key(example)]}; --drop_leaks true leaves them out of the earlier one."
        )
    if leaked:
        print(f"{'left out':<20} {counted(len(leaked), 'query')} whose text stands in a later split")
    return rest


class GoldWatch:
    """Notes which gold passages of queries go by in a corpus.

    Args:
        splits: Split -> queries with their evidence.
    """

    def __init__(self, splits: Mapping[str, Sequence[Query]]):
        self._splits = splits
        self._missing = {p for queries in splits.values() for query in queries for p in query.evidence}

    def watch(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Pass the passages on."""
        for passage in passages:
            self._missing.discard(passage.id)
            yield passage

    def found(self, source: Path, drop: bool) -> dict[str, list[Query]]:
        """The splits after the corpus has gone by; arguments and errors as of :func:`without_missing`."""
        queries = [query for queries in self._splits.values() for query in queries]
        missing = {q.id: sorted(lost) for q in queries if (lost := self._missing.intersection(q.evidence))}
        return without_missing(self._splits, missing, source, drop)


def without_missing(
    splits: Mapping[str, Sequence[Query]], missing: Mapping[str, Sequence[str]], source: Path, drop: bool
) -> dict[str, list[Query]]:
    """The splits without the queries whose gold passages the corpus lacks.

    Args:
        splits: Split -> queries.
        missing: Query id -> names of its missing passages, only for queries with missing passages.
        source: The corpus, for the error.
        drop: Leave these queries out (and print their number) instead of raising.

    Raises:
        DataError: A query of a split has missing passages and ``drop`` is false; or all queries have missing
            passages.
    """
    lost = [query.id for queries in splits.values() for query in queries if query.id in missing]
    if lost and (not drop or len(lost) == sum(map(len, splits.values()))):
        listed = "; ".join(f"{', '.join(map(repr, missing[q]))} of query {q!r}" for q in lost[:5])
        raise DataError(
            f"the gold passages of {counted(len(lost), 'query')} are not there: "
            f"{listed}{'; …' * (len(lost) > 5)}. Take the corpus that the queries were made for, or leave "
            "them out with --drop_missing true.",
            source,
        )
    if lost:
        print(f"{'left out':<20} {counted(len(lost), 'query')} whose gold passages are not in the corpus")
    return {name: [query for query in queries if query.id not in missing] for name, queries in splits.items()}
