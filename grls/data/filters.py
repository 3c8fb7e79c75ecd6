"""Which passages a query may find: filters over ids and over the corpus' metadata.

A filter is a plain immutable value that yields passage numbers. Equal filters are one filter, which is
evaluated once for all its queries.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.where import Expression, parse_filter
from grls.errors import ConfigError, DataError
from grls.io.files import named_lines
from grls.io.progress import counted

Numbers = npt.NDArray[np.int64]
"""Passage numbers, ascending."""


class Filter(ABC):
    """Which passages of a corpus may be found."""

    @abstractmethod
    def numbers(self, corpus: Corpus) -> Numbers:
        """The numbers of the allowed passages.

        Raises:
            DataError: The filter names a passage that the corpus does not hold.
            ConfigError: The filter names a metadata field that no passage has.
        """


@dataclass(frozen=True)
class Only(Filter):
    """Passages by their ids."""

    passages: frozenset[str]

    def numbers(self, corpus: Corpus) -> Numbers:
        ids = list(self.passages)
        numbers = corpus.numbers(ids)
        if None in numbers:
            name = min(name for name, number in zip(ids, numbers, strict=True) if number is None)
            raise DataError(
                f"allow: a filter names the passage id {name!r}, which is not in {corpus.source}; correct "
                "or remove the id."
            )
        return np.sort(np.array(numbers, dtype=np.int64))


@dataclass(frozen=True)
class Where(Filter):
    """Passages whose metadata match an expression. Make it with :func:`where`."""

    expression: Expression

    def numbers(self, corpus: Corpus) -> Numbers:
        return corpus.columns.allowed(self.expression, corpus.source)


@dataclass(frozen=True)
class Matching(Filter):
    """Passages whose metadata a function accepts. Two filters with the same function are equal."""

    accepts: Callable[[Mapping[str, Any]], bool]

    def numbers(self, corpus: Corpus) -> Numbers:
        allowed = [number for number, metadata in enumerate(corpus.metadata()) if self.accepts(metadata)]
        return np.array(allowed, dtype=np.int64)


@dataclass(frozen=True)
class AllOf(Filter):
    """Passages that all of several filters, at least one, allow."""

    filters: tuple[Filter, ...]

    def numbers(self, corpus: Corpus) -> Numbers:
        allowed = self.filters[0].numbers(corpus)
        for part in self.filters[1:]:
            allowed = np.intersect1d(allowed, part.numbers(corpus), assume_unique=True)
        return allowed


@dataclass(frozen=True, eq=False)
class Numbered(Filter):
    """Passages by their numbers, ``[n]`` ascending: the result of evaluating another filter."""

    passages: Numbers

    def numbers(self, corpus: Corpus) -> Numbers:
        return self.passages


Allow = Filter | Collection[str] | Sequence[Filter | Collection[str] | None] | None
"""The allowed passages: one filter or passage ids for all queries, or one entry (or None) per query."""


def where(text: str) -> Where:
    """A filter over metadata, such as ``year>=2000 and (lang=de|fr or not open=true)``.

    The grammar is that of :mod:`grls.data.where`; a ConfigError names the column of what does not follow it.
    """
    if not isinstance(text, str):
        raise ConfigError(f"a filter over metadata is a text such as 'year>=2000 and lang=de', got {text!r}.")
    return Where(parse_filter(text))


def one_each(allow: Allow, queries: int) -> list[Filter | None]:
    if allow is None or isinstance(allow, Filter):
        return [allow] * queries
    if isinstance(allow, str):
        raise ConfigError(f"allow takes passage ids as a list or set, got the text {allow!r}.")
    entries: list[Any] = list(allow)
    if isinstance(allow, (set, frozenset)) or all(isinstance(entry, str) for entry in entries):
        return [Only(frozenset(entries))] * queries if entries or queries else []
    if len(entries) != queries:
        raise ConfigError(
            f"allow has {counted(len(entries), 'entry')} for {counted(queries, 'query')}; give one a query."
        )
    filters: list[Filter | None] = []
    for entry in entries:
        if entry is None or isinstance(entry, Filter):
            filters.append(entry)
            continue
        ids = frozenset(entry) if isinstance(entry, Collection) and not isinstance(entry, str) else None
        if ids is None or not all(isinstance(passage, str) for passage in ids):
            raise ConfigError(f"expected a filter or passage ids for each query, got {entry!r}.")
        filters.append(Only(ids))
    return filters


def resolved(filters: Sequence[Filter | None], corpus: Corpus) -> list[Filter | None]:
    """The same filters as :class:`Numbered`; each is evaluated once."""
    given = dict.fromkeys(each for each in filters if each is not None)
    numbered = {each: Numbered(each.numbers(corpus)) for each in given}
    return [None if each is None else numbered[each] for each in filters]


@dataclass(frozen=True)
class FilterOptions:
    """Which passages queries may find; a passage must pass all filters, which hold in every hop.

    Args:
        allow: A file of the allowed passages.
        where: A filter over the metadata of passages.
        queries: Also apply the filters in the metadata of each query.
    """

    allow: str | None = None
    where: str | None = None
    queries: bool = False

    @property
    def record(self) -> dict[str, str | bool]:
        """The options that are set."""
        options = {"allow": self.allow, "where": self.where, "query_filters": self.queries or None}
        return {name: value for name, value in options.items() if value is not None}


def filters_of(options: FilterOptions, queries: Sequence[Query]) -> list[Filter | None]:
    none: list[Filter | None] = [None] * len(queries)
    by_file = none if options.allow is None else read_allowed(options.allow, queries)
    for_all = None if options.where is None else where(options.where)
    by_metadata = own_filters(queries) if options.queries else none
    return [both(*filters, for_all) for filters in zip(by_file, by_metadata, strict=True)]


def read_allowed(file: str | Path, queries: Sequence[Query]) -> list[Filter | None]:
    """Allowed passages from a file: one passage id a line for all queries, or ``query-id <tab> passage-id``.

    With query ids, each of the queries needs a line; lines of other queries are ignored.
    """
    path = Path(file)
    lines = named_lines(path, "a passage id a line, or query-id <tab> passage-id")
    rows = [(line, text.split("\t")) for line, text in lines]
    width = len(rows[0][1])
    for line, fields in rows:
        if len(fields) != width or width > 2 or not all(fields):
            raise DataError(
                "expected a passage id a line, or query-id <tab> passage-id on every line; got "
                f"{chr(9).join(fields)!r}.",
                path,
                line,
            )
    if width == 1:
        return [Only(frozenset(fields[0] for _, fields in rows))] * len(queries)
    allowed: dict[str, set[str]] = {}
    for _, (name, passage) in rows:
        allowed.setdefault(name, set()).add(passage)
    for query in queries:
        if query.id not in allowed:
            raise DataError(
                f"no line allows a passage to query {query.id!r}; with query ids in the file every query "
                "needs a line.",
                path,
            )
    return [Only(frozenset(allowed[query.id])) for query in queries]


def own_filters(queries: Sequence[Query]) -> list[Filter | None]:
    """The filter in each query's metadata: ``allow`` (a list of passage ids) and ``where`` (a text)."""
    filters: list[Filter | None] = []
    for query in queries:
        metadata = json.loads(query.metadata)
        ids, text = metadata.get("allow"), metadata.get("where")
        if ids is not None and (
            not isinstance(ids, list) or not all(isinstance(passage, str) for passage in ids)
        ):
            raise DataError(f"query {query.id!r}: expected metadata.allow to be a list of ids, got {ids!r}.")
        if text is not None and not isinstance(text, str):
            raise DataError(f"query {query.id!r}: expected metadata.where to be a text, got {text!r}.")
        only = None if ids is None else Only(frozenset(ids))
        try:
            filters.append(both(only, None if text is None else where(text)))
        except ConfigError as error:
            raise DataError(f"query {query.id!r}, metadata.where: {error.text}") from None
    return filters


def both(*filters: Filter | None) -> Filter | None:
    """A filter that allows what all of the filters allow; None stands for no filter."""
    parts = [each for each in filters if each is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    return AllOf(tuple(parts))
