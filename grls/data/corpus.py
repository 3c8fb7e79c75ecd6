"""The passages of a data set: reads and checks them, looks them up by number or id, and writes them.

``corpus.jsonl`` holds one object a line: ``{"_id", "title", "text", "metadata"}``. The passages are in an
Arrow table (:mod:`grls.data.corpus_table`), which may be larger than memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from grls.data.codec import DONE_ID
from grls.data.columns import MetadataColumns
from grls.data.corpus_table import (
    BATCH,
    COLUMNS,
    Facts,
    PassageTable,
    arrow_numbers,
    arrow_strings,
    as_passages,
    metadata_fingerprint,
    metadata_texts,
    passage_batches,
    read_table,
    table_of,
    texts_fingerprint,
)
from grls.data.types import Passage, PassageMetadata
from grls.errors import ConfigError, DataError
from grls.io.arguments import checked, fitted_argument, is_whole_text
from grls.io.files import atomic_file, near_name
from grls.io.jsonl import write_line
from grls.io.progress import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from grls.data.links import Links

_RESERVED = f"the passage id {DONE_ID!r} is reserved: it ends a chain of passages; rename that passage."


class Corpus:
    """An ordered collection of passages; the *number* of a passage is its row, from 0.

    Make a corpus with :meth:`read` or :meth:`from_passages`.

    Args:
        table: Columns ``_id, title, text, metadata``, all strings.
        source: The name of the source, for error texts.
        facts: Facts about the table that are known already.
    """

    def __init__(self, table: PassageTable, source: str = "corpus", facts: Facts | None = None):
        self.table = table
        self.source = source
        self._facts = facts or {}

    @classmethod
    @checked
    def read(cls, path: str | Path) -> Corpus:
        """Read ``corpus.jsonl`` (or the data set folder that holds it).

        Raises:
            DataError: The file is missing, empty or malformed (the error names the line), or an id is
                repeated or reserved.
        """
        file = corpus_file(path)
        if not file.is_file():
            raise DataError(
                "no such file; a corpus is a JSONL file or a folder with corpus.jsonl, which `grls prepare "
                f"texts` makes of documents{near_name(path)}",
                file,
            )
        table, facts = read_table(file)
        corpus = cls(table, str(file), facts)
        if not len(corpus):
            raise DataError("the corpus is empty; expected one JSON object a line.", file)
        import pyarrow.compute as pc

        # Not by `numbers`, which would hash all ids.
        if pc.any(pc.is_in(corpus._ids, value_set=arrow_strings([DONE_ID]))).as_py():
            raise DataError(_RESERVED, file)
        return corpus

    @classmethod
    @checked
    def from_passages(
        cls,
        passages: Iterable[Passage],
        source: str = "corpus",
        metadata: Iterable[Mapping[str, Any]] | None = None,
    ) -> Corpus:
        """A corpus in memory.

        Args:
            passages: The passages.
            source: The name of the source, for error texts.
            metadata: One object per passage; None: no metadata.

        Raises:
            DataError: An id, title or text is no string, or holds half of a surrogate pair; an id is empty,
                reserved or used twice; metadata are not as many as passages, or JSON cannot hold them (NaN).
        """
        entries = list(passages)
        objects = [{} for _ in entries] if metadata is None else list(metadata)
        if len(objects) != len(entries):
            raise DataError(
                f"metadata has {counted(len(objects), 'object')} for {counted(len(entries), 'passage')}; "
                "give one for each passage.",
                source,
            )
        try:
            texts = [json.dumps(each, ensure_ascii=False, allow_nan=False) for each in objects]
        except (TypeError, ValueError) as error:
            raise DataError(f"expected metadata that JSON can hold ({error}).", source) from None
        rows = [(p.id, p.title, p.text, text) for p, text in zip(entries, texts, strict=True)]
        seen: set[str] = set()
        for number, row in enumerate(rows):
            for name, value in zip(("id", "title", "text"), row, strict=False):
                if not isinstance(value, str):
                    raise DataError(
                        f"passage {number}: expected its {name} to be a string, got {value!r}; a passage is "
                        "Passage(id, text, title).",
                        source,
                    )
            if not row[0] or row[0] in seen:
                fault = f": the id {row[0]!r} is used already" if row[0] else " has an empty id"
                raise DataError(f"passage {number}{fault}; every passage needs a different id.", source)
            if row[0] == DONE_ID:
                raise DataError(_RESERVED, source)
            if not all(map(is_whole_text, row)):
                raise DataError(
                    f"passage {number} ({row[0]!r}) holds half a character (a lone surrogate), which no "
                    "UTF-8 text can hold; remove or repair it.",
                    source,
                )
            seen.add(row[0])
        return cls(table_of(rows), source)

    def __len__(self) -> int:
        return len(self.table)

    def __getstate__(self) -> dict[str, Any]:
        """Hashes do not travel: another process hashes otherwise. Nor does what it finds again."""
        stays = ("_hashed", "_links", "_ids")
        return {name: value for name, value in self.__dict__.items() if name not in stays}

    def __getitem__(self, number: int) -> Passage:
        row = fitted_argument("corpus[number]", "number", int, number)
        if -len(self) <= row < 0:
            row += len(self)
        return as_passages(self.table[self._rows(f"corpus[{number}]", [row])])[0]

    def __iter__(self) -> Iterator[Passage]:
        for batch in self.batches():
            yield from batch

    @checked
    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these numbers, in their order."""
        return as_passages(self.table[self._rows("Corpus.passages", numbers)])

    @checked
    def with_metadata(self, numbers: Sequence[int]) -> list[tuple[Passage, PassageMetadata]]:
        """The passages of these numbers, in their order, each with its metadata."""
        rows = self.table[self._rows("Corpus.with_metadata", numbers)]
        return list(zip(as_passages(rows), map(PassageMetadata, rows["metadata"]), strict=True))

    def batches(self, size: int = BATCH) -> Iterator[list[Passage]]:
        """All passages in order, ``size`` at a time."""
        return passage_batches(self.table, size)

    @cached_property
    def columns(self) -> MetadataColumns:
        """The metadata by field, for filters."""
        return MetadataColumns(self.table)

    def links(self, fields: Sequence[str] = ()) -> Links:
        """Which passages name which, by their titles and the texts of metadata fields."""
        from grls.data.links import Links

        if (key := tuple(fields)) not in self._links:
            self._links[key] = Links.of_corpus(self, key)
        return self._links[key]

    @cached_property
    def _links(self) -> dict[tuple[str, ...], Links]:
        return {}

    @cached_property
    def _ids(self) -> pa.ChunkedArray:
        return self.table.data.column("_id")

    @checked
    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of the passages of these numbers, in their order."""
        names: list[str] = self._ids.take(arrow_numbers(self._rows("Corpus.ids", numbers))).to_pylist()
        return names

    def _rows(self, call: str, numbers: Sequence[int]) -> list[int]:
        """The numbers of passages, given to a call, as rows of the table."""
        if len(numbers) and not 0 <= min(numbers) <= max(numbers) < len(self):
            wrong = [number for number in numbers if not 0 <= number < len(self)]
            raise ConfigError(
                f"{call}: there is no passage number {wrong[0]}; {self.source} has "
                f"{counted(len(self), 'passage')}, numbered from 0."
            )
        return list(numbers)

    def numbers(self, ids: Sequence[str]) -> list[int | None]:
        """The numbers of these ids; None for an id that is not in the corpus.

        The first call hashes all ids; the hashes stay in memory, 16 bytes a passage.
        """
        if not isinstance(ids, list) or not set(map(type, ids)) <= {str}:  # half a character finds nothing
            ids = fitted_argument("Corpus.numbers", "ids", Sequence[str], ids)
        if not len(ids) or not len(self):
            return [None] * len(ids)
        hashes, order = self._hashed
        hashed = np.fromiter(map(hash, ids), np.int64, len(ids))
        first = np.searchsorted(hashes, hashed)
        nearest = order[np.minimum(first, len(order) - 1)].tolist()
        numbers: list[int | None] = list(nearest)
        for n, (name, candidate) in enumerate(zip(ids, self.ids(nearest), strict=True)):
            if name != candidate:  # another id with this hash, or none
                start, end = int(first[n]), int(np.searchsorted(hashes, hashed[n], side="right"))
                same = [number for number in order[start:end].tolist() if self.ids([number])[0] == name]
                numbers[n] = same[0] if same else None
        return numbers

    @cached_property
    def _hashed(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Hashes of all ids, ascending, and the passage number of each hash."""
        names = (name for chunk in self._ids.chunks for name in chunk.to_pylist())  # a chunk in memory
        hashes = np.fromiter(map(hash, names), np.int64, len(self))
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all ids, titles and texts in order."""
        return self._facts.get("texts") or texts_fingerprint(self.table)

    @cached_property
    def metadata_fingerprint(self) -> str:
        """SHA-256 of the metadata of all passages in order; filters depend on them."""
        return self._facts.get("metadata") or metadata_fingerprint(self.table)

    def metadata(self) -> Iterator[dict[str, Any]]:
        """That of all passages, in order."""
        for texts in metadata_texts(self.table):
            yield from map(json.loads, texts)

    @checked
    def metadata_of(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """That of the passages of these numbers, in their order."""
        return [
            json.loads(text) for text in self.table[self._rows("Corpus.metadata_of", numbers)]["metadata"]
        ]

    @checked
    def extended(self, passages: Corpus) -> Corpus:
        """This corpus, followed by the passages of another one; no id may be in both (DataError)."""
        ids: list[str] = passages._ids.to_pylist()
        taken = [name for name, number in zip(ids, self.numbers(ids), strict=True) if number is not None]
        taken += [name for name, times in Counter(ids).items() if times > 1]
        if taken:
            raise DataError(
                f"the passage id {taken[0]!r} is used already; every passage needs a different id. To "
                "replace a passage, remove it in the same call.",
                passages.source,
            )
        return Corpus(PassageTable(*self.table.parts, *passages.table.parts), self.source)

    @checked
    def select(self, numbers: Sequence[int]) -> Corpus:
        """The passages with these numbers, in memory."""
        rows = arrow_numbers(self._rows("Corpus.select", numbers))
        return Corpus(PassageTable(self.table.data.take(rows)), self.source)

    @checked
    def write(self, path: str | Path) -> None:
        """Write ``corpus.jsonl``, atomically."""
        with atomic_file(path) as stream:
            for record in self.records():
                write_line(stream, record)

    def records(self) -> Iterator[dict[str, Any]]:
        """The objects of ``corpus.jsonl`` in order, with metadata."""
        for start in range(0, len(self), BATCH):
            rows = self.table[start : start + BATCH]
            for name, title, text, metadata in zip(*(rows[key] for key in COLUMNS), strict=True):
                yield {"_id": name, "title": title, "text": text, "metadata": json.loads(metadata)}


def corpus_file(path: str | Path) -> Path:
    return Path(path) / "corpus.jsonl" if Path(path).is_dir() else Path(path)
