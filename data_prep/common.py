"""Functions of all preparations: passages without duplicates, splits by query, statistics.

The module knows the data layout, and no particular data set.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from grls.data.dataset import Qrels, relevant, turns_of, write_dataset
from grls.data.types import Passage, Query
from grls.data.words import plain_words as plain_words
from grls.errors import ConfigError, DataError
from grls.io.progress import counted

Item = TypeVar("Item")
SPLITS = ("train", "dev", "test")

Finder = Callable[[Iterable[str | tuple[str, str]]], tuple[str, ...]]
"""From texts, or (text, title), to passage ids."""


class Passages(Protocol):
    """Passages that can be counted and walked more than once, in memory or not."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Passage]: ...


class Dataset(NamedTuple):
    """A data set before it is written.

    Attributes:
        passages: The corpus.
        queries: All queries of all splits, each with its evidence.
        qrels: Split -> query id -> passage id -> grade.
    """

    passages: Passages
    queries: Sequence[Query]
    qrels: Mapping[str, Qrels]


class Statistics(NamedTuple):
    """The columns of the paper's table 1.

    Attributes:
        corpus_size: Number of passages.
        queries: Split -> number of queries.
        passage_tokens: Mean tokens of a passage, title included.
        tokens: Kind of token: ``whitespace tokens``, or a tokenizer's name.
        steps: Mean gold passages a query, over all splits.
        unseen_rate: Share of the test queries without a gold passage that is gold for a training query, as
            table 1 counts it; None without test or training queries.
        unseen_passages: Share of the test queries' gold passages that are gold for no training query, a
            passage counted once for each test query; None without test or training queries.
    """

    corpus_size: int
    queries: Mapping[str, int]
    passage_tokens: float
    tokens: str
    steps: float
    unseen_rate: float | None
    unseen_passages: float | None


class PassagePool:
    """Collects passages and keeps one of each.

    Ids follow the sorted keys, so the order of the corpus does not reveal gold passages or splits.

    Args:
        key: Two texts with the same key are the same passage; the first text stays.
    """

    def __init__(self, key: Callable[[str], str] = lambda text: " ".join(text.split())):
        self._key = key
        self._texts: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str, title: str = "") -> None:
        """Add a passage unless it is already there."""
        self._texts.setdefault(self._key(f"{title}\n{text}"), (" ".join(text.split()), title))

    def update(self, texts: Iterable[str]) -> None:
        """Add passages without titles."""
        for text in texts:
            self.add(text)

    def passages(self) -> list[Passage]:
        """All passages with their ids."""
        return [Passage(name, *self._texts[key]) for key, name in self._ids().items()]

    def finder(self) -> Finder:
        """A function from texts (or text and title) to passage ids, in order and without repeats.

        The function raises DataError for a text that is not in the pool.
        """
        ids = self._ids()

        def find(texts: Iterable[str | tuple[str, str]]) -> tuple[str, ...]:
            names = []
            for text, title in ((t, "") if isinstance(t, str) else t for t in texts):
                key = self._key(f"{title}\n{text}")
                if key not in ids:
                    titled = f" with the title {title!r:.80}" if title else ""
                    raise DataError(
                        f"the passage {text!r:.80}{titled} is not in the pool: add it, with its title, "
                        "before the finder is made."
                    )
                names.append(ids[key])
            return tuple(dict.fromkeys(names))

        return find

    def _ids(self) -> dict[str, str]:
        return {key: f"p{n:06d}" for n, key in enumerate(sorted(self._texts))}


def holds(text: str, phrase: str) -> bool:
    """Whether the words of ``phrase`` (see :func:`plain_words`) stand in ``text`` in a row."""
    words = plain_words(phrase)
    return bool(words) and f" {words} " in f" {plain_words(text)} "


def query_key(text: str) -> str:
    """A key for query texts: case and white space do not count, signs do (C++ is not C#)."""
    return " ".join(text.casefold().split())


def asked_key(query: Query) -> str:
    """The key of a query's text, and of the conversation before it."""
    return query_key(" ".join(text for turn in (*turns_of(query), [query.text]) for text in turn))


def split(
    items: Sequence[Item],
    ratios: Sequence[float],
    seed: int,
    group: Callable[[Item], Hashable],
) -> list[list[Item]]:
    """Split items at random into parts of these ratios; a group is never split.

    Args:
        items: The items.
        ratios: Shares of the parts; they must add up to 1.
        seed: The same seed gives the same split.
        group: Items with the same value stay together, at least items with the same query text.

    Returns:
        One list a ratio, each in the order of ``items``.

    Raises:
        ConfigError: The ratios do not add up to 1, or a ratio is negative.
    """
    if min(ratios) < 0 or abs(sum(ratios) - 1) > 1e-6:
        raise ConfigError(f"expected ratios of 0 or more that add up to 1, got {list(ratios)}.")
    groups: dict[Hashable, list[int]] = {}
    for n, item in enumerate(items):
        groups.setdefault(group(item), []).append(n)
    shuffled = list(groups.values())
    random.Random(seed).shuffle(shuffled)
    ends = [round(sum(ratios[: i + 1]) * len(items)) for i in range(len(ratios))]
    parts: list[list[int]] = [[] for _ in ratios]
    placed = 0
    for members in shuffled:
        parts[next(i for i, end in enumerate(ends) if placed < end)].extend(members)
        placed += len(members)
    return [[items[n] for n in sorted(part)] for part in parts]


def three_splits(queries: Sequence[Query], ratios: Sequence[float], seed: int) -> dict[str, list[Query]]:
    """Train, dev and test by these ratios; queries of equal text (:func:`query_key`) stand in one split."""
    parts = split(queries, ratios, seed, group=lambda query: query_key(query.text))
    return dict(zip(SPLITS, parts, strict=True))


def refuse_other_than_three(ratios: Sequence[float]) -> None:
    """Refuse ratios that are not those of train, dev and test (ConfigError)."""
    if len(ratios) != 3:
        raise ConfigError(f"expected three ratios (train, dev, test), got {list(ratios)}.")


def dataset(passages: Passages, splits: Mapping[str, Sequence[Query]]) -> Dataset:
    """A data set whose qrels are the evidence of the queries, each with grade 1."""
    qrels = {name: {q.id: dict.fromkeys(q.evidence, 1) for q in queries} for name, queries in splits.items()}
    return Dataset(passages, [q for queries in splits.values() for q in queries], qrels)


def refuse_faulty(data: Dataset) -> None:
    """Refuse queries that could be written and not be read, or that stand in two splits.

    Raises:
        DataError: A query has no text, two have one id, or a query text (:func:`query_key`) stands in two
            splits.
    """
    ids: set[str] = set()
    for query in data.queries:
        if not query.text.strip():
            raise DataError(f"the query {query.id!r} has no text; give it a text, or leave it out.")
        if query.id in ids:
            raise DataError(f"two queries have the id {query.id!r}; give each query an id of its own.")
        ids.add(query.id)
    texts = {query.id: asked_key(query) for query in data.queries}
    first: dict[str, str] = {}
    for name, judged in data.qrels.items():
        for query_id in judged:
            if first.setdefault(texts[query_id], name) != name:
                raise DataError(
                    f"the text of query {query_id!r} stands in {first[texts[query_id]]} and in {name}; "
                    "a query belongs to one split, so drop it from one of the two."
                )


class Tally:
    """Counts passages and their tokens as they go by, for a corpus that is walked once.

    Args:
        passages: The corpus.
        tokenizer: Folder of a Hugging Face tokenizer; None counts whitespace tokens.

    Attributes:
        size: Passages so far.
        total: Number of their tokens, titles included.
    """

    def __init__(self, passages: Iterable[Passage], tokenizer: Path | None = None):
        self._passages = passages
        self._count, self.tokens = _token_counter(tokenizer)
        self.size = self.total = 0

    def __iter__(self) -> Iterator[Passage]:
        for passage in self._passages:
            self.size += 1
            self.total += self._count(f"{passage.title} {passage.text}".strip())
            yield passage

    def statistics(self, qrels: Mapping[str, Qrels]) -> Statistics:
        """The statistics of a data set with these qrels, after the corpus was walked."""
        gold = {name: [relevant(grades) for grades in judged.values()] for name, judged in qrels.items()}
        steps = [len(passages) for queries in gold.values() for passages in queries]
        seen = {p for passages in gold.get("train", []) for p in passages}
        judged = [passages for passages in gold.get("test", []) if passages]
        test = [p for passages in judged for p in passages]
        return Statistics(
            corpus_size=self.size,
            queries={name: len(judged) for name, judged in qrels.items()},
            passage_tokens=self.total / max(self.size, 1),
            tokens=self.tokens,
            steps=sum(steps) / max(len(steps), 1),
            unseen_rate=sum(map(seen.isdisjoint, judged)) / len(judged) if seen and judged else None,
            unseen_passages=sum(p not in seen for p in test) / len(test) if seen and test else None,
        )


def statistics(data: Dataset, tokenizer: Path | None = None) -> Statistics:
    """The statistics, in one pass over the corpus; ``tokenizer``: see :class:`Tally`."""
    tally = Tally(data.passages, tokenizer)
    deque(tally, maxlen=0)
    return tally.statistics(data.qrels)


def _token_counter(folder: Path | None) -> tuple[Callable[[str], int], str]:
    if folder is None:
        return (lambda text: len(text.split())), "whitespace tokens"
    # Imported here, because the import takes seconds and most preparations do not need it.
    from grls.models.load.opening import open_tokenizer, opening_errors

    with opening_errors("a tokenizer", folder, "Expected a folder with a Hugging Face tokenizer."):
        tokenizer = open_tokenizer(folder, local_files_only=True)
    return (lambda text: len(tokenizer.tokenize(text))), f"tokens of {Path(folder).name}"


def describe(numbers: Statistics) -> str:
    """The statistics as lines to print."""
    queries, passages = (
        "-" if share is None else f"{share:.1%}" for share in (numbers.unseen_rate, numbers.unseen_passages)
    )
    rows = [
        ("corpus size", f"{counted(numbers.corpus_size, 'passage')}"),
        ("queries", ", ".join(f"{count:,} {name}" for name, count in numbers.queries.items())),
        ("mean passage length", f"{numbers.passage_tokens:.1f} {numbers.tokens}"),
        ("mean steps", f"{numbers.steps:.2f} gold passages a query"),
        ("unseen rate", f"{queries} of the test queries have no gold passage that is gold in training"),
        ("unseen passages", f"{passages} of the test gold passages are gold for no training query"),
    ]
    return "\n".join(f"{name:<20} {value}" for name, value in rows)


def finish(out: Path, data: Dataset, tokenizer: Path | None = None) -> Statistics:
    """Check the queries, write the data set, print its statistics; a split without a query is not written.

    Raises:
        DataError: A query text stands in two splits, a query has no text, or two have one id.
        ConfigError: The tokenizer is missing.
        WriteError: The folder cannot be written; nothing is left under its name.
    """
    refuse_faulty(data)
    numbers = statistics(data, tokenizer)
    qrels = {name: judged for name, judged in data.qrels.items() if judged}
    write_dataset(out, data.passages, data.queries, qrels)
    print(f"{describe(numbers)}\n{'written to':<20} {out}")
    empty = [name for name in data.qrels if name not in qrels]
    if empty:
        print(f"{'no query in':<20} {', '.join(empty)}: not written")
    return numbers


def compare(numbers: Statistics, published: Mapping[str, int], **further: int) -> None:
    """Print a warning for each number of a data set that differs from the published one.

    Args:
        numbers: Of the data set that was written.
        published: ``passages``, ``test queries`` and the like, or a name of ``further`` -> published number.
        **further: Further numbers, such as the records of a file before the split.
    """
    counts = {f"{name} queries": count for name, count in numbers.queries.items()}
    counts |= {"passages": numbers.corpus_size, **further}
    for name, expected in published.items():
        if counts.get(name, 0) != expected:
            print(f"{'warning':<20} {name}: {counts.get(name, 0):,} here, {expected:,} are published")


def metadata(**values: object) -> str:
    """The metadata of a query as JSON text."""
    return json.dumps(values, ensure_ascii=False)


def field(record: Any, key: str, kind: type[Item], file: Path, line: int | str) -> Item:
    """A value of a raw record, checked.

    Args:
        record: The record; what is no object has no key.
        key: The required key.
        kind: The required type; a string or list must not be empty.
        file: The file, for the error.
        line: The line, or the label of the record in a file without lines, for the error.

    Raises:
        DataError: The key is missing or its value is of another type or empty.
    """
    known = record if isinstance(record, Mapping) else {}
    value = known.get(key)
    if (
        isinstance(value, kind)
        and value not in ([], {})
        and not (isinstance(value, str) and not value.strip())
    ):
        return value
    got = "the key is missing" if key not in known else f"got {value!r:.80}"
    raise fault(f"expected {key!r} to be a non-empty {kind.__name__}, {got}.", file, line)


def fault(text: str, file: Path, line: int | str) -> DataError:
    """The error of a raw record; ``line`` as in :func:`field`."""
    return DataError(text, file, line) if isinstance(line, int) else DataError(f"{line}: {text}", file)


def strings(record: Mapping[str, Any], key: str, file: Path, line: int | str) -> list[str]:
    """A non-empty list of non-blank strings in a raw record; raises as :func:`field` does."""
    values: list[Any] = field(record, key, list, file, line)
    return [field({key: value}, key, str, file, line) for value in values]
