"""The metadata of a corpus by field, so that a filter does not read all metadata again.

A field that a filter names becomes a column: a small code per passage, and the values that the codes stand
for; each value is compared once. Columns and results of filters are cached up to a number of bytes; the least
recently used go first. They never grow stale, since a corpus does not change. Threads may share the columns.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grls.data.where import Expression, FieldComparison, Mask
from grls.errors import ConfigError
from grls.io.arguments import short_repr

if TYPE_CHECKING:
    from grls.data.corpus_table import PassageTable

MOST_BYTES = 256 * 2**20
"""The most bytes of columns and results that a corpus keeps."""
MOST_VALUES = 2**20
"""The most different values of a column. A field with more is read by each new filter."""
_ROWS = 50_000
"""How many passages are read together."""
_FILTER_BYTES = 1024
"""Bytes of a filter beside its result."""

Codes = npt.NDArray[np.unsignedinteger[Any]]


class FieldColumn(NamedTuple):
    """One field of all passages: ``codes [n]`` are indexes into ``values``.

    The values differ; the first is None, of passages that lack the field.
    """

    codes: npt.NDArray[Any]
    values: list[Any]

    def mask(self, comparison: FieldComparison) -> Mask:
        holds = np.fromiter(map(comparison.accepts, self.values), dtype=bool, count=len(self.values))
        allowed: Mask = holds[self.codes]
        return allowed

    @property
    def size(self) -> int:
        return self.codes.nbytes + sum(8 + sys.getsizeof(value) for value in self.values)


class MetadataColumns:
    def __init__(self, table: PassageTable, most: int = MOST_BYTES):
        self._table = table
        self._most = most
        self._cache = _Cache(most)
        self._reading = Lock()
        self._fields: frozenset[str] | None = None  # of all passages; None: not read yet
        self._large: set[str] = set()  # fields that are too large for a column

    def __reduce__(self) -> tuple[type[MetadataColumns], tuple[PassageTable, int]]:
        """Locks do not travel to another process, nor what can be read again."""
        return MetadataColumns, (self._table, self._most)

    def allowed(self, expression: Expression, source: str = "corpus") -> npt.NDArray[np.int64]:
        """Ascending numbers of the passages for which a filter holds.

        Refuses (ConfigError) a field that no passage has, and an order that no value of a field can have.
        """
        bits = self._cache.get(expression)
        if bits is None:
            with self._reading:  # one thread reads, the others find the result in the cache
                bits = self._cache.get(expression)
                if bits is None:
                    # Comparisons that have met no value that they compare with -> one that they have met.
                    unlike: dict[FieldComparison, Any] = dict.fromkeys(expression.comparisons())
                    names = list(dict.fromkeys(comparison.field for comparison in unlike))
                    columns = self._columns(names, source)
                    masks = [np.empty(0, dtype=bool)]
                    for part in self._parts(names) if columns is None else [columns]:
                        masks.append(part_mask(expression, part))
                        for comparison in [*unlike]:
                            values = [v for v in part[comparison.field].values if v not in (None, [])]
                            if any(map(comparison.compares, values)):
                                del unlike[comparison]
                            elif values and unlike[comparison] is None:
                                unlike[comparison] = values[0]
                    for comparison, example in unlike.items():
                        if example is not None:
                            raise _incomparable(comparison, example, source)
                    bits = np.packbits(np.concatenate(masks))
                    self._cache.put(expression, bits, bits.nbytes + _FILTER_BYTES)
        return np.flatnonzero(np.unpackbits(bits, count=len(self._table)))

    def _columns(self, names: list[str], source: str) -> dict[str, FieldColumn] | None:
        """None if a field is too large for a column."""
        columns = {name: self._cache.get(name) for name in names}
        missing = [name for name in names if columns[name] is None]
        known = self._fields is None or self._fields.issuperset(names)
        if missing and known and not self._large & set(names):
            read, self._fields = self._read(missing)
            self._keep(read)
            columns.update(read)
        for name in missing:
            if name not in (self._fields or ()):
                fields = ", ".join(sorted(self._fields or ()))
                there = f"the fields are {fields}" if fields else "there is no metadata"
                raise ConfigError(f"no passage of {source} has the metadata field {name!r}: {there}.")
        return None if None in columns.values() else columns

    def _parts(self, names: list[str]) -> Iterator[dict[str, FieldColumn]]:
        """The columns of fields by batches of passages, where a column of the corpus would be too large."""
        for objects, rows in self._batches():
            yield {name: FieldColumn(rows, [entry.get(name) for entry in objects]) for name in names}

    def _keep(self, columns: dict[str, FieldColumn | None]) -> None:
        for name, column in columns.items():
            if name not in (self._fields or ()):
                continue
            if column is None or not self._cache.put(name, column, column.size):
                self._large.add(name)

    def _read(self, names: list[str]) -> tuple[dict[str, FieldColumn | None], frozenset[str]]:
        """The columns of fields (None: too many values), and the names of all fields."""
        coders = {name: _Coder() for name in names}
        fields: set[str] = set()
        for objects, rows in self._batches():
            fields.update(*objects)
            for name, coder in coders.items():
                coder.add([entry.get(name) for entry in objects], rows)
        return {name: coder.column() for name, coder in coders.items()}, frozenset(fields)

    def _batches(self) -> Iterator[tuple[list[dict[str, Any]], npt.NDArray[np.int64]]]:
        """The different metadata of each batch of passages, and for each passage its index among them."""
        texts = self._table.data.column("metadata")
        for first in range(0, len(texts), _ROWS):
            encoded = texts.slice(first, _ROWS).combine_chunks().dictionary_encode()
            rows = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            yield [json.loads(text) for text in encoded.dictionary.to_pylist()], rows


def _incomparable(comparison: FieldComparison, value: Any, source: str) -> ConfigError:
    begin, text = f"{comparison.field}{comparison.operator}", comparison.values[0].text
    example = value[0] if isinstance(value, list) else value
    remedy = "such values have no order; use = or !="
    if isinstance(example, str):
        remedy = f"quote the value, which is text then: {begin}'{text}'"
    elif isinstance(example, int | float) and not isinstance(example, bool):
        remedy = f"give a number without quotes, as in {begin}{example}"
    return ConfigError(
        f"the filter {begin}{text} can hold for no passage of {source}: the field has values such as "
        f"{short_repr(example)}, which are neither above nor below {text}; {remedy}."
    )


def part_mask(expression: Expression, columns: Mapping[str, FieldColumn]) -> Mask:
    return expression.mask(lambda comparison: columns[comparison.field].mask(comparison))


class _Coder:
    def __init__(self) -> None:
        self._values: list[Any] = [None]
        self._codes: list[Codes] = [np.empty(0, dtype=np.uint8)]
        self._code_of = {_key(None): 0}

    def add(self, values: Sequence[Any], rows: npt.NDArray[np.int64]) -> None:
        """Values of the field, and for each added passage the index of its value."""
        if len(self._values) > MOST_VALUES:
            return
        codes = np.empty(len(values), dtype=np.uint32)
        for number, value in enumerate(values):
            codes[number] = self._code_of.setdefault(_key(value), len(self._values))
            if codes[number] == len(self._values):
                self._values.append(value)
        self._codes.append(codes[rows].astype(np.min_scalar_type(int(codes.max(initial=0)))))

    def column(self) -> FieldColumn | None:
        """None if there are too many values."""
        if len(self._values) > MOST_VALUES:
            return None
        return FieldColumn(np.concatenate(self._codes), self._values)


def _key(value: Any) -> tuple[type, Any]:
    """Equal for equal values of one type: 1, 1.0 and true differ."""
    return type(value), json.dumps(value) if isinstance(value, list | dict) else value


class _Cache:
    """Values by key, up to a number of bytes; the least recently used value goes first."""

    def __init__(self, most: int):
        self._most = most
        self._bytes = 0
        self._entries: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Any, value: Any, size: int) -> bool:
        """Cache a value, unless it takes more than half of all bytes; returns whether it does not."""
        if size > self._most // 2:
            return False
        with self._lock:
            self._bytes += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, size)
            while self._bytes > self._most:
                self._bytes -= self._entries.popitem(last=False)[1][1]
        return True
